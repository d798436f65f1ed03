#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "adapter_requests.h"

/// On a link that tells what was settled, consumption acknowledges: what it completes, what it does not, and what a
/// peer is told of messages that were consumed without having been taken.
namespace splitnic::fabric::adapter_consumption_test {
namespace {

using test::Endpoint;
using test::LinkedPair;
using test::microseconds;
using test::milliseconds;
using test::TwoEndpoints;

constexpr VirtualLane kData = VirtualLane::data;

/// A request ends after three of these timeouts.
AdapterOptions two_retries(Duration ack_timeout) {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = ack_timeout;
  options.retry_count = 2;
  return options;
}

/// An adapter at end 0; at end 1 a peer that takes slots and settles them by hand.
struct SlotPeer {
  static constexpr std::uint32_t kPsn = 1000;     // of the peer's packets
  static constexpr std::uint32_t kOwnPsn = 5000;  // of the adapter's
  static constexpr QpNumber kNumber{77};

  explicit SlotPeer(const AdapterOptions& options = test::small_cells(), const QueuePairAttributes& queue_pair = {})
      : host(pair.link(0), options, pair.random(), queue_pair) {
    REQUIRE(host.adapter.connect(host.number, {kNumber, kOwnPsn, kPsn}) == Status::ok);
  }

  Cell cell(Opcode opcode, std::uint32_t psn) const {
    Cell made;
    made.opcode = opcode;
    made.destination_queue_pair = host.number;
    made.packet_sequence = psn;
    return made;
  }
  Cell awaited_send(std::uint32_t psn) const {
    Cell made = cell(Opcode::send_only, psn);
    made.awaited = true;
    return made;
  }
  static Cell not_taken(QpNumber queue_pair, std::uint32_t psn) {
    Cell made;
    made.opcode = Opcode::not_taken;
    made.destination_queue_pair = queue_pair;
    made.packet_sequence = psn;
    return made;
  }
  bool put(const Cell& made, std::span<const std::byte> payload = {}) {
    ClaimedPayload to;
    if (!link.claim(kData, made, payload.size(), to)) return false;
    to.put(payload);
    std::uint32_t packet_crc = kPacketCrcStart;
    static_cast<void>(link.release(kData, made, packet_crc));
    return true;
  }
  /// The adapter's own lane is full, until the peer takes something.
  void fill_lane() {
    ClaimedPayload to;
    const Cell filler = not_taken(QpNumber{99}, 0);
    while (pair.link(0).claim(kData, filler, 0, to)) {
      std::uint32_t packet_crc = kPacketCrcStart;
      static_cast<void>(pair.link(0).release(kData, filler, packet_crc));
    }
  }
  /// Receives for so many messages.
  void receive(std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) REQUIRE(host.receive(i, 4096, 64) == Status::ok);
  }
  /// Consumes what the adapter sent, and settles nothing.
  std::vector<Cell> take() {
    pair.advance(microseconds(1));
    std::vector<Cell> cells;
    for (const ReceivedCell* received = link.front(kData); received != nullptr; received = link.front(kData)) {
      REQUIRE_FALSE(received->fault.has_value());
      cells.push_back(received->cell);
      link.pop(kData);
    }
    return cells;
  }
  void tell() { static_cast<void>(link.return_room(kData, true)); }
  void settle() {
    link.settle(kData);
    tell();
  }
  void poll(Duration by = microseconds(1)) {
    pair.advance(by);
    host.adapter.poll(pair.now());
    pair.advance(Duration::zero());
  }
  std::size_t completed() {
    std::size_t good = 0;
    for (const Completion& done : host.take()) good += done.status == CompletionStatus::success ? 1 : 0;
    return good;
  }

  LinkedPair pair;
  Endpoint host;
  FabricLink& link = pair.link(1);
};

std::vector<std::uint64_t> ids_of(const std::vector<Completion>& completions, CompletionStatus status) {
  std::vector<std::uint64_t> ids;
  for (const Completion& done : completions) {
    if (!done.receive && done.status == status) ids.push_back(done.id);
  }
  return ids;
}

}  // namespace

