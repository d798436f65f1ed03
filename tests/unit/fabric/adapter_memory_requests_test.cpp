#include "adapter_requests.h"
#include "relayed_endpoints.h"

/// Registration, binding and invalidation through the send queue, and what peers may do with such tags.
namespace splitnic::fabric::test::adapter_memory_requests_test {
namespace {

using Names = std::vector<std::string>;

constexpr std::size_t kPage = 4096;

QueuePairAttributes memory_requests(MemoryRequestFailure on_failure = MemoryRequestFailure::fail_sends) {
  return {.memory_requests = true, .on_memory_request_failure = on_failure};
}

/// A page of an endpoint, and a tag that has been allocated for it.
class FastRegion {
 public:
  explicit FastRegion(Endpoint& end, std::uint8_t key = 7) : memory(2 * kPage) {
    void* start = memory.data();
    std::size_t room = memory.size();
    page = static_cast<std::byte*>(std::align(kPage, kPage, start, room));
    pages = {page};
    FastRegister fast;
    fast.tag = end.adapter.table().allocate_region(end.domain, 1).value();
    fast.key = key;
    fast.pages.pages = pages;
    fast.options.rights = kEverything;
    fast.options.base = 0x10000;
    request = fast;
    tag = Stag::from(fast.tag.index(), key);
  }
  FastRegister& fast() { return std::get<FastRegister>(request); }
  WorkRequest registration(std::uint64_t id) const {
    return {.id = id, .operation = Operation::register_memory, .memory = &request};
  }
  [[nodiscard]] LocalSegment segment(std::size_t offset, std::uint32_t bytes) const {
    return LocalSegment::at(0x10000 + offset, bytes, tag);
  }
  [[nodiscard]] RemoteAddress at(std::size_t offset = 0) const { return {0x10000 + offset, tag}; }

  std::vector<std::byte> memory;
  std::byte* page = nullptr;
  std::array<std::byte*, 1> pages{};
  MemoryRequest request;
  Stag tag{};  // once registered
};

/// The end's whole buffer, and a window on it that is not bound yet.
struct Window {
  explicit Window(Endpoint& end, EntryKind kind = EntryKind::window_type_2) : owned(open(end)) {
    std::array<Stag, 1> tags{};
    REQUIRE(end.adapter.table().allocate_windows(end.domain, kind, tags));
    Bind bind;
    bind.window = tags[0];
    bind.region = owned.at.tag;
    bind.address = owned.at.address + 100;
    bind.length = 50;
    bind.rights = Right::remote_read | Right::remote_write;
    bind.key = 0x42;
    request = bind;
  }
  Bind& bind() { return std::get<Bind>(request); }
  WorkRequest binding(std::uint64_t id) const {
    return {.id = id, .operation = Operation::bind_window, .memory = &request};
  }
  [[nodiscard]] RemoteAddress at(Stag bound) const { return {owned.at.address + 100, bound}; }

