#include "adapter_requests.h"
#include "datagram_fixtures.h"
#include "fabric/memory/mpt.h"

/// Dialogues between a real adapter and a peer that writes its cells by hand: at this time the peer sends that, expect
/// this, expect nothing.
namespace splitnic::fabric::test::adapter_dialogue_test {
namespace {

constexpr std::uint32_t kPsn = ScriptedPeer::kPsn;
constexpr std::uint32_t kOwnPsn = ScriptedPeer::kOwnPsn;

QueuePairAttributes unacknowledged() {
  QueuePairAttributes options;
  options.acknowledged = false;
  return options;
}

void expect_answer(const std::vector<Cell>& cells, Syndrome syndrome, std::uint32_t psn) {
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].opcode == Opcode::acknowledge);
  CHECK(to_string(cells[0].syndrome) == std::string(to_string(syndrome)));
  CHECK(cells[0].packet_sequence == psn);
}

/// A refusal for good: the terminate message, with the head of the cell that was refused.
void expect_terminate(const std::vector<Cell>& cells, TerminateReason reason, std::uint32_t psn, Opcode refused) {
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].opcode == Opcode::terminate);
  CHECK(cells[0].reason == reason);
  CHECK(cells[0].packet_sequence == psn);
  REQUIRE(cells[0].payload.size() == cell_head_bytes(refused));
  CHECK(cells[0].payload[1] == static_cast<std::byte>(refused));
}

constexpr TerminateReason kUnspecified{0, 2, 0xff};

}  // namespace

TEST_CASE("acknowledgements of one poll are one", "[fabric][adapter]") {
  ScriptedPeer peer;
  for (std::uint64_t i = 0; i < 5; ++i) REQUIRE(peer.host.receive(i, i * 100, 100) == Status::ok);
  for (std::uint32_t i = 0; i < 5; ++i) peer.put(peer.cell(Opcode::send_only, kPsn + i), pattern(10 + i, i));
  expect_answer(peer.poll_and_take(), Syndrome::ok, kPsn + 4);
  CHECK(peer.poll_and_take().empty());
  const auto receives = peer.host.take();
  REQUIRE(receives.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(receives[i].bytes == 10 + i);
    CHECK(peer.host.holds(i * 100, pattern(10 + i, i)));
  }
}

TEST_CASE("a duplicate is acknowledged again and not executed again", "[fabric][adapter]") {
  ScriptedPeer peer;
  REQUIRE(peer.host.receive(1, 0, 100) == Status::ok);
  REQUIRE(peer.host.receive(2, 100, 100) == Status::ok);
  peer.put(peer.cell(Opcode::send_only, kPsn), pattern(10, 1));
  expect_answer(peer.poll_and_take(), Syndrome::ok, kPsn);
  peer.put(peer.cell(Opcode::send_only, kPsn), pattern(10, 2));
  expect_answer(peer.poll_and_take(), Syndrome::ok, kPsn);
  CHECK(peer.host.take().size() == 1);
  CHECK(peer.host.adapter.counters().dropped_duplicate == 1);
  CHECK(peer.host.holds(0, pattern(10, 1)));
}

TEST_CASE("a gap is refused once, and mended by going back", "[fabric][adapter]") {
  ScriptedPeer peer;
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(peer.host.receive(i, i * 100, 100) == Status::ok);
  peer.put(peer.cell(Opcode::send_only, kPsn + 1), pattern(10, 1));
  peer.put(peer.cell(Opcode::send_only, kPsn + 2), pattern(10, 2));
  expect_answer(peer.poll_and_take(), Syndrome::sequence_error, kPsn);
  peer.put(peer.cell(Opcode::send_only, kPsn + 2), pattern(10, 2));
  CHECK(peer.poll_and_take().empty());
  for (std::uint32_t i = 0; i < 3; ++i) peer.put(peer.cell(Opcode::send_only, kPsn + i), pattern(10, i));
  expect_answer(peer.poll_and_take(), Syndrome::ok, kPsn + 2);
  CHECK(peer.host.take().size() == 3);
  CHECK(peer.host.adapter.counters().dropped_out_of_sequence == 3);
}

