#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "slot_peer.h"

/// On a link that tells what was settled, consumption acknowledges: what it completes, and what it does not.
namespace splitnic::fabric::adapter_consumption_test {
namespace {

using test::Endpoint;
using test::ids_of;
using test::LinkedPair;
using test::microseconds;
using test::milliseconds;
using test::SlotPeer;
using test::TwoEndpoints;

constexpr VirtualLane kData = VirtualLane::data;

/// A request ends after three of these timeouts.
AdapterOptions two_retries(Duration ack_timeout) {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = ack_timeout;
  options.retry_count = 2;
  return options;
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
