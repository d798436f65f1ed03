#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adapter_fixtures.h"
#include "datagram_fixtures.h"
#include "express_world.h"
#include "fabric/adapter/queue_pair.h"
#include "fabric/link/slot_receiver.h"
#include "fabric/link/slot_sender.h"
#include "forged_slots.h"
#include "slot_peer.h"

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

/// The second end gets some good slots and then the other one, all in one poll or each in its own.
std::unique_ptr<World> take_behind(std::uint32_t goods, const Forge& good, const Forge& other, bool in_one_poll) {
  auto world = std::make_unique<World>(Way::express, 1);
  pass_a_message(*world);
  Endpoint& to = *world->ends[1];
  for (std::uint64_t id = 1; id <= 4; ++id) REQUIRE(to.receive(id, 8192 * id, 4000) == Status::ok);
  for (std::uint32_t i = 0; i <= goods; ++i) {
    put(*world, (i < goods ? good : other)(*world, kNext + i));
    if (i == goods || !in_one_poll) to.adapter.poll(world->now);
  }
  for (int i = 0; i < 4; ++i) world->step();
  return world;
}

/// Behind good slots, where a row looks at it, the other one does what it does alone. Behind one it would begin the
/// row, behind two it would continue it. Returns whether it is taken.
bool taken_in_row(const Forge& good, const Forge& other) {
  std::array<bool, 2> taken{};
  for (std::uint32_t goods = 1; goods <= 2; ++goods) {
    INFO("behind " << goods);
    const auto in_row = take_behind(goods, good, other, true);
    const auto alone = take_behind(goods, good, other, false);
    for (std::size_t end = 0; end < 2; ++end) {
      INFO("end " << end);
      CHECK(in_row->log[end] == alone->log[end]);
      CHECK(in_row->received[end] == alone->received[end]);
      CHECK(in_row->counts(end) == alone->counts(end));
      CHECK(in_row->links[end]->up() == alone->links[end]->up());
      const Endpoint& one = *in_row->ends[end];
      const Endpoint& another = *alone->ends[end];
      CHECK(one.adapter.state(one.number) == another.adapter.state(another.number));
      const bool same_bytes = one.buffer == another.buffer && in_row->own[end] == alone->own[end];
      CHECK(same_bytes);
    }
    std::size_t messages = 0;  // the first one is in the log, too
    const std::string& received = in_row->received[1];
    for (std::size_t at = 0; (at = received.find(" success ", at)) != std::string::npos; ++at) ++messages;
    CHECK(messages >= 1 + goods);
    taken[goods - 1] = messages > 1 + goods;
  }
  CHECK(taken[0] == taken[1]);
  return taken[0];
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

TEST_CASE("a send that is not as it should be is refused behind good ones as it is alone",
          "[fabric][adapter][express][hostile]") {
  const auto bytes = static_cast<std::size_t>(GENERATE(30, 64));
  INFO(bytes << " bytes");
  const auto changed = [&](const auto& change) {
    return [bytes, change](World& world, std::uint32_t number) {
      Forged slot = forged_send(world, number, bytes);
      change(slot);
      return slot;
    };
  };
  const Forge good = changed([](Forged&) {});
  const auto taken_with = [&](const auto& change) {
    return taken_in_row(good, changed([&](Forged& slot) { slot.change = change; }));
  };
  for (const HeaderCase& bad : kBadHeaders) {
    INFO(bad.name);
    CHECK_FALSE(taken_with(bad.change));
  }
  INFO("another shape");
  CHECK_FALSE(taken_with(shape_bit("", slot_shape::kTwoLines).change));  // without its line, or longer than one
  CHECK_FALSE(taken_with(shape_bit("", slot_shape::kDirect).change));
  static_cast<void>(taken_with(shape_bit("", slot_shape::kAwaited).change));
  static_cast<void>(taken_with(shape_bit("", slot_shape::kInPayloadRing).change));
  CHECK(taken_with(shape_bit("", slot_shape::kSolicited).change));
  if (bytes > kSlotBodyInFirst) {
    INFO("no second line");
    CHECK_FALSE(taken_in_row(good, changed([](Forged& slot) { slot.second_line = false; })));
  }
}

TEST_CASE("an announced write that is not as it should be is refused behind good ones as it is alone",
          "[fabric][adapter][express][hostile]") {
  const auto announced = [](std::size_t offset, const auto& change) {
    return [=](World& world, std::uint32_t number) {
      Forged slot = forged_announcement(world, number, world.at_peer(0, offset), 64);
      change(world, slot);
      return slot;
    };
  };
  const auto as_it_is = [](World&, Forged&) {};
  const Forge good = announced(0, as_it_is);
  const auto taken_with = [&](const auto& change) {
    return taken_in_row(good, announced(64, [&](World&, Forged& slot) { slot.change = change; }));
  };
  CHECK(taken_in_row(good, announced(64, as_it_is)));
  for (const HeaderCase& bad : kBadHeaders) {
    INFO(bad.name);
    CHECK_FALSE(taken_with(bad.change));
  }
  INFO("another shape");
  CHECK_FALSE(taken_with(shape_bit("", slot_shape::kTwoLines).change));
  CHECK_FALSE(taken_with(shape_bit("", slot_shape::kInPayloadRing).change));
  CHECK_FALSE(taken_with(shape_bit("", slot_shape::kDirect).change));
  CHECK(taken_with(shape_bit("", slot_shape::kSolicited).change));
  INFO("a payload, or other memory");
  CHECK_FALSE(taken_with([](SlotHeader& header) { header.payload_bytes = 8; }));
  CHECK_FALSE(taken_in_row(good, announced(64, [](World& world, Forged& slot) {
                             slot.extension = announcement_of(world.at_peers_own(0, 64), 64);
                           })));
  CHECK_FALSE(taken_in_row(good, announced(World::kGranted - 8, as_it_is)));
}

TEST_CASE("a row of messages ends before one for another queue pair, which gets it",
          "[fabric][adapter][express][hostile]") {
  const bool announces = GENERATE(false, true);
  const auto before = static_cast<std::uint32_t>(GENERATE(1, 2, 3));
  INFO("announces " << announces << ", behind " << before);
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& to = *world.ends[1];
  const QpNumber another = to.make_queue_pair({});
  REQUIRE(to.adapter.connect(another, {world.ends[0]->number, 9, kNext + before}) == Status::ok);
  REQUIRE(to.adapter.post_receive(another, ReceiveRequest{11, to.segment(0, 64)}) == Status::ok);
  for (std::uint64_t id = 1; id <= 4; ++id) REQUIRE(to.receive(id, 4096 * id, 64) == Status::ok);
  for (std::uint32_t i = 0; i <= before; ++i) {
    Forged slot =
        announces ? forged_announcement(world, kNext + i, world.at_peer(0, 0), 64) : forged_send(world, kNext + i, 64);
    if (i == before) slot.fields.queue_pair = another;
    put(world, slot);
  }
  to.adapter.poll(world.now);
  const auto received = to.take();
  REQUIRE(received.size() == before + 1);
  for (std::uint32_t i = 0; i < before; ++i) CHECK(received[i].queue_pair == to.number);
  CHECK(received[before].queue_pair == another);
  CHECK(received[before].id == 11);
  CHECK(to.adapter.counters().access_refused == 0);
}

TEST_CASE("a message for a queue pair that is gone is nobody's, though the last one was for it",
          "[fabric][adapter][express][hostile]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& to = *world.ends[1];
  Forged slot = forged_send(world, kNext, 64);
  const auto arrive = [&] {
    put(world, slot);
    to.adapter.poll(world.now);
    CHECK(to.take().empty());
    return to.adapter.counters().dropped_unknown_queue_pair;
  };
  SECTION("it took it") {
    REQUIRE(to.receive(1, 4096, 64) == Status::ok);
    REQUIRE(to.adapter.destroy_queue_pair(to.number) == Status::ok);
    to.take();
    CHECK(arrive() == 1);
  }
  SECTION("it is for datagrams, and took none") {
    QueuePairAttributes datagrams;
    datagrams.acknowledged = false;
    datagrams.datagram = true;
    slot.fields.queue_pair = to.make_queue_pair(datagrams);
    CHECK(arrive() == 1);
    REQUIRE(to.adapter.destroy_queue_pair(slot.fields.queue_pair) == Status::ok);
    CHECK(arrive() == 2);
  }
}

TEST_CASE("each message of a row says what its sender has settled", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& to = *world.ends[1];
  for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(to.receive(id, 4096, 64) == Status::ok);
  const SlotSender& sender = world.links[1]->slots(VirtualLane::data)->sender;
  const auto before = static_cast<std::uint32_t>(sender.settled());
  REQUIRE(to.send(5, 0, 8) == Status::ok);
  const std::uint64_t sent = sender.head();
  for (std::uint32_t i = 0; i < 3; ++i) {  // the first end has not taken the message, but says so in the second
    Forged slot = forged_send(world, kNext + i, 64);
    slot.fields.settled = i == 0 ? before : static_cast<std::uint32_t>(sent);
    put(world, slot);
  }
  to.adapter.poll(world.now);
  CHECK(sender.settled() == sent);
  CHECK(ids_of(to.take(), CompletionStatus::success) == std::vector<std::uint64_t>{5});
}

TEST_CASE("in a queue that is armed for solicited completions, the second of two messages wakes",
          "[fabric][adapter][express]") {
  World world(Way::express, 1);
  Endpoint& to = *world.ends[1];
  int woken = 0;
  const ChannelNumber channel = to.adapter.create_completion_channel([&] { ++woken; }).value();
  QueuePairAttributes options;
  options.domain = to.domain;
  options.send_completions = options.receive_completions = to.adapter.make_completion_queue(64, channel).value();
  const QpNumber number = to.adapter.create_queue_pair(options).value();
  REQUIRE(to.adapter.connect(number, {world.ends[0]->number, 9, kNext}) == Status::ok);
  const auto get = [&](std::uint32_t psn, bool second_solicited) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      REQUIRE(to.adapter.post_receive(number, ReceiveRequest{i, to.segment(4096, 64)}) == Status::ok);
      Forged slot = forged_send(world, psn + i, 64);
      slot.fields.queue_pair = number;
      slot.fields.solicited = i == 1 && second_solicited;
      put(world, slot);
    }
    to.adapter.poll(world.now);
  };
  REQUIRE(to.adapter.arm(options.send_completions, Arm::solicited) == Status::ok);
  get(kNext, false);
  CHECK(woken == 0);
  get(kNext + 2, true);
  CHECK(woken == 1);
}