TEST_CASE("a lost cell within a message is a gap too, and the message starts again", "[fabric][adapter]") {
  ScriptedPeer peer;
  const auto data = pattern(30, 1);
  REQUIRE(peer.host.receive(1, 0, 100) == Status::ok);
  peer.put(peer.cell(Opcode::send_first, kPsn, 0), std::span(data).first(10));
  peer.put(peer.cell(Opcode::send_last, kPsn, 2), std::span(data).last(10));
  expect_answer(peer.poll_and_take(), Syndrome::sequence_error, kPsn);
  peer.put(peer.cell(Opcode::send_first, kPsn, 0), std::span(data).first(10));
  peer.put(peer.cell(Opcode::send_middle, kPsn, 1), std::span(data).subspan(10, 10));
  peer.put(peer.cell(Opcode::send_last, kPsn, 2), std::span(data).last(10));
  expect_answer(peer.poll_and_take(), Syndrome::ok, kPsn);
  CHECK(peer.host.take().size() == 1);
  CHECK(peer.host.holds(0, data));
}

TEST_CASE("a packet whose CRC does not span its cells is asked for again", "[fabric][adapter]") {
  ScriptedPeer peer;
  REQUIRE(peer.host.receive(1, 0, 100) == Status::ok);
  peer.put(peer.cell(Opcode::send_first, kPsn, 0), pattern(10, 1));
  peer.packet_crc ^= 1U;
  peer.put(peer.cell(Opcode::send_last, kPsn, 1), pattern(10, 2));
  expect_answer(peer.poll_and_take(), Syndrome::sequence_error, kPsn);
  CHECK(peer.host.take().empty());
  CHECK(peer.host.adapter.counters().dropped_bad_cell == 1);
  CHECK_FALSE(peer.host.adapter.in_error(peer.host.number));
}

TEST_CASE("without a posted receive the peer is told to try later, and may", "[fabric][adapter]") {
  AdapterOptions options = test::small_cells();
  options.receiver_not_ready_delay = microseconds(1500);
  ScriptedPeer peer(options);
  peer.put(peer.cell(Opcode::send_only, kPsn), pattern(10, 1));
  peer.put(peer.cell(Opcode::send_only, kPsn + 1), pattern(10, 2));
  const auto answers = peer.poll_and_take();
  expect_answer(answers, Syndrome::receiver_not_ready, kPsn);
  CHECK(answers[0].delay_microseconds == 1500);
  REQUIRE(peer.host.receive(1, 0, 100) == Status::ok);
  peer.put(peer.cell(Opcode::send_only, kPsn), pattern(10, 1));
  expect_answer(peer.poll_and_take(), Syndrome::ok, kPsn);
  CHECK(peer.host.take().size() == 1);
}

