#include <deque>
#include <utility>

#include "adapter_requests.h"
#include "relayed_endpoints.h"

/// RDMA reads and atomics: the owner answers, by message sequence number, again if need be.
namespace splitnic::fabric::test::adapter_reads_test {
namespace {

constexpr std::uint32_t kPsn = ScriptedPeer::kPsn;
constexpr std::uint32_t kOwnPsn = ScriptedPeer::kOwnPsn;

std::vector<std::byte> joined(const std::vector<Cell>& cells) {
  std::vector<std::byte> all;
  for (const Cell& cell : cells) all.insert(all.end(), cell.payload.begin(), cell.payload.end());
  return all;
}

}  // namespace

TEST_CASE("a read brings the owner's bytes, of every length, into a scatter list", "[fabric][adapter][read]") {
  TwoEndpoints two;
  const Owned owned = open(two.end(1));
  for (const std::size_t bytes : {0U, 1U, 255U, 256U, 257U, 3000U, 65536U}) {
    INFO(bytes);
    const auto data = pattern(bytes, bytes + 1);
    two.end(1).fill(1000, data);
    WorkRequest request = read_request(two.end(0), bytes, 0, bytes / 3, {owned.at.address + 1000, owned.at.tag});
    request.segments[1] = two.end(0).segment(100'000, bytes - bytes / 3);
    request.segment_count = 2;
    REQUIRE(two.end(0).adapter.post_send(two.end(0).number, request) == Status::ok);
    REQUIRE(two.settle());
    const auto ends = two.end(0).take();
    REQUIRE(ends.size() == 1);
    CHECK(ends[0].status == CompletionStatus::success);
    CHECK(ends[0].operation == Operation::rdma_read);
    CHECK(ends[0].bytes == bytes);
    CHECK(two.end(0).holds(0, std::span(data).first(bytes / 3)));
    CHECK(two.end(0).holds(100'000, std::span(data).subspan(bytes / 3)));
  }
  CHECK(two.end(1).take().empty());  // the owner's user notices nothing
  CHECK(two.end(1).adapter.counters().segmented_reads == 7);
}

TEST_CASE("atomics change the owner's word and bring what it held", "[fabric][adapter][atomic]") {
  TwoEndpoints two;
  const Owned owned = open(two.end(1));
  set_word(two.end(1), 0, 40);
  REQUIRE(two.end(0).adapter.post_send(two.end(0).number, add_request(two.end(0), 1, 64, 2, owned.at)) == Status::ok);
  WorkRequest swap = add_request(two.end(0), 2, 72, 7, owned.at);
  swap.operation = Operation::compare_swap;
  swap.compare = 42;
  REQUIRE(two.end(0).adapter.post_send(two.end(0).number, swap) == Status::ok);
  swap.segments[0] = two.end(0).segment(80, 8);
  REQUIRE(two.end(0).adapter.post_send(two.end(0).number, swap) == Status::ok);  // no longer 42
  REQUIRE(two.settle());
  CHECK(two.end(0).take().size() == 3);
  CHECK(word(two.end(0), 64) == 40);
  CHECK(word(two.end(0), 72) == 42);
  CHECK(word(two.end(0), 80) == 7);
  CHECK(word(two.end(1), 0) == 7);
  CHECK(two.end(1).adapter.counters().atomics == 3);
}

TEST_CASE("an answer acknowledges its request and all before it", "[fabric][adapter][read]") {
  ScriptedPeer peer;
  REQUIRE(peer.host.send(1, 0, 64) == Status::ok);
  REQUIRE(peer.host.adapter.post_send(peer.host.number, read_request(peer.host, 2, 0, 300, {5, Stag{6}})) ==
          Status::ok);
  const auto cells = peer.poll_and_take();
  REQUIRE(cells.size() == 2);
  CHECK(cells[1].opcode == Opcode::read_request);
  CHECK(cells[1].message_sequence == 1);
  CHECK(cells[1].message_bytes == 300);
  CHECK(cells[1].sink_tag == Stag{});  // process memory: nothing to store into directly
  const auto data = pattern(300, 1);
  peer.put(peer.cell(Opcode::read_response_first, kOwnPsn + 1, 0), std::span(data).first(200));
  peer.poll();
  CHECK(peer.host.take().empty());
  peer.put(peer.cell(Opcode::read_response_last, kOwnPsn + 1, 1), std::span(data).last(100));
  peer.poll();
  CHECK(peer.host.take().size() == 2);
  CHECK(peer.host.holds(0, data));
}

TEST_CASE("no more reads are outstanding than the peer takes, and a fence waits for them", "[fabric][adapter][read]") {
  QueuePairAttributes options;
  options.reads_out = 2;
  ScriptedPeer peer(test::small_cells(), options);
  for (std::uint64_t i = 0; i < 3; ++i) {
    REQUIRE(peer.host.adapter.post_send(peer.host.number, read_request(peer.host, i, i * 8, 8, {5, Stag{6}})) ==
            Status::ok);
  }
  WorkRequest fenced;
  fenced.fence = true;
  fenced.segments[0] = peer.host.segment(0, 8);
  fenced.segment_count = 1;
  REQUIRE(peer.host.adapter.post_send(peer.host.number, fenced) == Status::ok);
  CHECK(peer.poll_and_take().size() == 2);
  peer.put(peer.cell(Opcode::read_response_only, kOwnPsn), pattern(8, 1));
  auto cells = peer.poll_and_take();
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].message_sequence == 3);
  peer.put(peer.cell(Opcode::read_response_only, kOwnPsn + 1), pattern(8, 1));
  CHECK(peer.poll_and_take().empty());
  peer.put(peer.cell(Opcode::read_response_only, kOwnPsn + 2), pattern(8, 1));
  cells = peer.poll_and_take();
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].opcode == Opcode::send_only);
}

