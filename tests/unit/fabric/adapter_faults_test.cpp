#include <deque>

#include "adapter_requests.h"
#include "relayed_endpoints.h"

namespace splitnic::fabric::test::adapter_faults_test {

TEST_CASE("an acknowledged channel delivers everything once and in order though cells are lost and doubled",
          "[fabric][adapter][sim]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{9}));
  INFO("seed " << seed);
  QueuePairAttributes options;
  options.receive_depth = 8;
  RelayedEndpoints two(seed, options);
  SeededRandom random(seed);
  std::deque<std::vector<std::byte>> expected;
  std::uint64_t posted = 0;
  std::uint64_t completed = 0;
  std::uint64_t arrived = 0;
  std::uint64_t receives = 0;
  constexpr std::uint64_t kMessages = 200;
  constexpr std::size_t kSlot = 4096;
  for (int i = 0; i < 400'000 && (arrived < kMessages || completed < kMessages); ++i) {
    // The buffer holds 64 slots; a message keeps its own until it is complete.
    if (posted < kMessages && posted - completed < 16) {
      const auto data = pattern(static_cast<std::size_t>(random.below(kSlot)), seed << 16U | posted);
      two.first.fill(posted % 64 * kSlot, data);
      REQUIRE(two.first.send(posted, posted % 64 * kSlot, data.size()) == Status::ok);
      expected.push_back(data);
      ++posted;
    }
    // Receives come late, so that receiver-not-ready is answered too.
    if (receives - arrived < 8 && random.below(20) == 0) {
      REQUIRE(two.second.receive(receives, receives % 64 * kSlot, kSlot) == Status::ok);
      ++receives;
    }
    two.step();
    for (const Completion& done : two.second.take()) {
      REQUIRE(done.status == CompletionStatus::success);
      REQUIRE(done.id == arrived);
      REQUIRE(done.bytes == expected.front().size());
      REQUIRE(two.second.holds(arrived % 64 * kSlot, expected.front()));
      expected.pop_front();
      ++arrived;
    }
    for (const Completion& done : two.first.take()) {
      REQUIRE(done.status == CompletionStatus::success);
      REQUIRE(done.id == completed++);
      REQUIRE(completed <= arrived);  // never before it is there
    }
  }
  CHECK(arrived == kMessages);
  CHECK(completed == kMessages);
  CHECK(two.first.adapter.counters().retransmissions > 0);
}

TEST_CASE("an unacknowledged channel loses what is lost, and delivers the rest whole and in order",
          "[fabric][adapter][sim]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{9}));
  INFO("seed " << seed);
  QueuePairAttributes options;
  options.acknowledged = false;
  RelayedEndpoints two(seed, options);
  SeededRandom random(seed);
  std::uint64_t arrived = 0;
  std::uint64_t last = 0;
  for (std::uint64_t message = 1; message <= 300; ++message) {
    static_cast<void>(two.second.receive(0, 0, 4096));
    auto data = pattern(8 + static_cast<std::size_t>(random.below(2000)), message);
    std::memcpy(data.data(), &message, sizeof message);
    two.first.fill(0, data);
    REQUIRE(two.first.send(message, 0, data.size()) == Status::ok);
    for (int i = 0; i < 3; ++i) two.step();
    CHECK(two.first.take().size() == 1);
    for (const Completion& done : two.second.take()) {
      REQUIRE(done.status == CompletionStatus::success);
      std::uint64_t which = 0;
      std::memcpy(&which, two.second.buffer.data(), sizeof which);
      REQUIRE(which > last);
      REQUIRE(which == message);
      REQUIRE(done.bytes == data.size());
      REQUIRE(two.second.holds(0, data));
      last = which;
      ++arrived;
    }
  }
  CHECK(arrived > 100);
  CHECK(arrived < 300);
}

TEST_CASE("a message longer than its lane's rings ends when its peer has given no room for long", "[fabric][adapter]") {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = milliseconds(1);
  options.retry_count = 3;
  QueuePairAttributes queue_pair;
  queue_pair.acknowledged = GENERATE(true, false);
  TwoEndpoints two(options, queue_pair);
  REQUIRE(two.end(1).receive(1, 0, Endpoint::kBufferBytes) == Status::ok);
  REQUIRE(two.end(0).send(1, 0, Endpoint::kBufferBytes) == Status::ok);
  const auto poll_sender_for = [&](Duration time) {
    for (const Time until = two.pair.now() + time; two.pair.now() < until;) {
      two.pair.advance(microseconds(50));
      two.end(0).adapter.poll(two.pair.now());
    }
  };
  poll_sender_for(milliseconds(3));
  REQUIRE(two.pair.link(0).wants_room(VirtualLane::data));
  CHECK(two.end(0).adapter.next_deadline() <= two.pair.now() + milliseconds(2));
  // The peer gives room, and the time begins anew.
  for (int i = 0; i < 4; ++i) two.end(1).adapter.poll(two.pair.now());
  poll_sender_for(microseconds(3900));
  REQUIRE(two.pair.link(0).wants_room(VirtualLane::data));
  CHECK(two.end(0).take().empty());
  poll_sender_for(milliseconds(1));
  const auto ended = two.end(0).take();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].status == CompletionStatus::retry_exceeded);
  CHECK(two.end(0).adapter.in_error(two.end(0).number));
}