TEST_CASE("a write is refused by the table's word, once and for good", "[fabric][adapter]") {
  ScriptedPeer peer;
  const RemoteAddress good = peer.host.remote();
  REQUIRE(peer.host.receive(5, 0, 64) == Status::ok);
  RemoteAddress bad = good;
  TerminateReason reason{1, 1, 0};
  SECTION("stale tag") { bad.tag.value ^= 1U; }
  SECTION("unknown index") { bad.tag.value = 0xffff'ff00; }
  SECTION("before the region") {
    bad.address -= 1;
    reason.code = 1;
  }
  SECTION("beyond the region") {
    bad.address += Endpoint::kBufferBytes - 9;
    reason.code = 1;
  }
  SECTION("wrap") {
    bad.address = ~std::uint64_t{0} - 5;
    reason.code = 3;
  }
  const auto before = peer.host.buffer;
  peer.put(write_cell(peer, Opcode::write_only, kPsn, bad, 10), pattern(10, 1));
  expect_terminate(peer.poll_and_take(), reason, kPsn, Opcode::write_only);
  CHECK(peer.host.adapter.counters().access_refused == 1);
  CHECK(peer.host.adapter.in_error(peer.host.number));
  CHECK(peer.host.buffer == before);
  const auto flushed = peer.host.take();
  REQUIRE(flushed.size() == 1);
  CHECK(flushed[0].status == CompletionStatus::flushed);
  // The terminate message may have been lost: who goes on is refused again, and places nothing.
  peer.put(write_cell(peer, Opcode::write_only, kPsn, good, 10), pattern(10, 1));
  expect_answer(peer.poll_and_take(), Syndrome::remote_access_error, kPsn);
  CHECK(peer.host.buffer == before);
}

TEST_CASE("a long message is refused at its first cell, with nothing placed", "[fabric][adapter]") {
  ScriptedPeer peer;
  RemoteAddress to = peer.host.remote(Endpoint::kBufferBytes - 19);
  const auto before = peer.host.buffer;
  peer.put(write_cell(peer, Opcode::write_first, kPsn, to, 20), pattern(10, 1));
  expect_terminate(peer.poll_and_take(), {1, 1, 1}, kPsn, Opcode::write_first);
  CHECK(peer.host.buffer == before);
}

TEST_CASE("a direct cell needs an entry that was granted for direct stores", "[fabric][adapter]") {
  ScriptedPeer peer;
  Cell cell = write_cell(peer, Opcode::write_only, kPsn, peer.host.remote(), 100);
  cell.direct = true;
  peer.put(cell);
  expect_terminate(peer.poll_and_take(), {1, 1, 0}, kPsn, Opcode::write_only);
}

TEST_CASE("cells that contradict each other end the queue pair", "[fabric][adapter]") {
  ScriptedPeer peer;
  REQUIRE(peer.host.receive(1, 0, 100) == Status::ok);
  Cell first = write_cell(peer, Opcode::write_first, kPsn, peer.host.remote(1000), 30);
  peer.put(first, pattern(10, 1));
  Opcode refused = Opcode::write_last;
  SECTION("a send goes on where a write began") {
    refused = Opcode::send_last;
    peer.put(peer.cell(Opcode::send_last, kPsn, 1), pattern(20, 1));
  }
  SECTION("the last cell leaves bytes missing") { peer.put(peer.cell(Opcode::write_last, kPsn, 1), pattern(19, 1)); }
  SECTION("the last cell brings too many") { peer.put(peer.cell(Opcode::write_last, kPsn, 1), pattern(21, 1)); }
  SECTION("a middle cell fills the message") {
    refused = Opcode::write_middle;
    peer.put(peer.cell(Opcode::write_middle, kPsn, 1), pattern(20, 1));
  }
  expect_terminate(peer.poll_and_take(), kUnspecified, kPsn, refused);
  CHECK(peer.host.adapter.in_error(peer.host.number));
}

TEST_CASE("a send longer than the posted receive ends the queue pair, and touches nothing behind it",
          "[fabric][adapter]") {
  ScriptedPeer peer;
  const auto before = peer.host.buffer;
  REQUIRE(peer.host.receive(1, 0, 15) == Status::ok);
  peer.put(peer.cell(Opcode::send_first, kPsn, 0), pattern(10, 1));
  peer.put(peer.cell(Opcode::send_last, kPsn, 1), pattern(6, 1));
  expect_terminate(peer.poll_and_take(), {1, 2, 5}, kPsn, Opcode::send_last);
  const auto ends = peer.host.take();
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].status == CompletionStatus::local_length_error);
  CHECK(std::equal(before.begin() + 10, before.end(), peer.host.buffer.begin() + 10));
}

TEST_CASE("memory deregistered under a posted receive or an incoming write is not touched", "[fabric][adapter]") {
  ScriptedPeer peer;
  const RemoteAddress to = peer.host.remote(500);
  REQUIRE(peer.host.receive(1, 0, 100) == Status::ok);
  const bool send = GENERATE(true, false);
  if (send) {
    peer.put(peer.cell(Opcode::send_first, kPsn, 0), pattern(10, 1));
  } else {
    peer.put(write_cell(peer, Opcode::write_first, kPsn, to, 20), pattern(10, 1));
  }
  CHECK(peer.poll_and_take().empty());
  REQUIRE(peer.host.adapter.deregister(peer.host.tag) == Status::ok);
  const auto before = peer.host.buffer;
  peer.put(peer.cell(send ? Opcode::send_last : Opcode::write_last, kPsn, 1), pattern(10, 1));
  expect_terminate(peer.poll_and_take(), send ? TerminateReason{} : TerminateReason{1, 1, 0}, kPsn,
                   send ? Opcode::send_last : Opcode::write_last);
  CHECK(peer.host.buffer == before);
}