  Owned owned;
  MemoryRequest request;
};

WorkRequest invalidation(std::uint64_t id, Stag tag) {
  return {.id = id, .operation = Operation::local_invalidate, .invalidate = tag};
}

}  // namespace

TEST_CASE("a tag registered through the send queue is used by the next request, without a round trip",
          "[fabric][adapter][registration]") {
  ScriptedPeer peer(test::small_cells(), memory_requests());
  FastRegion region(peer.host);
  std::memcpy(region.page, "straight away", 13);
  const bool queue_is_held_up = GENERATE(false, true);
  // A read that is not answered, and a fence behind it, keep the registration waiting: its tag can be posted all the
  // same.
  if (queue_is_held_up) {
    REQUIRE(post(peer.host, read_request(peer.host, 8, 0, 8, {5, Stag{6}})) == Status::ok);
    WorkRequest fenced = region.registration(1);
    fenced.fence = true;
    REQUIRE(post(peer.host, fenced) == Status::ok);
  } else {
    REQUIRE(post(peer.host, region.registration(1)) == Status::ok);
  }
  REQUIRE(post(peer.host, send_request(2, region.segment(0, 13))) == Status::ok);
  REQUIRE(post(peer.host, write_request(3, region.segment(4, 4), {9, Stag{9}})) == Status::ok);
  auto cells = peer.take();  // nothing was polled, nothing came in
  if (queue_is_held_up) {
    REQUIRE(cells.size() == 1);
    peer.put(peer.cell(Opcode::read_response_only, ScriptedPeer::kOwnPsn), pattern(8, 1));
    cells = peer.poll_and_take();
  }
  REQUIRE(cells.size() == 2);
  CHECK(std::memcmp(cells[0].payload.data(), "straight away", 13) == 0);
  CHECK(cells[1].opcode == Opcode::write_only);
  const auto ends = peer.host.take();
  REQUIRE(ends.size() == (queue_is_held_up ? 2 : 1));
  CHECK(ends.back().id == 1);
  CHECK(ends.back().operation == Operation::register_memory);
  CHECK(ends.back().tag == region.tag);
}

TEST_CASE("a peer reads, writes and counts in memory that was registered through the send queue",
          "[fabric][adapter][registration]") {
  TwoEndpoints two(test::small_cells(), memory_requests());
  FastRegion region(two.end(1));
  REQUIRE(post(two.end(1), region.registration(1)) == Status::ok);
  two.end(0).fill(0, pattern(100, 1));
  REQUIRE(two.end(0).write(1, 0, 100, region.at(8)) == Status::ok);
  REQUIRE(post(two.end(0), read_request(two.end(0), 2, 1000, 100, region.at(8))) == Status::ok);
  REQUIRE(post(two.end(0), add_request(two.end(0), 3, 2000, 5, region.at())) == Status::ok);
  REQUIRE(two.settle());
  CHECK(how(two.end(0).take()) == Names{"success", "success", "success"});
  CHECK(two.end(0).holds(1000, pattern(100, 1)));
  CHECK(std::to_integer<int>(region.page[0]) == 5);
}

TEST_CASE("one request registers and sends", "[fabric][adapter][registration]") {
  TwoEndpoints two(test::small_cells(), memory_requests());
  FastRegion region(two.end(0));
  std::memcpy(region.page, "both", 4);
  REQUIRE(two.end(1).receive(5, 0, 64) == Status::ok);
  WorkRequest both = send_request(1, region.segment(0, 4));
  both.memory = &region.request;
  REQUIRE(post(two.end(0), both) == Status::ok);
  REQUIRE(two.settle());
  const auto ends = two.end(0).take();
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].operation == Operation::send);
  CHECK(ends[0].tag == region.tag);
  CHECK(two.end(1).take().at(0).bytes == 4);
  CHECK(std::memcmp(two.end(1).buffer.data(), "both", 4) == 0);
  // And the peer may use it.
  REQUIRE(post(two.end(1), read_request(two.end(1), 2, 100, 4, region.at())) == Status::ok);
  REQUIRE(two.settle());
  CHECK(two.end(1).take().at(0).status == CompletionStatus::success);
}

TEST_CASE("a combined request registers once, however often its send is retried", "[fabric][adapter][registration]") {
  ScriptedPeer peer(test::small_cells(), memory_requests());
  FastRegion region(peer.host);
  WorkRequest both = send_request(1, region.segment(0, 600));
  both.memory = &region.request;
  REQUIRE(post(peer.host, both) == Status::ok);
  for (int round = 0; round < 3; ++round) {
    CHECK(peer.poll_and_take().size() == 3);
    peer.acknowledge(Syndrome::sequence_error, ScriptedPeer::kOwnPsn);
  }
  CHECK(peer.poll_and_take().size() == 3);
  peer.acknowledge(Syndrome::ok, ScriptedPeer::kOwnPsn);
  peer.poll();
  CHECK(how(peer.host.take()) == Names{"success"});
}

