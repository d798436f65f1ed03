#include "adapter_fixtures.h"

namespace splitnic::fabric::test::adapter_verbs_test {

TEST_CASE("misuse of a verb is answered with a status", "[fabric][adapter]") {
  TwoEndpoints two;
  Endpoint& end = two.end(0);
  ChannelAdapter& adapter = end.adapter;
  WorkRequest request;
  request.segment_count = 1;
  request.segments[0] = end.segment(0, 10);

  SECTION("unknown queue pairs") {
    for (const std::uint32_t number : {0U, 5U, 0xff'ffffU, ~0U}) {
      CHECK(adapter.post_send(QpNumber{number}, request) == Status::bad_queue_pair);
      CHECK(adapter.post_receive(QpNumber{number}, {}) == Status::bad_queue_pair);
      CHECK(adapter.connect(QpNumber{number}, {QpNumber{1}, 0, 0}) == Status::bad_queue_pair);
      CHECK(adapter.destroy_queue_pair(QpNumber{number}) == Status::bad_queue_pair);
      CHECK(adapter.in_error(QpNumber{number}));
      CHECK(adapter.send_room(QpNumber{number}) == 0);
      CHECK_FALSE(adapter.has_send_room(QpNumber{number}, 0));
    }
  }
  SECTION("states") {
    const QpNumber fresh = end.make_queue_pair({});
    CHECK(adapter.post_send(fresh, request) == Status::bad_state);
    CHECK(adapter.post_receive(fresh, {1, end.segment(0, 10)}) == Status::ok);
    CHECK(adapter.connect(fresh, {QpNumber{0}, 0, 0}) == Status::bad_queue_pair);
    CHECK(adapter.connect(fresh, {QpNumber{0x100'0000}, 0, 0}) == Status::bad_queue_pair);
    CHECK(adapter.connect(end.number, {QpNumber{1}, 0, 0}) == Status::bad_state);
  }
  SECTION("segments") {
    request.segments[0].tag.value ^= 1U;
    CHECK(adapter.post_send(end.number, request) == Status::bad_tag);
    request.segments[0] = end.segment(Endpoint::kBufferBytes - 9, 10);
    CHECK(adapter.post_send(end.number, request) == Status::bad_length);
    request.segments[0] = end.segment(0, 10);
    request.segments[0].address -= 1;
    CHECK(adapter.post_send(end.number, request) == Status::bad_length);
    request.segments[0] = LocalSegment{nullptr, 10, end.tag};
    CHECK(adapter.post_send(end.number, request) == Status::bad_length);
    request.segment_count = kMaxSegments + 1;
    CHECK(adapter.post_send(end.number, request) == Status::bad_length);
    CHECK(adapter.post_receive(end.number, {1, LocalSegment{nullptr, 10, end.tag}}) == Status::bad_length);
    const Stag read_only = adapter.register_memory(end.domain, end.buffer, Rights{} | Right::local_read).value();
    CHECK(adapter.post_receive(end.number, {1, LocalSegment{end.buffer.data(), 10, read_only}}) == Status::bad_tag);
    const Stag write_only = adapter.register_memory(end.domain, end.buffer, Rights{} | Right::local_write).value();
    request.segment_count = 1;
    request.segments[0] = LocalSegment{end.buffer.data(), 10, write_only};
    CHECK(adapter.post_send(end.number, request) == Status::bad_tag);
    const Stag foreign = adapter.register_memory(adapter.allocate_domain(), end.buffer, kAllRights).value();
    request.segments[0] = LocalSegment{end.buffer.data(), 10, foreign};
    CHECK(adapter.post_send(end.number, request) == Status::bad_tag);
  }
  SECTION("lengths") {
    request.segments[0] = end.segment(0, Endpoint::kBufferBytes);
    request.segments[1] = request.segments[2] = request.segments[3] = request.segments[0];
    request.segment_count = 4;
    CHECK(adapter.post_send(end.number, request) == Status::ok);  // 1 MiB: the most
    WorkRequest placed;
    placed.operation = Operation::rdma_write;
    placed.placed_bytes = (1U << 20U) + 1;
    CHECK(adapter.post_send(end.number, placed) == Status::bad_length);
    placed.placed_bytes = 10;
    placed.segment_count = 1;
    placed.segments[0] = end.segment(0, 10);
    CHECK(adapter.post_send(end.number, placed) == Status::bad_length);
    placed.segment_count = 0;
    placed.operation = Operation::send;
    CHECK(adapter.post_send(end.number, placed) == Status::bad_length);
  }
  SECTION("tags and completion queues") {
    CHECK(adapter.deregister(Stag{}) == Status::bad_tag);
    CHECK(adapter.region_address(Stag{123}) == 0);
    CHECK(adapter.deregister(end.tag) == Status::ok);
    CHECK(adapter.deregister(end.tag) == Status::bad_tag);
    std::array<Completion, 1> out;
    CHECK(adapter.poll_completions(CqNumber{0}, out) == 0);
    CHECK(adapter.poll_completions(CqNumber{99}, out) == 0);
    QueuePairAttributes options;
    CHECK_FALSE(adapter.create_queue_pair(options).has_value());
    options.send_completions = options.receive_completions = end.completions;
    options.number = QpNumber{16};
    CHECK_FALSE(adapter.create_queue_pair(options).has_value());
    options.number = QpNumber{15};
    CHECK(adapter.create_queue_pair(options) == QpNumber{15});
    CHECK_FALSE(adapter.create_queue_pair(options).has_value());
  }
  SECTION("bridge memory outside the buffers") {
    FabricLink& link = two.pair.link(0);
    const MemoryRange all = link.buffers();
    for (const MemoryRange bad :
         {MemoryRange{0, 64}, MemoryRange{all.offset - 64, 128}, MemoryRange{all.offset, all.bytes + 64},
          MemoryRange{all.offset + all.bytes, 64}, MemoryRange{all.offset, ~std::size_t{0}}}) {
      CHECK_FALSE(adapter.register_bridge_memory(end.domain, bad, kAllRights, true).has_value());
    }
    CHECK(adapter.register_bridge_memory(end.domain, all, kAllRights, true).has_value());
  }
}

TEST_CASE("a full queue is said so, and room comes back with completions", "[fabric][adapter]") {
  QueuePairAttributes options;
  options.send_depth = 5;
  options.receive_depth = 3;
  ScriptedPeer peer(test::small_cells(), options);
  const auto check_room = [&](std::size_t requests) {
    const ChannelAdapter& adapter = peer.host.adapter;
    CHECK(adapter.send_room(peer.host.number) == requests);
    for (std::size_t some = 0; some <= 6; ++some) {
      CHECK(adapter.has_send_room(peer.host.number, some) == (some <= requests));
    }
  };
  check_room(5);
  for (std::uint64_t i = 0; i < 5; ++i) CHECK(peer.host.send(i, 0, 64) == Status::ok);
  CHECK(peer.host.send(5, 0, 64) == Status::queue_full);
  check_room(0);
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(peer.host.receive(i, 0, 64) == Status::ok);
  CHECK(peer.host.receive(3, 0, 64) == Status::queue_full);
  peer.acknowledge(Syndrome::ok, ScriptedPeer::kOwnPsn + 1);
  peer.poll();
  check_room(2);
}

TEST_CASE("a completion queue promises no more places than it has", "[fabric][adapter]") {
  LinkedPair pair;
  ChannelAdapter adapter(pair.link(0), {}, pair.random());
  std::vector<std::byte> memory(100);
  QueuePairAttributes options;
  options.domain = adapter.allocate_domain();
  options.send_completions = options.receive_completions = adapter.create_completion_queue(4);
  const Stag tag = adapter.register_memory(options.domain, memory, kAllRights).value();
  const QpNumber number = adapter.create_queue_pair(options).value();
  REQUIRE(adapter.connect(number, {QpNumber{5}, 0, 0}) == Status::ok);
  const LocalSegment segment{memory.data(), 100, tag};
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(adapter.post_receive(number, {i, segment}) == Status::ok);
  CHECK(adapter.post_receive(number, {4, segment}) == Status::queue_full);
  CHECK(adapter.send_room(number) == 0);
  CHECK_FALSE(adapter.has_send_room(number, 1));
  WorkRequest request;
  CHECK(adapter.post_send(number, request) == Status::queue_full);
  REQUIRE(adapter.destroy_queue_pair(number) == Status::ok);
  std::array<Completion, 8> out;
  REQUIRE(adapter.poll_completions(options.send_completions, out) == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(out[i].id == i);
    CHECK(out[i].status == CompletionStatus::flushed);
  }
}

TEST_CASE("queue-pair numbers are distinct, 24 bits, and end with the adapter's limit", "[fabric][adapter]") {
  LinkedPair pair;
  AdapterOptions limits;
  limits.max_queue_pairs = 20;
  ChannelAdapter adapter(pair.link(0), limits, pair.random());
  QueuePairAttributes options;
  options.send_completions = options.receive_completions = adapter.create_completion_queue(4);
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < 20; ++i) {
    const auto number = adapter.create_queue_pair(options);
    REQUIRE(number.has_value());
    CHECK(number->value > 15);
    CHECK(number->value <= kMaxQueuePairNumber);
    CHECK(std::find(numbers.begin(), numbers.end(), number->value) == numbers.end());
    numbers.push_back(number->value);
  }
  CHECK_FALSE(adapter.create_queue_pair(options).has_value());
  REQUIRE(adapter.destroy_queue_pair(QpNumber{numbers[3]}) == Status::ok);
  CHECK(adapter.create_queue_pair(options).has_value());
}

TEST_CASE("memory deregistered before its send leaves ends the request with local_protection_error",
          "[fabric][adapter]") {
  ScriptedPeer peer;
  // The lane is full of a first message; the second has not left when its memory goes.
  REQUIRE(peer.host.send(1, 0, 200'000) == Status::ok);
  REQUIRE(peer.host.send(2, 0, 64) == Status::ok);
  peer.poll();
  REQUIRE(peer.host.adapter.deregister(peer.host.tag) == Status::ok);
  peer.poll();
  const auto ends = peer.host.take();
  REQUIRE(ends.size() == 2);
  CHECK(ends[0].status == CompletionStatus::local_protection_error);
  CHECK(ends[1].status == CompletionStatus::flushed);
}

}  // namespace splitnic::fabric::test::adapter_verbs_test
