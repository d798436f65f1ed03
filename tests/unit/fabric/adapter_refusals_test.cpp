#include <sys/mman.h>

#include "adapter_requests.h"
#include "mapped_memory.h"

/// Every way in which a request is refused for good: how it ends, what the peer is told, and that nothing is placed
/// beyond the fault. And memory that has gone missing: an error, never a fault.
namespace splitnic::fabric::test::adapter_refusals_test {
namespace {

using Names = std::vector<std::string>;

constexpr std::uint32_t kPsn = ScriptedPeer::kPsn;
constexpr std::size_t kBytes = 64;
constexpr Rights kRemote = kAllRights | Right::remote_read | Right::remote_atomic;

/// What a request does with the owner's memory.
enum class Use { write, read, atomic };
constexpr std::array kUses{Use::write, Use::read, Use::atomic};

WorkRequest request_of(Use use, Endpoint& end, RemoteAddress at) {
  switch (use) {
    case Use::write:
      return write_request(1, end.segment(0, 8), at);
    case Use::read:
      return read_request(end, 1, 0, 8, at);
    case Use::atomic:
      return add_request(end, 1, 0, 1, at);
  }
  return {};
}

/// Two ends, the second with memory of its own for the first to reach.
struct Scene {
  TwoEndpoints two;
  Endpoint& asker = two.end(0);
  Endpoint& owner = two.end(1);
  alignas(64) std::array<std::byte, kBytes> memory{};