TEST_CASE("a refused memory request, first option: the sends are flushed, receiving goes on, and they resume",
          "[fabric][adapter][registration]") {
  TwoEndpoints two(test::small_cells(), memory_requests());
  Endpoint& end = two.end(0);
  FastRegion region(end);
  REQUIRE(end.receive(90, 0, 64) == Status::ok);
  REQUIRE(post(end, send_request(1, end.segment(0, 10))) == Status::ok);  // not acknowledged yet when its turn comes
  SECTION("registration") {
    region.fast().pages.page_bytes = 3;
    REQUIRE(post(end, region.registration(2)) == Status::ok);
  }
  SECTION("combined") {
    region.fast().pages.page_bytes = 3;
    WorkRequest both = send_request(2, region.segment(0, 4));
    both.memory = &region.request;
    REQUIRE(post(end, both) == Status::ok);
  }
  SECTION("invalidation") { REQUIRE(post(end, invalidation(2, region.tag)) == Status::ok); }
  SECTION("bind") {
    Window window(end);
    window.bind().length = Endpoint::kBufferBytes;
    REQUIRE(post(end, window.binding(2)) == Status::ok);
  }
  REQUIRE(post(end, send_request(3, end.segment(0, 10))) == Status::ok);
  REQUIRE(post(end, region.registration(4)) == Status::ok);
  REQUIRE(two.end(1).receive(91, 0, 64) == Status::ok);
  two.run(milliseconds(1));
  const auto ends = end.take();
  CHECK(how(ends) == Names{"success", "memory_request_error", "flushed", "flushed"});
  for (std::uint64_t i = 0; i < ends.size(); ++i) CHECK(ends[i].id == i + 1);
  CHECK(end.adapter.state(end.number) == QueuePairState::sq_error);
  CHECK(two.end(1).adapter.state(two.end(1).number) == QueuePairState::ready_to_send);
  CHECK(end.adapter.counters().terminates_sent == 0);
  static_cast<void>(two.end(1).take());

  // Receiving goes on meanwhile; sends are refused until resumed.
  REQUIRE(two.end(1).send(5, 0, 10) == Status::ok);
  REQUIRE(two.settle());
  CHECK(end.take().at(0).id == 90);
  CHECK(end.send(6, 0, 10) == Status::bad_state);
  REQUIRE(end.adapter.modify(end.number, QueuePairEvent::ready_to_send) == Status::ok);
  REQUIRE(two.end(1).receive(92, 0, 64) == Status::ok);
  region.fast().pages.page_bytes = kPage;
  REQUIRE(post(end, region.registration(7)) == Status::ok);
  REQUIRE(post(end, send_request(8, region.segment(0, 10))) == Status::ok);
  REQUIRE(two.settle());
  CHECK(how(end.take()) == Names{"success", "success"});
}

TEST_CASE("a refused memory request, second option: the queue pair ends, and the peer is told once",
          "[fabric][adapter][registration]") {
  TwoEndpoints two(test::small_cells(), memory_requests(MemoryRequestFailure::fail));
  Endpoint& end = two.end(0);
  const QpNumber near = end.make_queue_pair({});
  const QpNumber far = two.end(1).make_queue_pair({});
  REQUIRE(end.adapter.connect(near, {far, 1, 2}) == Status::ok);
  REQUIRE(two.end(1).adapter.connect(far, {near, 2, 1}) == Status::ok);
  FastRegion region(end);
  REQUIRE(end.receive(90, 0, 64) == Status::ok);
  REQUIRE(post(end, invalidation(1, region.tag)) == Status::ok);
  CHECK(end.send(2, 0, 10) == Status::bad_state);  // it was carried out at once
  CHECK(two.end(1).send(5, 0, 10) == Status::ok);  // does not know yet
  two.run(milliseconds(1));
  CHECK(how(end.take()) == Names{"memory_request_error", "flushed"});
  CHECK(how(two.end(1).take()) == Names{"outcome_unknown"});
  CHECK(end.adapter.counters().terminates_sent == 1);
  const auto events = take_events(two.end(1));
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == AsyncEventKind::queue_pair_fatal);
  CHECK(events[0].from_peer);
  CHECK(events[0].reason == TerminateReason{0, 0, 0});
  REQUIRE(two.end(1).adapter.post_receive(far, {1, two.end(1).segment(0, 64)}) == Status::ok);
  REQUIRE(end.adapter.post_send(near, send_request(3, end.segment(0, 10))) == Status::ok);
  REQUIRE(two.settle());  // the neighbours notice nothing
  CHECK(how(end.take()) == Names{"success"});
}