TEST_CASE("a direct write that is posted behind a send in cells is not stored before the send is taken",
          "[fabric][adapter][express]") {
  const auto bytes = static_cast<std::size_t>(GENERATE(64, 200));  // sent in a row, and not
  const auto in_lists_of = static_cast<std::size_t>(GENERATE(1, 2, 4));
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& writer = *world.ends[0];
  for (std::uint64_t id = 1; id <= 4; ++id) REQUIRE(world.ends[1]->receive(id, 0, 4096) == Status::ok);
  WorkRequest write = write_request(4, writer.segment(0, 64), world.at_peer(0, 0));
  write.operation = Operation::rdma_write_with_immediate;
  const WorkRequest send = send_request(3, writer.segment(0, bytes));
  const std::array all{send, send, write, write};
  const std::vector<std::byte> untouched = world.direct_bytes(1);
  for (std::size_t first = 0; first != all.size(); first += in_lists_of) {
    std::size_t posted = 0;
    const auto list = std::span(all).subspan(first, in_lists_of);
    REQUIRE(writer.adapter.post_send(writer.number, list, posted) == Status::ok);
  }
  CHECK(world.direct_bytes(1) == untouched);
  for (int i = 0; i < 4; ++i) world.step();
  CHECK(world.direct_bytes(1) != untouched);
  CHECK_FALSE(writer.adapter.outstanding());
}

