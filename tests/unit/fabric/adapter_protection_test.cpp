#include <array>

#include "adapter_requests.h"

/// Where the adapter's own state and the protection table's meet. Found by tests/sim/memory.
namespace splitnic::fabric::test::adapter_protection_test {
namespace {

/// Reads 8 bytes into the start of end 0's buffer; how it ended.
CompletionStatus read(TwoEndpoints& two, RemoteAddress from) {
  WorkRequest request;
  request.operation = Operation::rdma_read;
  request.segments[0] = two.end(0).segment(0, 8);
  request.segment_count = 1;
  request.remote = from;
  REQUIRE(two.end(0).adapter.post_send(two.end(0).number, request) == Status::ok);
  REQUIRE(two.settle());
  const auto completions = two.end(0).take();
  REQUIRE(completions.size() == 1);
  return completions[0].status;
}

}  // namespace

TEST_CASE("a placeable region of a strict domain is not granted: what its check refuses is not stored before",
          "[fabric][adapter]") {
  TwoEndpoints two;
  Endpoint& owner = two.end(1);
  owner.adapter.table().set_rules(owner.domain, DomainRules::strict);
  FabricLink& link = two.pair.link(1);
  const MemoryRange range{link.buffers().offset, 4096};
  const Stag tag = owner.adapter.register_bridge_memory(owner.domain, range, kAllRights, true).value();
  const PeerMemory memory = link.bridge().local_memory().slice(range.offset, range.bytes);
  memory.zero(0, range.bytes);
  two.run(milliseconds(1));

  const RemoteAddress to{owner.adapter.region_address(tag), tag};
  CHECK_FALSE(two.end(0).adapter.claim_direct(two.end(0).number, to, 64).has_value());
  two.end(0).fill(0, pattern(64, 1));
  REQUIRE(two.end(0).write(1, 0, 64, to) == Status::ok);
  REQUIRE(two.settle());
  const auto completions = two.end(0).take();
  REQUIRE(completions.size() == 1);
  CHECK(completions[0].status == CompletionStatus::remote_access_error);
  std::array<std::byte, 64> stored{};
  memory.copy_out(0, stored);
  CHECK(stored == std::array<std::byte, 64>{});
}

TEST_CASE("a grant of an epoch that is over lets nobody store, though this one's table has changed as often",
          "[fabric][adapter]") {
  TwoEndpoints two;
  Endpoint& owner = two.end(1);
  FabricLink& link = two.pair.link(0);
  const std::size_t start = two.pair.link(1).buffers().offset;
  const auto grant = [&](std::size_t number) {
    const auto made = owner.adapter.register_bridge_memory(owner.domain, {start + 64 * number, 64}, kAllRights, true);
    REQUIRE(made.has_value());
    two.run(milliseconds(1));
    return *made;
  };
  const auto changes = [&] {
    return link.bridge().local_memory().watch<std::uint64_t>(link.direct()->admissions.offset);
  };
  const Stag before = grant(0);
  const RemoteAddress old{owner.adapter.region_address(before), before};
  REQUIRE(two.end(0).adapter.claim_direct(two.end(0).number, old, 64).has_value());
  const std::uint64_t changes_before = changes();

  two.pair.link(1).restart();
  two.pair.come_up();
  two.run(milliseconds(1));
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(two.end(i).adapter.modify(two.end(i).number, QueuePairEvent::reset) == Status::ok);
  }
  two.connect();
  two.run(milliseconds(1));
  for (std::size_t number = 1; changes() < changes_before; ++number) static_cast<void>(grant(number));
  REQUIRE(changes() == changes_before);
  CHECK_FALSE(two.end(0).adapter.claim_direct(two.end(0).number, old, 64).has_value());
}