TEST_CASE("an unacknowledged channel drops, counts and goes on", "[fabric][adapter]") {
  ScriptedPeer peer(test::small_cells(), unacknowledged());
  const auto& counters = peer.host.adapter.counters();
  const auto send = [&peer](std::uint32_t psn) { peer.put(peer.cell(Opcode::send_only, psn), pattern(10, psn)); };

  send(kPsn);  // nothing posted
  CHECK(peer.poll_and_take().empty());
  CHECK(counters.dropped_no_receive == 1);

  for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(peer.host.receive(i, i * 100, 15) == Status::ok);
  send(kPsn + 3);  // two were lost
  CHECK(peer.poll_and_take().empty());
  CHECK(counters.dropped_out_of_sequence == 1);
  CHECK(peer.host.take().size() == 1);

  send(kPsn + 3);  // a copy
  CHECK(peer.poll_and_take().empty());
  CHECK(counters.dropped_duplicate == 1);

  peer.put(peer.cell(Opcode::send_first, kPsn + 4, 0), pattern(10, 1));  // its end is lost
  CHECK(peer.poll_and_take().empty());
  CHECK_FALSE(peer.host.adapter.outstanding());  // nobody waits for it
  send(kPsn + 5);
  CHECK(peer.poll_and_take().empty());
  CHECK(counters.dropped_unacknowledged == 1);
  CHECK(peer.host.take().size() == 1);

  peer.put(peer.cell(Opcode::send_only, kPsn + 6), pattern(16, 1));  // too long for the receive, which stays
  send(kPsn + 7);
  CHECK(peer.poll_and_take().empty());
  CHECK(counters.dropped_unacknowledged == 2);
  CHECK(peer.host.take().size() == 1);

  peer.put(write_cell(peer, Opcode::write_only, kPsn + 8, {1, Stag{5}}, 10), pattern(10, 1));
  CHECK(peer.poll_and_take().empty());
  CHECK(counters.access_refused == 1);
  CHECK_FALSE(peer.host.adapter.in_error(peer.host.number));
}

TEST_CASE("a list leaves in its order, each request once, also through a queue that is shorter", "[fabric][adapter]") {
  QueuePairAttributes with = unacknowledged();
  with.send_depth = 4;
  ScriptedPeer peer(test::small_cells(), with);
  std::vector<WorkRequest> list(21);
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i].id = i;
    list[i].segments[0] = peer.host.segment(0, i + 1);
    list[i].segment_count = 1;
  }
  list[20].segments[0].tag = Stag{5};  // no such memory
  std::size_t posted = 99;
  CHECK(peer.host.adapter.post_send(peer.host.number, list, posted) == Status::bad_tag);
  CHECK(posted == 20);
  const auto cells = peer.take();  // without a poll
  REQUIRE(cells.size() == 20);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    CHECK(cells[i].packet_sequence == kOwnPsn + i);
    CHECK(cells[i].payload.size() == i + 1);
  }
  const auto done = peer.host.take();
  REQUIRE(done.size() == 20);
  for (std::size_t i = 0; i < done.size(); ++i) CHECK(done[i].id == i);

  CHECK(peer.host.adapter.post_send(QpNumber{}, list, posted) == Status::bad_queue_pair);
  CHECK(posted == 0);
}

TEST_CASE("a list that finds its queue full is posted as far as there is room", "[fabric][adapter]") {
  ScriptedPeer peer(test::small_cells(), {.send_depth = 4});
  const std::vector<WorkRequest> list(6, WorkRequest{.operation = Operation::send});
  std::size_t posted = 0;
  CHECK(peer.host.adapter.post_send(peer.host.number, list, posted) == Status::queue_full);
  CHECK(posted == 4);
  CHECK(peer.take().size() == 4);
}

TEST_CASE("an unacknowledged request is complete when it is on the wire", "[fabric][adapter]") {
  ScriptedPeer peer(test::small_cells(), unacknowledged());
  REQUIRE(peer.host.send(1, 0, 600) == Status::ok);
  const auto done = peer.host.take();
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == CompletionStatus::success);
  CHECK(peer.take().size() == 3);
  peer.poll(std::chrono::seconds(5));
  CHECK(peer.take().empty());
}

