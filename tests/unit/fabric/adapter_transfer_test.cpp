#include "adapter_fixtures.h"

namespace splitnic::fabric::test::adapter_transfer_test {
namespace {

QueuePairAttributes channel(bool acknowledged) {
  QueuePairAttributes options;
  options.acknowledged = acknowledged;
  return options;
}

AdapterOptions cells_of(std::uint32_t bytes) {
  AdapterOptions options;
  options.cell_payload_bytes = bytes;
  return options;
}

/// A placeable region of end 1's bridge memory, and a way to look at it.
struct BridgeRegion {
  explicit BridgeRegion(TwoEndpoints& two, bool placeable, std::size_t bytes = 128U << 10U) {
    FabricLink& link = two.pair.link(1);
    range = MemoryRange{link.buffers().offset, bytes};
    tag = two.end(1).adapter.register_bridge_memory(two.end(1).domain, range, kAllRights, placeable).value();
    memory = link.bridge().local_memory().slice(range.offset, range.bytes);
    two.run(milliseconds(1));
    address = RemoteAddress{two.end(1).adapter.region_address(tag), tag};
  }
  [[nodiscard]] bool holds(std::size_t offset, std::span<const std::byte> expected) const {
    std::vector<std::byte> copy(expected.size());
    memory.copy_out(offset, copy);
    return std::equal(copy.begin(), copy.end(), expected.begin());
  }
  MemoryRange range;
  Stag tag;
  PeerMemory memory;
  RemoteAddress address;
};

}  // namespace

TEST_CASE("a send arrives in the posted receive, whole, at every size around a cell's payload", "[fabric][adapter]") {
  const bool acknowledged = GENERATE(true, false);
  const std::size_t bytes = GENERATE(0U, 1U, 255U, 256U, 257U, 511U, 512U, 513U, 1500U, 65536U);
  TwoEndpoints two(test::small_cells(), channel(acknowledged));
  const auto sent = pattern(bytes, bytes + 1);
  two.end(0).fill(0, sent);
  REQUIRE(two.end(1).receive(7, 1000, bytes + 10) == Status::ok);
  REQUIRE(two.end(0).send(3, 0, bytes) == Status::ok);
  REQUIRE(two.settle());
  two.run(microseconds(500));

  const auto receives = two.end(1).take();
  REQUIRE(receives.size() == 1);
  CHECK(receives[0].id == 7);
  CHECK(receives[0].receive);
  CHECK(receives[0].status == CompletionStatus::success);
  CHECK(receives[0].bytes == bytes);
  CHECK(two.end(1).holds(1000, sent));
  const auto sends = two.end(0).take();
  REQUIRE(sends.size() == 1);
  CHECK(sends[0].id == 3);
  CHECK(sends[0].status == CompletionStatus::success);
}

TEST_CASE("a write with immediate is stored through the window and closed by one cell", "[fabric][adapter]") {
  TwoEndpoints two;
  BridgeRegion region(two, true);
  const auto data = pattern(4000, 3);
  two.end(0).fill(0, data);
  REQUIRE(two.end(1).adapter.post_receive(two.end(1).number, ReceiveRequest{9, {}}) == Status::ok);
  const auto cells_before = two.end(0).adapter.counters().cells_sent;
  RemoteAddress to = region.address;
  to.address += 128;
  REQUIRE(two.end(0).write(4, 0, data.size(), to, 0xabcd) == Status::ok);
  REQUIRE(two.settle());
  CHECK(two.end(0).adapter.counters().cells_sent == cells_before + 1);
  CHECK(two.end(0).adapter.counters().direct_writes == 1);
  const auto receives = two.end(1).take();
  REQUIRE(receives.size() == 1);
  CHECK(receives[0].has_immediate);
  CHECK(receives[0].immediate == 0xabcd);
  CHECK(receives[0].bytes == data.size());
  CHECK(receives[0].id == 9);
  CHECK(region.holds(128, data));
  CHECK(two.end(0).take().size() == 1);
}

TEST_CASE("bytes that the caller stored itself need only their closing cell", "[fabric][adapter]") {
  TwoEndpoints two;
  BridgeRegion region(two, true);
  const auto data = pattern(1500, 5);
  const auto at = two.end(0).adapter.claim_direct(two.end(0).number, region.address, 1500);
  REQUIRE(at.has_value());
  CHECK(*at == region.range.offset);
  two.pair.link(0).bridge().peer_window().write(*at, data);
  REQUIRE(two.end(1).adapter.post_receive(two.end(1).number, ReceiveRequest{1, {}}) == Status::ok);
  WorkRequest request;
  request.operation = Operation::rdma_write_with_immediate;
  request.remote = region.address;
  request.placed_bytes = 1500;
  request.immediate = 77;
  REQUIRE(two.end(0).adapter.post_send(two.end(0).number, request) == Status::ok);
  REQUIRE(two.settle());
  const auto receives = two.end(1).take();
  REQUIRE(receives.size() == 1);
  CHECK(receives[0].bytes == 1500);
  CHECK(receives[0].immediate == 77);
  CHECK(region.holds(0, data));
}

TEST_CASE("a write to memory that is not granted for direct stores goes segmented", "[fabric][adapter]") {
  const bool process_memory = GENERATE(true, false);
  TwoEndpoints two;
  BridgeRegion region(two, false);
  const auto data = pattern(1000, 6);
  two.end(0).fill(0, data);
  const RemoteAddress to = process_memory ? two.end(1).remote(512) : region.address;
  CHECK_FALSE(two.end(0).adapter.claim_direct(two.end(0).number, to, 1000).has_value());
  REQUIRE(two.end(0).write(1, 0, data.size(), to) == Status::ok);
  REQUIRE(two.settle());
  CHECK(two.end(0).adapter.counters().segmented_writes == 1);
  CHECK(two.end(0).adapter.counters().cells_sent == 4);
  const auto sends = two.end(0).take();
  REQUIRE(sends.size() == 1);
  CHECK(sends[0].status == CompletionStatus::success);
  CHECK(two.end(1).take().empty());
  CHECK((process_memory ? two.end(1).holds(512, data) : region.holds(0, data)));
}

TEST_CASE("a message is gathered from its segments across cell borders", "[fabric][adapter]") {
  TwoEndpoints two(test::small_cells(), {});
  const auto data = pattern(2000, 8);
  two.end(0).fill(0, data);
  WorkRequest request;
  request.segments = {two.end(0).segment(0, 100), two.end(0).segment(100, 0), two.end(0).segment(100, 1000),
                      two.end(0).segment(1100, 900)};
  request.segment_count = 4;
  REQUIRE(two.end(1).receive(0, 0, 2000) == Status::ok);
  REQUIRE(two.end(0).adapter.post_send(two.end(0).number, request) == Status::ok);
  REQUIRE(two.settle());
  const auto receives = two.end(1).take();
  REQUIRE(receives.size() == 1);
  CHECK(receives[0].bytes == 2000);
  CHECK(two.end(1).holds(0, data));
}

TEST_CASE("an unsignalled request completes silently and frees its place", "[fabric][adapter]") {
  TwoEndpoints two;
  for (int round = 0; round < 3000; ++round) {
    REQUIRE(two.end(1).receive(1, 0, 64) == Status::ok);
    WorkRequest request;
    request.signalled = false;
    request.segments[0] = two.end(0).segment(0, 64);
    request.segment_count = 1;
    REQUIRE(two.end(0).adapter.post_send(two.end(0).number, request) == Status::ok);
    REQUIRE(two.settle());
    REQUIRE(two.end(1).take().size() == 1);
    REQUIRE(two.end(0).take().empty());
  }
}

TEST_CASE("random messages of all kinds arrive once, in order and unchanged over a rough bridge",
          "[fabric][adapter][sim]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{13}));
  const std::array<std::uint32_t, 6> payloads{64, 256, 1024, 4096, 16384, 65520};
  const bool acknowledged = seed % 2 == 0;
  INFO("seed " << seed);
  QueuePairAttributes options = channel(acknowledged);
  options.send_depth = 16;
  options.receive_depth = 64;
  TwoEndpoints two(cells_of(payloads[seed % payloads.size()]), options, LinkedPair::rough(), seed);
  BridgeRegion region(two, seed % 3 != 0);
  SeededRandom random(seed * 77);
  constexpr std::size_t kHalf = 128U << 10U;  // the receiver's buffer: posted receives below, region for writes above

  for (std::uint64_t message = 0; message < 60; ++message) {
    const auto bytes = static_cast<std::size_t>(random.below(random.below(4) == 0 ? 65537 : 2000));
    const auto data = pattern(bytes, seed << 32U | message);
    two.end(0).fill(0, data);
    const auto kind = random.below(3);
    const bool to_bridge = random.below(2) == 0;
    const RemoteAddress to = to_bridge ? region.address : two.end(1).remote(kHalf);
    REQUIRE(two.end(1).receive(message, 0, 65536) == Status::ok);
    REQUIRE((kind == 0   ? two.end(0).send(message, 0, bytes)
             : kind == 1 ? two.end(0).write(message, 0, bytes, to, static_cast<std::uint32_t>(message))
                         : two.end(0).write(message, 0, bytes, to)) == Status::ok);
    if (kind == 2) {  // told of by the message after it
      REQUIRE(two.end(0).send(message, 0, 0) == Status::ok);
    }
    std::vector<Completion> receives;
    for (int i = 0; i < 20'000 && receives.empty(); ++i) {
      two.step();
      receives = two.end(1).take();
    }
    REQUIRE(receives.size() == 1);
    REQUIRE(receives[0].status == CompletionStatus::success);
    REQUIRE(receives[0].id == message);
    REQUIRE(receives[0].bytes == (kind == 2 ? 0 : bytes));
    REQUIRE(receives[0].has_immediate == (kind == 1));
    REQUIRE(receives[0].immediate == (kind == 1 ? message : 0));
    if (kind == 0) {
      REQUIRE(two.end(1).holds(0, data));
    } else {
      REQUIRE((to_bridge ? region.holds(0, data) : two.end(1).holds(kHalf, data)));
    }
    REQUIRE(two.settle());
    for (const Completion& done : two.end(0).take()) REQUIRE(done.status == CompletionStatus::success);
  }
  CHECK(two.end(1).adapter.counters().dropped_bad_cell == 0);
  CHECK(two.end(1).adapter.counters().access_refused == 0);
}

TEST_CASE("a full lane makes requests wait and loses nothing", "[fabric][adapter]") {
  QueuePairAttributes options;
  options.send_depth = 64;
  options.receive_depth = 64;
  TwoEndpoints two(test::small_cells(), options);
  const auto data = pattern(60'000, 4);
  two.end(0).fill(0, data);
  for (std::uint64_t i = 0; i < 10; ++i) REQUIRE(two.end(1).receive(i, 0, 65536) == Status::ok);
  for (std::uint64_t i = 0; i < 10; ++i) REQUIRE(two.end(0).send(i, 0, data.size()) == Status::ok);
  // The receiver looks away: the sender fills the lane and stops, without losing count.
  for (int i = 0; i < 100; ++i) two.end(0).adapter.poll(two.pair.now());
  CHECK(two.pair.link(0).wants_room(VirtualLane::data));
  CHECK(two.end(0).take().empty());
  REQUIRE(two.settle());
  CHECK(two.end(1).take().size() == 10);
  CHECK(two.end(0).take().size() == 10);
  CHECK(two.end(1).holds(0, data));
  CHECK(two.end(0).adapter.counters().retransmissions == 0);
}

TEST_CASE("queue pairs take turns: a long message does not hold up a short one", "[fabric][adapter]") {
  TwoEndpoints two;
  const QpNumber other0 = two.end(0).make_queue_pair({});
  const QpNumber other1 = two.end(1).make_queue_pair({});
  REQUIRE(two.end(0).adapter.connect(other0, {other1, 1, 2}) == Status::ok);
  REQUIRE(two.end(1).adapter.connect(other1, {other0, 2, 1}) == Status::ok);
  for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(two.end(1).receive(i, 0, 65536) == Status::ok);
  REQUIRE(two.end(1).adapter.post_receive(other1, {99, two.end(1).segment(100'000, 64)}) == Status::ok);
  for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(two.end(0).send(i, 0, 65536) == Status::ok);
  WorkRequest small;
  small.id = 99;
  small.segments[0] = two.end(0).segment(0, 64);
  small.segment_count = 1;
  REQUIRE(two.end(0).adapter.post_send(other0, small) == Status::ok);
  REQUIRE(two.settle());
  const auto receives = two.end(1).take();
  REQUIRE(receives.size() == 5);
  CHECK(receives[0].id == 99);
}

TEST_CASE("a send with immediate is scattered from behind its header", "[fabric][adapter]") {
  TwoEndpoints two;
  const std::size_t bytes = GENERATE(1U, 30U, 64U, 92U, 93U, 200U);
  const auto sent = pattern(bytes, bytes);
  two.end(0).fill(0, sent);
  const LocalSegment rest = two.end(1).segment(2001, 1000);
  const ReceiveRequest receive{7, two.end(1).segment(2000, 1), std::span(&rest, 1)};
  REQUIRE(two.end(1).adapter.post_receive(two.end(1).number, receive) == Status::ok);
  WorkRequest request;
  request.operation = Operation::send_with_immediate;
  request.immediate = 0x12345678;
  request.segments[0] = two.end(0).segment(0, bytes);
  request.segment_count = 1;
  REQUIRE(two.end(0).adapter.post_send(two.end(0).number, request) == Status::ok);
  REQUIRE(two.settle());
  const auto received = two.end(1).take();
  REQUIRE(received.size() == 1);
  CHECK(received[0].immediate == 0x12345678);
  CHECK(received[0].bytes == bytes);
  CHECK(two.end(1).holds(2000, sent));
}

}  // namespace splitnic::fabric::test::adapter_transfer_test