TEST_CASE("memory of the process that was called placeable leaves nothing of the bridge's in quarantine",
          "[fabric][adapter]") {
  TwoEndpoints two;
  Endpoint& owner = two.end(1);
  EntryOptions options;
  options.rights = kAllRights;
  options.placeable = true;
  const auto memory = RegionMemory::of_process(owner.buffer);
  const Stag tag = owner.adapter.table().register_region(owner.domain, memory, options).value();
  REQUIRE(owner.adapter.deregister(tag) == Status::ok);
  CHECK_FALSE(owner.adapter.in_quarantine({0, two.pair.link(1).bridge().local_memory().size()}));
}

TEST_CASE("a read that is forgotten does not end a one-shot window that was bound anew under the same tag",
          "[fabric][adapter]") {
  QueuePairAttributes options;
  options.reads_in = options.reads_out = 2;
  TwoEndpoints two(test::small_cells(), options);
  Endpoint& owner = two.end(1);
  ProtectionTable& table = owner.adapter.table();
  const Consumer consumer{owner.domain, owner.number};
  EntryOptions region_options;
  region_options.rights = kEverything;
  const Stag region =
      table.register_region(owner.domain, RegionMemory::of_process(owner.buffer), region_options).value();
  const RemoteAddress anywhere{owner.adapter.region_address(region), region};

  std::array<Stag, 1> window{};
  REQUIRE(table.allocate_windows(owner.domain, EntryKind::window_type_2, window));
  Bind bind;
  bind.window = window[0];
  bind.region = region;
  bind.address = anywhere.address;
  bind.length = 64;
  bind.rights = Rights{} | Right::remote_read;
  bind.touch = TouchControl::one_shot;
  bind.key = 7;
  const Stag first = table.bind(bind, consumer).value();
  REQUIRE(read(two, {bind.address, first}) == CompletionStatus::success);

  REQUIRE(table.invalidate_local(first, consumer));
  bind.window = first;
  const Stag second = table.bind(bind, consumer).value();
  REQUIRE(second == first);
  for (int i = 0; i < 3; ++i) REQUIRE(read(two, anywhere) == CompletionStatus::success);
  CHECK(read(two, {bind.address, second}) == CompletionStatus::success);
}

namespace {

/// A one-shot region of the host's buffer.
Stag open_once(ScriptedPeer& peer) {
  EntryOptions once;
  once.rights = kEverything;
  once.rights.bits &= 0x1f;  // not to be bound
  once.touch = TouchControl::one_shot;
  const auto memory = RegionMemory::of_process(peer.host.buffer);
  return peer.host.adapter.table().register_region(peer.host.domain, memory, once).value();
}
RemoteAddress at(ScriptedPeer& peer, Stag tag) { return {peer.host.adapter.region_address(tag), tag}; }
bool is_valid(ScriptedPeer& peer, Stag tag) { return peer.host.adapter.table().find(tag)->valid; }

Cell first_of_write(ScriptedPeer& peer, std::uint32_t psn, Stag tag) {
  Cell cell = peer.cell(Opcode::write_first, psn);
  cell.address = at(peer, tag).address;
  cell.tag = tag;
  cell.message_bytes = 128;
  return cell;
}

/// How a queue pair ends.
enum class Ending { refusal, error, reset, destruction, epoch };

void end(ScriptedPeer& peer, Ending how) {
  ChannelAdapter& adapter = peer.host.adapter;
  switch (how) {
    case Ending::refusal:
      peer.put(read_cell(peer, ScriptedPeer::kPsn + 1, 2, {0, Stag{1}}, 8));
      peer.poll();
      return;
    case Ending::error:
      REQUIRE(adapter.modify(peer.host.number, QueuePairEvent::fail) == Status::ok);
      return;
    case Ending::reset:
      REQUIRE(adapter.modify(peer.host.number, QueuePairEvent::reset) == Status::ok);
      return;
    case Ending::destruction:
      REQUIRE(adapter.destroy_queue_pair(peer.host.number) == Status::ok);
      return;
    case Ending::epoch:
      peer.pair.link(1).restart();
      peer.pair.come_up();
      peer.poll();
      return;
  }
}

}  // namespace