TEST_CASE("a send and a segmented write end when their last cell is settled, and cost no cell back",
          "[fabric][adapter][consumption]") {
  SlotPeer peer;
  REQUIRE(peer.host.send(1, 0, 10) == Status::ok);
  REQUIRE(peer.host.write(2, 0, 1000, {4096, Stag{5}}) == Status::ok);
  const auto cells = peer.take();
  REQUIRE(cells.size() == 5);
  CHECK(cells[0].awaited);
  for (std::size_t i = 1; i < 4; ++i) CHECK_FALSE(cells[i].awaited);  // only a last cell ends a request
  CHECK(cells[4].awaited);
  peer.tell();  // the room is free, no more
  peer.poll();
  CHECK(peer.host.take().empty());
  CHECK(peer.pair.link(0).drained(kData));
  peer.settle();
  peer.poll();
  CHECK(ids_of(peer.host.take(), CompletionStatus::success) == std::vector<std::uint64_t>{1, 2});
  CHECK(peer.take().empty());
  CHECK(peer.host.adapter.counters().retransmissions == 0);
}

TEST_CASE("a slot that answers says what is settled, and no tail line is needed", "[fabric][adapter][consumption]") {
  SlotPeer peer;
  REQUIRE(peer.host.receive(9, 4096, 64) == Status::ok);
  REQUIRE(peer.host.send(1, 0, 10) == Status::ok);
  CHECK(peer.take().size() == 1);
  peer.link.settle(kData);
  REQUIRE(peer.put(peer.awaited_send(SlotPeer::kPsn), test::pattern(8, 1)));
  peer.poll();
  CHECK(ids_of(peer.host.take(), CompletionStatus::success) == std::vector<std::uint64_t>{1});
  CHECK_FALSE(peer.link.return_room(kData, true));  // it was told
}