TEST_CASE("registrations need a queue pair that was made for them, and memory requests fit their operation",
          "[fabric][adapter][registration]") {
  TwoEndpoints two(test::small_cells(), memory_requests());
  Endpoint& end = two.end(0);
  FastRegion region(end);
  Window window(end);
  const QpNumber plain = end.make_queue_pair({});
  REQUIRE(end.adapter.connect(plain, {QpNumber{5}, 1, 2}) == Status::ok);
  CHECK(end.adapter.post_send(plain, region.registration(1)) == Status::not_permitted);
  WorkRequest wrong = region.registration(1);
  wrong.operation = Operation::bind_window;
  CHECK(post(end, wrong) == Status::bad_argument);
  wrong = window.binding(1);
  wrong.operation = Operation::register_memory;
  CHECK(post(end, wrong) == Status::bad_argument);
  wrong.memory = nullptr;
  CHECK(post(end, wrong) == Status::bad_argument);
  wrong = region.registration(1);
  wrong.segment_count = 1;
  CHECK(post(end, wrong) == Status::bad_length);
  WorkRequest both = send_request(2, end.segment(0, 4));
  both.memory = &window.request;  // only registrations can be combined
  CHECK(post(end, both) == Status::bad_argument);
  both.memory = &region.request;
  CHECK(end.adapter.post_send(plain, both) == Status::not_permitted);
  both.operation = Operation::rdma_write;  // and only with sends
  CHECK(post(end, both) == Status::bad_argument);
}

TEST_CASE("a window bound through the send queue opens its range to the peer, unbound it opens nothing",
          "[fabric][adapter][window]") {
  const auto kind = GENERATE(EntryKind::window_type_1, EntryKind::window_type_2);
  TwoEndpoints two(test::small_cells(), memory_requests());
  Endpoint& owner = two.end(1);
  Window window(owner, kind);
  REQUIRE(post(owner, window.binding(1)) == Status::ok);
  const auto bound = owner.take();
  REQUIRE(bound.size() == 1);
  CHECK(bound[0].operation == Operation::bind_window);
  const Stag tag = bound[0].tag;
  if (kind == EntryKind::window_type_2) CHECK(tag.instance() == 0x42);
  const auto data = pattern(50, 3);
  two.end(0).fill(0, data);
  REQUIRE(two.end(0).write(1, 0, 50, window.at(tag)) == Status::ok);
  REQUIRE(two.settle());
  CHECK(how(two.end(0).take()) == Names{"success"});
  CHECK(owner.holds(100, data));
  // Its region can't go as long as it is bound.
  CHECK(owner.adapter.deregister(window.owned.at.tag) == Status::in_use);

  window.bind().window = tag;
  window.bind().length = 0;
  REQUIRE(post(owner, window.binding(2)) == Status::ok);
  CHECK(how(owner.take()) == Names{"success"});
  CHECK(owner.adapter.deregister(window.owned.at.tag) == Status::ok);
  REQUIRE(two.end(0).write(2, 1000, 50, window.at(tag)) == Status::ok);
  two.run(milliseconds(1));
  CHECK(how(two.end(0).take()) == Names{"remote_access_error"});
  CHECK(owner.holds(100, data));
}

TEST_CASE("a bound window ends one byte before what is not its own", "[fabric][adapter][window]") {
  const int before = GENERATE(1, 0);
  const int bytes = GENERATE(50, 51);
  TwoEndpoints two(test::small_cells(), memory_requests());
  Endpoint& owner = two.end(1);
  Window window(owner);
  REQUIRE(post(owner, window.binding(1)) == Status::ok);
  RemoteAddress to = window.at(owner.take().at(0).tag);
  to.address -= static_cast<std::uint64_t>(before);
  const bool fits = before == 0 && bytes == 50;
  const auto untouched = owner.buffer;
  two.end(0).fill(0, pattern(51, 3));
  REQUIRE(two.end(0).write(1, 0, static_cast<std::size_t>(bytes), to) == Status::ok);
  two.run(milliseconds(1));
  CHECK(how(two.end(0).take()) == Names{fits ? "success" : "remote_access_error"});
  CHECK((owner.buffer == untouched) == !fits);
}