TEST_CASE("a one-shot entry that a read has taken ends with its queue pair", "[fabric][adapter]") {
  const Ending how = GENERATE(Ending::refusal, Ending::error, Ending::reset, Ending::destruction, Ending::epoch);
  ScriptedPeer peer;
  const Stag read = open_once(peer);
  const Stag untouched = open_once(peer);
  peer.put(read_cell(peer, ScriptedPeer::kPsn, 1, at(peer, read), 8));
  REQUIRE(peer.poll_and_take().at(0).opcode == Opcode::read_response_only);
  REQUIRE(is_valid(peer, read));
  end(peer, how);
  CHECK_FALSE(is_valid(peer, read));
  CHECK(is_valid(peer, untouched));
}

TEST_CASE("a one-shot entry that a read has taken is not read again by who connects with the same numbers",
          "[fabric][adapter]") {
  ScriptedPeer peer;
  const RemoteAddress once = at(peer, open_once(peer));
  peer.put(read_cell(peer, ScriptedPeer::kPsn, 1, once, 8));
  REQUIRE(peer.poll_and_take().at(0).opcode == Opcode::read_response_only);
  ChannelAdapter& adapter = peer.host.adapter;
  REQUIRE(adapter.modify(peer.host.number, QueuePairEvent::reset) == Status::ok);
  REQUIRE(adapter.connect(peer.host.number, {ScriptedPeer::kNumber, ScriptedPeer::kOwnPsn, ScriptedPeer::kPsn}) ==
          Status::ok);
  peer.put(read_cell(peer, ScriptedPeer::kPsn, 1, once, 8));
  CHECK(peer.poll_and_take().at(0).opcode == Opcode::terminate);
}

TEST_CASE("a one-shot entry that a part of a write has taken ends with its queue pair", "[fabric][adapter]") {
  const Ending how = GENERATE(Ending::error, Ending::reset, Ending::destruction, Ending::epoch);
  ScriptedPeer peer;
  const Stag tag = open_once(peer);
  peer.put(first_of_write(peer, ScriptedPeer::kPsn, tag), pattern(64, 1));
  peer.poll();
  REQUIRE(is_valid(peer, tag));
  REQUIRE(peer.host.adapter.table().find(tag)->touched);
  end(peer, how);
  CHECK_FALSE(is_valid(peer, tag));
}

TEST_CASE("a one-shot entry of which an unacknowledged write was lost ends with the next such write",
          "[fabric][adapter]") {
  ScriptedPeer peer(small_cells(), {.acknowledged = false});
  const Stag lost = open_once(peer);
  const Stag next = open_once(peer);
  peer.put(first_of_write(peer, ScriptedPeer::kPsn, lost), pattern(64, 1));
  peer.put(first_of_write(peer, ScriptedPeer::kPsn + 1, next), pattern(64, 1));
  peer.poll();
  CHECK_FALSE(is_valid(peer, lost));
  CHECK(is_valid(peer, next));
}

TEST_CASE("a one-shot entry that a part of an answer has taken ends with its queue pair", "[fabric][adapter]") {
  const Ending how = GENERATE(Ending::error, Ending::reset, Ending::destruction, Ending::epoch);
  ScriptedPeer peer;
  const Stag tag = open_once(peer);
  WorkRequest request = read_request(peer.host, 1, 0, 128, {0x1000, Stag{0x500}});
  request.segments[0].tag = tag;
  REQUIRE(post(peer.host, request) == Status::ok);
  REQUIRE(peer.poll_and_take().at(0).opcode == Opcode::read_request);
  peer.put(peer.cell(Opcode::read_response_first, ScriptedPeer::kOwnPsn), pattern(64, 1));
  peer.poll();
  REQUIRE(peer.host.adapter.table().find(tag)->touched);
  end(peer, how);
  CHECK_FALSE(is_valid(peer, tag));
}

}  // namespace splitnic::fabric::test::adapter_protection_test