TEST_CASE("a missed answer is asked for again, once at once and then by the timeout", "[fabric][adapter][read]") {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = milliseconds(10);
  ScriptedPeer peer(options);
  REQUIRE(peer.host.adapter.post_send(peer.host.number, read_request(peer.host, 1, 0, 300, {5, Stag{6}})) ==
          Status::ok);
  REQUIRE(peer.host.send(2, 0, 64) == Status::ok);
  CHECK(peer.poll_and_take().size() == 2);
  // The acknowledgement of the send says that the read's answer must have come before it.
  peer.acknowledge(Syndrome::ok, kOwnPsn + 1);
  peer.acknowledge(Syndrome::ok, kOwnPsn + 1);
  auto again = peer.poll_and_take();
  REQUIRE(again.size() == 2);
  CHECK(again[0].opcode == Opcode::read_request);
  CHECK(again[0].packet_sequence == kOwnPsn);
  CHECK(again[0].message_sequence == 1);
  const auto data = pattern(300, 1);
  peer.put(peer.cell(Opcode::read_response_first, kOwnPsn, 0), std::span(data).first(100));
  peer.put(peer.cell(Opcode::read_response_last, kOwnPsn, 2), std::span(data).last(100));  // a gap
  CHECK(peer.poll_and_take().empty());
  CHECK(peer.host.take().empty());
  again = peer.poll_and_take(milliseconds(10));
  if (again.empty()) again = peer.poll_and_take(milliseconds(10));
  REQUIRE(again.size() == 2);
  peer.put(peer.cell(Opcode::read_response_only, kOwnPsn), data);
  peer.poll();
  CHECK(peer.host.take().size() == 2);
  CHECK(peer.host.holds(0, data));
}