TEST_CASE("a local invalidation waits for what was sent before it, which may be sent again",
          "[fabric][adapter][registration]") {
  ScriptedPeer peer(test::small_cells(), memory_requests());
  FastRegion region(peer.host);
  REQUIRE(post(peer.host, region.registration(1)) == Status::ok);
  REQUIRE(post(peer.host, send_request(2, region.segment(0, 100))) == Status::ok);
  REQUIRE(post(peer.host, invalidation(3, region.tag)) == Status::ok);
  REQUIRE(post(peer.host, send_request(4, peer.host.segment(0, 8))) == Status::ok);
  CHECK(peer.poll_and_take().size() == 1);
  peer.acknowledge(Syndrome::sequence_error, ScriptedPeer::kOwnPsn);
  CHECK(peer.poll_and_take().size() == 1);  // again, out of memory that is still registered
  CHECK(peer.host.take().size() == 1);
  peer.acknowledge(Syndrome::ok, ScriptedPeer::kOwnPsn);
  CHECK(peer.poll_and_take().size() == 1);  // what came behind
  CHECK(peer.host.take().size() == 2);
  CHECK(post(peer.host, send_request(5, region.segment(0, 1))) == Status::bad_tag);
  // The tag is allocated all the same, and can be registered anew.
  region.fast().tag = region.tag;
  peer.acknowledge(Syndrome::ok, ScriptedPeer::kOwnPsn + 1);
  peer.poll();
  REQUIRE(post(peer.host, region.registration(6)) == Status::ok);
  CHECK(peer.host.take().back().status == CompletionStatus::success);
}

TEST_CASE("an invalidated region is not used again, though the queue pair has just used it",
          "[fabric][adapter][registration]") {
  ScriptedPeer peer(test::small_cells(), memory_requests());
  FastRegion region(peer.host);
  REQUIRE(post(peer.host, region.registration(1)) == Status::ok);
  const auto receive = [&](std::uint64_t id) {
    return peer.host.adapter.post_receive(peer.host.number, ReceiveRequest{id, region.segment(0, 100)});
  };
  REQUIRE(receive(2) == Status::ok);
  REQUIRE(receive(3) == Status::ok);
  peer.put(peer.cell(Opcode::send_only, ScriptedPeer::kPsn), pattern(20, 1));
  peer.poll();
  REQUIRE(post(peer.host, send_request(4, region.segment(0, 20))) == Status::ok);
  peer.acknowledge(Syndrome::ok, ScriptedPeer::kOwnPsn);
  peer.poll();
  REQUIRE(post(peer.host, invalidation(5, region.tag)) == Status::ok);
  CHECK(how(peer.host.take()) == Names{"success", "success", "success", "success"});

  CHECK(post(peer.host, send_request(6, region.segment(0, 20))) == Status::bad_tag);
  CHECK(receive(7) == Status::bad_tag);
  const std::vector<std::byte> before(region.page, region.page + kPage);
  peer.put(peer.cell(Opcode::send_only, ScriptedPeer::kPsn + 1), pattern(30, 2));
  peer.poll();
  CHECK(how(peer.host.take()) == Names{"local_protection_error"});
  CHECK(std::equal(before.begin(), before.end(), region.page));
}

TEST_CASE("a window that is bound elsewhere between two cells of a write takes no more of it",
          "[fabric][adapter][window]") {
  ScriptedPeer peer(test::small_cells(), memory_requests());
  Window window(peer.host, EntryKind::window_type_1);
  REQUIRE(post(peer.host, window.binding(1)) == Status::ok);
  const Stag bound = peer.host.take().at(0).tag;
  Cell first = peer.cell(Opcode::write_first, ScriptedPeer::kPsn);
  first.address = window.at(bound).address;
  first.tag = bound;
  first.message_bytes = 40;
  peer.put(first, pattern(10, 1));
  peer.poll();
  REQUIRE(std::ranges::equal(std::span(peer.host.buffer).subspan(100, 10), pattern(10, 1)));
  window.bind().window = bound;
  window.bind().address += 1000;
  REQUIRE(post(peer.host, window.binding(2)) == Status::ok);
  const auto before = peer.host.buffer;
  peer.put(peer.cell(Opcode::write_last, ScriptedPeer::kPsn, 1), pattern(30, 2));
  peer.poll();
  CHECK(peer.host.adapter.counters().access_refused == 1);
  CHECK(peer.host.adapter.in_error(peer.host.number));
  CHECK(peer.host.buffer == before);
}

TEST_CASE("a retry passes by the memory requests between the messages that it repeats",
          "[fabric][adapter][registration]") {
  ScriptedPeer peer(test::small_cells(), memory_requests());
  FastRegion region(peer.host);
  REQUIRE(peer.host.send(1, 0, 8) == Status::ok);
  REQUIRE(post(peer.host, region.registration(2)) == Status::ok);
  REQUIRE(post(peer.host, send_request(3, region.segment(0, 8))) == Status::ok);
  CHECK(peer.poll_and_take().size() == 2);
  peer.acknowledge(Syndrome::sequence_error, ScriptedPeer::kOwnPsn);
  CHECK(peer.poll_and_take().size() == 2);  // a second registration would have failed
  CHECK(peer.host.take().empty());          // in order: the registration is told after the send before it
  peer.acknowledge(Syndrome::ok, ScriptedPeer::kOwnPsn + 1);
  peer.poll();
  const auto ends = peer.host.take();
  CHECK(how(ends) == Names{"success", "success", "success"});
  for (std::uint64_t i = 0; i < ends.size(); ++i) CHECK(ends[i].id == i + 1);
}