TEST_CASE("a row has no message that is longer than a cell, or than any may be", "[fabric][adapter][express]") {
  const bool in_a_list = GENERATE(true, false);
  const auto post_all = [in_a_list](Endpoint& from, std::span<const WorkRequest> requests) {
    std::size_t posted = 0;
    if (in_a_list) return std::pair(from.adapter.post_send(from.number, requests, posted), posted);
    Status status = Status::ok;
    while (posted != requests.size() && (status = post(from, requests[posted])) == Status::ok) ++posted;
    return std::pair(status, posted);
  };
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(to.receive(id, 4096, 100) == Status::ok);
  SECTION("than a cell") {
    REQUIRE(from.adapter.set_cell_payload(64) == Status::ok);
    const std::uint64_t sent = from.adapter.counters().cells_sent;
    std::vector<WorkRequest> list = sends(from, 2);
    list[1].segments[0] = from.segment(0, 96);
    REQUIRE(post_all(from, list) == std::pair(Status::ok, list.size()));
    for (int i = 0; i < 4; ++i) world.step();
    CHECK(from.adapter.counters().cells_sent == sent + 3);
    CHECK_FALSE(from.adapter.outstanding());
    CHECK(to.holds(4096, std::span(from.buffer).first(96)));
  }
  SECTION("than any may be") {
    World small(Way::express, 1, {}, World::Receives::own, 1024);
    Endpoint& writer = *small.ends[0];
    for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(small.ends[1]->receive(id, 4096, 100) == Status::ok);
    std::array<WorkRequest, 2> list;
    for (std::size_t i = 0; i < 2; ++i) {
      list[i] = write_request(i, writer.segment(0, 1024 + i), small.at_peer(0, 0));
      list[i].operation = Operation::rdma_write_with_immediate;
    }
    CHECK(post_all(writer, list) == std::pair(Status::bad_length, std::size_t{1}));
    CHECK(writer.adapter.counters().direct_writes == 1);
  }
}