  Stag region(const EntryOptions& options) {
    return owner.adapter.table().register_region(owner.domain, RegionMemory::of_process(memory), options).value();
  }
  Stag region(Rights rights = kRemote) {
    EntryOptions options;
    options.rights = rights;
    options.base = 0x1000;
    return region(options);
  }
  ProtectionTable& table() { return owner.adapter.table(); }
};

/// A refusal: how a tag and an address come to be refused, and with which codes.
struct Refusal {
  const char* name;
  RemoteAddress (*prepare)(Scene& scene);
  TerminateReason of_write;
  TerminateReason of_the_others;
  CompletionStatus status = CompletionStatus::remote_access_error;
};

const std::array kRefusals{
    Refusal{"invalid_stag",
            [](Scene& scene) {
              const Stag tag = scene.region();
              REQUIRE(scene.owner.adapter.deregister(tag) == Status::ok);
              return RemoteAddress{0x1000, tag};
            },
            {1, 1, 0},
            {0, 1, 0}},
    Refusal{"wrong_kind",
            [](Scene& scene) {
              scene.table().set_rules(scene.owner.domain, DomainRules::strict);
              return RemoteAddress{0x1000, scene.region()};
            },
            {1, 1, 0},
            {0, 1, 0}},
    Refusal{"stag_not_associated",
            [](Scene& scene) {
              const ProtectionDomain other = scene.owner.adapter.allocate_domain();
              const Stag tag = scene.owner.adapter.register_memory(other, scene.memory, kRemote).value();
              return RemoteAddress{scene.owner.adapter.region_address(tag), tag};
            },
            {1, 1, 2},
            {0, 1, 3}},
    Refusal{"stale_stag",
            [](Scene& scene) {
              const Stag tag = scene.region();
              REQUIRE(scene.table().reregister(tag, {}).has_value());
              return RemoteAddress{0x1000, tag};
            },
            {1, 1, 0},
            {0, 1, 0}},
    Refusal{"wrong_queue_pair",
            [](Scene& scene) {
              EntryOptions options;
              options.rights = kRemote;
              options.base = 0x1000;
              options.queue_pair = QpNumber{12};
              return RemoteAddress{0x1000, scene.region(options)};
            },
            {1, 1, 2},
            {0, 1, 3}},
    Refusal{"to_wrap",
            [](Scene& scene) {
              return RemoteAddress{~std::uint64_t{0} - 3, scene.region()};
            },
            {1, 1, 3},
            {0, 1, 4}},
    Refusal{"base_or_bounds_violation, below",
            [](Scene& scene) {
              return RemoteAddress{0x1000 - 8, scene.region()};
            },
            {1, 1, 1},
            {0, 1, 1}},
    Refusal{"base_or_bounds_violation, beyond",
            [](Scene& scene) {
              return RemoteAddress{0x1000 + kBytes, scene.region()};
            },
            {1, 1, 1},
            {0, 1, 1}},
    Refusal{"access_rights_violation",
            [](Scene& scene) {
              return RemoteAddress{0x1000, scene.region(kLocalRights)};
            },
            {0, 1, 2},
            {0, 1, 2}},
};

/// The stream has ended at both ends with this, told once.
void check_ended(Scene& scene, CompletionStatus status, TerminateReason reason) {
  const auto ends = scene.asker.take();
  REQUIRE(ends.size() == 2);
  CHECK(to_string(ends[0].status) == std::string(to_string(status)));
  CHECK(ends[1].status == CompletionStatus::flushed);
  CHECK(scene.owner.adapter.counters().terminates_sent == 1);
  CHECK(scene.asker.adapter.counters().terminates_sent == 0);
  const auto told = take_events(scene.asker);
  REQUIRE(told.size() == 1);
  CHECK(told[0].kind == AsyncEventKind::queue_pair_fatal);
  CHECK(told[0].from_peer);
  CHECK(told[0].reason == reason);
  const auto own = take_events(scene.owner);
  REQUIRE_FALSE(own.empty());
  CHECK(own.back().kind == AsyncEventKind::queue_pair_fatal);
  CHECK_FALSE(own.back().from_peer);
  CHECK(own.back().reason == reason);
}

}  // namespace

TEST_CASE("each refusal of the table has its completion status, and its code in the terminate message",
          "[fabric][adapter][refusal]") {
  for (const Refusal& row : kRefusals) {
    for (const Use use : kUses) {
      INFO(row.name << ", use " << static_cast<int>(use));
      Scene scene;
      const RemoteAddress at = row.prepare(scene);
      const auto before = scene.memory;
      REQUIRE(scene.owner.receive(9, 0, 64) == Status::ok);
      REQUIRE(post(scene.asker, request_of(use, scene.asker, at)) == Status::ok);
      REQUIRE(scene.asker.send(2, 0, 8) == Status::ok);
      scene.two.run(milliseconds(1));
      check_ended(scene, row.status, use == Use::write ? row.of_write : row.of_the_others);
      CHECK(how(scene.owner.take()) == Names{"flushed"});
      CHECK(scene.memory == before);
      CHECK(scene.owner.adapter.counters().access_refused == 1);
    }
  }
}

TEST_CASE("a misaligned atomic, and an invalidation that is not open, have codes of their own",
          "[fabric][adapter][refusal]") {
  Scene scene;
  REQUIRE(scene.owner.receive(9, 0, 64) == Status::ok);
  WorkRequest request = send_request(1, scene.asker.segment(0, 8));
  request.operation = Operation::send_with_invalidate;
  TerminateReason reason{0, 1, 0};
  CompletionStatus status = CompletionStatus::remote_access_error;
  SECTION("misaligned") {
    request = add_request(scene.asker, 1, 0, 1, {0x1004, scene.region()});
    reason.code = 0xff;
    status = CompletionStatus::remote_invalid_request_error;
  }
  SECTION("invalid_stag") { request.invalidate = Stag{12345}; }
  SECTION("stale_stag") {
    request.invalidate = scene.region();
    REQUIRE(scene.table().reregister(request.invalidate, {}).has_value());
  }
  SECTION("stag_not_associated") {
    request.invalidate =
        scene.owner.adapter.register_memory(scene.owner.adapter.allocate_domain(), scene.memory, kRemote).value();
    reason.code = 3;
  }
  SECTION("wrong_queue_pair") {
    EntryOptions options;
    options.rights = kRemote;
    options.invalidatable = true;
    options.queue_pair = QpNumber{12};
    request.invalidate = scene.region(options);
    reason.code = 3;
  }
  SECTION("cannot_invalidate") {
    request.invalidate = scene.region();
    reason.code = 9;
  }
  SECTION("windows_bound") {
    EntryOptions options;
    options.rights = kEverything;
    options.invalidatable = true;
    request.invalidate = scene.region(options);
    std::array<Stag, 1> windows{};
    REQUIRE(scene.table().allocate_windows(scene.owner.domain, EntryKind::window_type_1, windows));
    Bind bind;
    bind.window = windows[0];
    bind.region = request.invalidate;
    bind.address = scene.owner.adapter.region_address(request.invalidate);
    bind.length = 8;
    bind.rights = Rights{} | Right::remote_read;
    REQUIRE(scene.table().bind(bind, {scene.owner.domain, scene.owner.number}));
    reason.code = 9;
  }
  SECTION("a window of type 1 is not invalidated") {
    std::array<Stag, 1> windows{};
    REQUIRE(scene.table().allocate_windows(scene.owner.domain, EntryKind::window_type_1, windows));
    Bind bind;
    bind.window = windows[0];
    bind.region = scene.region(kEverything);
    bind.address = 0x1000;
    bind.length = 8;
    bind.rights = Rights{} | Right::remote_read;
    request.invalidate = scene.table().bind(bind, {scene.owner.domain, scene.owner.number}).value();
    reason.code = 9;
  }
  REQUIRE(post(scene.asker, request) == Status::ok);
  REQUIRE(scene.asker.send(2, 0, 8) == Status::ok);
  scene.two.run(milliseconds(1));
  check_ended(scene, status, reason);
}

TEST_CASE("what is wrong with a send has its codes too", "[fabric][adapter][refusal]") {
  Scene scene;
  TerminateReason reason{};
  std::string at_owner;
  CompletionStatus status = CompletionStatus::remote_operation_error;
  SECTION("longer than the receive") {
    status = CompletionStatus::remote_invalid_request_error;
    REQUIRE(scene.owner.receive(9, 0, 7) == Status::ok);
    reason = {1, 2, 5};
    at_owner = "local_length_error";
  }
  SECTION("into a receive that was deregistered") {
    REQUIRE(scene.owner.receive(9, 0, 8) == Status::ok);
    REQUIRE(scene.owner.adapter.deregister(scene.owner.tag) == Status::ok);
    at_owner = "local_protection_error";
  }
  REQUIRE(scene.asker.send(1, 0, 8) == Status::ok);
  REQUIRE(scene.asker.send(2, 0, 8) == Status::ok);
  scene.two.run(milliseconds(1));
  check_ended(scene, status, reason);
  CHECK(how(scene.owner.take()) == Names{at_owner});
}

TEST_CASE("the terminate message is sent once; a peer that goes on is told by acknowledgements",
          "[fabric][adapter][refusal]") {
  ScriptedPeer peer;
  const Cell refused = write_cell(peer, Opcode::write_only, kPsn, {0, Stag{12345}}, 8);
  peer.put(refused, pattern(8, 1));
  auto cells = peer.poll_and_take();
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].opcode == Opcode::terminate);
  CHECK(cells[0].packet_sequence == kPsn);
  // Its payload is the refused cell's head.
  REQUIRE(cells[0].payload.size() == cell_head_bytes(Opcode::write_only));
  std::uint32_t packet_crc = kPacketCrcStart;
  const auto data = pattern(8, 1);
  const std::array<std::span<const std::byte>, 1> pieces{data};
  CHECK(std::ranges::equal(cells[0].payload, CellEnvelope(refused, pieces, 8, packet_crc).head()));
  for (int round = 0; round < 3; ++round) {
    peer.put(refused, pattern(8, 1));
    cells = peer.poll_and_take();
    REQUIRE(cells.size() == 1);
    CHECK(cells[0].opcode == Opcode::acknowledge);
    CHECK(cells[0].syndrome == Syndrome::remote_access_error);
    CHECK(cells[0].packet_sequence == kPsn);
  }
  CHECK(peer.host.adapter.counters().terminates_sent == 1);
}

