#include "adapter_requests.h"
#include "fabric/adapter/completion_queue.h"

/// The rules of the verbs that a queue pair or a completion queue can be made for: posts that are flushed, completion
/// queues that overrun; long lists, and queues that change their size.
namespace splitnic::fabric::test::adapter_verbs_rules_test {
namespace {

QueuePairAttributes flushing() {
  QueuePairAttributes with;
  with.flush_posts = true;
  return with;
}

std::vector<AsyncEvent> events_of(Endpoint& end) {
  std::vector<AsyncEvent> events(64);
  events.resize(end.adapter.poll_events(events));
  return events;
}

/// A bound window, whose request lives as long.
struct Binding {
  explicit Binding(Endpoint& end) : owned(open(end)) {
    std::array<Stag, 1> tags{};
    REQUIRE(end.adapter.table().allocate_windows(end.domain, EntryKind::window_type_2, tags));
    Bind bind;
    bind.window = tags[0];
    bind.region = owned.at.tag;
    bind.address = owned.at.address;
    bind.length = 64;
    bind.rights = Right::remote_read | Right::remote_write;
    bind.key = 0x42;
    request = bind;
  }
  Owned owned;
  MemoryRequest request;
};

/// Two queue pairs of end 1 that share a completion queue of two places, connected to two of end 0.
struct Overrunning {
  Overrunning() {
    Endpoint& end = two.end(1);
    queue = end.adapter.make_completion_queue(2, {}, CompletionRoom::unreserved).value();
    QueuePairAttributes with;
    with.domain = end.domain;
    with.send_completions = end.completions;
    with.receive_completions = queue;
    for (std::size_t i = 0; i < 2; ++i) {
      const QpNumber number = end.adapter.create_queue_pair(with).value();
      far.at(i) = number;
      near.at(i) = two.end(0).make_queue_pair({});
      REQUIRE(two.end(0).adapter.connect(near.at(i), {number, 100, 200}) == Status::ok);
      REQUIRE(end.adapter.connect(number, {near.at(i), 200, 100}) == Status::ok);
    }
  }
  void send(std::size_t index, std::uint64_t id) {
    REQUIRE(two.end(0).adapter.post_send(near.at(index), send_request(id, two.end(0).segment(0, 8))) == Status::ok);
  }
  TwoEndpoints two;
  CqNumber queue{};
  std::array<QpNumber, 2> near{};
  std::array<QpNumber, 2> far{};
};

/// Two queue pairs of end 0 with four places each, whose sends end in a completion queue of eight that reserves none.
struct Sharing {
  static constexpr std::size_t kDepth = 4;

  Sharing() : queue(near().adapter.make_completion_queue(2 * kDepth, {}, CompletionRoom::unreserved).value()) {
    QueuePairAttributes with;
    with.domain = near().domain;
    with.send_completions = queue;
    with.receive_completions = near().completions;
    with.send_depth = kDepth;
    with.verbs_rules = true;
    for (std::size_t i = 0; i < 2; ++i) {
      own.at(i) = near().adapter.create_queue_pair(with).value();
      peers.at(i) = two.end(1).make_queue_pair({});
      connect(i);
    }
  }
  Endpoint& near() { return two.end(0); }
  void connect(std::size_t index) {
    REQUIRE(near().adapter.connect(own.at(index), {peers.at(index), 100, 200}) == Status::ok);
    REQUIRE(two.end(1).adapter.connect(peers.at(index), {own.at(index), 200, 100}) == Status::ok);
  }
  /// As a program does that is about to connect anew.
  void reset(std::size_t index) {
    REQUIRE(near().adapter.modify(own.at(index), QueuePairEvent::reset) == Status::ok);
    REQUIRE(two.end(1).adapter.modify(peers.at(index), QueuePairEvent::reset) == Status::ok);
  }
  Status send(std::size_t index, std::uint64_t id) {
    REQUIRE(two.end(1).adapter.post_receive(peers.at(index), {id, two.end(1).segment(0, 64), {}}) == Status::ok);
    return near().adapter.post_send(own.at(index), send_request(id, near().segment(0, 8)));
  }
  std::vector<std::uint64_t> poll(std::size_t most) {
    std::vector<Completion> done(most);
    done.resize(near().adapter.poll_completions(queue, done));
    std::vector<std::uint64_t> ids;
    for (const Completion& each : done) ids.push_back(each.id);
    return ids;
  }

