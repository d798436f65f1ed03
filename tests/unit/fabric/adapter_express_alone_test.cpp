// What is posted by itself (express_alone.cpp). That it ends as on the general way is adapter_express_test.cpp's.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "adapter_fixtures.h"
#include "adapter_requests.h"
#include "express_world.h"
#include "fabric/link/slot_sender.h"
#include "slot_peer.h"

namespace splitnic::fabric::test::adapter_express_alone_test {
namespace {

using World = ExpressWorld;
using Way = World::Way;

enum class Kind : std::uint8_t { send_in_lines, send_in_payload_ring, direct_write };
constexpr std::array kKinds{Kind::send_in_lines, Kind::send_in_payload_ring, Kind::direct_write};

constexpr std::uint32_t bytes_of(Kind kind) { return kind == Kind::send_in_payload_ring ? 100 : 64; }
static_assert(bytes_of(Kind::send_in_lines) <= kSlotBodyInBoth &&
              bytes_of(Kind::send_in_payload_ring) > kSlotBodyInBoth);

/// Of the first end; its bytes lie in its buffer where they will lie in what the peer has granted.
WorkRequest request_of(World& world, Kind kind, std::uint64_t id, std::size_t offset = 0) {
  const LocalSegment from = world.ends[0]->segment(offset, bytes_of(kind));
  if (kind != Kind::direct_write) return send_request(id, from);
  WorkRequest request = write_request(id, from, world.at_peer(0, offset));
  request.operation = Operation::rdma_write_with_immediate;
  return request;
}

}  // namespace

TEST_CASE("a send that no slot of its lane has room for leaves in cells", "[fabric][adapter][express]") {
  constexpr std::uint32_t kBytes = 3000;
  LinkOptions link;
  link.payload_bytes = {4096, 4096};
  World world(Way::express, 1, {}, World::Receives::own, 1U << 20U, link);
  pass_a_message(world);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  REQUIRE(world.links[0]->slots(VirtualLane::data)->sender.max_payload_bytes() < kBytes);
  REQUIRE(to.receive(1, 4096, kBytes) == Status::ok);
  const std::uint64_t sent = from.adapter.counters().cells_sent;
  REQUIRE(from.send(1, 0, kBytes) == Status::ok);
  for (int i = 0; i < 20; ++i) world.step();
  CHECK(from.adapter.counters().cells_sent > sent + 1);
  CHECK_FALSE(from.adapter.outstanding());
  CHECK(to.holds(4096, std::span(from.buffer).first(kBytes)));
}

TEST_CASE("what is posted by itself waits while the lane is full, and overwrites nothing",
          "[fabric][adapter][express]") {
  constexpr std::size_t kCount = 40;
  const Kind kind = GENERATE(from_range(kKinds));
  const std::uint32_t bytes = bytes_of(kind);
  LinkOptions link;
  link.slot_bytes = {1024, 1024};  // 16 lines
  World world(Way::express, 1, {}, World::Receives::own, 1U << 20U, link);
  pass_a_message(world);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  for (std::size_t i = 0; i < kCount; ++i) REQUIRE(to.receive(i, 4096 + i * bytes, bytes) == Status::ok);
  for (std::size_t i = 0; i < kCount; ++i) REQUIRE(post(from, request_of(world, kind, i, i * bytes)) == Status::ok);
  const SlotSender& sender = world.links[0]->slots(VirtualLane::data)->sender;
  CHECK(sender.head() - sender.tail() <= sender.lines());
  std::vector<std::uint64_t> arrived;
  for (int i = 0; i < 100; ++i) {
    world.poll_links();
    for (auto& end : world.ends) end->adapter.poll(world.now);
    for (const Completion& done : to.take()) {
      CHECK(done.status == CompletionStatus::success);
      arrived.push_back(done.id);
    }
  }
  CHECK(arrived.size() == kCount);
  CHECK(std::ranges::is_sorted(arrived));
  CHECK(ids_of(from.take(), CompletionStatus::success).size() == kCount);
  const auto sent = std::span(from.buffer).first(kCount * bytes);
  if (kind == Kind::direct_write) {
    const std::vector<std::byte> stored = world.direct_bytes(1);
    CHECK(std::ranges::equal(std::span(stored).first(sent.size()), sent));
  } else {
    CHECK(to.holds(4096, sent));
  }
}

TEST_CASE("what is posted by itself to a full queue is refused", "[fabric][adapter][express]") {
  const Kind kind = GENERATE(from_range(kKinds));
  QueuePairAttributes options;
  options.send_depth = 4;
  World world(Way::express, 1, options);
  pass_a_message(world);
  Endpoint& from = *world.ends[0];
  const WorkRequest request = request_of(world, kind, 1);
  for (std::size_t i = 0; i < options.send_depth; ++i) REQUIRE(post(from, request) == Status::ok);
  CHECK(post(from, request) == Status::queue_full);
  for (std::uint64_t id = 0; id < options.send_depth; ++id) {
    REQUIRE(world.ends[1]->receive(id, 4096, bytes_of(kind)) == Status::ok);
  }
  for (int i = 0; i < 4; ++i) world.step();
  CHECK_FALSE(from.adapter.outstanding());
  CHECK(post(from, request) == Status::ok);
}

TEST_CASE("what is posted by itself is refused where its completion has no place", "[fabric][adapter][express]") {
  constexpr std::size_t kPlaces = 4;
  const Kind kind = GENERATE(from_range(kKinds));
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  QueuePairAttributes options;
  options.domain = from.domain;
  options.receive_completions = from.completions;
  options.send_completions = from.adapter.create_completion_queue(kPlaces);
  const QpNumber number = from.adapter.create_queue_pair(options).value();
  const QpNumber peer = to.make_queue_pair({});
  REQUIRE(from.adapter.connect(number, {peer, 7, 9}) == Status::ok);
  REQUIRE(to.adapter.connect(peer, {number, 9, 7}) == Status::ok);
  const WorkRequest request = request_of(world, kind, 1);
  for (std::size_t i = 0; i < kPlaces; ++i) REQUIRE(from.adapter.post_send(number, request) == Status::ok);
  CHECK(from.adapter.post_send(number, request) == Status::queue_full);
  CHECK(from.adapter.send_room(number) == 0);
}

}  // namespace splitnic::fabric::test::adapter_express_alone_test
