#include "fabric/adapter/express.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapter_fixtures.h"
#include "datagram_fixtures.h"
#include "express_world.h"
#include "mapped_memory.h"

/// What the short way does is what requester and responder do: the same requests end alike over links that show their
/// slots, and over links that don't.
namespace splitnic::fabric::test::adapter_express_test {
namespace {

using World = ExpressWorld;
using Way = World::Way;
using Receives = World::Receives;

constexpr std::size_t kInlineBytes = 100;
// Of a buffer, 4096 bytes each: the first are sent, the next are where reads go, the upper half is received. What is
// read and where it goes is nothing else's: by the fabric's rules a write may overtake the answer to a read.
constexpr std::size_t kSlots = 64;
constexpr std::size_t kSent = kSlots / 4;
constexpr std::size_t kReadFrom = 12288;  // of the peer's memory
// Where bytes are stored before the write is posted that announces them: no other write may land there later.
constexpr std::size_t kPlacedFrom = 10240;
constexpr std::size_t kMostPlaced = 1500;

/// Stores the write's bytes at once, if the peer has granted that, and makes it their announcement.
void place(World& world, std::size_t from, SeededRandom& random, WorkRequest& request) {
  Endpoint& end = *world.ends[from];
  const std::uint32_t bytes = std::min<std::uint32_t>(request.segments[0].bytes, kMostPlaced);
  const RemoteAddress to = world.at_peer(from, kPlacedFrom + random.below(8) * 64);
  const auto at = end.adapter.claim_direct(end.number, to, bytes);
  if (!at || bytes == 0) return;
  world.bridges.end(from).peer_window().write(*at, pattern(bytes, request.id));
  request.remote = to;
  request.placed_bytes = bytes;
  request.segment_count = 0;
  request.inline_data = false;
}

/// One request of a random kind. Lengths lie around those of a line, of a slot, of a cell.
WorkRequest draw(World& world, std::size_t from, SeededRandom& random, std::uint64_t id, bool errs) {
  constexpr std::array<std::uint32_t, 14> kLengths{0, 1, 16, 32, 36, 37, 64, 92, 96, 97, 1500, 2047, 2048, 3000};
  Endpoint& end = *world.ends[from];
  WorkRequest request;
  request.id = id;
  const std::uint32_t bytes = kLengths[random.below(kLengths.size())];
  constexpr std::array kKinds{Operation::send,
                              Operation::send,
                              Operation::send_with_immediate,
                              Operation::rdma_write,
                              Operation::rdma_write_with_immediate,
                              Operation::rdma_read};
  request.operation = kKinds[random.below(kKinds.size())];
  const bool reads = request.operation == Operation::rdma_read;
  const auto slot = [&] { return ((reads ? kSent : 0) + random.below(kSent)) * 4096; };
  request.segments[0] = end.segment(slot(), bytes);
  request.segment_count = 1;
  if (random.below(8) == 0) {
    request.segments[1] = end.segment(slot(), 40);
    request.segment_count = 2;
  }
  request.immediate = static_cast<std::uint32_t>(id);
  request.solicited = random.below(4) == 0;
  request.signalled = random.below(4) != 0;
  request.fence = random.below(16) == 0;
  request.inline_data = random.below(4) == 0;
  const std::size_t first = reads ? kReadFrom + random.below(64) : random.below(8) * 1024;
  const std::size_t reach = errs && random.below(40) == 0 ? World::kGranted - 8 : first;
  request.remote = random.below(2) == 0 ? world.at_peer(from, reach) : world.at_peers_own(from, reach);
  if (errs && random.below(60) == 0) request.remote.tag = Stag{request.remote.tag.value + 1};
  return request;
}

/// Plays a script that the seed says, and returns the world at its end.
std::unique_ptr<World> play(Way way, std::uint64_t seed) {
  SeededRandom random(seed);
  SeededRandom placing(seed);
  QueuePairAttributes options;
  options.verbs_rules = random.below(2) == 0;
  options.flush_posts = true;
  options.max_inline_bytes = kInlineBytes;
  const bool errs = seed % 3 == 0;
  if (errs && random.below(4) == 0) options.remote_rights = Rights{} | Right::remote_read;
  auto world = std::make_unique<World>(way, seed, options, seed % 4 == 0 ? Receives::shared : Receives::own);
  std::uint64_t id = 0;
  for (int turn = 0; turn < 80; ++turn) {
    const std::size_t who = random.below(2);
    Endpoint& end = *world->ends[who];
    for (std::size_t receives = random.below(8); receives > 0; --receives) {
      const std::size_t bytes = errs && random.below(20) == 0 ? 50 : 4000;
      ++id;
      const std::size_t at = (kSlots / 2 + id % (kSlots / 2)) * 4096;
      const LocalSegment rest = end.segment(at + 64, 4000);
      ReceiveRequest request{id, end.segment(at, bytes)};
      if (random.below(6) == 0) request = {id, end.segment(at, 30), std::span(&rest, 1)};
      world->receive(who, request);
    }
    std::vector<WorkRequest> list;
    for (std::size_t sends = random.below(6); sends > 0; --sends) {
      list.push_back(draw(*world, who, random, ++id, errs));
      if (is_write(list.back().operation) && placing.below(4) == 0) place(*world, who, placing, list.back());
    }
    std::size_t posted = 0;
    const Status status = end.adapter.post_send(end.number, list, posted);
    world->log[who] += fmt::format("posted {} {}\n", posted, to_string(status));
    const std::size_t room = end.adapter.send_room(end.number);
    if (room != 0) REQUIRE(end.adapter.has_send_room(end.number, room));
    REQUIRE_FALSE(end.adapter.has_send_room(end.number, room + 1));
    if (errs && random.below(100) == 0) static_cast<void>(end.adapter.deregister(world->granted[who]));
    if (errs && random.below(100) == 0) static_cast<void>(end.adapter.deregister(world->owned[who]));
    for (std::size_t steps = random.below(5) + 1; steps > 0; --steps) world->step();
  }
  for (int i = 0; i < 1000 && (world->ends[0]->adapter.outstanding() || world->ends[1]->adapter.outstanding()); ++i) {
    world->step();
  }
  return world;
}

/// The same with datagrams, of which some find nobody, no receive or the wrong key.
std::unique_ptr<World> play_datagrams(Way way, std::uint64_t seed) {
  SeededRandom random(seed);
  QueuePairAttributes options = datagrams();
  options.max_inline_bytes = kInlineBytes;
  auto world = std::make_unique<World>(way, seed, options);
  std::array<std::array<AddressHandleNumber, 2>, 2> handles{};  // of each end; they differ in what the route says
  for (std::size_t end = 0; end < 2; ++end) {
    ChannelAdapter& adapter = world->ends[end]->adapter;
    handles[end] = {adapter.create_address_handle({}).value(),
                    adapter.create_address_handle({.traffic_class = 7, .flow_label = 0x12345}).value()};
  }
  std::uint64_t id = 0;
  for (int turn = 0; turn < 80; ++turn) {
    const std::size_t who = random.below(2);
    Endpoint& end = *world->ends[who];
    for (std::size_t receives = random.below(8); receives > 0; --receives) {
      const std::size_t at = (kSlots / 2 + ++id % (kSlots / 2)) * 4096;
      const LocalSegment rest = end.segment(at + 64, 4000);
      ReceiveRequest request{id, end.segment(at, random.below(20) == 0 ? 50 : 4000)};
      if (random.below(6) == 0) request = {id, end.segment(at, 30), std::span(&rest, 1)};
      static_cast<void>(end.adapter.post_receive(end.number, request));
    }
    std::vector<WorkRequest> list;
    for (std::size_t sends = random.below(6); sends > 0; --sends) {
      WorkRequest request = draw(*world, who, random, ++id, false);
      const bool immediate = random.below(4) == 0;
      request.operation = immediate ? Operation::send_with_immediate : Operation::send;
      request.fence = false;
      request.datagram = {handles[who][random.below(2)], world->ends[1 - who]->number, kKey};
      if (random.below(12) == 0) request.datagram.queue_key = kKey + 1;
      if (random.below(12) == 0) request.datagram.queue_key = 0x8000'0000;
      if (random.below(20) == 0) request.datagram.queue_pair = QpNumber{request.datagram.queue_pair.value + 1};
      list.push_back(request);
    }
    std::size_t posted = 0;
    const Status status = end.adapter.post_send(end.number, list, posted);
    world->log[who] += fmt::format("posted {} {}\n", posted, to_string(status));
    for (std::size_t steps = random.below(5) + 1; steps > 0; --steps) world->step();
  }
  for (int i = 0; i < 100; ++i) world->step();
  return world;
}

void require_alike(World& express, World& general) {
  for (std::size_t end = 0; end < 2; ++end) {
    INFO("end " << end);
    REQUIRE(express.log[end] == general.log[end]);
    REQUIRE(express.received[end] == general.received[end]);
    REQUIRE(express.counts(end) == general.counts(end));
    const bool same_direct_bytes = express.direct_bytes(end) == general.direct_bytes(end);  // too long to be printed
    const bool same_buffers = express.ends[end]->buffer == general.ends[end]->buffer;
    const bool same_own_bytes = express.own[end] == general.own[end];
    REQUIRE(same_direct_bytes);
    REQUIRE(same_own_bytes);
    REQUIRE(same_buffers);
  }
}

}  // namespace

TEST_CASE("a datagram ends alike whether it goes the short way or the general one",
          "[fabric][adapter][express][datagram]") {
  AdapterCounters sum;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    const auto express = play_datagrams(Way::express, seed);
    require_alike(*express, *play_datagrams(Way::general, seed));
    const AdapterCounters& all = express->ends[0]->adapter.counters();
    sum.datagrams_received += all.datagrams_received;
    sum.dropped_no_receive += all.dropped_no_receive;
    sum.dropped_wrong_queue_key += all.dropped_wrong_queue_key;
    sum.dropped_datagram_too_long += all.dropped_datagram_too_long;
    sum.dropped_unknown_queue_pair += all.dropped_unknown_queue_pair;
  }
  // The scripts reach each of these.
  CHECK(sum.datagrams_received > 500);
  CHECK(sum.dropped_no_receive > 10);
  CHECK(sum.dropped_wrong_queue_key > 10);
  CHECK(sum.dropped_datagram_too_long > 10);
  CHECK(sum.dropped_unknown_queue_pair > 10);
}