TEST_CASE("a request completes with its acknowledgement, not before, and not for an invented one",
          "[fabric][adapter]") {
  ScriptedPeer peer;
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(peer.host.send(i, 0, 64) == Status::ok);
  CHECK(peer.poll_and_take().size() == 3);
  CHECK(peer.host.take().empty());
  for (const std::uint32_t invented : {kOwnPsn + 3, kOwnPsn + 1000, kOwnPsn - 1, kOwnPsn + 0x8000'0000U}) {
    for (const Syndrome syndrome : {Syndrome::ok, Syndrome::sequence_error, Syndrome::remote_access_error}) {
      peer.acknowledge(syndrome, invented);
    }
  }
  CHECK(peer.poll_and_take().empty());
  CHECK(peer.host.take().empty());
  peer.acknowledge(Syndrome::ok, kOwnPsn + 1);
  peer.poll();
  CHECK(peer.host.take().size() == 2);
  peer.acknowledge(Syndrome::ok, kOwnPsn + 2);
  peer.poll();
  CHECK(peer.host.take().size() == 1);
  CHECK_FALSE(peer.host.adapter.outstanding());
}

TEST_CASE("without an acknowledgement everything is sent again, so often and no more", "[fabric][adapter]") {
  AdapterOptions options = test::small_cells();
  options.retry_count = 3;
  options.ack_timeout = milliseconds(10);
  ScriptedPeer peer(options);
  REQUIRE(peer.host.send(1, 0, 300) == Status::ok);
  REQUIRE(peer.host.send(2, 0, 10) == Status::ok);
  CHECK(peer.poll_and_take().size() == 3);
  CHECK(peer.host.adapter.next_deadline() == peer.pair.now() - microseconds(1) + milliseconds(10));
  for (int retry = 0; retry < 3; ++retry) {
    CHECK(peer.poll_and_take(milliseconds(9)).empty());
    CHECK(peer.poll_and_take(milliseconds(1)).size() == 3);
    peer.poll();
  }
  CHECK(peer.host.adapter.counters().retransmissions == 9);
  CHECK(peer.poll_and_take(milliseconds(10)).empty());
  const auto ends = peer.host.take();
  REQUIRE(ends.size() == 2);
  CHECK(ends[0].status == CompletionStatus::retry_exceeded);
  CHECK(ends[1].status == CompletionStatus::flushed);
  CHECK(peer.host.adapter.in_error(peer.host.number));
}

TEST_CASE("the first path to a peer may take four times as long as an answer, and no longer", "[fabric][adapter]") {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = milliseconds(10);
  options.retry_count = 1;
  LinkedPair pair;
  AwaitedLink late(pair.link(0));
  Endpoint host(late, options, pair.random(), {});
  REQUIRE(host.adapter.connect(host.number, {ScriptedPeer::kNumber, kOwnPsn, kPsn}) == Status::ok);
  REQUIRE(host.send(1, 0, 8) == Status::ok);
  const auto poll = [&](int times) {
    for (int i = 0; i < times; ++i) {
      pair.advance(milliseconds(1));
      host.adapter.poll(pair.now());
    }
  };
  poll(4 * 2 * 10);
  CHECK(host.take().empty());
  poll(1);
  CHECK(how(host.take()) == std::vector<std::string>{"retry_exceeded"});
}

TEST_CASE("a retry goes back to the message that was refused", "[fabric][adapter]") {
  ScriptedPeer peer;
  for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(peer.host.send(i, 0, 64) == Status::ok);
  CHECK(peer.poll_and_take().size() == 4);
  peer.acknowledge(Syndrome::sequence_error, kOwnPsn + 2);
  const auto again = peer.poll_and_take();
  REQUIRE(again.size() == 2);
  CHECK(again[0].packet_sequence == kOwnPsn + 2);
  CHECK(again[1].packet_sequence == kOwnPsn + 3);
  CHECK(peer.host.take().size() == 2);
}

TEST_CASE("receiver not ready: the requester waits as long as asked, and gives up in the end", "[fabric][adapter]") {
  AdapterOptions options = test::small_cells();
  options.receiver_not_ready_retries = 2;
  ScriptedPeer peer(options);
  REQUIRE(peer.host.send(1, 0, 64) == Status::ok);
  REQUIRE(peer.host.send(2, 0, 64) == Status::ok);
  CHECK(peer.poll_and_take().size() == 2);
  for (int retry = 0; retry < 2; ++retry) {
    peer.acknowledge(Syndrome::receiver_not_ready, kOwnPsn, 3000);
    CHECK(peer.poll_and_take().empty());
    CHECK(peer.poll_and_take(microseconds(2900)).empty());
    CHECK(peer.poll_and_take(microseconds(100)).size() == 2);
  }
  peer.acknowledge(Syndrome::receiver_not_ready, kOwnPsn, 3000);
  peer.poll();
  const auto ends = peer.host.take();
  REQUIRE(ends.size() == 2);
  CHECK(ends[0].status == CompletionStatus::receiver_not_ready);
  CHECK(ends[1].status == CompletionStatus::flushed);
}

TEST_CASE("a hostile receiver-not-ready delay holds a request for a second at most", "[fabric][adapter]") {
  ScriptedPeer peer;
  REQUIRE(peer.host.send(1, 0, 64) == Status::ok);
  CHECK(peer.poll_and_take().size() == 1);
  peer.acknowledge(Syndrome::receiver_not_ready, kOwnPsn, 0xffff'ffff);
  CHECK(peer.poll_and_take().empty());
  CHECK(peer.host.adapter.next_deadline() <= peer.pair.now() + std::chrono::seconds(1));
  CHECK(peer.poll_and_take(std::chrono::seconds(1)).size() == 1);
}

TEST_CASE("the peer's refusal ends the request with its reason and flushes the rest", "[fabric][adapter]") {
  const auto [syndrome, status] = GENERATE(table<Syndrome, CompletionStatus>(
      {{Syndrome::remote_access_error, CompletionStatus::remote_access_error},
       {Syndrome::remote_operation_error, CompletionStatus::remote_operation_error}}));
  ScriptedPeer peer;
  REQUIRE(peer.host.receive(9, 0, 64) == Status::ok);
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(peer.host.send(i, 0, 64) == Status::ok);
  CHECK(peer.poll_and_take().size() == 3);
  peer.acknowledge(syndrome, kOwnPsn + 1);
  peer.poll();
  const auto ends = peer.host.take();
  REQUIRE(ends.size() == 4);
  CHECK(ends[0].status == CompletionStatus::success);
  CHECK(ends[1].status == status);
  CHECK(ends[2].status == CompletionStatus::flushed);
  CHECK(ends[3].receive);
  CHECK(ends[3].status == CompletionStatus::flushed);
  CHECK(peer.host.send(4, 0, 64) == Status::bad_state);
  CHECK(peer.host.receive(4, 0, 64) == Status::bad_state);
}

TEST_CASE("a direct write's retry sends its closing cell alone", "[fabric][adapter]") {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = milliseconds(10);
  ScriptedPeer peer(options);
  MptPublisher publisher;
  publisher.start(*peer.pair.link(1).direct());
  MptGrant grant;
  grant.tag = Stag::from(9, 9);
  grant.address = 0x10000;
  grant.length = 8192;
  grant.window_offset = peer.pair.link(1).buffers().offset;
  grant.rights = kAllRights;
  REQUIRE(publisher.grant(*peer.pair.link(1).direct(), grant));
  REQUIRE(publisher.admit(*peer.pair.link(1).direct(), {ScriptedPeer::kNumber, peer.host.number, grant.domain}));
  peer.pair.advance(microseconds(1));
  REQUIRE(peer.host.write(1, 0, 8000, {0x10000 + 64, grant.tag}, 5) == Status::ok);
  for (int round = 0; round < 3; ++round) {
    const auto cells = peer.poll_and_take(milliseconds(10));
    REQUIRE(cells.size() == 1);
    CHECK(cells[0].direct);
    CHECK(cells[0].message_bytes == 8000);
    CHECK(cells[0].address == 0x10000 + 64);
    peer.poll();
  }
  CHECK(peer.host.adapter.counters().direct_writes == 1);
}

TEST_CASE("cells that are not for this port or queue pair are dropped and counted", "[fabric][adapter]") {
  ScriptedPeer peer;
  REQUIRE(peer.host.receive(1, 0, 64) == Status::ok);
  const auto& counters = peer.host.adapter.counters();
  Cell cell = peer.cell(Opcode::send_only, kPsn);
  cell.destination = PortAddress{1};
  peer.put(cell);
  cell = peer.cell(Opcode::send_only, kPsn);
  cell.source = PortAddress{1};
  peer.put(cell);
  CHECK(peer.poll_and_take().empty());
  CHECK(counters.dropped_wrong_address == 2);
  cell = peer.cell(Opcode::send_only, kPsn);
  cell.destination_queue_pair.value ^= 0x80'0000U;
  peer.put(cell);
  cell = peer.cell(Opcode::send_only, kPsn);
  cell.source_queue_pair = QpNumber{78};
  peer.put(cell);
  CHECK(peer.poll_and_take().empty());
  CHECK(counters.dropped_unknown_queue_pair == 2);
  peer.put_raw(pattern(100, 1));
  peer.put_raw(pattern(1, 1));
  peer.put_raw(pattern(100'000, 1));
  CHECK(peer.poll_and_take().empty());
  CHECK(counters.dropped_bad_cell == 3);
  CHECK(peer.host.take().empty());
}

}  // namespace splitnic::fabric::test::adapter_dialogue_test