TEST_CASE("memory revoked before the first, middle or last segment takes nothing from there on",
          "[fabric][adapter][refusal]") {
  const std::size_t fault = GENERATE(0U, 1U, 2U);
  const bool send = GENERATE(false, true);
  ScriptedPeer peer;
  const Owned owned = open(peer.host, 300);
  peer.host.fill(0, std::vector<std::byte>(400));
  const auto data = pattern(300, 1);
  if (send) {
    REQUIRE(peer.host.adapter.post_receive(peer.host.number, {1, {peer.host.buffer.data(), 300, owned.at.tag}}) ==
            Status::ok);
  }
  const std::array opcodes = send ? std::array{Opcode::send_first, Opcode::send_middle, Opcode::send_last}
                                  : std::array{Opcode::write_first, Opcode::write_middle, Opcode::write_last};
  for (std::size_t i = 0; i < 3; ++i) {
    if (i == fault) REQUIRE(peer.host.adapter.deregister(owned.at.tag) == Status::ok);
    Cell cell = i == 0 && !send ? write_cell(peer, opcodes[i], kPsn, owned.at, 300) : peer.cell(opcodes[i], kPsn);
    cell.cell_sequence = static_cast<std::uint16_t>(i);
    peer.put(cell, std::span(data).subspan(i * 100, 100));
    peer.poll();
  }
  CHECK(peer.host.holds(0, std::span(data).first(fault * 100)));
  CHECK(peer.host.holds(fault * 100, std::vector<std::byte>(400 - fault * 100)));
  std::size_t terminates = 0;
  for (const Cell& cell : peer.take()) terminates += cell.opcode == Opcode::terminate ? 1 : 0;
  CHECK(terminates == 1);
  CHECK(how(peer.host.take()) == (send ? Names{"local_protection_error"} : Names{}));
  CHECK(peer.host.adapter.in_error(peer.host.number));
}