TEST_CASE("a row says how far its sender has settled, so that the tail line need not", "[fabric][adapter][express]") {
  const auto count = static_cast<std::size_t>(GENERATE(1, 2));
  const bool writes = GENERATE(false, true);
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& from = *world.ends[0];
  Endpoint& to = *world.ends[1];
  REQUIRE(from.receive(1, 4096, 64) == Status::ok);
  for (std::uint64_t id = 1; id <= 2; ++id) REQUIRE(to.receive(id, 4096, 64) == Status::ok);
  REQUIRE(to.send(1, 0, 64) == Status::ok);
  static_cast<void>(from.adapter.receive(world.now));
  const SlotReceiver& receiver = world.links[0]->slots(VirtualLane::data)->receiver;
  const SlotSender& sender = world.links[1]->slots(VirtualLane::data)->sender;
  REQUIRE(receiver.settled() == receiver.consumed());
  REQUIRE(receiver.unreported());
  std::vector<WorkRequest> list = sends(from, count);
  for (WorkRequest& request : list) {
    if (!writes) continue;
    request = write_request(1, from.segment(0, 64), world.at_peer(0, 0));
    request.operation = Operation::rdma_write_with_immediate;
  }
  std::size_t posted = 0;
  REQUIRE(from.adapter.post_send(from.number, list, posted) == Status::ok);
  CHECK(from.adapter.counters().direct_writes == (writes ? count : 0));
  CHECK_FALSE(receiver.unreported());
  static_cast<void>(to.adapter.receive(world.now));
  CHECK(sender.settled() == sender.head());
}

TEST_CASE("unsignalled sends that end in a row give their places back", "[fabric][adapter][express]") {
  World world(Way::express, 1);
  pass_a_message(world);
  Endpoint& from = *world.ends[0];
  const std::size_t room = from.adapter.send_room(from.number);
  std::vector<WorkRequest> list = sends(from, 32);
  for (WorkRequest& request : list) request.signalled = false;
  for (std::size_t sent = 0; sent < 2048; sent += list.size()) {  // the completion queue has 1024 places
    INFO(sent << " were sent");
    for (std::uint64_t id = 0; id < list.size(); ++id) REQUIRE(world.ends[1]->receive(id, 4096, 64) == Status::ok);
    std::size_t posted = 0;
    REQUIRE(from.adapter.post_send(from.number, list, posted) == Status::ok);
    for (int i = 0; i < 4; ++i) world.step();
    REQUIRE_FALSE(from.adapter.outstanding());
    REQUIRE(from.adapter.send_room(from.number) == room);
  }
}

TEST_CASE("a refusal of messages whose consumption has ended them is an old one", "[fabric][adapter][consumption]") {
  SlotPeer peer;
  for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(peer.host.send(id, 0, 10) == Status::ok);
  CHECK(peer.take().size() == 3);
  peer.settle();
  peer.poll();
  REQUIRE(ids_of(peer.host.take(), CompletionStatus::success).size() == 3);
  Cell refusal = peer.cell(Opcode::acknowledge, SlotPeer::kOwnPsn);
  refusal.syndrome = Syndrome::remote_access_error;
  REQUIRE(peer.put(refusal));
  peer.poll();
  CHECK(peer.host.adapter.state(peer.host.number) == QueuePairState::ready_to_send);
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