TEST_CASE("a datagram that is posted behind one that waits leaves after it", "[fabric][adapter][express][datagram]") {
  World world(Way::express, 1, datagrams());
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  const AddressHandleNumber handle = from.adapter.create_address_handle({}).value();
  std::uint64_t sent = 0;
  const auto send = [&] {
    ++sent;
    const std::size_t at = sent % 2 * 4096;
    std::memcpy(from.buffer.data() + at, &sent, sizeof sent);
    WorkRequest request = send_request(sent, from.segment(at, sizeof sent));
    request.datagram = {handle, to.number, kKey};
    REQUIRE(post(from, request) == Status::ok);
    static_cast<void>(from.take());
  };
  while (!from.adapter.outstanding()) send();                    // until the lane is full
  while (to.adapter.counters().dropped_no_receive + 1 < sent) {  // makes room
    world.poll_links();
    to.adapter.poll(world.now);
  }
  const std::size_t places[] = {kSlots / 2 * 4096, (kSlots / 2 + 1) * 4096};
  for (const std::size_t at : places) REQUIRE(to.receive(at, at, 100) == Status::ok);
  send();
  for (int i = 0; i < 20; ++i) world.step();
  REQUIRE(to.adapter.counters().datagrams_received == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    std::uint64_t number = 0;
    std::memcpy(&number, to.buffer.data() + places[i] + kRouteHeaderBytes, sizeof number);
    CHECK(number == sent - 1 + i);
  }
}

