#include <array>
#include <vector>

#include "adapter_requests.h"
#include "express_world.h"

/// Reads that go the short way, and what makes them go the other.
namespace splitnic::fabric::test::adapter_express_reads_test {
namespace {

using World = ExpressWorld;
using Way = World::Way;

/// The first end reads so many bytes of the other's own memory, from where its `id` says.
WorkRequest read(World& world, std::uint64_t id, std::uint32_t bytes) {
  return read_request(*world.ends[0], id, id * 16384, bytes, world.at_peers_own(0, id * 100));
}

void post_list(World& world, std::span<const WorkRequest> list) {
  std::size_t posted = 0;
  REQUIRE(world.ends[0]->adapter.post_send(world.ends[0]->number, list, posted) == Status::ok);
  REQUIRE(posted == list.size());
}

void check_read(World& world, std::uint64_t id, std::uint32_t bytes) {
  INFO("read " << id);
  const auto from = std::span(world.own[1]).subspan(id * 100, bytes);
  CHECK(world.ends[0]->holds(id * 16384, std::vector(from.begin(), from.end())));
}

/// The same, of an entry that may be read once.
WorkRequest read_once(World& world, std::uint64_t id) {
  Endpoint& owner = *world.ends[1];
  EntryOptions once;
  once.rights = kAllRights | Right::remote_read;
  once.touch = TouchControl::one_shot;
  const Stag tag =
      owner.adapter.table().register_region(owner.domain, RegionMemory::of_process(owner.buffer), once).value();
  WorkRequest request = read(world, id, 8);
  request.remote = {owner.adapter.region_address(tag), tag};
  return request;
}

/// The peer sends until the lane to the reader is full.
void fill_lane(World& world) {
  Endpoint& peer = *world.ends[1];
  for (std::uint64_t id = 100; !world.links[1]->wants_room(VirtualLane::data); ++id) {
    REQUIRE(peer.write(id, 0, 12000, world.at_peers_own(1, 0)) == Status::ok);
  }
}

}  // namespace

TEST_CASE("reads leave as they are posted, and are answered as they are taken", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  const std::array list{read(world, 1, 8), read(world, 2, 64), read(world, 3, 2000)};
  const std::uint64_t asked = world.ends[0]->adapter.counters().cells_sent;
  post_list(world, list);
  CHECK(world.ends[0]->adapter.counters().cells_sent == asked + 3);

  ChannelAdapter& owner = world.ends[1]->adapter;
  const std::uint64_t answered = owner.counters().cells_sent;
  world.poll_links();
  CHECK(owner.receive(world.now) == 3);
  CHECK(owner.counters().cells_sent == answered + 3);
  CHECK(owner.counters().segmented_reads == 3);
  CHECK(owner.counters().bytes_sent == 2072);
  CHECK_FALSE(owner.outstanding());

  world.ends[0]->adapter.poll(world.now);
  const auto done = world.ends[0]->take();
  REQUIRE(done.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(done[i].id == i + 1);
    CHECK(done[i].operation == Operation::rdma_read);
    CHECK(done[i].status == CompletionStatus::success);
    CHECK(done[i].bytes == list[i].segments[0].bytes);
    check_read(world, i + 1, done[i].bytes);
  }
  CHECK_FALSE(world.ends[0]->adapter.outstanding());
  CHECK(world.ends[0]->adapter.counters().bytes_received == 2072);
}

TEST_CASE("no more reads leave at their post than the peer takes, and the others follow",
          "[fabric][adapter][express][read]") {
  QueuePairAttributes options;
  options.reads_out = 2;
  World world(Way::express, 1, options);
  std::vector<WorkRequest> list;
  for (std::uint64_t id = 1; id <= 7; ++id) list.push_back(read(world, id, 100));
  const std::uint64_t before = world.ends[0]->adapter.counters().cells_sent;
  post_list(world, list);
  CHECK(world.ends[0]->adapter.counters().cells_sent == before + 2);
  for (int i = 0; i < 10; ++i) world.step();
  CHECK_FALSE(world.ends[0]->adapter.outstanding());
  for (std::uint64_t id = 1; id <= 7; ++id) check_read(world, id, 100);
  CHECK(world.ends[1]->adapter.counters().access_refused == 0);
}

TEST_CASE("a short answer does not overtake a long one", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  Endpoint& owner = *world.ends[1];
  REQUIRE(owner.adapter.set_cell_payload(2048) == Status::ok);  // so the first answer is several cells
  post_list(world, std::array{read(world, 1, 12000), read(world, 2, 8), read(world, 3, 500)});
  world.poll_links();
  CHECK(owner.adapter.receive(world.now) == 3);
  CHECK(owner.adapter.counters().cells_sent == 0);
  for (int i = 0; i < 10; ++i) world.step();
  CHECK_FALSE(world.ends[0]->adapter.outstanding());
  CHECK(world.log[0] ==
        "1 success rdma_read false 12000 false 0 false\n"
        "2 success rdma_read false 8 false 0 false\n"
        "3 success rdma_read false 500 false 0 false\n");
  check_read(world, 1, 12000);
  check_read(world, 2, 8);
  check_read(world, 3, 500);
}

TEST_CASE("an answer does not overtake what waits for room before it", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  fill_lane(world);
  post_list(world, std::array{read(world, 1, 8)});
  Endpoint& owner = *world.ends[1];
  world.poll_links();
  REQUIRE(owner.adapter.receive(world.now) == 1);
  CHECK(owner.adapter.counters().segmented_reads == 0);
  for (int i = 0; i < 50; ++i) world.step();
  CHECK_FALSE(world.ends[0]->adapter.outstanding());
  check_read(world, 1, 8);
}

TEST_CASE("reads behind a send, and sends behind a read, keep their order", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  REQUIRE(world.ends[1]->receive(50, 0, 64) == Status::ok);
  REQUIRE(world.ends[1]->receive(51, 64, 64) == Status::ok);
  WorkRequest first = send_request(1, world.ends[0]->segment(4096, 64));
  first.signalled = false;
  post_list(world, std::array{first, read(world, 2, 40), send_request(3, world.ends[0]->segment(4096, 64))});
  for (int i = 0; i < 5; ++i) world.step();
  CHECK(world.log[0] ==
        "2 success rdma_read false 40 false 0 false\n"
        "3 success send false 0 false 0 false\n");
  CHECK(std::ranges::count(world.received[1], '\n') == 2);
  check_read(world, 2, 40);
}

TEST_CASE("a fenced send that is posted behind a read waits for its answer", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  Endpoint& reader = *world.ends[0];
  REQUIRE(world.ends[1]->receive(50, 0, 64) == Status::ok);
  post_list(world, std::array{read(world, 1, 8)});
  WorkRequest fenced = send_request(2, reader.segment(4096, 64));
  fenced.fence = true;
  const std::uint64_t before = reader.adapter.counters().cells_sent;
  REQUIRE(post(reader, fenced) == Status::ok);
  CHECK(reader.adapter.counters().cells_sent == before);
  for (int i = 0; i < 5; ++i) world.step();
  CHECK(reader.adapter.counters().cells_sent == before + 1);
  CHECK_FALSE(reader.adapter.outstanding());
}

TEST_CASE("what a peer may not read is refused, whatever it has read before", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  post_list(world, std::array{read(world, 1, 8)});
  world.step();
  REQUIRE(world.ends[1]->adapter.counters().segmented_reads == 1);
  SECTION("because the memory was deregistered") {
    REQUIRE(world.ends[1]->adapter.deregister(world.owned[1]) == Status::ok);
    post_list(world, std::array{read(world, 2, 8)});
  }
  SECTION("because its queue pair lets nobody read") {
    QueuePairSettings settings;
    settings.remote_rights = kAllRights;
    REQUIRE(world.ends[1]->adapter.configure(world.ends[1]->number, settings) == Status::ok);
    post_list(world, std::array{read(world, 2, 8)});
  }
  SECTION("because it reads beyond the memory") {
    post_list(world, std::array{read_request(*world.ends[0], 2, 0, 64, world.at_peers_own(0, World::kGranted - 63))});
  }
  for (int i = 0; i < 5; ++i) world.step();
  CHECK(world.log[0].find("2 remote_access_error") != std::string::npos);
  CHECK(world.ends[1]->adapter.counters().access_refused == 1);
  CHECK(world.ends[1]->adapter.counters().segmented_reads == 1);
}

TEST_CASE(
    "a one-shot entry that was read ends when its answer has arrived for sure, also by reads that go the short way",
    "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  Endpoint& owner = *world.ends[1];
  const WorkRequest first = read_once(world, 1);
  const auto ended = [&] { return !owner.adapter.table().find(first.remote.tag)->valid; };
  post_list(world, std::array{first});
  const std::size_t depth = QueuePairAttributes{}.reads_in;
  for (std::uint64_t id = 2; id < 2 + depth; ++id) {
    world.step();
    world.step();
    CHECK_FALSE(ended());
    post_list(world, std::array{read(world, id, 8)});
  }
  world.step();
  world.step();
  CHECK(ended());
  CHECK(owner.adapter.counters().segmented_reads == 1 + depth);
}

TEST_CASE("a queue pair that answers no reads refuses short ones, too", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  QueuePairSettings settings;
  settings.answers_reads = false;
  REQUIRE(world.ends[1]->adapter.configure(world.ends[1]->number, settings) == Status::ok);
  post_list(world, std::array{read(world, 1, 8)});
  for (int i = 0; i < 5; ++i) world.step();
  CHECK(world.log[0].find("1 remote_invalid_request_error") != std::string::npos);
  CHECK(world.ends[1]->adapter.counters().segmented_reads == 0);
}

TEST_CASE("a one-shot entry is read once, also by a short read", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  const WorkRequest once = read_once(world, 1);
  post_list(world, std::array{once});
  for (int i = 0; i < 5; ++i) world.step();
  CHECK(world.log[0] == "1 success rdma_read false 8 false 0 false\n");
  post_list(world, std::array{once});
  for (int i = 0; i < 5; ++i) world.step();
  CHECK(world.log[0].find("1 remote_access_error") != std::string::npos);
}

TEST_CASE("a short read into granted memory is stored directly by the owner", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  ChannelAdapter& reader = world.ends[0]->adapter;
  WorkRequest request = read(world, 1, 500);
  request.segments[0] = LocalSegment::at(reader.region_address(world.granted[0]) + 64, 500, world.granted[0]);
  post_list(world, std::array{request});
  for (int i = 0; i < 5; ++i) world.step();
  CHECK(world.log[0] == "1 success rdma_read false 500 false 0 false\n");
  CHECK(world.ends[1]->adapter.counters().direct_reads == 1);
  CHECK(world.ends[1]->adapter.counters().segmented_reads == 0);
  const auto arrived = world.direct_bytes(0);
  CHECK(std::ranges::equal(std::span(arrived).subspan(64, 500), std::span(world.own[1]).subspan(100, 500)));
}

TEST_CASE("a one-touch sink takes one short answer", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  Endpoint& reader = *world.ends[0];
  EntryOptions once;
  once.rights = kLocalRights;
  once.touch = TouchControl::one_touch;
  WorkRequest request = read(world, 1, 8);
  request.segments[0].tag =
      reader.adapter.table().register_region(reader.domain, RegionMemory::of_process(reader.buffer), once).value();
  post_list(world, std::array{request});
  for (int i = 0; i < 5; ++i) world.step();
  CHECK(world.log[0] == "1 success rdma_read false 8 false 0 false\n");
  CHECK(post(reader, request) == Status::bad_tag);
}

/// The end at fault puts the cell into its lane itself.
void put(World& world, std::size_t from, Opcode opcode, std::uint32_t packet_sequence, std::uint32_t payload_bytes,
         const WorkRequest& asks = {}) {
  Cell cell;
  cell.opcode = opcode;
  cell.destination_queue_pair = world.ends[1 - from]->number;
  cell.packet_sequence = packet_sequence;
  cell.tag = asks.remote.tag;
  cell.address = asks.remote.address;
  cell.message_bytes = asks.segments[0].bytes;
  cell.message_sequence = static_cast<std::uint32_t>(asks.id);
  ClaimedPayload to;
  REQUIRE(world.links[from]->claim(VirtualLane::data, cell, payload_bytes, to));
  to.put(std::vector<std::byte>(payload_bytes));
  std::uint32_t crc = 0;
  static_cast<void>(world.links[from]->release(VirtualLane::data, cell, crc));
}

TEST_CASE("a short read out of its sequence is refused", "[fabric][adapter][express][read][hostile]") {
  World world(Way::express, 1);
  const std::uint32_t message_sequence = GENERATE(0U, 1U, 2U);
  WorkRequest asks = read(world, 1, 8);
  asks.id = message_sequence;
  put(world, 0, Opcode::read_request, 7, 0, asks);
  for (int i = 0; i < 3; ++i) world.step();
  const bool first = message_sequence == 1;
  CHECK(world.ends[1]->adapter.counters().segmented_reads == (first ? 1 : 0));
  CHECK(world.ends[1]->adapter.counters().access_refused == (first ? 0 : 1));
}

TEST_CASE("a short answer that does not fit its read is not placed", "[fabric][adapter][express][read][hostile]") {
  World world(Way::express, 1);
  Endpoint& reader = *world.ends[0];
  const auto before = reader.buffer;
  post_list(world, std::array{read(world, 1, 8)});
  world.poll_links();
  static_cast<void>(world.links[1]->front(VirtualLane::data));  // the owner answers nothing itself
  SECTION("of another packet") {
    put(world, 1, Opcode::read_response_only, 8, 8);
    reader.adapter.poll(world.now);
    CHECK(reader.adapter.counters().dropped_duplicate == 1);
    CHECK(reader.adapter.outstanding());
  }
  SECTION("of another length") {
    put(world, 1, Opcode::read_response_only, 7, 16);
    reader.adapter.poll(world.now);
    CHECK(reader.adapter.in_error(reader.number));
  }
  CHECK(reader.buffer == before);
}

TEST_CASE("memory of a strict domain takes no answers", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  Endpoint& reader = *world.ends[0];
  post_list(world, std::array{read(world, 1, 8)});
  world.step();
  std::vector<std::byte> sink(64);
  reader.adapter.table().set_rules(reader.domain, DomainRules::strict);
  WorkRequest request = read(world, 2, 64);
  request.segments[0] = {sink.data(), 64, reader.adapter.register_memory(reader.domain, sink, kAllRights).value()};
  CHECK(post(reader, request) == Status::bad_tag);
}

TEST_CASE("an answer is not placed into memory that was deregistered meanwhile", "[fabric][adapter][express][read]") {
  World world(Way::express, 1);
  Endpoint& reader = *world.ends[0];
  std::vector<std::byte> sink(64);
  const Stag tag = reader.adapter.register_memory(reader.domain, sink, kAllRights).value();
  WorkRequest request = read(world, 1, 64);
  request.segments[0] = {sink.data(), 64, tag};
  post_list(world, std::array{request});
  REQUIRE(reader.adapter.deregister(tag) == Status::ok);
  for (int i = 0; i < 5; ++i) world.step();
  CHECK(world.log[0].find("1 local_protection_error") != std::string::npos);
  CHECK(sink == std::vector<std::byte>(64));
}

}  // namespace splitnic::fabric::test::adapter_express_reads_test