TEST_CASE("a send that names a tag ends it at the owner, who is told which", "[fabric][adapter][invalidate]") {
  const std::size_t bytes = GENERATE(0U, 100U, 1000U);
  TwoEndpoints two(test::small_cells(), memory_requests());
  Endpoint& owner = two.end(1);
  Window window(owner);
  REQUIRE(post(owner, window.binding(1)) == Status::ok);
  const Stag tag = owner.take().at(0).tag;
  REQUIRE(owner.receive(7, 1000, 2000) == Status::ok);
  WorkRequest request = send_request(1, two.end(0).segment(0, bytes));
  request.operation = Operation::send_with_invalidate;
  request.invalidate = tag;
  REQUIRE(post(two.end(0), request) == Status::ok);
  REQUIRE(two.settle());
  const auto ends = owner.take();
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].has_invalidated);
  CHECK(ends[0].tag == tag);
  CHECK(ends[0].bytes == bytes);
  REQUIRE(two.end(0).write(2, 0, 8, window.at(tag)) == Status::ok);
  two.run(milliseconds(1));
  CHECK(how(two.end(0).take()) == Names{"success", "remote_access_error"});
}

TEST_CASE("a send that names a tag that is not open to it ends the stream, and ends nothing else",
          "[fabric][adapter][invalidate]") {
  TwoEndpoints two(test::small_cells(), memory_requests());
  Endpoint& owner = two.end(1);
  Window window(owner);
  TerminateReason reason{0, 1, 9};  // RFC 5040: can't be invalidated
  SECTION("not opened") { window.bind().invalidatable = false; }
  SECTION("another queue pair's") {
    WorkRequest bind = window.binding(1);
    const QpNumber other = owner.make_queue_pair(memory_requests());
    REQUIRE(owner.adapter.connect(other, {QpNumber{99}, 1, 2}) == Status::ok);
    REQUIRE(owner.adapter.post_send(other, bind) == Status::ok);
    reason.code = 3;  // not associated with the stream
  }
  if (reason.code != 3) REQUIRE(post(owner, window.binding(1)) == Status::ok);
  const Stag tag = owner.take().at(0).tag;
  REQUIRE(owner.receive(7, 1000, 2000) == Status::ok);
  WorkRequest request = send_request(1, two.end(0).segment(0, 10));
  request.operation = Operation::send_with_invalidate;
  request.invalidate = tag;
  REQUIRE(post(two.end(0), request) == Status::ok);
  two.run(milliseconds(1));
  CHECK(how(owner.take()) == Names{"flushed"});
  CHECK(how(two.end(0).take()) == Names{"remote_access_error"});
  CHECK(take_events(two.end(0)).at(0).reason == reason);
  CHECK(owner.adapter.table().find(tag)->valid);
}

TEST_CASE("a one-touch entry takes one write of many cells, and no second one", "[fabric][adapter][touch]") {
  const auto touch = GENERATE(TouchControl::one_touch, TouchControl::one_shot);
  TwoEndpoints two(test::small_cells(), memory_requests());
  Endpoint& owner = two.end(1);
  Window window(owner);
  window.bind().touch = touch;
  window.bind().length = 5000;
  REQUIRE(post(owner, window.binding(1)) == Status::ok);
  const Stag tag = owner.take().at(0).tag;
  two.end(0).fill(0, pattern(5000, 1));
  REQUIRE(two.end(0).write(1, 0, 5000, window.at(tag)) == Status::ok);
  REQUIRE(two.settle());
  CHECK(how(two.end(0).take()) == Names{"success"});
  CHECK(owner.holds(100, pattern(5000, 1)));
  REQUIRE(two.end(0).write(2, 6000, 8, window.at(tag)) == Status::ok);
  two.run(milliseconds(1));
  CHECK(how(two.end(0).take()) == Names{"remote_access_error"});
  CHECK(owner.holds(100, pattern(5000, 1)));
}