TEST_CASE("bytes that the caller has stored are announced in the order of the posts", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  constexpr std::size_t kBytes = 100;
  for (std::uint64_t id = 1; id <= 8; ++id) REQUIRE(to.receive(id, kSlots / 2 * 4096, 100) == Status::ok);
  std::vector<WorkRequest> list;
  for (std::uint64_t id = 1; id <= 8; ++id) {
    WorkRequest request = send_request(id, from.segment(0, 4));
    request.operation = id % 2 == 0 ? Operation::send_with_immediate : Operation::rdma_write_with_immediate;
    request.immediate = static_cast<std::uint32_t>(id);
    if (id % 2 != 0) {
      request.remote = world.at_peer(0, id * kBytes);
      const auto at = from.adapter.claim_direct(from.number, request.remote, kBytes);
      REQUIRE(at.has_value());
      world.bridges.end(0).peer_window().write(*at, pattern(kBytes, id));
      request.placed_bytes = kBytes;
      request.segment_count = 0;
    }
    list.push_back(request);
  }
  std::size_t posted = 0;
  REQUIRE(from.adapter.post_send(from.number, list, posted) == Status::ok);
  CHECK(from.adapter.counters().cells_sent == 8);  // with the post itself
  to.adapter.poll(world.now);
  const auto received = to.take();
  REQUIRE(received.size() == 8);
  const auto there = world.direct_bytes(1);
  for (std::uint64_t id = 1; id <= 8; ++id) {
    const Completion& done = received[id - 1];
    CHECK(done.immediate == id);
    CHECK(done.bytes == (id % 2 != 0 ? kBytes : 4));
    if (id % 2 == 0) continue;
    const auto bytes = std::span(there).subspan(id * kBytes, kBytes);
    CHECK(std::ranges::equal(bytes, pattern(kBytes, id)));
  }
}

