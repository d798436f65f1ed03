#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "fabric/adapter/queue_pair.h"
#include "slot_peer.h"

/// What a peer is told of messages that were consumed without having been taken, and what that costs others.
namespace splitnic::fabric::adapter_not_taken_test {
namespace {

using test::Endpoint;
using test::ids_of;
using test::LinkedPair;
using test::microseconds;
using test::milliseconds;
using test::SlotPeer;
using test::TwoEndpoints;

constexpr VirtualLane kData = VirtualLane::data;

}  // namespace

TEST_CASE("each awaited message that is not taken is refused by name, before it is settled",
          "[fabric][adapter][consumption]") {
  QueuePairAttributes attributes;
  SECTION("an unknown queue pair") {
    SlotPeer peer(test::small_cells(), attributes);
    Cell lost = peer.awaited_send(3);
    lost.destination_queue_pair = QpNumber{0xabcdef};
    REQUIRE(peer.put(lost));
    peer.poll();
    const auto back = peer.take();
    REQUIRE(back.size() == 1);
    CHECK(back[0].opcode == Opcode::not_taken);
    CHECK(back[0].destination_queue_pair == QpNumber{0xabcdef});
    CHECK(back[0].packet_sequence == 3);
    CHECK(peer.host.adapter.counters().not_taken_sent == 1);
    CHECK(peer.host.adapter.counters().dropped_unknown_queue_pair == 1);
    lost.awaited = false;  // nobody waits for it
    REQUIRE(peer.put(lost));
    peer.poll();
    CHECK(peer.take().empty());
  }
  SECTION("an opcode that is none") {
    SlotPeer peer(test::small_cells(), attributes);
    Cell odd = peer.awaited_send(SlotPeer::kPsn);
    odd.opcode = static_cast<Opcode>(31);
    REQUIRE(peer.put(odd));
    peer.poll();
    const auto back = peer.take();
    REQUIRE(back.size() == 1);
    CHECK(back[0].opcode == Opcode::not_taken);
    CHECK(back[0].destination_queue_pair == peer.host.number);
    CHECK(peer.host.adapter.counters().dropped_bad_cell == 1);
  }
  SECTION("no receive posted, and the rest of the run") {
    SlotPeer peer(test::small_cells(), attributes);
    for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(peer.put(peer.awaited_send(SlotPeer::kPsn + i)));
    peer.poll();
    const auto back = peer.take();
    REQUIRE(back.size() == 4);
    for (std::uint32_t i = 0; i < 3; ++i) {
      CHECK(back[i].opcode == Opcode::not_taken);
      CHECK(back[i].packet_sequence == SlotPeer::kPsn + i);
    }
    CHECK(back[3].syndrome == Syndrome::receiver_not_ready);
  }
  SECTION("a copy of what was taken before: an acknowledgement says so") {
    SlotPeer peer(test::small_cells(), attributes);
    REQUIRE(peer.host.receive(1, 0, 64) == Status::ok);
    REQUIRE(peer.put(peer.awaited_send(SlotPeer::kPsn)));
    peer.poll();
    CHECK(peer.take().empty());
    REQUIRE(peer.put(peer.awaited_send(SlotPeer::kPsn)));
    peer.poll();
    const auto back = peer.take();
    REQUIRE(back.size() == 2);
    CHECK(back[0].opcode == Opcode::not_taken);
    CHECK(back[1].opcode == Opcode::acknowledge);
    CHECK(back[1].syndrome == Syndrome::ok);
    CHECK(back[1].packet_sequence == SlotPeer::kPsn);
  }
  SECTION("a queue pair in error") {
    SlotPeer peer(test::small_cells(), attributes);
    REQUIRE(peer.host.adapter.modify(peer.host.number, QueuePairEvent::fail) == Status::ok);
    REQUIRE(peer.put(peer.awaited_send(SlotPeer::kPsn)));
    peer.poll();
    const auto back = peer.take();
    REQUIRE(back.size() == 1);
    CHECK(back[0].opcode == Opcode::not_taken);
  }
  SECTION("a queue pair that acknowledges nothing") {
    attributes.acknowledged = false;
    SlotPeer peer(test::small_cells(), attributes);
    REQUIRE(peer.host.receive(1, 0, 64) == Status::ok);
    REQUIRE(peer.put(peer.awaited_send(SlotPeer::kPsn)));
    peer.poll();
    const auto back = peer.take();
    REQUIRE(back.size() == 1);
    CHECK(back[0].opcode == Opcode::not_taken);
  }
}

TEST_CASE("while a refusal finds no room, room is given and nothing is settled", "[fabric][adapter][consumption]") {
  SlotPeer peer;
  // The adapter's own lane is full: the peer takes nothing.
  std::uint64_t posted = 0;
  while (!peer.pair.link(0).wants_room(kData)) {
    const Status status = peer.host.send(posted, 0, 10);
    REQUIRE((status == Status::ok || status == Status::queue_full));
    if (status == Status::ok) ++posted;
    if (status == Status::queue_full) break;
  }
  peer.fill_lane();
  for (std::uint32_t i = 0; i < 5; ++i) REQUIRE(peer.put(peer.awaited_send(SlotPeer::kPsn + i)));
  for (int i = 0; i < 5; ++i) peer.poll();
  CHECK(peer.host.adapter.counters().not_taken_sent == 0);
  CHECK(peer.host.adapter.outstanding());
  CHECK(peer.link.drained(kData));       // consumed
  CHECK(peer.link.settled(kData) == 0);  // and not settled
  peer.take();
  peer.tell();
  peer.poll();
  CHECK(peer.link.settled(kData) == 0);  // not before the refusal is read
  const auto back = peer.take();
  REQUIRE_FALSE(back.empty());
  CHECK(back[0].opcode == Opcode::not_taken);
  CHECK(back[0].destination_queue_pair == QpNumber{});  // one for all five
  CHECK(peer.link.settled(kData) > 0);
  CHECK(peer.host.adapter.counters().not_taken_sent == 1);
}

TEST_CASE("a message is acknowledged when a refusal of another copy of it may reach its sender after it has left",
          "[fabric][adapter][consumption]") {
  constexpr std::uint32_t kPsn = SlotPeer::kPsn;
  const auto is_refusal = [](const Cell& cell, std::uint32_t psn) {
    return cell.opcode == Opcode::not_taken && cell.packet_sequence == psn;
  };
  const auto is_ok = [](const Cell& cell, std::uint32_t psn) {
    return cell.opcode == Opcode::acknowledge && cell.syndrome == Syndrome::ok && cell.packet_sequence == psn;
  };
  SlotPeer peer;
  const auto put = [&peer](std::initializer_list<std::uint32_t> psns) {
    for (const std::uint32_t psn : psns) REQUIRE(peer.put(peer.awaited_send(psn)));
    peer.poll();
    return peer.take();
  };
  std::uint32_t next = kPsn + 2;
  SECTION("an older copy, before the newer one") {
    CHECK(put({kPsn}).size() == 2);
    peer.receive(2);
    const auto back = put({kPsn + 1, kPsn, kPsn + 1});
    REQUIRE(back.size() == 2);
    CHECK(is_refusal(back[0], kPsn + 1));
    CHECK(is_ok(back[1], kPsn + 1));
  }
  SECTION("an older copy, and the newer one comes after what was missing is acknowledged") {
    CHECK(put({kPsn}).size() == 2);
    peer.receive(2);
    const auto back = put({kPsn + 1, kPsn});
    REQUIRE(back.size() == 2);
    CHECK(is_refusal(back[0], kPsn + 1));
    CHECK(is_ok(back[1], kPsn));
    const auto last = put({kPsn + 1});
    REQUIRE(last.size() == 1);
    CHECK(is_ok(last[0], kPsn + 1));
  }
  SECTION("a second copy, and a new message behind it") {
    peer.receive(2);
    CHECK(put({kPsn}).empty());
    const auto back = put({kPsn, kPsn + 1});
    REQUIRE(back.size() == 2);
    CHECK(is_refusal(back[0], kPsn));
    CHECK(is_ok(back[1], kPsn + 1));
  }
  SECTION("a packet that the peer can't have sent yet says nothing") {
    peer.receive(2);
    const auto back = put({kPsn + 65536, kPsn, kPsn + 1});
    REQUIRE(back.size() == 1);
    CHECK(is_refusal(back[0], kPsn + 65536));
  }
  // Then consumption acknowledges again.
  peer.receive(2);
  CHECK(put({next}).empty());
  CHECK(put({++next}).empty());
  const auto completions = peer.host.take();
  CHECK(completions.size() == 4);
}

TEST_CASE("a refusal that speaks for all messages keeps none that was taken, or is, without an acknowledgement",
          "[fabric][adapter][consumption]") {
  SlotPeer peer;
  Endpoint& host = peer.host;
  constexpr std::uint32_t kFirst = 50;
  const auto connected = [&](QpNumber peers) {
    const QpNumber made = host.make_queue_pair({});
    REQUIRE(host.adapter.connect(made, {peers, 1, kFirst}) == Status::ok);
    for (std::uint64_t i = 0; i < 4; ++i) {
      REQUIRE(host.adapter.post_receive(made, {i, host.segment(4096, 64)}) == Status::ok);
    }
    return made;
  };
  const QpNumber other = connected(QpNumber{78});
  const auto put = [&](QpNumber to, std::uint32_t psn) {
    Cell message = peer.awaited_send(psn);
    message.destination_queue_pair = to;
    REQUIRE(peer.put(message));
  };
  const auto oks = [&](QpNumber peers) {
    std::vector<std::uint32_t> psns;
    for (const Cell& cell : peer.take()) {
      const bool ok = cell.opcode == Opcode::acknowledge && cell.syndrome == Syndrome::ok;
      if (ok && cell.destination_queue_pair == peers) psns.push_back(cell.packet_sequence);
    }
    return psns;
  };
  using Psns = std::vector<std::uint32_t>;
  peer.fill_lane();
  put(other, kFirst);
  put(host.number, SlotPeer::kPsn);  // no receive is posted
  put(host.number, SlotPeer::kPsn + 1);
  peer.poll();
  CHECK(host.adapter.counters().not_taken_sent == 0);
  static_cast<void>(peer.take());
  peer.tell();
  peer.poll();
  CHECK(host.adapter.counters().not_taken_sent == 1);
  CHECK(oks(QpNumber{78}) == Psns{kFirst});
  peer.tell();
  put(other, kFirst + 1);
  peer.poll();
  CHECK(oks(QpNumber{78}) == Psns{kFirst + 1});
  put(other, kFirst + 2);
  peer.poll();
  CHECK(oks(QpNumber{78}) == Psns{kFirst + 2});
  // The peer may have sent to one that is connected later before it reads the refusal.
  const QpNumber later = connected(QpNumber{79});
  put(later, kFirst);
  peer.poll();
  CHECK(oks(QpNumber{79}) == Psns{kFirst});
}

TEST_CASE("a message that was refused in an older copy alone ends without a timeout",
          "[fabric][adapter][consumption]") {
  AdapterOptions options = test::small_cells();
  options.retry_count = GENERATE(0U, 7U);
  TwoEndpoints two(options);
  Endpoint& requester = two.end(0);
  Endpoint& responder = two.end(1);
  const auto poll = [&two](Endpoint& end, Duration by = microseconds(1)) {
    two.pair.advance(by);
    end.adapter.poll(two.pair.now());
    two.pair.advance(Duration::zero());
  };
  REQUIRE(requester.send(1, 0, 10) == Status::ok);
  poll(responder);  // is not ready
  REQUIRE(requester.send(2, 0, 10) == Status::ok);
  poll(requester);
  REQUIRE(responder.receive(11, 4096, 64) == Status::ok);
  REQUIRE(responder.receive(12, 8192, 64) == Status::ok);
  for (int i = 0; i < 300; ++i) poll(requester, microseconds(10));  // sends both again; the first copy of 2 lies there
  CHECK(requester.adapter.counters().retransmissions == 2);
  REQUIRE(two.settle());
  CHECK(responder.take().size() == 2);
  CHECK(ids_of(requester.take(), CompletionStatus::success) == std::vector<std::uint64_t>{1, 2});
  CHECK(requester.adapter.counters().timeouts == 0);
}

TEST_CASE("a refusal keeps back the message that it names, on the connection and the path that it names",
          "[fabric][adapter][consumption]") {
  SlotPeer peer;
  LinkedPair others;
  Endpoint& host = peer.host;
  const PathNumber other_path = host.adapter.attach(others.link(0)).value();
  const auto connected = [&](QpNumber number, PathNumber path) {
    const QpNumber made = host.make_queue_pair({});
    QueuePairPeer to{number, SlotPeer::kOwnPsn, 1};
    to.path = path;
    REQUIRE(host.adapter.connect(made, to) == Status::ok);
    return made;
  };
  // Two with one name, one with another, and one with the same name over another path.
  const std::array numbers{connected(QpNumber{78}, PathNumber{1}), connected(QpNumber{79}, PathNumber{1}),
                           connected(QpNumber{79}, PathNumber{1}), connected(QpNumber{79}, other_path)};
  const auto send = [&] {
    std::uint64_t id = 0;
    for (const QpNumber number : numbers) {
      host.number = number;
      for (int i = 0; i < 2; ++i) REQUIRE(host.send(id++, 0, 10) == Status::ok);
    }
  };
  const auto settle_all = [&] {
    peer.settle();
    others.advance(microseconds(1));
    FabricLink& link = others.link(1);
    while (link.front(kData) != nullptr) link.pop(kData);
    link.settle(kData);
    static_cast<void>(link.return_room(kData, true));
    others.advance(microseconds(1));
    peer.poll();
    peer.poll();
    return ids_of(host.take(), CompletionStatus::success);
  };
  using Ids = std::vector<std::uint64_t>;
  send();
  CHECK(peer.take().size() == 6);
  SECTION("a name that two have") {
    REQUIRE(peer.put(SlotPeer::not_taken(QpNumber{79}, SlotPeer::kOwnPsn + 1)));
    CHECK(settle_all() == Ids{0, 1, 2, 4, 6, 7});
  }
  SECTION("a name that only a former connection had") {
    REQUIRE(host.adapter.modify(numbers[0], QueuePairEvent::reset) == Status::ok);
    REQUIRE(host.adapter.destroy_queue_pair(numbers[1]) == Status::ok);
    REQUIRE(peer.put(SlotPeer::not_taken(QpNumber{78}, SlotPeer::kOwnPsn)));
    CHECK(settle_all() == Ids{4, 5, 6, 7});
  }
  SECTION("packets that are not under way") {
    for (const std::uint32_t psn : {SlotPeer::kOwnPsn - 1, SlotPeer::kOwnPsn + 2, SlotPeer::kOwnPsn + 0x80000000U}) {
      REQUIRE(peer.put(SlotPeer::not_taken(QpNumber{79}, psn)));
    }
    CHECK(settle_all() == Ids{0, 1, 2, 3, 4, 5, 6, 7});
  }
  SECTION("all, and what is sent later ends by consumption again") {
    REQUIRE(peer.put(SlotPeer::not_taken(QpNumber{}, 0)));
    CHECK(settle_all() == Ids{6, 7});
    for (int i = 0; i < 300; ++i) peer.poll(milliseconds(1));
    CHECK(peer.take().size() == 6);
    CHECK(settle_all() == Ids{0, 1, 2, 3, 4, 5});
  }
}

TEST_CASE("the packet that a refusal names is found among local requests", "[fabric][adapter][consumption]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{50}));
  CAPTURE(seed);
  SeededRandom random(seed);
  QueuePairAttributes attributes;
  attributes.send_depth = 64;
  SendQueue send(attributes);
  send.done = random.below(100);
  send.sent = send.done + random.below(65);
  const std::uint32_t first = std::uint32_t{0} - static_cast<std::uint32_t>(random.below(64));  // numbers wrap
  send.sent_psn = first;
  std::vector<SendEntry*> on_the_wire;
  const std::uint64_t local_percent = random.below(101);
  for (std::uint64_t position = send.done; position != send.sent; ++position) {
    SendEntry& entry = send.entries[position];
    entry.request.operation = random.below(100) < local_percent ? Operation::bind_window : Operation::send;
    entry.psn = 0;
    if (entry.request.operation == Operation::bind_window) continue;
    entry.psn = send.sent_psn++;
    on_the_wire.push_back(&entry);
  }
  for (std::uint32_t i = 0; i < on_the_wire.size(); ++i) REQUIRE(send.find_sent(first + i) == on_the_wire[i]);
  for (const std::uint32_t psn : {first - 1, send.sent_psn, first - 70, send.sent_psn + 70, first + 0x80000000U}) {
    REQUIRE(send.find_sent(psn) == nullptr);
  }
}

TEST_CASE("each message of a new connection that was refused before it was made gets an acknowledgement",
          "[fabric][adapter][consumption]") {
  constexpr std::uint32_t kPsn = SlotPeer::kPsn;
  SlotPeer peer;
  const auto connect_again = [&] {
    ChannelAdapter& adapter = peer.host.adapter;
    peer.pair.advance(microseconds(1));
    REQUIRE(adapter.modify(peer.host.number, QueuePairEvent::reset) == Status::ok);
    REQUIRE(adapter.connect(peer.host.number, {SlotPeer::kNumber, SlotPeer::kOwnPsn, kPsn}) == Status::ok);
    peer.receive(4);
    CHECK(peer.take().size() == 4);
  };
  // The last refusal names an older packet, or one that no message of the new connection can have.
  for (const std::uint32_t psn : {kPsn, kPsn + 2, kPsn + 1}) REQUIRE(peer.put(peer.awaited_send(psn)));
  const std::uint32_t last =
      GENERATE(as<std::uint32_t>(), SlotPeer::kPsn, SlotPeer::kPsn - 1, SlotPeer::kPsn + (1U << 20U));
  REQUIRE(peer.put(peer.awaited_send(last)));
  connect_again();
  for (std::uint32_t i = 0; i < 4; ++i) {
    REQUIRE(peer.put(peer.awaited_send(kPsn + i)));
    peer.poll();
    const auto back = peer.take();
    REQUIRE(back.size() == (i < 3 ? 1 : 0));  // then consumption acknowledges
    if (i == 3) break;
    CHECK(back[0].opcode == Opcode::acknowledge);
    CHECK(back[0].packet_sequence == kPsn + i);
  }
}

TEST_CASE("a refusal that finds no room ends with the epoch", "[fabric][adapter][consumption]") {
  SlotPeer peer;
  peer.fill_lane();
  REQUIRE(peer.put(peer.awaited_send(SlotPeer::kPsn)));
  peer.poll();
  CHECK(peer.host.adapter.outstanding());
  for (int i = 0; i < 20; ++i) {  // the peer never comes up again
    peer.link.restart();
    peer.poll(milliseconds(1));
  }
  REQUIRE_FALSE(peer.pair.link(0).up());
  CHECK_FALSE(peer.host.adapter.outstanding());
}

TEST_CASE("what was sent to a queue pair's former connection does not pass for its next one's",
          "[fabric][adapter][consumption]") {
  TwoEndpoints two;
  Endpoint& requester = two.end(0);
  Endpoint& responder = two.end(1);
  const auto reset = [](Endpoint& end) {
    REQUIRE(end.adapter.modify(end.number, QueuePairEvent::reset) == Status::ok);
  };
  // Always with the same packet sequence numbers.
  const auto connect = [](Endpoint& end, const Endpoint& to) {
    REQUIRE(end.adapter.connect(end.number, {to.number, 0, 0}) == Status::ok);
  };
  const auto connect_again = [&] {
    for (Endpoint* end : {&requester, &responder}) reset(*end);
    connect(requester, responder);
    connect(responder, requester);
  };
  connect_again();
  requester.fill(0, test::pattern(64, 1));
  requester.fill(100, test::pattern(64, 2));
  REQUIRE(requester.send(1, 0, 64) == Status::ok);
  two.pair.advance(microseconds(5));
  SECTION("a message") {
    connect_again();
    REQUIRE(responder.receive(7, 4096, 64) == Status::ok);
    two.run(milliseconds(1));
    CHECK(responder.take().empty());
    REQUIRE(requester.send(2, 100, 64) == Status::ok);
  }
  SECTION("a message, and its refusal comes when the next one has left") {
    reset(requester);
    connect(requester, responder);
    reset(responder);
    connect(responder, requester);
    REQUIRE(responder.receive(7, 4096, 64) == Status::ok);
    REQUIRE(requester.send(2, 100, 64) == Status::ok);
  }
  SECTION("an answer") {
    responder.adapter.poll(two.pair.now());  // is not ready
    two.pair.advance(microseconds(5));
    connect_again();
    REQUIRE(responder.receive(7, 4096, 64) == Status::ok);
    REQUIRE(requester.send(2, 100, 64) == Status::ok);
    requester.adapter.poll(two.pair.now());
    CHECK(requester.adapter.counters().not_ready_received == 0);
  }
  REQUIRE(two.settle());
  const auto received = responder.take();
  REQUIRE(received.size() == 1);
  CHECK(responder.holds(4096, test::pattern(64, 2)));
  CHECK(ids_of(requester.take(), CompletionStatus::success) == std::vector<std::uint64_t>{2});
  CHECK(requester.adapter.counters().timeouts == 0);
  CHECK(requester.adapter.counters().retransmissions == 0);
}

}  // namespace splitnic::fabric::adapter_not_taken_test