  TwoEndpoints two;
  CqNumber queue;
  std::array<QpNumber, 2> own{};
  std::array<QpNumber, 2> peers{};
};

}  // namespace

TEST_CASE("posts to a queue pair in error complete as flushed, whatever they are, if it was made so",
          "[fabric][adapter][flush]") {
  TwoEndpoints two(test::small_cells(), flushing());
  Endpoint& end = two.end(0);
  REQUIRE(end.adapter.modify(end.number, QueuePairEvent::fail) == Status::ok);
  REQUIRE(end.take().empty());
  WorkRequest quiet = send_request(1, end.segment(0, 8));
  quiet.signalled = false;  // a failure completes all the same
  CHECK(post(end, quiet) == Status::ok);
  WorkRequest nonsense = send_request(2, end.segment(0, 8));
  nonsense.segments[0].tag = Stag{};
  CHECK(post(end, nonsense) == Status::ok);
  CHECK(end.receive(3, 0, 64) == Status::ok);
  const auto done = end.take();
  REQUIRE(done.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(done[i].id == i + 1);
    CHECK(done[i].status == CompletionStatus::flushed);
    CHECK(done[i].receive == (i == 2));
  }
  WorkRequest impossible = send_request(4, end.segment(0, 8));
  impossible.segment_count = kMaxSegments + 1;
  CHECK(post(end, impossible) == Status::bad_length);
  for (std::uint64_t i = 0; i < 200; ++i) REQUIRE(end.send(i, 0, 8) == Status::ok);  // more than the queue's depth
  CHECK(end.take().size() == 200);

  // Reset and connected anew, it works, and completes in order.
  REQUIRE(end.adapter.modify(end.number, QueuePairEvent::reset) == Status::ok);
  REQUIRE(two.end(1).adapter.modify(two.end(1).number, QueuePairEvent::reset) == Status::ok);
  two.connect();
  REQUIRE(two.end(1).receive(1, 0, 64) == Status::ok);
  REQUIRE(end.send(9, 0, 8) == Status::ok);
  REQUIRE(two.settle());
  const auto works = end.take();
  REQUIRE(works.size() == 1);
  CHECK(works[0].status == CompletionStatus::success);
}

TEST_CASE("in sq_error sends are flushed and receives are taken", "[fabric][adapter][flush]") {
  TwoEndpoints two(test::small_cells(), flushing());
  Endpoint& end = two.end(0);
  REQUIRE(end.adapter.modify(end.number, QueuePairEvent::fail_sends) == Status::ok);
  CHECK(end.send(1, 0, 8) == Status::ok);
  CHECK(end.receive(2, 0, 64) == Status::ok);
  auto done = end.take();
  REQUIRE(done.size() == 1);
  CHECK(done[0].id == 1);
  CHECK(done[0].status == CompletionStatus::flushed);
  // It goes on where it was.
  REQUIRE(end.adapter.modify(end.number, QueuePairEvent::ready_to_send) == Status::ok);
  REQUIRE(two.end(1).receive(3, 0, 64) == Status::ok);
  REQUIRE(end.send(4, 0, 8) == Status::ok);
  REQUIRE(two.end(1).send(5, 0, 8) == Status::ok);
  REQUIRE(two.settle());
  done = end.take();
  REQUIRE(done.size() == 2);
  CHECK(done[0].status == CompletionStatus::success);
  CHECK(done[1].status == CompletionStatus::success);
}

TEST_CASE("a queue pair whose peer is gone flushes what is posted, if it was made so", "[fabric][adapter][flush]") {
  TwoEndpoints two(test::small_cells(), flushing());
  Endpoint& end = two.end(0);
  const QpNumber refusing = end.make_queue_pair({});
  REQUIRE(end.adapter.connect(refusing, {two.end(1).number, 1, 2}) == Status::ok);
  two.pair.bridges().cut();
  two.pair.advance(microseconds(10));  // the link has noticed, the adapter has not
  CHECK(end.send(1, 0, 8) == Status::ok);
  CHECK(end.adapter.post_send(refusing, send_request(2, end.segment(0, 8))) == Status::link_down);
  const auto done = end.take();
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == CompletionStatus::flushed);
}