TEST_CASE("a sink revoked before the first, middle or last segment of an answer likewise, and the owner is told once",
          "[fabric][adapter][refusal]") {
  const std::size_t fault = GENERATE(0U, 1U, 2U);
  ScriptedPeer peer;
  peer.host.fill(0, std::vector<std::byte>(400));
  REQUIRE(peer.host.send(1, 1000, 8) == Status::ok);
  REQUIRE(post(peer.host, read_request(peer.host, 2, 0, 300, {5, Stag{6}})) == Status::ok);
  REQUIRE(peer.host.send(3, 1000, 8) == Status::ok);
  CHECK(peer.poll_and_take().size() == 3);
  const auto data = pattern(300, 1);
  const std::array opcodes{Opcode::read_response_first, Opcode::read_response_middle, Opcode::read_response_last};
  for (std::size_t i = 0; i < 3; ++i) {
    if (i == fault) REQUIRE(peer.host.adapter.deregister(peer.host.tag) == Status::ok);
    peer.put(peer.cell(opcodes[i], ScriptedPeer::kOwnPsn + 1, static_cast<std::uint16_t>(i)),
             std::span(data).subspan(i * 100, 100));
    peer.poll();
  }
  CHECK(peer.host.holds(0, std::span(data).first(fault * 100)));
  CHECK(peer.host.holds(fault * 100, std::vector<std::byte>(400 - fault * 100)));
  const auto cells = peer.take();
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].opcode == Opcode::terminate);
  CHECK(cells[0].reason == TerminateReason{1, 1, 0});
  CHECK(cells[0].payload.size() == sizeof(CellHeader));
  // The answer acknowledges what was before it.
  CHECK(how(peer.host.take()) == Names{"success", "local_protection_error", "flushed"});
}

