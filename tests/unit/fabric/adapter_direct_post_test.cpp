#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "express_world.h"

/// Direct writes without immediate that are done when they are posted, and what they leave to the other ways.
namespace splitnic::fabric::test::adapter_direct_post_test {

using World = ExpressWorld;
using Way = World::Way;

TEST_CASE("a direct write is done when it is posted, and its owner hears nothing of it", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  Endpoint& writer = *world.ends[0];
  pass_a_message(world);  // the memory is remembered from now on
  const AdapterCounters owner_before = world.ends[1]->adapter.counters();
  const std::uint64_t cells_before = writer.adapter.counters().cells_sent;
  std::array<WorkRequest, 3> list;
  for (std::size_t i = 0; i < list.size(); ++i) {
    WorkRequest& request = list[i];
    request.id = i;
    request.operation = Operation::rdma_write;
    request.segments[0] = writer.segment(i * 100, 100);
    request.segment_count = 1;
    request.remote = world.at_peer(0, i * 100);
    request.signalled = i != 1;
  }
  std::size_t posted = 0;
  REQUIRE(writer.adapter.post_send(writer.number, list, posted) == Status::ok);
  REQUIRE(posted == list.size());
  const auto done = writer.take();
  REQUIRE(done.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(done[i].id == 2 * i);
    CHECK(done[i].status == CompletionStatus::success);
    CHECK(done[i].operation == Operation::rdma_write);
  }
  const auto sent = pattern(writer.buffer.size(), 1);
  const auto stored = world.direct_bytes(1);
  CHECK(std::ranges::equal(std::span(stored).first(300), std::span(sent).first(300)));
  CHECK(writer.adapter.counters().direct_writes == 3);
  CHECK(writer.adapter.counters().cells_sent == cells_before);
  for (int i = 0; i < 4; ++i) world.step();
  CHECK(world.ends[1]->adapter.counters().cells_received == owner_before.cells_received);
  // What comes behind is of the next packet number.
  REQUIRE(world.ends[1]->receive(1, 0, 4096) == Status::ok);
  REQUIRE(writer.send(9, 0, 64) == Status::ok);
  for (int i = 0; i < 4; ++i) world.step();
  CHECK(world.received[1].find("success") != std::string::npos);
}

TEST_CASE("a direct write with immediate is told to its owner, also behind one without", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& writer = *world.ends[0];
  REQUIRE(world.ends[1]->receive(5, 0, 64) == Status::ok);
  std::array<WorkRequest, 2> list;
  for (WorkRequest& request : list) {
    request.operation = Operation::rdma_write;
    request.segments[0] = writer.segment(0, 64);
    request.segment_count = 1;
    request.remote = world.at_peer(0, 0);
  }
  list[1].operation = Operation::rdma_write_with_immediate;
  list[1].immediate = 77;
  std::size_t posted = 0;
  REQUIRE(writer.adapter.post_send(writer.number, list, posted) == Status::ok);
  REQUIRE(posted == 2);
  CHECK(writer.take().size() == 1);
  world.poll_links();
  world.ends[1]->adapter.poll(world.now);
  const auto told = world.ends[1]->take();
  REQUIRE(told.size() == 1);
  CHECK(told[0].immediate == 77);
}

TEST_CASE("who polls after a direct write hears of its completion, and does not sleep before",
          "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& writer = *world.ends[0];
  REQUIRE(writer.write(1, 0, 64, world.at_peer(0, 0)) == Status::ok);
  CHECK_FALSE(writer.adapter.rests(world.now));
  CHECK_FALSE(writer.adapter.prepare_sleep());
  writer.adapter.disarm();
  CHECK(writer.adapter.next_deadline() <= world.now);
  CHECK(writer.adapter.poll(world.now) == 1);
  CHECK(writer.take().size() == 1);
  CHECK(writer.adapter.poll(world.now) == 0);
  CHECK(writer.adapter.next_deadline() > world.now);
  CHECK(writer.adapter.prepare_sleep());
  writer.adapter.disarm();
}

TEST_CASE("a region in the bridge's memory ends with its epoch, before any poll of its adapter", "[fabric][adapter]") {
  World world(Way::express, 1);
  ChannelAdapter& owner = world.ends[1]->adapter;
  const auto valid = [&](Stag tag) {
    const ProtectionEntry* entry = owner.entry_at(tag.index());
    return entry != nullptr && entry->valid;
  };
  REQUIRE(valid(world.granted[1]));
  const std::uint64_t before = world.links[1]->incarnation();
  world.links[0]->restart();
  for (int i = 0; i < 1000 && world.links[1]->incarnation() == before; ++i) world.poll_links();
  REQUIRE(world.links[1]->incarnation() != before);
  CHECK_FALSE(valid(world.granted[1]));
  CHECK(valid(world.owned[1]));
}

TEST_CASE("a direct write completes after the requests before it", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& writer = *world.ends[0];
  REQUIRE(world.ends[1]->receive(1, 0, 4096) == Status::ok);
  REQUIRE(writer.send(1, 0, 64) == Status::ok);
  REQUIRE(writer.write(2, 0, 64, world.at_peer(0, 0)) == Status::ok);
  CHECK(writer.take().empty());
  std::vector<Completion> done;
  for (int i = 0; i < 8 && done.size() < 2; ++i) {
    world.poll_links();
    for (auto& end : world.ends) end->adapter.poll(world.now);
    for (const Completion& each : writer.take()) done.push_back(each);
  }
  REQUIRE(done.size() == 2);
  CHECK(done[0].id == 1);
  CHECK(done[1].id == 2);
}

TEST_CASE("a direct write finds room for its completion, or waits for it", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& writer = *world.ends[0];
  std::size_t taken = 0;
  for (; taken < 5000; ++taken) {
    if (writer.write(taken, 0, 64, world.at_peer(0, 0)) != Status::ok) break;
  }
  REQUIRE(taken > 0);
  REQUIRE(taken < 5000);  // the queue is full until the program takes completions
  std::vector<Completion> done = writer.take();
  for (int i = 0; i < 8; ++i) {
    world.poll_links();
    for (auto& end : world.ends) end->adapter.poll(world.now);
    for (const Completion& each : writer.take()) done.push_back(each);
  }
  REQUIRE(done.size() == taken);
  for (std::size_t i = 0; i < taken; ++i) REQUIRE(done[i].id == i);
  CHECK(writer.write(taken, 0, 64, world.at_peer(0, 0)) == Status::ok);
}

TEST_CASE("what is granted no more takes no direct write", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& writer = *world.ends[0];
  REQUIRE(writer.write(1, 0, 64, world.at_peer(0, 0)) == Status::ok);
  REQUIRE(writer.take().size() == 1);
  const std::vector<std::byte> stored = world.direct_bytes(1);
  const RemoteAddress at = world.at_peer(0, 128);
  REQUIRE(world.ends[1]->adapter.deregister(world.granted[1]) == Status::ok);
  REQUIRE(writer.write(2, 0, 64, at) == Status::ok);
  CHECK(writer.take().empty());
  for (int i = 0; i < 4; ++i) world.step();
  CHECK(world.direct_bytes(1) == stored);
  CHECK(world.log[0].find("2 remote") != std::string::npos);
}

}  // namespace splitnic::fabric::test::adapter_direct_post_test