TEST_CASE("reads do not touch a one-touch entry, atomics do", "[fabric][adapter][touch]") {
  TwoEndpoints two(test::small_cells(), memory_requests());
  Endpoint& owner = two.end(1);
  EntryOptions once;
  once.rights = kAllRights | Right::remote_read | Right::remote_atomic;
  once.touch = TouchControl::one_touch;
  const Stag tag =
      owner.adapter.table().register_region(owner.domain, RegionMemory::of_process(owner.buffer), once).value();
  const RemoteAddress at{owner.adapter.region_address(tag), tag};
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(post(two.end(0), read_request(two.end(0), i, 0, 8, at)) == Status::ok);
  WorkRequest add = add_request(two.end(0), 3, 0, 1, at);
  add.fence = true;  // reads may be answered after what follows them was done
  REQUIRE(post(two.end(0), add) == Status::ok);
  REQUIRE(post(two.end(0), add_request(two.end(0), 4, 0, 1, at)) == Status::ok);
  two.run(milliseconds(1));
  CHECK(how(two.end(0).take()) == Names{"success", "success", "success", "success", "remote_access_error"});
  CHECK(word(owner, 0) == 1);
}

TEST_CASE("a one-touch sink takes one answer", "[fabric][adapter][touch]") {
  TwoEndpoints two;
  const Owned owned = open(two.end(1));
  Endpoint& reader = two.end(0);
  EntryOptions once;
  once.rights = kLocalRights;
  once.touch = TouchControl::one_touch;
  const Stag sink =
      reader.adapter.table().register_region(reader.domain, RegionMemory::of_process(reader.buffer), once).value();
  WorkRequest request = read_request(reader, 1, 0, 3000, owned.at);
  request.segments[0].tag = sink;
  REQUIRE(post(reader, request) == Status::ok);
  REQUIRE(two.settle());
  CHECK(how(reader.take()) == Names{"success"});
  CHECK(post(reader, request) == Status::bad_tag);
}

TEST_CASE("windows and registrations on a lossy bridge: nothing twice, nothing refused", "[fabric][adapter][sim]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{7}));
  INFO("seed " << seed);
  RelayedEndpoints two(seed, memory_requests());
  Endpoint& owner = two.second;
  const Owned owned = open(owner);
  std::array<Stag, 1> tags{};
  REQUIRE(owner.adapter.table().allocate_windows(owner.domain, EntryKind::window_type_2, tags));
  Stag window = tags[0];
  const auto wait_for = [&two](Endpoint& end, std::size_t count) {
    std::vector<Completion> all;
    for (int i = 0; i < 20'000 && all.size() < count; ++i) {
      two.step();
      for (const Completion& done : end.take()) all.push_back(done);
    }
    REQUIRE(all.size() == count);
    return all;
  };
  // The owner binds, the peer writes and ends the window with the message that says so.
  for (std::uint8_t round = 1; round <= 40; ++round) {
    MemoryRequest bind = Bind{.window = window,
                              .region = owned.at.tag,
                              .address = owned.at.address,
                              .length = 2000,
                              .rights = Rights{} | Right::remote_write,
                              .key = round};
    WorkRequest binding;
    binding.operation = Operation::bind_window;
    binding.memory = &bind;
    REQUIRE(owner.receive(round, 100'000, 64) == Status::ok);
    REQUIRE(post(owner, binding) == Status::ok);
    window = wait_for(owner, 1).at(0).tag;
    const auto data = pattern(2000, round);
    two.first.fill(0, data);
    REQUIRE(two.first.write(round, 0, 2000, {owned.at.address, window}) == Status::ok);
    WorkRequest done = send_request(round, two.first.segment(0, 8));
    done.operation = Operation::send_with_invalidate;
    done.invalidate = window;
    REQUIRE(post(two.first, done) == Status::ok);
    REQUIRE(how(wait_for(two.first, 2)) == Names{"success", "success"});
    const auto told = owner.take();
    if (told.empty()) wait_for(owner, 1);
    REQUIRE(owner.holds(0, data));
    REQUIRE_FALSE(owner.adapter.table().find(window)->valid);
  }
  CHECK(two.first.adapter.counters().retransmissions > 0);
}

}  // namespace splitnic::fabric::test::adapter_memory_requests_test