TEST_CASE("a message ends alike whether it goes the short way or the general one", "[fabric][adapter][express]") {
  std::uint64_t failed = 0;
  std::uint64_t whole = 0;
  std::uint64_t segmented = 0;
  std::uint64_t direct = 0;
  std::uint64_t read = 0;
  for (std::uint64_t seed = 1; seed <= 90; ++seed) {
    INFO("seed " << seed);
    const auto express = play(Way::express, seed);
    require_alike(*express, *play(Way::general, seed));
    ++(express->ends[0]->adapter.state(express->ends[0]->number) == QueuePairState::error ? failed : whole);
    segmented += express->ends[0]->adapter.counters().segmented_writes;
    direct += express->ends[0]->adapter.counters().direct_writes;
    read += express->ends[0]->adapter.counters().segmented_reads;
  }
  // The scripts reach both: refusals of every kind, and long lives.
  CHECK(failed > 10);
  CHECK(whole > 10);
  CHECK(segmented > 100);
  CHECK(direct > 100);
  CHECK(read > 100);
}

/// The first end's peer hears of a direct write of 64 bytes that nobody has claimed.
void tell_unclaimed_write(World& world, std::uint32_t packet_sequence, const RemoteAddress& at) {
  Cell cell;
  cell.opcode = Opcode::write_only;
  cell.direct = cell.awaited = true;
  cell.destination_queue_pair = world.ends[1]->number;
  cell.packet_sequence = packet_sequence;
  cell.tag = at.tag;
  cell.address = at.address;
  cell.message_bytes = 64;
  ClaimedPayload none;
  REQUIRE(world.links[0]->claim(VirtualLane::data, cell, 0, none));
  std::uint32_t crc = 0;
  static_cast<void>(world.links[0]->release(VirtualLane::data, cell, crc));
  world.step();
}

TEST_CASE("a direct write beyond what is granted is refused, though one inside it was taken before",
          "[fabric][adapter][express]") {
  World world(Way::express, 1);
  REQUIRE(world.ends[0]->write(1, 0, 64, world.at_peer(0, 0)) == Status::ok);
  for (int i = 0; i < 4; ++i) world.step();
  const ChannelAdapter& owner = world.ends[1]->adapter;
  REQUIRE(owner.counters().access_refused == 0);
  tell_unclaimed_write(world, 8, world.at_peer(0, World::kGranted - 8));
  CHECK(owner.counters().access_refused == 1);
  CHECK(owner.state(world.ends[1]->number) == QueuePairState::error);
}

TEST_CASE("a direct write through a queue pair that may not be written through is refused, whatever its peer claims",
          "[fabric][adapter][express]") {
  const bool may = GENERATE(true, false);
  QueuePairAttributes options;
  if (!may) options.remote_rights = Rights{} | Right::remote_read;
  World world(Way::express, 1, options);
  tell_unclaimed_write(world, 7, world.at_peer(0, 0));
  const ChannelAdapter& owner = world.ends[1]->adapter;
  CHECK(owner.counters().access_refused == (may ? 0 : 1));
  CHECK((owner.state(world.ends[1]->number) == QueuePairState::error) == !may);
}