TEST_CASE("flushed completions come in polls of their own from a queue that reserves no places", "[fabric][adapter]") {
  const CompletionRoom room = GENERATE(CompletionRoom::reserved, CompletionRoom::unreserved);
  const bool apart = room == CompletionRoom::unreserved;
  CAPTURE(apart);
  CompletionChannel channel([] {});
  CompletionQueue queue(8, CqNumber{7}, &channel, room);
  const auto push = [&](CompletionStatus status) {
    Completion completion;
    completion.status = status;
    REQUIRE(queue.reserve());
    REQUIRE(queue.push([&](Completion& made) { made = completion; }));
  };
  std::array<Completion, 8> out;
  push(CompletionStatus::success);
  push(CompletionStatus::outcome_unknown);
  push(CompletionStatus::flushed);
  push(CompletionStatus::flushed);
  push(CompletionStatus::success);
  CHECK(queue.poll(std::span(out).first(1)) == 1);
  if (!apart) {
    CHECK(queue.poll(out, true) == 4);
    return;
  }
  CHECK(queue.poll(out, true) == 1);
  CHECK(out[0].status == CompletionStatus::outcome_unknown);
  CHECK(queue.poll(out, true) == 0);
  CHECK(queue.poll(out) == 3);
  CHECK(out[1].status == CompletionStatus::flushed);
  CHECK(out[2].status == CompletionStatus::success);
  // A sleeper who takes the first poll for the last is woken for what that poll left there.
  push(CompletionStatus::success);
  push(CompletionStatus::flushed);
  queue.arm(Arm::next);
  CHECK(queue.poll(out) == 1);
  CHECK(channel.take() == CqNumber{7});
}

TEST_CASE("what a peer took before it hung up has ended well", "[fabric][adapter]") {
  const int polls_of_link = GENERATE(1, 3);  // before the adapter is polled
  CAPTURE(polls_of_link);
  TwoEndpoints two;
  REQUIRE(two.end(1).receive(1, 0, 64) == Status::ok);
  REQUIRE(two.end(0).send(2, 0, 8) == Status::ok);
  two.end(0).adapter.poll(two.pair.now());
  two.pair.advance(microseconds(10));
  two.end(1).adapter.poll(two.pair.now());
  two.pair.advance(microseconds(10));
  two.pair.bridges().cut();
  for (int i = 0; i != polls_of_link; ++i) two.pair.advance(microseconds(10));
  two.end(0).adapter.poll(two.pair.now());
  const auto done = two.end(0).take();
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == CompletionStatus::success);
  two.pair.advance(microseconds(10));
  CHECK_FALSE(two.pair.link(0).up());
}

TEST_CASE("what a look before a sleep has found ends well, also if the peer is gone by then", "[fabric][adapter]") {
  TwoEndpoints two;
  ChannelAdapter& adapter = two.end(0).adapter;
  REQUIRE(two.end(1).receive(1, 0, 64) == Status::ok);
  REQUIRE(two.end(0).send(2, 0, 8) == Status::ok);
  static_cast<void>(adapter.take_turn(two.pair.now()));
  two.pair.advance(microseconds(10));
  two.end(1).adapter.poll(two.pair.now());
  two.pair.advance({});
  REQUIRE_FALSE(adapter.prepare_sleep());
  adapter.disarm();
  const Time later = two.pair.now() + microseconds(10);
  two.pair.bridges().cut();
  two.pair.bridges().advance(later);
  CHECK(adapter.take_turn(later).links_changed);
  const auto done = two.end(0).take();
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == CompletionStatus::success);
}