TEST_CASE("an answer that does not fit its request ends the queue pair, and places nothing beyond it",
          "[fabric][adapter][read][hostile]") {
  ScriptedPeer peer;
  const auto before = peer.host.buffer;
  TerminateReason reason{1, 1, 1};
  REQUIRE(peer.host.adapter.post_send(peer.host.number, read_request(peer.host, 1, 0, 100, {5, Stag{6}})) ==
          Status::ok);
  CHECK(peer.poll_and_take().size() == 1);
  SECTION("too long") { peer.put(peer.cell(Opcode::read_response_only, kOwnPsn), pattern(101, 1)); }
  SECTION("too short") { peer.put(peer.cell(Opcode::read_response_only, kOwnPsn), pattern(99, 1)); }
  SECTION("a first cell with everything") {
    peer.put(peer.cell(Opcode::read_response_first, kOwnPsn), pattern(100, 1));
  }
  SECTION("stored directly, where nothing was granted") {
    Cell cell = peer.cell(Opcode::read_response_only, kOwnPsn);
    cell.direct = true;
    peer.put(cell);
    reason.code = 0;
  }
  const auto cells = peer.poll_and_take();
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].opcode == Opcode::terminate);
  CHECK(cells[0].payload.size() == sizeof(CellHeader));  // the answer's head
  CHECK(cells[0].reason == reason);
  const auto ends = peer.host.take();
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].status == CompletionStatus::remote_operation_error);
  CHECK((peer.host.buffer == before));
  CHECK(peer.host.adapter.in_error(peer.host.number));
}

TEST_CASE("answers that nobody asked for are dropped", "[fabric][adapter][read][hostile]") {
  ScriptedPeer peer;
  const auto before = peer.host.buffer;
  peer.put(peer.cell(Opcode::read_response_only, kOwnPsn), pattern(100, 1));
  peer.put(peer.cell(Opcode::atomic_acknowledge, kOwnPsn));
  peer.poll();
  REQUIRE(peer.host.adapter.post_send(peer.host.number, read_request(peer.host, 1, 0, 100, {5, Stag{6}})) ==
          Status::ok);
  peer.put(peer.cell(Opcode::atomic_acknowledge, kOwnPsn));
  peer.put(peer.cell(Opcode::read_response_only, kOwnPsn + 1), pattern(100, 1));
  CHECK(peer.poll_and_take().size() == 1);
  CHECK(peer.host.take().empty());
  CHECK((peer.host.buffer == before));
  CHECK(peer.host.adapter.counters().dropped_duplicate == 4);
}

TEST_CASE("the owner answers a repeated read again, and an atomic with its first result", "[fabric][adapter][read]") {
  ScriptedPeer peer;
  const Owned owned = open(peer.host);
  peer.host.fill(0, pattern(600, 1));
  set_word(peer.host, 1000, 5);
  const RemoteAddress counter{owned.at.address + 1000, owned.at.tag};
  for (int round = 0; round < 3; ++round) {
    peer.put(read_cell(peer, kPsn, 1, owned.at, 600));
    peer.put(add_cell(peer, kPsn + 1, 2, counter, 10));
    const auto cells = peer.poll_and_take();
    REQUIRE(cells.size() == 4);
    CHECK(joined(cells) == pattern(600, 1));
    CHECK(cells[2].opcode == Opcode::read_response_last);
    CHECK(cells[3].opcode == Opcode::atomic_acknowledge);
    CHECK(cells[3].original == 5);
  }
  CHECK(word(peer.host, 1000) == 15);
  CHECK(peer.host.adapter.counters().atomics == 1);
}