TEST_CASE("in a list, a write behind a send is not stored before the send is taken", "[fabric][adapter][express]") {
  const auto bytes = static_cast<std::size_t>(GENERATE(64, 200));  // sent in a row, and not
  World world(Way::express, 1);
  Endpoint& writer = *world.ends[0];
  for (int i = 0; i < 2; ++i) REQUIRE(world.ends[1]->receive(1, 0, 4096) == Status::ok);
  REQUIRE(writer.send(1, 0, 64) == Status::ok);  // the memory is remembered from now on
  for (int i = 0; i < 4; ++i) world.step();
  std::array<WorkRequest, 2> list;
  for (WorkRequest& request : list) {
    request.segments[0] = writer.segment(0, 64);
    request.segment_count = 1;
  }
  list[0].segments[0] = writer.segment(0, bytes);
  list[1].operation = Operation::rdma_write;
  list[1].remote = world.at_peer(0, 0);
  const std::vector<std::byte> untouched = world.direct_bytes(1);
  std::size_t posted = 0;
  REQUIRE(writer.adapter.post_send(writer.number, list, posted) == Status::ok);
  REQUIRE(posted == 2);
  CHECK(world.direct_bytes(1) == untouched);
  for (int i = 0; i < 4; ++i) world.step();
  CHECK(world.direct_bytes(1) != untouched);
  CHECK(writer.adapter.counters().direct_writes == 0);
}

TEST_CASE("what was settled while an end made ready to sleep completes with its next poll",
          "[fabric][adapter][express]") {
  World world(Way::express, 1);
  REQUIRE(world.ends[1]->receive(1, 0, 64) == Status::ok);
  REQUIRE(world.ends[0]->send(2, 0, 64) == Status::ok);
  world.ends[0]->adapter.poll(world.now);
  world.ends[1]->adapter.poll(world.now);
  CHECK_FALSE(world.ends[0]->adapter.prepare_sleep());  // it learns that the peer has taken the message
  world.ends[0]->adapter.disarm();
  world.ends[0]->adapter.poll(world.now);
  const auto done = world.ends[0]->take();
  REQUIRE(done.size() == 1);
  CHECK(done[0].id == 2);
}

TEST_CASE("a poll that has nothing else to do rings for what left before it", "[fabric][adapter][express]") {
  QueuePairAttributes options;
  options.acknowledged = false;
  World world(Way::express, 1, options);
  while (world.bridges.rung(1)) continue;
  REQUIRE(world.links[1]->prepare_sleep());
  ChannelAdapter& adapter = world.ends[0]->adapter;
  REQUIRE(world.ends[0]->send(1, 0, 64) == Status::ok);
  static_cast<void>(adapter.receive(world.now));
  static_cast<void>(adapter.send());
  CHECK_FALSE(adapter.outstanding());
  CHECK_FALSE(world.bridges.rung(1));
  static_cast<void>(adapter.poll(world.now));
  CHECK(world.bridges.rung(1));
}

