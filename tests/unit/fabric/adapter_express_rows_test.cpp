#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "adapter_fixtures.h"
#include "datagram_fixtures.h"
#include "express_world.h"
#include "fabric/adapter/queue_pair.h"

/// Messages in a row (express_rows.cpp). That they end as on the general way is adapter_express_test.cpp's.
namespace splitnic::fabric::test::adapter_express_rows_test {
namespace {

using World = ExpressWorld;
using Way = World::Way;

/// The second end gets a send of 64 bytes with this number, which nobody has posted.
void tell_send(World& world, std::uint32_t packet_sequence) {
  Cell cell;
  cell.opcode = Opcode::send_only;
  cell.awaited = true;
  cell.destination_queue_pair = world.ends[1]->number;
  cell.packet_sequence = packet_sequence;
  ClaimedPayload to;
  REQUIRE(world.links[0]->claim(VirtualLane::data, cell, 64, to));
  to.put(std::vector<std::byte>(64, std::byte{7}));
  std::uint32_t crc = 0;
  static_cast<void>(world.links[0]->release(VirtualLane::data, cell, crc));
}

std::vector<WorkRequest> sends(Endpoint& from, std::size_t count) {
  std::vector<WorkRequest> list;
  for (std::uint64_t id = 1; id <= count; ++id) list.push_back(send_request(id, from.segment(id * 64, 64)));
  return list;
}

}  // namespace

TEST_CASE("a row of sends leaves with the post, and is taken and completed in order", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  constexpr std::size_t kCount = 8;
  for (std::uint64_t id = 1; id <= kCount; ++id) REQUIRE(to.receive(id, 4096 + id * 64, 64) == Status::ok);
  std::vector<WorkRequest> list = sends(from, kCount);
  list[2].signalled = false;
  list[4].solicited = true;
  const std::uint64_t sent = from.adapter.counters().cells_sent;
  std::size_t posted = 0;
  REQUIRE(from.adapter.post_send(from.number, list, posted) == Status::ok);
  CHECK(from.adapter.counters().cells_sent == sent + kCount);
  to.adapter.poll(world.now);
  const auto received = to.take();
  REQUIRE(received.size() == kCount);
  for (std::uint64_t id = 1; id <= kCount; ++id) {
    CHECK(received[id - 1].id == id);
    CHECK(received[id - 1].solicited == (id == 5));
  }
  CHECK(to.holds(4096 + 64, std::span(from.buffer).subspan(64, kCount * 64)));
  from.adapter.poll(world.now);
  const auto done = from.take();
  REQUIRE(done.size() == kCount - 1);
  for (std::size_t i = 0; i < done.size(); ++i) CHECK(done[i].id == (i < 2 ? i + 1 : i + 2));
}

TEST_CASE("a row of sends ends before one that is out of its sequence", "[fabric][adapter][express][hostile]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& to = *world.ends[1];
  for (std::uint64_t id = 1; id <= 4; ++id) REQUIRE(to.receive(id, 4096 * id, 64) == Status::ok);
  const std::uint32_t next = 8;  // 7 was the first message's
  tell_send(world, next);
  tell_send(world, next + 1);
  tell_send(world, next + 5);
  to.adapter.poll(world.now);
  CHECK(to.take().size() == 2);
  CHECK(to.adapter.counters().dropped_out_of_sequence == 1);
}

TEST_CASE("a row of sends ends before one that is too long for its receive", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  REQUIRE(to.receive(1, 4096, 64) == Status::ok);
  REQUIRE(to.receive(2, 8192, 8) == Status::ok);  // the region has room, the receive has not
  const std::vector<std::byte> before(to.buffer.begin() + 8192, to.buffer.begin() + 8192 + 64);
  std::size_t posted = 0;
  REQUIRE(from.adapter.post_send(from.number, sends(from, 2), posted) == Status::ok);
  to.adapter.poll(world.now);
  const auto received = to.take();
  REQUIRE(received.size() == 2);
  CHECK(received[0].status == CompletionStatus::success);
  CHECK(received[1].status == CompletionStatus::local_length_error);
  CHECK(to.holds(8192 + 8, std::span(before).subspan(8)));
}

TEST_CASE("a row of direct writes is announced in order, each with its immediate", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  constexpr std::size_t kCount = 6;
  for (int round = 0; round < 2; ++round) {  // first what it may is looked up, then it is remembered
    INFO("round " << round);
    std::vector<WorkRequest> list = sends(from, kCount);
    for (WorkRequest& request : list) {
      request.operation = Operation::rdma_write_with_immediate;
      request.remote = world.at_peer(0, request.id * 64);
      request.immediate = static_cast<std::uint32_t>(100 + request.id);
    }
    for (std::uint64_t id = 1; id <= kCount; ++id) REQUIRE(to.receive(id, 4096, 64) == Status::ok);
    std::size_t posted = 0;
    REQUIRE(from.adapter.post_send(from.number, list, posted) == Status::ok);
    to.adapter.poll(world.now);
    const auto received = to.take();
    REQUIRE(received.size() == kCount);
    for (std::uint64_t id = 1; id <= kCount; ++id) {
      const Completion& done = received[id - 1];
      CHECK(done.id == id);
      CHECK(done.operation == Operation::rdma_write_with_immediate);
      CHECK(done.has_immediate);
      CHECK(done.immediate == 100 + id);
      CHECK(done.bytes == 64);
    }
    const auto there = world.direct_bytes(1);
    CHECK(
        std::ranges::equal(std::span(there).subspan(64, kCount * 64), std::span(from.buffer).subspan(64, kCount * 64)));
    for (int i = 0; i < 4; ++i) world.step();
    CHECK_FALSE(from.adapter.outstanding());
  }
  CHECK(from.adapter.counters().direct_writes == 2 * kCount);
}

TEST_CASE("an entry in the place of a longer request has nothing of it", "[fabric][adapter][express]") {
  SendEntry entry;
  WorkRequest longer;
  longer.operation = Operation::bind_window;
  longer.invalidate = Stag{5};
  longer.compare = 6;
  longer.datagram.queue_key = 7;
  const MemoryRequest memory;
  longer.memory = &memory;
  entry.begin(longer, 0);
  entry.tag = Stag{8};
  entry.failure = CompletionStatus::memory_request_error;
  WorkRequest send;
  send.id = 1;
  send.segment_count = 1;
  entry.begin_sent(send, 64, 10, 11, kSentInCells);
  CHECK(entry.request.invalidate == Stag{});
  CHECK(entry.request.compare == 0);
  CHECK(entry.request.datagram.queue_key == 0);
  CHECK(entry.request.memory == nullptr);
  CHECK(entry.tag == Stag{});
  CHECK(entry.failure == CompletionStatus::success);
  CHECK(entry.numbered);
  CHECK(entry.psn == 10);
  CHECK(entry.settled_at == 11);
}

}  // namespace splitnic::fabric::test::adapter_express_rows_test