TEST_CASE("an epoch that goes by ends what was in flight as unknown and flushes the rest", "[fabric][adapter]") {
  TwoEndpoints two;
  two.end(0).fill(0, pattern(60'000, 1));
  REQUIRE(two.end(0).receive(100, 0, 64) == Status::ok);
  for (std::uint64_t i = 0; i < 8; ++i) REQUIRE(two.end(0).send(i, 0, 60'000) == Status::ok);
  const RemoteAddress old = two.end(1).remote();
  two.end(0).adapter.poll(two.pair.now());
  const Stag old_tag = two.end(0).tag;
  two.pair.link(1).restart();
  two.pair.come_up();
  two.step();

  const auto ends = two.end(0).take();
  REQUIRE(ends.size() == 9);
  CHECK(ends[0].status == CompletionStatus::outcome_unknown);
  CHECK(ends[7].status == CompletionStatus::flushed);
  CHECK(ends[8].receive);
  CHECK(ends[8].status == CompletionStatus::flushed);
  CHECK(two.end(0).adapter.in_error(two.end(0).number));
  CHECK(two.end(1).adapter.in_error(two.end(1).number));
  CHECK(two.end(0).adapter.deregister(old_tag) == Status::ok);  // the process's memory outlives the peer
  CHECK_FALSE(two.end(0).adapter.claim_direct(two.end(0).number, old, 1).has_value());
  CHECK(two.end(0).send(9, 0, 10) == Status::bad_state);
  CHECK(two.end(0).adapter.counters().retransmissions == 0);

  // Rebuilt on the same adapters, everything works again.
  for (std::size_t i = 0; i < 2; ++i) {
    Endpoint& end = two.end(i);
    REQUIRE(end.adapter.destroy_queue_pair(end.number) == Status::ok);
    end.tag = end.adapter.register_memory(end.domain, end.buffer, kAllRights).value();
    end.number = end.make_queue_pair({});
  }
  two.connect();
  REQUIRE(two.end(1).receive(5, 0, 64) == Status::ok);
  REQUIRE(two.end(0).send(6, 0, 64) == Status::ok);
  REQUIRE(two.settle());
  CHECK(two.end(1).take().size() == 1);
  CHECK(two.end(0).take().size() == 1);
}

TEST_CASE("an epoch is noticed by the next verb, even without a poll between", "[fabric][adapter]") {
  TwoEndpoints two;
  two.pair.link(1).restart();
  two.pair.come_up();
  CHECK(two.end(0).send(1, 0, 10) == Status::bad_state);
  CHECK(two.end(0).adapter.in_error(two.end(0).number));
}

TEST_CASE("while the link is down nothing is posted and what was in flight is unknown", "[fabric][adapter]") {
  TwoEndpoints two;
  REQUIRE(two.end(0).send(1, 0, 10) == Status::ok);
  two.pair.bridges().cut();
  two.step();
  const auto ends = two.end(0).take();
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].status == CompletionStatus::outcome_unknown);
  CHECK(two.end(0).send(1, 0, 10) == Status::link_down);
  CHECK(two.end(0).adapter.poll(two.pair.now()) == 0);
}

TEST_CASE("random cells with good CRCs never crash an adapter and never write outside its region",
          "[fabric][adapter][hostile]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{9}));
  INFO("seed " << seed);
  QueuePairAttributes options;
  options.acknowledged = seed % 2 == 0;
  ScriptedPeer peer(test::small_cells(), options);
  SeededRandom random(seed);
  constexpr std::array<std::uint8_t, 22> kOpcodes{0,  1,  2,  4,  6,  7,  8,  9,  10, 11, 12,
                                                  13, 14, 15, 16, 17, 18, 19, 20, 22, 23, 24};
  // A region in the middle of memory whose ends are watched.
  std::vector<std::byte> guarded(4096, std::byte{0x5a});
  const auto inner = std::span(guarded).subspan(1024, 2048);
  std::uint32_t psn = kPacketCrcStart + ScriptedPeer::kPsn;
  Stag tag = peer.host.adapter.register_memory(peer.host.domain, inner, kEverything).value();
  for (int round = 0; round < 20'000; ++round) {
    if (peer.host.adapter.in_error(peer.host.number)) {
      REQUIRE(peer.host.adapter.destroy_queue_pair(peer.host.number) == Status::ok);
      static_cast<void>(peer.host.take());
      peer.host.number = peer.host.make_queue_pair(options);
      psn = random.next32();
      REQUIRE(peer.host.adapter.connect(peer.host.number, {ScriptedPeer::kNumber, 1, psn}) == Status::ok);
    }
    if (random.below(3) == 0) {
      const LocalSegment segment{inner.data(), static_cast<std::uint32_t>(random.below(2049)), tag};
      static_cast<void>(peer.host.adapter.post_receive(peer.host.number, {1, segment}));
      static_cast<void>(peer.host.send(2, 0, static_cast<std::size_t>(random.below(1000))));
      WorkRequest read = read_request(peer.host, 3, 0, 0, {1, Stag{2}});
      read.segments[0] = segment;
      static_cast<void>(post(peer.host, read));
    }
    const auto opcode = static_cast<Opcode>(kOpcodes[static_cast<std::size_t>(random.below(kOpcodes.size()))]);
    Cell cell = peer.cell(opcode, psn + static_cast<std::uint32_t>(random.below(3)) - 1);
    const OpcodeTraits& what = traits(opcode);
    cell.cell_sequence = what.first ? 0 : static_cast<std::uint16_t>(1 + random.below(3));
    cell.direct = what.may_be_direct() && random.below(4) == 0;
    const bool carries = what.carries_message() && !cell.direct;
    std::size_t bytes = carries ? static_cast<std::size_t>(random.below(600)) : 0;
    const bool answers = what.is(MessageKind::acknowledgement) || what.is(MessageKind::read_response) ||
                         what.is(MessageKind::atomic_response) || what.is(MessageKind::terminate);
    if (what.is(MessageKind::terminate)) bytes = static_cast<std::size_t>(random.below(kMaxCellHeadBytes + 1));
    if (answers) {
      cell.packet_sequence = 1 + static_cast<std::uint32_t>(random.below(4));
      cell.syndrome = static_cast<Syndrome>(random.below(kSyndromes));
      cell.delay_microseconds = random.next32();
    }
    cell.tag = random.below(8) == 0 ? Stag{random.next32()} : tag;
    cell.address = peer.host.adapter.region_address(tag) + random.below(2400) - 100;
    cell.message_bytes = static_cast<std::uint32_t>(bytes + random.below(what.last ? 2 : 600));
    if (what.is(MessageKind::atomic)) cell.message_bytes = kAtomicBytes;
    cell.invalidate = cell.sink_tag = cell.tag;
    cell.message_sequence = 1 + static_cast<std::uint32_t>(random.below(3));
    cell.immediate = random.next32();
    peer.put(cell, pattern(bytes, random.next()));
    peer.poll(microseconds(random.below(1000)));
    static_cast<void>(peer.take());
    static_cast<void>(peer.host.take());
    if (static_cast<std::int32_t>(cell.packet_sequence - psn) == 0 && what.last) ++psn;
  }
  const auto untouched = [&guarded](std::size_t from, std::size_t to) {
    return std::all_of(guarded.begin() + static_cast<std::ptrdiff_t>(from),
                       guarded.begin() + static_cast<std::ptrdiff_t>(to),
                       [](std::byte byte) { return byte == std::byte{0x5a}; });
  };
  CHECK(untouched(0, 1024));
  CHECK(untouched(3072, 4096));
  CHECK(peer.host.adapter.counters().cells_received >= 20'000);
}

#ifdef SPLITNIC_AUDIT_LOADS
TEST_CASE("no byte that the peer wrote is loaded twice for one cell", "[fabric][adapter][hostile]") {
  TwoEndpoints two;
  LoadAudit audit;
  for (const std::size_t end : {0U, 1U}) audit.watch(two.pair.bridges().end(end).local_memory());
  for (std::uint64_t i = 0; i < 50; ++i) {
    REQUIRE(two.end(1).receive(i, 0, 2000) == Status::ok);
    REQUIRE(two.end(0).send(i, 0, i * 37) == Status::ok);
    REQUIRE(two.end(0).write(i, 0, i * 37, two.end(1).remote(4096)) == Status::ok);
    REQUIRE(two.settle());
    static_cast<void>(two.end(0).take());
    static_cast<void>(two.end(1).take());
  }
  CHECK(audit.double_loads() == 0);
  CHECK(audit.bytes_loaded() > 0);
}
#endif

}  // namespace splitnic::fabric::test::adapter_faults_test