TEST_CASE("a completion queue that reserves no places fails with the first completion without room, once",
          "[fabric][adapter][overrun]") {
  Overrunning world;
  Endpoint& end = world.two.end(1);
  // More receives than completions fit: nothing is refused.
  for (std::uint64_t i = 0; i < 4; ++i) {
    for (const QpNumber number : world.far) {
      REQUIRE(end.adapter.post_receive(number, {i, end.segment(0, 64), {}}) == Status::ok);
    }
  }
  for (std::uint64_t i = 0; i < 3; ++i) {
    world.send(0, i);
    world.two.run(microseconds(100));
    CHECK(end.adapter.counters().dropped_completions == (i < 2 ? 0 : 1 + 1 + 4));
  }
  // Lost are the third completion, and the flushed receives of both.
  // The event of the queue comes first, then those of its queue pairs, of which one did nothing.
  const auto events = events_of(end);
  REQUIRE(events.size() == 3);
  CHECK(events[0].kind == AsyncEventKind::completion_queue_overrun);
  CHECK(events[0].completions == world.queue);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(events[1 + i].kind == AsyncEventKind::queue_pair_fatal);
    CHECK(events[1 + i].queue_pair == world.far.at(i));
    CHECK(end.adapter.state(world.far.at(i)) == QueuePairState::error);
  }
  // What had room is still there.
  std::array<Completion, 4> done;
  REQUIRE(end.adapter.poll_completions(world.queue, done) == 2);
  CHECK(done[0].status == CompletionStatus::success);
  CHECK(done[1].status == CompletionStatus::success);
  // The rest of the adapter goes on.
  REQUIRE(end.receive(9, 0, 64) == Status::ok);
  REQUIRE(world.two.end(0).send(9, 0, 8) == Status::ok);
  REQUIRE(world.two.settle());
  const auto works = end.take();
  REQUIRE(works.size() == 1);
  CHECK(works[0].status == CompletionStatus::success);
}

TEST_CASE("a queue pair that is reset leaves the others no more places than they had", "[fabric][adapter][overrun]") {
  Sharing world;
  // The completions lie mixed: 0 1 10 2 11 12 3 13.
  for (const std::uint64_t id : {0U, 1U, 10U, 2U, 11U, 12U, 3U, 13U}) {
    REQUIRE(world.send(id / 10, id) == Status::ok);
    REQUIRE(world.two.settle());
  }
  world.reset(1);
  CHECK(world.near().adapter.send_room(world.own[0]) == 0);
  CHECK(world.send(0, 4) == Status::queue_full);
  // Connected anew, it has the places that it left.
  world.connect(1);
  for (std::uint64_t id = 14; id < 18; ++id) REQUIRE(world.send(1, id) == Status::ok);
  REQUIRE(world.two.settle());
  CHECK(world.send(1, 18) == Status::queue_full);
  CHECK(world.near().adapter.counters().dropped_completions == 0);
  // Each completion that is taken frees one place, of the queue pair that it is of.
  for (std::uint64_t id = 0; id < 4; ++id) {
    CHECK(world.poll(1) == std::vector{id});
    CHECK(world.near().adapter.send_room(world.own[0]) == id + 1);
    CHECK(world.near().adapter.send_room(world.own[1]) == 0);
  }
  for (std::uint64_t id = 4; id < 8; ++id) REQUIRE(world.send(0, id) == Status::ok);
  REQUIRE(world.two.settle());
  CHECK(world.poll(16) == std::vector<std::uint64_t>{14, 15, 16, 17, 4, 5, 6, 7});
  CHECK(world.near().adapter.send_room(world.own[1]) == 4);
  CHECK(world.near().adapter.counters().dropped_completions == 0);
}