TEST_CASE("what comes behind a refused message is not taken before it", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  REQUIRE(from.send(3, 0, 64) == Status::ok);
  to.adapter.poll(world.now);  // refuses it, as there is no receive
  for (std::uint64_t id = 4; id < 6; ++id) REQUIRE(to.receive(id, id * 4096, 64) == Status::ok);
  REQUIRE(from.send(4, 4096, 64) == Status::ok);  // before it has heard of the refusal
  to.adapter.poll(world.now);
  CHECK(to.take().empty());
  for (int polls = 0; from.adapter.outstanding() && polls < 10'000; ++polls) world.step();
  CHECK(to.holds(4 * 4096, std::span(from.buffer).first(64)));
  CHECK(to.holds(5 * 4096, std::span(from.buffer).subspan(4096, 64)));
}

TEST_CASE("inline data that is refused is sent again as it was posted", "[fabric][adapter][express]") {
  QueuePairAttributes options;
  options.max_inline_bytes = kInlineBytes;
  World world(Way::express, 1, options);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  WorkRequest request = send_request(1, from.segment(0, 60));
  request.segments[1] = from.segment(4096, 40);
  request.segment_count = 2;
  request.inline_data = true;
  std::vector<std::byte> said(from.buffer.begin(), from.buffer.begin() + 60);
  said.insert(said.end(), from.buffer.begin() + 4096, from.buffer.begin() + 4136);
  REQUIRE(post(from, request) == Status::ok);
  CHECK(from.adapter.counters().cells_sent == 1);
  from.fill(0, pattern(8192, 99));  // the program goes on with its memory
  world.step();                     // the peer has no receive
  REQUIRE(to.receive(2, 8192, 100) == Status::ok);
  for (int polls = 0; from.adapter.outstanding() && polls < 10'000; ++polls) world.step();
  CHECK(from.adapter.counters().retransmissions == 1);
  CHECK(to.holds(8192, said));
}

TEST_CASE("memory that a peer may write by its owner alone takes no direct write, though it has taken others",
          "[fabric][adapter][express]") {
  World world(Way::express, 1);
  REQUIRE(world.ends[0]->write(1, 0, 64, world.at_peers_own(0, 0)) == Status::ok);
  for (int i = 0; i < 4; ++i) world.step();
  const ChannelAdapter& owner = world.ends[1]->adapter;
  REQUIRE(world.ends[0]->adapter.counters().segmented_writes == 1);
  REQUIRE(owner.counters().access_refused == 0);
  tell_unclaimed_write(world, 8, world.at_peers_own(0, 0));
  CHECK(owner.counters().access_refused == 1);
  CHECK(owner.state(world.ends[1]->number) == QueuePairState::error);
}

TEST_CASE("a write whose header names more bytes than its slot carries is refused", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  const RemoteAddress at = world.at_peers_own(0, 0);
  REQUIRE(world.ends[0]->write(1, 0, 64, at) == Status::ok);
  for (int i = 0; i < 4; ++i) world.step();
  const std::vector<std::byte> before = world.own[1];
  Cell cell;
  cell.opcode = Opcode::write_only;
  cell.awaited = true;
  cell.destination_queue_pair = world.ends[1]->number;
  cell.packet_sequence = 8;
  cell.tag = at.tag;
  cell.address = at.address;
  cell.message_bytes = 64;
  ClaimedPayload payload;
  REQUIRE(world.links[0]->claim(VirtualLane::data, cell, 16, payload));
  payload.put(pattern(16, 1));
  std::uint32_t crc = 0;
  static_cast<void>(world.links[0]->release(VirtualLane::data, cell, crc));
  world.step();
  CHECK(world.own[1] == before);
  CHECK(world.ends[1]->adapter.counters().dropped_bad_cell == 1);
}

TEST_CASE("a write in a cell whose memory is gone is refused at once, and its owner hears of it",
          "[fabric][adapter][express][gone]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& owner = *world.ends[1];
  const MappedMemory mapped(page_bytes());
  const Stag tag = owner.adapter.register_memory(owner.domain, {mapped.data(), mapped.size()}, kAllRights).value();
  mapped.protect(PROT_NONE);
  REQUIRE(world.ends[0]->write(3, 0, 64, {owner.adapter.region_address(tag), tag}) == Status::ok);
  for (int i = 0; i < 3; ++i) world.step();
  CHECK(owner.adapter.counters().access_refused == 1);
  CHECK(owner.adapter.counters().terminates_sent == 1);
  CHECK(world.log[0].find("3 remote_operation_error") != std::string::npos);
  std::array<AsyncEvent, 8> events;
  const auto reported = std::span(events).first(owner.adapter.poll_events(events));
  CHECK(std::ranges::count_if(reported, [&](const AsyncEvent& event) {
          return event.kind == AsyncEventKind::memory_gone && event.tag == tag;
        }) == 1);
}

TEST_CASE("a write in a cell finds its bytes after the region or its window has changed",
          "[fabric][adapter][express]") {
  World world(Way::express, 1);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  std::uint64_t id = 0;
  const auto write = [&](const RemoteAddress& at) {
    const std::size_t place = ++id % (kSlots / 2) * 4096;
    REQUIRE(from.write(id, place, 64, at) == Status::ok);
    for (int i = 0; i < 4; ++i) world.step();
    return std::span(from.buffer).subspan(place, 64);
  };
  const auto lies_at = [](std::span<const std::byte> bytes, const std::vector<std::byte>& memory, std::size_t at) {
    return std::ranges::equal(bytes, std::span(memory).subspan(at, bytes.size()));
  };
  for (std::size_t offset = 0; offset < 3; ++offset) {
    CHECK(lies_at(write(world.at_peers_own(0, offset * 100)), world.own[1], offset * 100));
  }
  // The same place of the table, other memory.
  std::vector<std::byte> other(World::kGranted);
  REQUIRE(to.adapter.deregister(world.owned[1]) == Status::ok);
  world.owned[1] = to.adapter.register_memory(to.domain, other, kAllRights).value();
  const std::vector<std::byte> before = world.own[1];
  CHECK(lies_at(write(world.at_peers_own(0, 200)), other, 200));
  CHECK(world.own[1] == before);
  // A window on a part of it.
  const Stag region = to.adapter.register_memory(to.domain, world.own[1], kAllRights | Right::window_binding).value();
  std::array<Stag, 1> window{};
  REQUIRE(to.adapter.table().allocate_windows(to.domain, EntryKind::window_type_1, window));
  Bind bind;
  bind.window = window[0];
  bind.region = region;
  bind.address = to.adapter.region_address(region) + 1024;
  bind.length = 512;
  bind.rights = Rights{} | Right::remote_write;
  const auto bound = to.adapter.table().bind(bind, {to.domain, to.number});
  REQUIRE(bound.has_value());
  for (std::size_t offset = 0; offset < 3; ++offset) {
    CHECK(lies_at(write({bind.address + offset * 100, *bound}), world.own[1], 1024 + offset * 100));
  }
  CHECK(to.adapter.counters().access_refused == 0);
  static_cast<void>(write({bind.address + 500, *bound}));
  CHECK(to.adapter.counters().access_refused == 1);
}

TEST_CASE("what leaves at its post is timed, though the polls after it only look", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  ChannelAdapter& adapter = world.ends[0]->adapter;
  REQUIRE(world.ends[0]->send(3, 0, 64) == Status::ok);
  const Time posted = world.now;
  world.now += microseconds(1);
  CHECK(adapter.poll(world.now) == 0);
  std::vector<Completion> done;
  std::optional<Time> noticed;
  for (int polls = 0; done.empty() && polls < 100; ++polls) {
    const Time next = adapter.next_deadline();
    REQUIRE(next != kNever);
    world.now = std::max(world.now, next);
    adapter.poll(world.now);
    if (!noticed && adapter.counters().timeouts != 0) noticed = world.now;
    done = world.ends[0]->take();
  }
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == CompletionStatus::retry_exceeded);
  // Somebody who sleeps until the next deadline notices the loss in time.
  REQUIRE(noticed.has_value());
  CHECK(*noticed - posted <= AdapterOptions{}.ack_timeout + microseconds(20));
}

TEST_CASE("a poll that only looks sees what the peer has settled", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  REQUIRE(world.ends[1]->receive(3, 0, 64) == Status::ok);
  REQUIRE(world.ends[0]->send(4, 0, 64) == Status::ok);
  world.now += microseconds(1);
  CHECK(world.ends[0]->adapter.poll(world.now) == 0);
  CHECK(world.ends[0]->take().empty());
  CHECK(world.ends[1]->adapter.poll(world.now) != 0);
  CHECK(world.ends[0]->adapter.poll(world.now) != 0);
  const auto done = world.ends[0]->take();
  REQUIRE(done.size() == 1);
  CHECK(done[0].id == 4);
}

TEST_CASE("what a post has left over leaves with the next poll", "[fabric][adapter][express]") {
  constexpr std::uint32_t kCell = 1024;
  constexpr std::size_t kCells = 20;
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& end = *world.ends[0];
  REQUIRE(end.adapter.set_cell_payload(kCell) == Status::ok);
  REQUIRE(end.send(3, 0, 64) == Status::ok);
  const std::uint64_t before = end.adapter.counters().cells_sent;
  REQUIRE(end.send(4, 0, kCells * kCell) == Status::ok);
  CHECK(end.adapter.counters().cells_sent - before < kCells);
  world.now += microseconds(1);
  end.adapter.poll(world.now);
  CHECK(end.adapter.counters().cells_sent - before == kCells);
}

}  // namespace splitnic::fabric::test::adapter_express_test