TEST_CASE("an acknowledgement of what came after a read waits for the read's answer", "[fabric][adapter][read]") {
  ScriptedPeer peer;
  const Owned owned = open(peer.host);
  REQUIRE(peer.host.receive(1, 200'000, 100) == Status::ok);
  peer.put(read_cell(peer, kPsn, 1, owned.at, 72 * 256));  // 72 cells, of which 64 leave in one poll
  peer.put(peer.cell(Opcode::send_only, kPsn + 1), pattern(10, 1));
  auto cells = peer.poll_and_take();
  REQUIRE(cells.size() == 64);
  for (const Cell& cell : cells) CHECK(cell.packet_sequence == kPsn);
  cells = peer.poll_and_take();
  REQUIRE(cells.size() == 9);
  CHECK(cells[7].opcode == Opcode::read_response_last);
  CHECK(cells[8].opcode == Opcode::acknowledge);
  CHECK(cells[8].packet_sequence == kPsn + 1);
}

TEST_CASE("a peer that asks again for an answer that waits hears that it will come", "[fabric][adapter][read]") {
  ScriptedPeer peer;
  const Owned owned = open(peer.host);
  peer.put(read_cell(peer, kPsn, 1, owned.at, 200 * 256));  // 200 cells, of which 64 leave in one poll
  peer.put(read_cell(peer, kPsn + 1, 2, owned.at, 8));
  CHECK(peer.poll_and_take().size() == 64);
  peer.put(read_cell(peer, kPsn + 1, 2, owned.at, 8));
  auto cells = peer.poll_and_take();
  REQUIRE(cells.size() == 65);
  CHECK(cells[64].opcode == Opcode::acknowledge);
  CHECK(cells[64].syndrome == Syndrome::ok);
  CHECK(cells[64].packet_sequence == kPsn - 1);
  CHECK(peer.poll_and_take().size() == 64);  // and once is enough
  cells = peer.poll_and_take();
  REQUIRE(cells.size() == 9);
  CHECK(cells[7].packet_sequence == kPsn);
  CHECK(cells[8].packet_sequence == kPsn + 1);
}

TEST_CASE("a refusal stays known although a peer hears at the same time that its answer will come",
          "[fabric][adapter][read]") {
  ScriptedPeer peer;
  const Owned owned = open(peer.host);
  peer.put(read_cell(peer, kPsn, 1, owned.at, 200 * 256));  // 200 cells, of which 64 leave in one poll
  CHECK(peer.poll_and_take().size() == 64);
  const Cell refused = write_cell(peer, Opcode::write_only, kPsn + 1, {owned.at.address, Stag{}}, 8);
  peer.put(read_cell(peer, kPsn, 1, owned.at, 200 * 256));
  peer.put(refused, pattern(8, 1));
  std::vector<Cell> cells;
  for (int i = 0; i < 5; ++i) {
    const auto more = peer.poll_and_take();
    cells.insert(cells.end(), more.begin(), more.end());
  }
  REQUIRE_FALSE(cells.empty());
  CHECK(cells.back().opcode == Opcode::terminate);  // and gets lost
  peer.put(refused, pattern(8, 1));
  const auto again = peer.poll_and_take();
  REQUIRE(again.size() == 1);
  CHECK(again[0].opcode == Opcode::acknowledge);
  CHECK(again[0].syndrome == Syndrome::remote_access_error);
  CHECK(again[0].packet_sequence == kPsn + 1);
}

TEST_CASE("a read that waits for its turn does not run out of retries, and one without any sign does",
          "[fabric][adapter][read]") {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = milliseconds(10);
  options.retry_count = 2;
  ScriptedPeer peer(options);
  REQUIRE(peer.host.adapter.post_send(peer.host.number, read_request(peer.host, 1, 0, 8, {5, Stag{6}})) == Status::ok);
  constexpr int kTimeouts = 20;
  for (int i = 0; i < 2 * kTimeouts; ++i) {
    peer.poll(milliseconds(6));
    if (!peer.take().empty()) peer.acknowledge(Syndrome::ok, kOwnPsn - 1);
  }
  CHECK(peer.host.take().empty());
  CHECK(peer.host.adapter.counters().timeouts > 2 * options.retry_count);
  for (int i = 0; i < 8; ++i) peer.poll(milliseconds(6));
  CHECK(how(peer.host.take()) == std::vector<std::string>{"retry_exceeded"});
}

TEST_CASE("reads of many queue pairs end, however long the queue of their answers is", "[fabric][adapter][read]") {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = milliseconds(10);  // of 320 or 800 that the answers take
  options.retry_count = 2;
  options.max_queue_pairs = 256;
  TwoEndpoints two(options);
  const Owned owned = open(two.end(1));
  const auto data = pattern(65536, 3);
  two.end(1).fill(0, data);
  const auto [queue_pairs, reads] = GENERATE(std::pair(20U, 4U), std::pair(200U, 1U));
  for (std::size_t i = 0; i < queue_pairs; ++i) {
    const std::array ends{two.end(0).make_queue_pair({}), two.end(1).make_queue_pair({})};
    for (std::size_t own : {0U, 1U}) {
      REQUIRE(two.end(own).adapter.connect(ends[own], {ends[1 - own], kPsn, kPsn}) == Status::ok);
    }
    for (std::size_t read = 0; read < reads; ++read) {
      REQUIRE(two.end(0).adapter.post_send(ends[0], read_request(two.end(0), 1, 0, data.size(), owned.at)) ==
              Status::ok);
    }
  }
  std::vector<Completion> all;
  for (int i = 0; i < 10'000 && two.end(0).adapter.outstanding(); ++i) {
    two.step(milliseconds(1));
    for (const Completion& completion : two.end(0).take()) all.push_back(completion);
  }
  CHECK(all.size() == queue_pairs * reads);
  for (const Completion& completion : all) REQUIRE(completion.status == CompletionStatus::success);
  CHECK(two.end(0).holds(0, data));
  // Each asks for all of its reads once, and then for one of them at each timeout.
  CHECK(two.end(0).adapter.counters().retransmissions <=
        two.end(0).adapter.counters().timeouts + queue_pairs * (reads - 1));
}

TEST_CASE("a request with an unexpected message sequence number, or beyond the depth, terminates",
          "[fabric][adapter][read]") {
  QueuePairAttributes options;
  options.reads_in = 2;
  ScriptedPeer peer(test::small_cells(), options);
  const Owned owned = open(peer.host);
  TerminateReason reason{1, 2, 3};
  std::size_t answers = 0;
  std::uint32_t psn = kPsn;
  SECTION("none before") { peer.put(read_cell(peer, kPsn, 0, owned.at, 8)); }
  SECTION("skipped") { peer.put(read_cell(peer, kPsn, 2, owned.at, 8)); }
  SECTION("far") { peer.put(read_cell(peer, kPsn, ~0U, owned.at, 8)); }
  SECTION("an atomic counts too") {
    peer.put(add_cell(peer, kPsn, 1, owned.at, 8));
    peer.put(read_cell(peer, ++psn, 1, owned.at, 8));
    answers = 1;
  }
  SECTION("three at once") {
    for (std::uint32_t i = 0; i < 3; ++i) peer.put(read_cell(peer, kPsn + i, i + 1, owned.at, 8));
    psn = kPsn + 2;
    answers = 2;
    reason.code = 2;
  }
  const auto cells = peer.poll_and_take();
  REQUIRE(cells.size() == answers + 1);  // what was asked before is answered first
  CHECK(cells.back().opcode == Opcode::terminate);
  CHECK(cells.back().reason == reason);
  CHECK(cells.back().packet_sequence == psn);
  CHECK(peer.host.adapter.in_error(peer.host.number));
  CHECK(peer.host.adapter.counters().terminates_sent == 1);
}

TEST_CASE("the table refuses reads and atomics by name, and the requester hears it", "[fabric][adapter][read]") {
  const bool atomic = GENERATE(false, true);
  TwoEndpoints two;
  const Owned owned = open(two.end(1), 4096);
  RemoteAddress at = owned.at;
  CompletionStatus expected = CompletionStatus::remote_access_error;
  SECTION("right") { at = open(two.end(1), 4096, kAllRights).at; }
  SECTION("bounds") { at.address += 4096 - 7; }
  SECTION("tag") { at.tag.value ^= 1U; }
  SECTION("alignment") {
    if (atomic) {
      at.address += 4;
      expected = CompletionStatus::remote_invalid_request_error;
    } else {
      at.address -= 1;
    }
  }
  const auto before = two.end(0).buffer;
  REQUIRE(two.end(1).receive(1, 0, 64) == Status::ok);
  for (std::uint64_t i = 0; i < 2; ++i) {
    REQUIRE(two.end(0).adapter.post_send(two.end(0).number, atomic
                                                                ? add_request(two.end(0), i, 0, 1, at)
                                                                : read_request(two.end(0), i, 0, 8, at)) == Status::ok);
  }
  two.run(milliseconds(1));
  const auto ends = two.end(0).take();
  REQUIRE(ends.size() == 2);
  CHECK(to_string(ends[0].status) == std::string(to_string(expected)));
  CHECK(ends[1].status == CompletionStatus::flushed);
  CHECK((two.end(0).buffer == before));
  CHECK(two.end(1).adapter.counters().terminates_sent == 1);
  std::array<AsyncEvent, 4> events;
  REQUIRE(two.end(0).adapter.poll_events(events) == 1);
  CHECK(events[0].kind == AsyncEventKind::queue_pair_fatal);
  CHECK(events[0].from_peer);
  const TerminateReason heard = events[0].reason;
  REQUIRE(two.end(1).adapter.poll_events(events) == 1);
  CHECK_FALSE(events[0].from_peer);
  CHECK(events[0].reason == heard);
}

TEST_CASE("memory deregistered in the middle of its answer ends the stream at that read", "[fabric][adapter][read]") {
  ScriptedPeer peer;
  const Owned owned = open(peer.host);
  peer.put(read_cell(peer, kPsn, 1, owned.at, 72 * 256));
  CHECK(peer.poll_and_take().size() == 64);
  REQUIRE(peer.host.adapter.deregister(owned.at.tag) == Status::ok);
  const auto cells = peer.poll_and_take();
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].opcode == Opcode::terminate);
  CHECK(cells[0].packet_sequence == kPsn);
  CHECK(cells[0].payload.size() == cell_head_bytes(Opcode::read_request));
}