TEST_CASE("unsignalled sends take no room in a completion queue that reserves none", "[fabric][adapter][overrun]") {
  TwoEndpoints two;
  Endpoint& end = two.end(0);
  const CqNumber queue = end.adapter.make_completion_queue(1, {}, CompletionRoom::unreserved).value();
  QueuePairAttributes with;
  with.domain = end.domain;
  with.send_completions = with.receive_completions = queue;
  const QpNumber near = end.adapter.create_queue_pair(with).value();
  const QpNumber far = two.end(1).make_queue_pair({});
  REQUIRE(end.adapter.connect(near, {far, 100, 200}) == Status::ok);
  REQUIRE(two.end(1).adapter.connect(far, {near, 200, 100}) == Status::ok);
  for (std::uint64_t i = 0; i < 32; ++i) {
    REQUIRE(two.end(1).adapter.post_receive(far, {i, two.end(1).segment(0, 64), {}}) == Status::ok);
    WorkRequest request = send_request(i, end.segment(0, 8));
    request.signalled = i == 31;
    REQUIRE(end.adapter.post_send(near, request) == Status::ok);
  }
  CHECK(end.adapter.send_room(near) == 64 - 32);
  REQUIRE(two.settle());
  std::array<Completion, 2> done;
  REQUIRE(end.adapter.poll_completions(queue, done) == 1);
  CHECK(done[0].id == 31);
  CHECK(end.adapter.counters().dropped_completions == 0);
}

TEST_CASE("messages are gathered from and scattered to sixteen segments", "[fabric][adapter]") {
  TwoEndpoints two;
  Endpoint& from = two.end(0);
  Endpoint& to = two.end(1);
  const auto data = pattern(16 * 37, 5);
  from.fill(0, data);
  WorkRequest request;
  request.segment_count = kMaxSegments;
  REQUIRE(kMaxSegments == 16);
  SegmentList scatter{};
  for (std::size_t i = 0; i < kMaxSegments; ++i) {
    request.segments.at(i) = from.segment(i * 37, 37);
    scatter.at(i) = to.segment(1000 + i * 100, 37);
  }
  const ReceiveRequest receive{1, scatter[0], std::span(scatter).subspan(1)};
  REQUIRE(to.adapter.post_receive(to.number, receive) == Status::ok);
  REQUIRE(post(from, request) == Status::ok);
  REQUIRE(two.settle());
  for (std::size_t i = 0; i < kMaxSegments; ++i) CHECK(to.holds(1000 + i * 100, std::span(data).subspan(i * 37, 37)));
  const auto whole = to.take();
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].bytes == 16 * 37);
  // The next request in the same place has one segment, and says no more than that.
  for (int i = 0; i < 64; ++i) {
    REQUIRE(to.receive(2, 0, 64) == Status::ok);
    REQUIRE(from.send(2, 0, 5) == Status::ok);
    REQUIRE(two.settle());
    const auto taken = to.take();
    REQUIRE(taken.size() == 1);
    CHECK(taken[0].bytes == 5);
    static_cast<void>(from.take());
  }
  // Nor has the general way, which two segments take, anything left of the short way's request in its place.
  request.segment_count = 2;
  REQUIRE(to.receive(3, 0, 100) == Status::ok);
  REQUIRE(post(from, request) == Status::ok);
  REQUIRE(two.settle());
  const auto last = to.take();
  REQUIRE(last.size() == 1);
  CHECK(last[0].bytes == 2 * 37);
  const std::vector<LocalSegment> too_many(kMaxSegments, to.segment(0, 1));
  CHECK(to.adapter.post_receive(to.number, {1, to.segment(0, 1), too_many}) == Status::bad_length);
}

TEST_CASE("binds and invalidations need no permission of the queue pair", "[fabric][adapter][registration]") {
  TwoEndpoints two;
  Endpoint& end = two.end(0);
  const Binding window(end);
  const WorkRequest bind{.id = 1, .operation = Operation::bind_window, .memory = &window.request};
  REQUIRE(post(end, bind) == Status::ok);
  auto done = end.take();
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == CompletionStatus::success);
  const RemoteAddress opened{window.owned.at.address, done[0].tag};
  REQUIRE(two.end(1).write(2, 0, 16, opened) == Status::ok);
  REQUIRE(two.settle());
  done = two.end(1).take();
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == CompletionStatus::success);
  REQUIRE(post(end, {.id = 3, .operation = Operation::local_invalidate, .invalidate = opened.tag}) == Status::ok);
  done = end.take();
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == CompletionStatus::success);
  REQUIRE(two.end(1).write(4, 0, 16, opened) == Status::ok);
  REQUIRE(two.settle());
  done = two.end(1).take();
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == CompletionStatus::remote_access_error);
}