TEST_CASE("memory that is gone ends the request that was to be sent from it, and is an event",
          "[fabric][adapter][gone]") {
  const bool direct = GENERATE(false, true);
  TwoEndpoints two;
  Endpoint& end = two.end(0);
  const MappedMemory mapped(3 * page_bytes());
  const Stag tag = end.adapter.register_memory(end.domain, {mapped.data(), mapped.size()}, kAllRights).value();
  RemoteAddress to = two.end(1).remote();
  if (direct) {
    const MemoryRange range{two.pair.link(1).buffers().offset, 16384};
    const Stag granted = two.end(1).adapter.register_bridge_memory(two.end(1).domain, range, kAllRights, true).value();
    to = {two.end(1).adapter.region_address(granted), granted};
    two.run(milliseconds(1));
  }
  mapped.protect(page_bytes(), page_bytes(), PROT_NONE);  // the middle
  const auto size = static_cast<std::uint32_t>(mapped.size());
  REQUIRE(post(end, write_request(1, {mapped.data(), size, tag}, to)) == Status::ok);
  const Status second = post(end, send_request(2, end.segment(0, 8)));
  CHECK(second == (direct ? Status::bad_state : Status::ok));
  two.run(milliseconds(1));
  const auto ends = end.take();
  REQUIRE_FALSE(ends.empty());
  CHECK(ends[0].status == CompletionStatus::local_protection_error);
  const auto events = take_events(end);
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == AsyncEventKind::memory_gone);
  CHECK(events[0].tag == tag);
  CHECK(events[0].queue_pair == end.number);
  CHECK(events[1].kind == AsyncEventKind::queue_pair_fatal);
  // The peer hears of it, once, instead of waiting for the rest.
  CHECK(end.adapter.counters().terminates_sent == 1);
  CHECK(take_events(two.end(1)).at(0).from_peer);
}

TEST_CASE("memory of the owner that is gone ends the peer's request, and is an event here", "[fabric][adapter][gone]") {
  for (const Use use : kUses) {
    INFO("use " << static_cast<int>(use));
    Scene scene;
    MappedMemory mapped(page_bytes());
    const Stag tag =
        scene.owner.adapter.register_memory(scene.owner.domain, {mapped.data(), mapped.size()}, kRemote).value();
    const RemoteAddress at{scene.owner.adapter.region_address(tag), tag};
    mapped.protect(PROT_NONE);
    REQUIRE(post(scene.asker, request_of(use, scene.asker, at)) == Status::ok);
    REQUIRE(scene.asker.send(2, 0, 8) == Status::ok);
    scene.two.run(milliseconds(1));
    const auto ends = scene.asker.take();
    CHECK(how(ends) == Names{"remote_operation_error", "flushed"});
    CHECK(scene.owner.adapter.counters().terminates_sent == 1);
    const auto told = take_events(scene.asker);
    REQUIRE(told.size() == 1);
    CHECK(told[0].reason == TerminateReason{0, 0, 0});
    const auto events = take_events(scene.owner);
    REQUIRE(events.size() == 2);
    CHECK(events[0].kind == AsyncEventKind::memory_gone);
    CHECK(events[0].tag == tag);
  }
}