TEST_CASE("a late copy of a read is refused when its memory has gone since, and ends nothing",
          "[fabric][adapter][read]") {
  ScriptedPeer peer;
  const Owned owned = open(peer.host);
  REQUIRE(peer.host.receive(1, 200'000, 100) == Status::ok);
  peer.put(read_cell(peer, kPsn, 1, owned.at, 600));
  CHECK(peer.poll_and_take().size() == 3);
  REQUIRE(peer.host.adapter.deregister(owned.at.tag) == Status::ok);
  const Owned open_still = open(peer.host);  // its receive is here
  for (int copy = 0; copy < 2; ++copy) {
    peer.put(read_cell(peer, kPsn, 1, owned.at, 600));
    const auto cells = peer.poll_and_take();
    REQUIRE(cells.size() == 1);
    CHECK(cells[0].opcode == Opcode::acknowledge);
    CHECK(cells[0].syndrome == Syndrome::remote_access_error);
    CHECK(cells[0].packet_sequence == kPsn);
  }
  CHECK_FALSE(peer.host.adapter.in_error(peer.host.number));
  // A peer that has its answer goes on.
  peer.put(read_cell(peer, kPsn + 1, 2, open_still.at, 100));
  const auto next = peer.poll_and_take();
  REQUIRE(next.size() == 1);
  CHECK(next[0].opcode == Opcode::read_response_only);
}

TEST_CASE("a read whose answer got lost ends as refused when its memory has gone, whatever came after it",
          "[fabric][adapter][read]") {
  const bool terminated = GENERATE(false, true);
  ScriptedPeer peer;
  REQUIRE(post(peer.host, read_request(peer.host, 1, 0, 300, {5, Stag{6}})) == Status::ok);
  REQUIRE(peer.host.send(2, 0, 64) == Status::ok);
  const auto sent = peer.poll_and_take();
  REQUIRE(sent.size() == 2);
  peer.acknowledge(Syndrome::ok, kOwnPsn + 1);  // the send has arrived, so the answer to the read is lost
  CHECK(peer.poll_and_take().size() == 2);
  // Not the refusal of what was acknowledged and needs no answer.
  peer.acknowledge(Syndrome::remote_access_error, kOwnPsn + 1);
  peer.poll();
  CHECK(peer.host.take().empty());
  if (terminated) {
    Cell refusal = peer.cell(Opcode::terminate, kOwnPsn);
    refusal.reason = {0, 1, 0};
    std::array<std::byte, kMaxCellHeadBytes> head{};
    const std::size_t bytes = encode_cell_head(sent[0], 0, head);
    peer.put(refusal, std::span(head).first(bytes));
  } else {
    peer.acknowledge(Syndrome::remote_access_error, kOwnPsn);
  }
  peer.poll();
  CHECK(how(peer.host.take()) == std::vector<std::string>{"remote_access_error", "flushed"});
  CHECK(peer.host.adapter.in_error(peer.host.number));
}

TEST_CASE("reads and atomics need an acknowledged channel and a peer who takes them", "[fabric][adapter][read]") {
  QueuePairAttributes options;
  SECTION("unacknowledged") { options.acknowledged = false; }
  SECTION("none out") { options.reads_out = 0; }
  ScriptedPeer peer(test::small_cells(), options);
  CHECK(peer.host.adapter.post_send(peer.host.number, read_request(peer.host, 1, 0, 8, {1, Stag{2}})) ==
        Status::not_permitted);
  if (!options.acknowledged) {
    peer.put(read_cell(peer, kPsn, 1, open(peer.host).at, 8));
    CHECK(peer.poll_and_take().empty());
    CHECK(peer.host.adapter.counters().dropped_unacknowledged == 1);
  }
}

TEST_CASE("a one-shot entry is read once, however often its answer is lost", "[fabric][adapter][read]") {
  ScriptedPeer peer;
  EntryOptions once;
  once.rights = kAllRights | Right::remote_read;
  once.touch = TouchControl::one_shot;
  const Stag tag = peer.host.adapter.table()
                       .register_region(peer.host.domain, RegionMemory::of_process(peer.host.buffer), once)
                       .value();
  const RemoteAddress at{peer.host.adapter.region_address(tag), tag};
  peer.put(read_cell(peer, kPsn, 1, at, 100));
  CHECK(peer.poll_and_take().at(0).opcode == Opcode::read_response_only);
  peer.put(read_cell(peer, kPsn, 1, at, 100));
  CHECK(peer.poll_and_take().at(0).opcode == Opcode::read_response_only);
  peer.put(read_cell(peer, kPsn + 1, 2, at, 100));
  CHECK(peer.poll_and_take().at(0).opcode == Opcode::terminate);
}

TEST_CASE("a one-shot entry that a read of the peer has taken is no sink for an own read, whatever its number",
          "[fabric][adapter][read]") {
  TwoEndpoints two;
  Endpoint& owner = two.end(1);
  const Owned open_memory = open(two.end(0));
  const QpNumber near = two.end(0).make_queue_pair({});
  const QpNumber far = owner.make_queue_pair({});
  const std::uint32_t psn = GENERATE(0U, 9U);  // both number from there
  REQUIRE(two.end(0).adapter.connect(near, {far, psn, psn}) == Status::ok);
  REQUIRE(owner.adapter.connect(far, {near, psn, psn}) == Status::ok);
  EntryOptions once;
  once.rights = kAllRights | Right::remote_read;
  once.touch = TouchControl::one_shot;
  const Stag tag =
      owner.adapter.table().register_region(owner.domain, RegionMemory::of_process(owner.buffer), once).value();
  WorkRequest request = read_request(two.end(0), 1, 0, 64, {owner.adapter.region_address(tag), tag});
  REQUIRE(two.end(0).adapter.post_send(near, request) == Status::ok);
  REQUIRE(two.settle());
  CHECK(how(two.end(0).take()) == std::vector<std::string>{"success"});
  request = read_request(owner, 2, 0, 64, open_memory.at);
  request.segments[0].tag = tag;
  CHECK(owner.adapter.post_send(far, request) == Status::bad_tag);
}

TEST_CASE("a read into granted memory is stored directly by the owner", "[fabric][adapter][read]") {
  TwoEndpoints two;
  const Owned owned = open(two.end(1));
  const auto data = pattern(5000, 3);
  two.end(1).fill(0, data);
  const MemoryRange range{two.pair.link(0).buffers().offset, 8192};
  const Stag sink = two.end(0).adapter.register_bridge_memory(two.end(0).domain, range, kAllRights, true).value();
  two.step();
  WorkRequest request = read_request(two.end(0), 1, 0, 5000, owned.at);
  request.segments[0] = LocalSegment::at(two.end(0).adapter.region_address(sink) + 64, 5000, sink);
  REQUIRE(two.end(0).adapter.post_send(two.end(0).number, request) == Status::ok);
  REQUIRE(two.settle());
  REQUIRE(two.end(0).take().at(0).status == CompletionStatus::success);
  CHECK(two.end(1).adapter.counters().direct_reads == 1);
  CHECK(two.end(1).adapter.counters().segmented_reads == 0);
  std::vector<std::byte> arrived(5000);
  two.pair.link(0).bridge().local_memory().copy_out(range.offset + 64, arrived);
  CHECK(arrived == data);
}

TEST_CASE("reads, atomics and sends on a lossy bridge: each atomic once, each byte right", "[fabric][adapter][sim]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{13}));
  INFO("seed " << seed);
  RelayedEndpoints two(seed, {});
  const Owned owned = open(two.second);
  const auto data = pattern(100'000, seed);
  two.second.fill(0, data);
  constexpr std::size_t kCounter = 200'000;
  set_word(two.second, kCounter, 0);
  SeededRandom random(seed);
  struct Expected {
    Operation operation;
    std::size_t from = 0;
    std::size_t bytes = 0;
    std::uint64_t sum = 0;
  };
  std::deque<Expected> expected;
  std::uint64_t posted = 0;
  std::uint64_t completed = 0;
  std::uint64_t sum = 0;
  std::uint64_t receives = 0;
  constexpr std::uint64_t kRequests = 200;
  constexpr std::size_t kSlot = 4096;
  for (int i = 0; i < 400'000 && completed < kRequests; ++i) {
    if (receives < kRequests && two.second.receive(receives, 204'800, 64) == Status::ok) ++receives;
    if (posted < kRequests && posted - completed < 16) {
      const std::size_t slot = posted % 32 * kSlot;
      WorkRequest request;
      Expected one{Operation::send};
      switch (random.below(3)) {
        case 0:
          one = {Operation::rdma_read, static_cast<std::size_t>(random.below(90'000)),
                 static_cast<std::size_t>(random.below(kSlot))};
          request = read_request(two.first, posted, slot, one.bytes, {owned.at.address + one.from, owned.at.tag});
          break;
        case 1: {
          const std::uint64_t add = random.below(1000);
          one = {Operation::fetch_add, 0, 8, sum};
          sum += add;
          request = add_request(two.first, posted, slot, add, {owned.at.address + kCounter, owned.at.tag});
          break;
        }
        default:
          request = read_request(two.first, posted, slot, 40, {});
          request.operation = Operation::send;
      }
      REQUIRE(two.first.adapter.post_send(two.first.number, request) == Status::ok);
      expected.push_back(one);
      ++posted;
    }
    two.step();
    static_cast<void>(two.second.take());
    for (const Completion& done : two.first.take()) {
      REQUIRE(done.status == CompletionStatus::success);
      REQUIRE(done.id == completed);
      const Expected& one = expected.front();
      const std::size_t slot = completed % 32 * kSlot;
      if (one.operation == Operation::rdma_read) {
        REQUIRE(two.first.holds(slot, std::span(data).subspan(one.from, one.bytes)));
      } else if (one.operation == Operation::fetch_add) {
        REQUIRE(word(two.first, slot) == one.sum);
      }
      expected.pop_front();
      ++completed;
    }
  }
  CHECK(completed == kRequests);
  CHECK(word(two.second, kCounter) == sum);
  CHECK(two.first.adapter.counters().retransmissions > 0);
}

}  // namespace splitnic::fabric::test::adapter_reads_test