TEST_CASE("a completion queue changes its size and keeps what is in it", "[fabric][adapter][resize]") {
  TwoEndpoints two;
  Endpoint& end = two.end(0);
  const CqNumber queue = end.adapter.make_completion_queue(4).value();
  QueuePairAttributes with;
  with.domain = end.domain;
  with.send_completions = with.receive_completions = queue;
  const QpNumber number = end.adapter.create_queue_pair(with).value();
  const auto receive = [&](std::uint64_t id) { return end.adapter.post_receive(number, {id, end.segment(0, 8), {}}); };
  for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(receive(i) == Status::ok);
  CHECK(receive(4) == Status::queue_full);
  CHECK(end.adapter.resize_completion_queue(queue, 3) == Status::in_use);  // four places are promised
  REQUIRE(end.adapter.resize_completion_queue(queue, 9) == Status::ok);
  for (std::uint64_t i = 4; i < 9; ++i) REQUIRE(receive(i) == Status::ok);
  CHECK(receive(9) == Status::queue_full);
  REQUIRE(end.adapter.destroy_queue_pair(number) == Status::ok);
  CHECK(end.adapter.resize_completion_queue(queue, 8) == Status::in_use);  // nine wait
  std::array<Completion, 5> some;
  REQUIRE(end.adapter.poll_completions(queue, some) == 5);
  REQUIRE(end.adapter.resize_completion_queue(queue, 4) == Status::ok);
  REQUIRE(end.adapter.poll_completions(queue, some) == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(some.at(i).id == 5 + i);
  CHECK(end.adapter.resize_completion_queue(queue, 0) == Status::bad_length);
  CHECK(end.adapter.resize_completion_queue(queue, end.adapter.limits().completion_depth + 1) == Status::bad_length);
  CHECK(end.adapter.resize_completion_queue(CqNumber{99}, 4) == Status::bad_argument);
}

TEST_CASE("a shared receive queue changes its size and keeps what is posted", "[fabric][adapter][resize]") {
  TwoEndpoints two;
  Endpoint& end = two.end(1);
  const SrqNumber shared = end.adapter.create_shared_receive_queue(end.domain, 2).value();
  QueuePairAttributes with;
  with.shared_receives = shared;
  const QpNumber far = end.make_queue_pair(with);
  const QpNumber near = two.end(0).make_queue_pair({});
  REQUIRE(two.end(0).adapter.connect(near, {far, 100, 200}) == Status::ok);
  REQUIRE(end.adapter.connect(far, {near, 200, 100}) == Status::ok);
  const auto receive = [&](std::uint64_t id) {
    return end.adapter.post_shared_receive(shared, {id, end.segment(id * 64, 64), {}});
  };
  for (std::uint64_t i = 0; i < 2; ++i) REQUIRE(receive(i) == Status::ok);
  CHECK(receive(2) == Status::queue_full);
  CHECK(end.adapter.resize_shared_receive_queue(shared, 1) == Status::in_use);
  REQUIRE(end.adapter.resize_shared_receive_queue(shared, 5) == Status::ok);
  for (std::uint64_t i = 2; i < 5; ++i) REQUIRE(receive(i) == Status::ok);
  CHECK(receive(5) == Status::queue_full);
  for (std::uint64_t i = 0; i < 5; ++i) {
    two.end(0).fill(0, pattern(40, i));
    REQUIRE(two.end(0).adapter.post_send(near, send_request(i, two.end(0).segment(0, 40))) == Status::ok);
    REQUIRE(two.settle());
    const auto done = end.take();
    REQUIRE(done.size() == 1);
    CHECK(done[0].id == i);
    CHECK(end.holds(i * 64, pattern(40, i)));
  }
  REQUIRE(end.adapter.resize_shared_receive_queue(shared, 1) == Status::ok);
  REQUIRE(receive(0) == Status::ok);
  CHECK(receive(1) == Status::queue_full);
  CHECK(end.adapter.resize_shared_receive_queue(shared, 0) == Status::bad_length);
  CHECK(end.adapter.resize_shared_receive_queue(SrqNumber{99}, 4) == Status::bad_argument);
}

}  // namespace splitnic::fabric::test::adapter_verbs_rules_test