TEST_CASE("a page that is gone in the first, middle or last segment of a write: what is before it is placed, no more",
          "[fabric][adapter][gone]") {
  const std::size_t fault = GENERATE(0U, 1U, 2U);
  AdapterOptions options = test::small_cells();
  options.cell_payload_bytes = static_cast<std::uint32_t>(page_bytes());
  TwoEndpoints two(options);
  Endpoint& owner = two.end(1);
  const bool as_receive = GENERATE(false, true);
  const MappedMemory mapped(3 * page_bytes());
  const Stag tag = owner.adapter.register_memory(owner.domain, {mapped.data(), mapped.size()}, kRemote).value();
  const auto data = pattern(mapped.size(), 1);
  two.end(0).fill(0, data);
  const LocalSegment whole{mapped.data(), static_cast<std::uint32_t>(mapped.size()), tag};
  if (as_receive) REQUIRE(owner.adapter.post_receive(owner.number, {1, whole}) == Status::ok);
  mapped.protect(fault * page_bytes(), page_bytes(), PROT_NONE);
  if (as_receive) {
    REQUIRE(two.end(0).send(1, 0, data.size()) == Status::ok);
  } else {
    REQUIRE(two.end(0).write(1, 0, data.size(), {owner.adapter.region_address(tag), tag}) == Status::ok);
  }
  two.run(milliseconds(2));
  CHECK(how(two.end(0).take()) == Names{"remote_operation_error"});
  CHECK(how(owner.take()) == (as_receive ? Names{"local_protection_error"} : Names{}));
  CHECK(owner.adapter.counters().terminates_sent == 1);
  CHECK(take_events(owner).at(0).kind == AsyncEventKind::memory_gone);
  mapped.protect(PROT_READ | PROT_WRITE);
  for (std::size_t page = 0; page < 3; ++page) {
    const auto there = std::span(mapped.at(page * page_bytes()), page_bytes());
    const bool placed = std::ranges::equal(there, std::span(data).subspan(page * page_bytes(), page_bytes()));
    const bool untouched = std::ranges::all_of(there, [](std::byte byte) { return byte == std::byte{}; });
    CHECK((page < fault ? placed : untouched));
  }
}

TEST_CASE("a page of a sink that is gone ends the read, and the owner is told once", "[fabric][adapter][gone]") {
  const std::size_t fault = GENERATE(0U, 1U, 2U);
  AdapterOptions options = test::small_cells();
  options.cell_payload_bytes = static_cast<std::uint32_t>(page_bytes());
  TwoEndpoints two(options);
  Endpoint& reader = two.end(0);
  const Owned owned = open(two.end(1));
  const MappedMemory mapped(3 * page_bytes());
  const Stag tag = reader.adapter.register_memory(reader.domain, {mapped.data(), mapped.size()}, kLocalRights).value();
  mapped.protect(fault * page_bytes(), page_bytes(), PROT_NONE);
  WorkRequest request = read_request(reader, 1, 0, 8, owned.at);
  request.segments[0] = {mapped.data(), static_cast<std::uint32_t>(mapped.size()), tag};
  REQUIRE(post(reader, request) == Status::ok);
  two.run(milliseconds(2));
  CHECK(how(reader.take()) == Names{"local_protection_error"});
  CHECK(reader.adapter.counters().terminates_sent == 1);
  const auto events = take_events(reader);
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == AsyncEventKind::memory_gone);
  CHECK(events[0].tag == tag);
  CHECK(two.end(1).adapter.in_error(two.end(1).number));
  CHECK(two.end(1).adapter.counters().terminates_sent == 0);
  mapped.protect(PROT_READ | PROT_WRITE);
  for (std::size_t at = fault * page_bytes(); at < mapped.size(); ++at) REQUIRE(mapped.data()[at] == std::byte{});
}

TEST_CASE("memory of the owner that goes in the middle of an answer ends the read there", "[fabric][adapter][gone]") {
  ScriptedPeer peer;
  MappedMemory mapped(2 * page_bytes());
  const Stag tag = peer.host.adapter.register_memory(peer.host.domain, {mapped.data(), mapped.size()}, kRemote).value();
  const RemoteAddress at{peer.host.adapter.region_address(tag), tag};
  mapped.protect(page_bytes(), page_bytes(), PROT_NONE);
  peer.put(read_cell(peer, kPsn, 1, at, static_cast<std::uint32_t>(mapped.size())));
  std::vector<Cell> cells;
  for (int i = 0; i < 5; ++i) {
    for (const Cell& cell : peer.poll_and_take()) cells.push_back(cell);
  }
  REQUIRE(cells.size() == page_bytes() / 256 + 1);
  CHECK(cells[0].opcode == Opcode::read_response_first);
  CHECK(cells.back().opcode == Opcode::terminate);
  CHECK(cells.back().reason == TerminateReason{0, 0, 0});
  CHECK(take_events(peer.host).at(0).kind == AsyncEventKind::memory_gone);
}

}  // namespace splitnic::fabric::test::adapter_refusals_test