TEST_CASE("a refusal is read before the position that would complete its request", "[fabric][adapter][consumption]") {
  SlotPeer peer;
  REQUIRE(peer.host.send(1, 0, 10) == Status::ok);
  REQUIRE(peer.host.send(2, 0, 10) == Status::ok);
  CHECK(peer.take().size() == 2);
  // So much is before it in the ring that one poll of the adapter does not get there.
  constexpr int kBefore = 100;
  for (int i = 0; i < kBefore; ++i) REQUIRE(peer.put(peer.cell(Opcode::acknowledge, SlotPeer::kOwnPsn - 5)));
  REQUIRE(peer.put(SlotPeer::not_taken(SlotPeer::kNumber, SlotPeer::kOwnPsn)));
  peer.settle();
  for (int i = 0; i < 10; ++i) peer.poll();
  CHECK(peer.host.take().empty());  // nor does the second: it comes after the first
  // A copy that is taken ends it.
  peer.poll(milliseconds(300));
  const auto again = peer.take();
  REQUIRE(again.size() == 2);
  CHECK(again[0].packet_sequence == SlotPeer::kOwnPsn);
  peer.settle();
  peer.poll();
  CHECK(ids_of(peer.host.take(), CompletionStatus::success) == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("what was settled before a flood of cells is believed in the middle of it",
          "[fabric][adapter][consumption]") {
  SlotPeer peer;
  REQUIRE(peer.host.send(1, 0, 10) == Status::ok);
  CHECK(peer.take().size() == 1);
  Cell junk = peer.cell(Opcode::acknowledge, SlotPeer::kOwnPsn - 5);
  for (int i = 0; i < 200; ++i) REQUIRE(peer.put(junk));
  peer.settle();
  std::size_t ended = 0;
  for (int i = 0; i < 20; ++i) {
    peer.poll();
    ended += peer.completed();
    for (int more = 0; more < 64; ++more) REQUIRE(peer.put(junk));
  }
  CHECK(ended == 1);
}

TEST_CASE("a refusal of any message keeps all that were sent from ending by consumption",
          "[fabric][adapter][consumption]") {
  SlotPeer peer;
  for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(peer.host.send(id, 0, 10) == Status::ok);
  CHECK(peer.take().size() == 3);
  SECTION("of this queue pair's peer, another message") {
    REQUIRE(peer.put(SlotPeer::not_taken(SlotPeer::kNumber, SlotPeer::kOwnPsn + 1)));
    peer.settle();
    peer.poll();
    CHECK(ids_of(peer.host.take(), CompletionStatus::success) == std::vector<std::uint64_t>{1});
  }
  SECTION("of another queue pair's peer") {
    REQUIRE(peer.put(SlotPeer::not_taken(QpNumber{78}, SlotPeer::kOwnPsn)));
    peer.settle();
    peer.poll();
    CHECK(peer.completed() == 3);
  }
  SECTION("of all, where the peer says what it has taken") {
    REQUIRE(peer.put(SlotPeer::not_taken(QpNumber{}, 0)));
    REQUIRE(peer.put(peer.cell(Opcode::acknowledge, SlotPeer::kOwnPsn + 1)));
    peer.settle();
    peer.poll();
    CHECK(ids_of(peer.host.take(), CompletionStatus::success) == std::vector<std::uint64_t>{1, 2});
  }
  SECTION("of all, where the peer says nothing") {
    REQUIRE(peer.put(SlotPeer::not_taken(QpNumber{}, 0)));
    peer.settle();
    peer.poll();
    CHECK(peer.completed() == 0);
    REQUIRE(peer.host.send(4, 0, 10) == Status::ok);  // what is sent later is not meant, but comes after
    CHECK(peer.take().size() == 1);
    peer.settle();
    peer.poll();
    CHECK(peer.completed() == 0);
    peer.poll(milliseconds(300));
    CHECK(peer.take().size() == 4);
    peer.settle();
    peer.poll();
    CHECK(peer.completed() == 4);
  }
}

TEST_CASE("consumption does not complete a read, and what comes after one waits for its answer",
          "[fabric][adapter][consumption]") {
  SlotPeer peer;
  WorkRequest read;
  read.id = 1;
  read.operation = Operation::rdma_read;
  read.segments[0] = peer.host.segment(0, 8);
  read.segment_count = 1;
  read.remote = {4096, Stag{5}};
  REQUIRE(peer.host.adapter.post_send(peer.host.number, read) == Status::ok);
  REQUIRE(peer.host.send(2, 0, 10) == Status::ok);
  const auto cells = peer.take();
  REQUIRE(cells.size() == 2);
  CHECK_FALSE(cells[0].awaited);
  peer.settle();
  peer.poll();
  CHECK(peer.host.take().empty());
  CHECK(peer.host.adapter.counters().retransmissions == 0);
  REQUIRE(peer.put(peer.cell(Opcode::read_response_only, SlotPeer::kOwnPsn), test::pattern(8, 1)));
  peer.poll();
  CHECK(ids_of(peer.host.take(), CompletionStatus::success) == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("consumption that stands still ends a request after the last timeout, and sends no copies",
          "[fabric][adapter][consumption]") {
  SlotPeer peer(two_retries(milliseconds(10)));
  REQUIRE(peer.host.send(1, 0, 10) == Status::ok);
  for (int i = 0; i < 28; ++i) peer.poll(milliseconds(1));
  CHECK(peer.host.take().empty());
  for (int i = 0; i < 6; ++i) peer.poll(milliseconds(1));
  CHECK(ids_of(peer.host.take(), CompletionStatus::retry_exceeded) == std::vector<std::uint64_t>{1});
  CHECK(peer.host.adapter.counters().retransmissions == 0);
}

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

TEST_CASE("lanes that are full in both directions drain, refusals and all", "[fabric][adapter][consumption]") {
  AdapterOptions options = test::small_cells();
  options.receiver_not_ready_delay = microseconds(100);
  options.receiver_not_ready_retries = 1000;
  options.ack_timeout = milliseconds(5);
  options.retry_count = 100;
  QueuePairAttributes attributes;
  attributes.send_depth = attributes.receive_depth = 256;
  TwoEndpoints two(options, attributes, LinkedPair::rough());
  constexpr std::uint64_t kMessages = 200;
  for (std::size_t end : {0U, 1U}) {
    for (std::uint64_t id = 0; id < kMessages; ++id) REQUIRE(two.end(end).send(id, 0, 900) == Status::ok);
  }
  two.run(milliseconds(2));
  std::array<std::uint64_t, 2> sent{};
  std::array<std::uint64_t, 2> arrived{};
  std::array<std::uint64_t, 2> posted{};
  SeededRandom random(3);
  for (int i = 0; i < 200'000 && (sent[0] < kMessages || sent[1] < kMessages); ++i) {
    for (std::size_t end : {0U, 1U}) {
      if (posted[end] < kMessages && random.below(20) == 0) {
        REQUIRE(two.end(end).receive(posted[end]++, 4096, 1024) == Status::ok);
      }
    }
    two.step();
    for (std::size_t end : {0U, 1U}) {
      for (const Completion& done : two.end(end).take()) {
        REQUIRE(done.status == CompletionStatus::success);
        REQUIRE(done.id == (done.receive ? arrived : sent)[end]++);
      }
    }
    REQUIRE((sent[0] <= arrived[1] && sent[1] <= arrived[0]));  // never before it is there
  }
  CHECK(sent == std::array<std::uint64_t, 2>{kMessages, kMessages});
  CHECK(arrived == sent);
  CHECK(two.end(0).adapter.counters().not_taken_sent > 0);
}

TEST_CASE("messages for a queue pair that is gone end as retry_exceeded, and others go on",
          "[fabric][adapter][consumption]") {
  TwoEndpoints two(two_retries(milliseconds(5)));
  QueuePairAttributes attributes;
  const QpNumber other0 = two.end(0).make_queue_pair(attributes);
  const QpNumber other1 = two.end(1).make_queue_pair(attributes);
  REQUIRE(two.end(0).adapter.connect(other0, {other1, 7, 9}) == Status::ok);
  REQUIRE(two.end(1).adapter.connect(other1, {other0, 9, 7}) == Status::ok);
  REQUIRE(two.end(1).adapter.destroy_queue_pair(two.end(1).number) == Status::ok);
  REQUIRE(two.end(0).send(1, 0, 10) == Status::ok);
  REQUIRE(two.end(1).adapter.post_receive(other1, {5, two.end(1).segment(0, 64)}) == Status::ok);
  WorkRequest request;
  request.id = 2;
  request.segments[0] = two.end(0).segment(0, 10);
  request.segment_count = 1;
  REQUIRE(two.end(0).adapter.post_send(other0, request) == Status::ok);
  two.run(milliseconds(1));
  CHECK(ids_of(two.end(0).take(), CompletionStatus::success) == std::vector<std::uint64_t>{2});
  two.run(milliseconds(30));
  CHECK(ids_of(two.end(0).take(), CompletionStatus::retry_exceeded) == std::vector<std::uint64_t>{1});
  CHECK(two.end(1).adapter.counters().not_taken_sent == 3);
}

TEST_CASE("a position of before a reset or an epoch completes nothing after it", "[fabric][adapter][consumption]") {
  SlotPeer peer;
  REQUIRE(peer.host.send(1, 0, 10) == Status::ok);
  SECTION("a reset: the slot was an older request's") {
    REQUIRE(peer.host.adapter.modify(peer.host.number, QueuePairEvent::reset) == Status::ok);
    REQUIRE(peer.host.adapter.connect(peer.host.number, {SlotPeer::kNumber, 300, 200}) == Status::ok);
    CHECK(peer.take().size() == 1);
    REQUIRE(peer.host.send(2, 0, 10) == Status::ok);
    peer.settle();
    peer.poll();
    CHECK(peer.completed() == 0);
    CHECK(peer.take().size() == 1);
    peer.settle();
    peer.poll();
    CHECK(peer.completed() == 1);
  }
  SECTION("an epoch: positions begin anew") {
    CHECK(peer.take().size() == 1);
    peer.settle();
    peer.link.restart();
    peer.pair.come_up();
    peer.poll();
    CHECK(peer.completed() == 0);
    CHECK(peer.pair.link(0).settled(kData) == 0);
  }
}

TEST_CASE("one poll takes a message and says that it is settled", "[fabric][adapter][consumption]") {
  SlotPeer peer;
  REQUIRE(peer.host.receive(1, 0, 64) == Status::ok);
  REQUIRE(peer.put(peer.awaited_send(SlotPeer::kPsn), test::pattern(8, 1)));
  peer.poll();
  CHECK(peer.link.settled(kData) == 1);
  CHECK(peer.take().empty());
}

TEST_CASE("an end that sleeps says in the tail line what its slots have said", "[fabric][adapter][consumption]") {
  SlotPeer peer;
  REQUIRE(peer.host.receive(1, 0, 64) == Status::ok);
  REQUIRE(peer.put(peer.awaited_send(SlotPeer::kPsn), test::pattern(8, 1)));
  peer.pair.advance(microseconds(1));
  REQUIRE(peer.host.adapter.receive(peer.pair.now()) == 1);
  REQUIRE(peer.host.send(1, 0, 10) == Status::ok);  // says that it is settled
  REQUIRE(peer.host.adapter.send() == 0);
  peer.pair.advance(microseconds(1));
  CHECK_FALSE(peer.link.drained(kData));  // the slot has not been read
  REQUIRE(peer.pair.link(0).prepare_sleep());
  peer.pair.advance(microseconds(1));
  CHECK(peer.link.drained(kData));  // so the peer has no reason to ring a sleeper
}

TEST_CASE("a sender that sleeps on what it awaits is rung when it is settled", "[fabric][adapter][consumption]") {
  SlotPeer peer;
  FabricLink& host_link = peer.pair.link(0);
  REQUIRE(peer.host.send(1, 0, 10) == Status::ok);
  const bool awaited = GENERATE(true, false);
  if (!awaited) {  // settled before it sleeps
    peer.take();
    peer.settle();
    peer.pair.advance(microseconds(1));
    CHECK_FALSE(host_link.prepare_sleep());
    return;
  }
  REQUIRE(host_link.prepare_sleep());
  peer.take();
  const auto before = peer.pair.bridges().counters().doorbells;
  peer.settle();
  peer.link.notify();
  CHECK(peer.pair.bridges().counters().doorbells == before + 1);
  host_link.disarm();
  peer.poll();
  CHECK(peer.completed() == 1);
}

TEST_CASE("a list rings its sleeping peer once, at the poll after it", "[fabric][adapter][consumption]") {
  SlotPeer peer;
  peer.poll();
  REQUIRE(peer.link.prepare_sleep());
  peer.pair.bridges().advance(peer.pair.now());  // the armed flag arrives
  const auto& doorbells = peer.pair.bridges().counters().doorbells;
  const auto before = doorbells;
  const std::vector<WorkRequest> list(20, WorkRequest{.operation = Operation::send});
  std::size_t posted = 0;
  REQUIRE(peer.host.adapter.post_send(peer.host.number, list, posted) == Status::ok);
  CHECK(posted == list.size());
  CHECK(doorbells == before);
  peer.poll();
  CHECK(doorbells == before + 1);
  peer.poll();
  CHECK(doorbells == before + 1);
  peer.link.disarm();
  CHECK(peer.take().size() == list.size());
}

TEST_CASE("a read is not asked for again while its answer comes in, although it had to wait for its turn",
          "[fabric][adapter][consumption]") {
  SlotPeer peer(two_retries(milliseconds(10)));
  REQUIRE(peer.host.adapter.post_send(peer.host.number, test::read_request(peer.host, 1, 0, 600, {5, Stag{6}})) ==
          Status::ok);
  peer.poll();
  CHECK(peer.take().size() == 1);
  peer.settle();
  peer.poll();
  peer.poll(milliseconds(11));
  CHECK(peer.take().size() == 1);  // the answer does not come, so it is asked for again
  peer.settle();
  Cell later = peer.cell(Opcode::acknowledge, SlotPeer::kOwnPsn - 1);
  later.syndrome = Syndrome::ok;
  REQUIRE(peer.put(later));
  peer.poll();
  Cell part = peer.cell(Opcode::read_response_first, SlotPeer::kOwnPsn);
  const auto data = test::pattern(600, 1);
  REQUIRE(peer.put(part, std::span(data).first(256)));
  peer.poll();
  peer.poll();
  peer.poll(milliseconds(11));  // others have their turns
  CHECK(peer.host.adapter.counters().timeouts == 2);
  CHECK(peer.take().empty());
  part.opcode = Opcode::read_response_middle;
  ++part.cell_sequence;
  REQUIRE(peer.put(part, std::span(data).subspan(256, 256)));
  part.opcode = Opcode::read_response_last;
  ++part.cell_sequence;
  REQUIRE(peer.put(part, std::span(data).subspan(512)));
  peer.poll();
  CHECK(peer.completed() == 1);
  CHECK(peer.host.holds(0, data));
}

}  // namespace splitnic::fabric::adapter_consumption_test
