#include "fabric/threads/progress.h"

#include <sys/epoll.h>

#include "tests/unit/common/cancelled_thread.h"
#include "threads_fixtures.h"

/// Who drives an adapter, in one thread and with the test's clock: every step of the rule that loses no wake-up.
namespace splitnic::fabric::test::threads_progress_test {
namespace {

SharedAdapterOptions times() {
  SharedAdapterOptions options;
  options.takeover_min = microseconds(50);
  options.takeover_max = microseconds(200);
  return options;
}

/// An adapter with its Progress, whose thread is the test; and a peer that polls when it is told to.
struct Driven {
  Driven() : links(linked_ends()), own({}, random), peer({}, random) {
    auto made = Progress::make(own, times());
    REQUIRE(made.has_value());
    progress = std::move(*made);
    path = own.attach(*links[0]).value();
    REQUIRE(progress->add(path, *links[0]).has_value());
    peer_path = peer.attach(*links[1]).value();
    for (int i = 0; i < 10'000 && !(links[0]->up() && links[1]->up()); ++i) {
      pass(milliseconds(1));
      progress->drive(now);
      poll_peer();
    }
    REQUIRE((links[0]->up() && links[1]->up()));
    connect(own, numbers[0], queues[0], tags[0], 0);
    connect(peer, numbers[1], queues[1], tags[1], 1);
    REQUIRE(own.connect(numbers[0], {numbers[1], 5, 5, 4, path}) == Status::ok);
    REQUIRE(peer.connect(numbers[1], {numbers[0], 5, 5, 4, peer_path}) == Status::ok);
    fall_asleep();
  }
  void connect(ChannelAdapter& adapter, QpNumber& number, CqNumber& queue, Stag& tag, std::size_t index) {
    queue = adapter.create_completion_queue(256);
    const ProtectionDomain domain = adapter.allocate_domain();
    tag = adapter.register_memory(domain, buffers.at(index), kThreadRights).value();
    QueuePairAttributes with;
    with.domain = domain;
    with.send_completions = with.receive_completions = queue;
    number = adapter.create_queue_pair(with).value();
  }
  void pass(Duration time) { now += time; }
  void poll_peer() {
    links[1]->poll(now);
    peer.poll(now);
  }
  /// The thread's wake-ups, until it sleeps.
  void fall_asleep() {
    for (int turns = 0; turns < 1000; ++turns) {
      if (!progress->thread_turn(now) && !wakes()) return;
    }
    FAIL("the thread does not fall asleep");
  }
  /// Takes the epoll's events, as the thread does. True: there were some.
  bool wakes() {
    std::array<epoll_event, 8> fired;
    const int count = epoll_wait(progress->descriptor(), fired.data(), 8, 0);
    for (int i = 0; i < count; ++i) progress->fired(fired.at(static_cast<std::size_t>(i)).data.u64);
    return count > 0;
  }
  /// What the epoll returns next.
  std::uint64_t next_token() const {
    epoll_event fired{};
    REQUIRE(epoll_wait(progress->descriptor(), &fired, 1, 10'000) == 1);
    return fired.data.u64;
  }
  Status send(ChannelAdapter& adapter, std::size_t index, std::uint64_t id) {
    WorkRequest request;
    request.id = id;
    request.segments[0] = {buffers.at(index).data(), 8, tags.at(index)};
    request.segment_count = 1;
    return adapter.post_send(numbers.at(index), request);
  }
  Status receive(ChannelAdapter& adapter, std::size_t index) {
    return adapter.post_receive(numbers.at(index), {1, {buffers.at(index).data() + 64, 64, tags.at(index)}, {}});
  }
  std::size_t completions(ChannelAdapter& adapter, std::size_t index) {
    std::array<Completion, 16> done;
    return adapter.poll_completions(queues.at(index), done);
  }
  /// Polls of a caller that finds nothing, until it may look again.
  int polls_until_driven() {
    int polls = 1;
    while (!progress->poll_for_caller(now)) ++polls;
    return polls;
  }

  SeededRandom random{3};
  Time now = monotonic_now() + hours(1);  // so that the timer does not go off by itself
  std::array<std::array<std::byte, 128>, 2> buffers{};
  std::array<std::shared_ptr<CellLink>, 2> links;
  ChannelAdapter own;
  ChannelAdapter peer;
  std::unique_ptr<Progress> progress;
  PathNumber path{};
  PathNumber peer_path{};
  std::array<QpNumber, 2> numbers{};
  std::array<CqNumber, 2> queues{};
  std::array<Stag, 2> tags{};
};

}  // namespace

TEST_CASE("progress: a sleeping thread is woken by a message, deals with it, and sleeps again", "[fabric][threads]") {
  Driven driven;
  REQUIRE(driven.receive(driven.own, 0) == Status::ok);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(driven.receive(driven.own, 0) == Status::ok);
    REQUIRE_FALSE(driven.wakes());
    REQUIRE(driven.send(driven.peer, 1, 7) == Status::ok);
    driven.poll_peer();
    REQUIRE(driven.wakes());
    driven.fall_asleep();
    CHECK(driven.completions(driven.own, 0) == 1);
  }
  CHECK(driven.progress->counters().thread_takeovers == 0);
}

TEST_CASE("progress: a caller that polls now and then leaves the thread asleep, one that goes on takes over",
          "[fabric][threads]") {
  Driven driven;
  const std::uint64_t before = driven.progress->counters().thread_polls;
  CHECK(driven.polls_until_driven() == 16);
  CHECK(driven.progress->counters().caller_takeovers == 1);
  CHECK(driven.progress->poll_for_caller(driven.now));
  // The links are disarmed: the peer's messages ring no doorbell, and the caller finds them.
  REQUIRE(driven.receive(driven.own, 0) == Status::ok);
  REQUIRE(driven.send(driven.peer, 1, 7) == Status::ok);
  driven.poll_peer();
  CHECK_FALSE(driven.wakes());
  REQUIRE(driven.progress->poll_for_caller(driven.now));
  CHECK(driven.completions(driven.own, 0) == 1);
  CHECK(driven.progress->counters().thread_polls == before);
}

TEST_CASE("progress: a caller whose last poll found nothing a moment ago need not look again", "[fabric][threads]") {
  Driven driven;
  static_cast<void>(driven.polls_until_driven());
  driven.pass(microseconds(2));
  REQUIRE(driven.progress->poll_for_caller(driven.now));
  driven.pass(nanoseconds(100));
  CHECK_FALSE(driven.progress->poll_for_caller(driven.now));
  CHECK(driven.progress->drive_for_caller(driven.now) == 0);
  // The thread sees that callers go on.
  driven.pass(microseconds(50));
  CHECK_FALSE(driven.progress->thread_turn(driven.now));
  CHECK(driven.progress->counters().thread_takeovers == 0);
  REQUIRE(driven.progress->poll_for_caller(driven.now));
  driven.pass(nanoseconds(100));
  REQUIRE(driven.receive(driven.own, 0) == Status::ok);
  REQUIRE(driven.send(driven.peer, 1, 7) == Status::ok);
  CHECK(driven.progress->poll_for_caller(driven.now));
  CHECK(driven.completions(driven.own, 0) == 1);
}

TEST_CASE("progress: the thread takes over when callers have not polled for the takeover time, which doubles",
          "[fabric][threads]") {
  Driven driven;
  static_cast<void>(driven.polls_until_driven());
  // Woken before its time it leaves the callers alone.
  driven.pass(microseconds(49));
  CHECK_FALSE(driven.progress->thread_turn(driven.now));
  CHECK(driven.progress->counters().thread_takeovers == 0);
  driven.pass(microseconds(1));
  CHECK_FALSE(driven.progress->thread_turn(driven.now));  // they have polled in between
  for (const auto longer : {microseconds(100), microseconds(200), microseconds(200)}) {
    driven.pass(microseconds(60));
    CHECK_FALSE(driven.progress->thread_turn(driven.now));  // it does not even look
    REQUIRE(driven.progress->poll_for_caller(driven.now));
    driven.pass(longer - microseconds(61));
    CHECK_FALSE(driven.progress->thread_turn(driven.now));
    driven.pass(microseconds(1));
    CHECK_FALSE(driven.progress->thread_turn(driven.now));
  }
  CHECK(driven.progress->counters().thread_takeovers == 0);
  // Nobody polls any more: a message is found by the thread, which then sleeps on the doorbell.
  REQUIRE(driven.receive(driven.own, 0) == Status::ok);
  REQUIRE(driven.send(driven.peer, 1, 7) == Status::ok);
  driven.poll_peer();
  driven.pass(microseconds(200));
  CHECK(driven.progress->thread_turn(driven.now));
  CHECK(driven.completions(driven.own, 0) == 1);
  CHECK(driven.progress->counters().thread_takeovers == 1);
  driven.fall_asleep();
  REQUIRE(driven.receive(driven.own, 0) == Status::ok);
  REQUIRE(driven.send(driven.peer, 1, 8) == Status::ok);
  driven.poll_peer();
  CHECK(driven.wakes());
}

TEST_CASE("progress: the timer of the takeover is real", "[fabric][threads]") {
  Driven driven;
  driven.now = monotonic_now();
  static_cast<void>(driven.polls_until_driven());
  CHECK(eventually([&] { return driven.wakes(); }));
}

TEST_CASE("progress: while callers poll, the thread looks only whether they do, without the lock",
          "[fabric][threads]") {
  Driven driven;
  driven.now = monotonic_now();
  static_cast<void>(driven.polls_until_driven());
  const auto before = driven.progress->counters().thread_polls;
  const std::uint64_t timer = driven.next_token();
  CHECK(driven.progress->callers_go_on(timer));
  std::uint64_t glance = 0;
  for (int i = 0; i < 5; ++i) {
    static_cast<void>(driven.progress->poll_for_caller(monotonic_now()));
    glance = driven.next_token();
    CHECK(glance != timer);
    CHECK(driven.progress->callers_go_on(glance));
  }
  // Nobody has polled since: that is for thread_turn().
  CHECK(driven.next_token() == glance);
  CHECK_FALSE(driven.progress->callers_go_on(glance));
  CHECK(driven.progress->counters().thread_polls == before);
  driven.now = monotonic_now();
  driven.fall_asleep();
  CHECK(driven.progress->counters().thread_takeovers == 1);
}

TEST_CASE("progress: a glance that is left over disturbs nobody, and no other token is taken for one",
          "[fabric][threads]") {
  Driven driven;
  driven.now = monotonic_now();
  static_cast<void>(driven.polls_until_driven());
  const std::uint64_t timer = driven.next_token();
  REQUIRE(driven.progress->callers_go_on(timer));
  driven.progress->hand_over(monotonic_now());
  const std::uint64_t glance = driven.next_token();
  REQUIRE(glance != timer);
  CHECK(driven.progress->callers_go_on(glance));  // the thread sleeps, and the other timer wakes it
  CHECK_FALSE(driven.progress->callers_go_on(timer));
  REQUIRE(driven.receive(driven.own, 0) == Status::ok);
  REQUIRE(driven.send(driven.peer, 1, 7) == Status::ok);
  driven.poll_peer();
  CHECK_FALSE(driven.progress->callers_go_on(driven.next_token()));
}

TEST_CASE("progress: a token of others is no glance, although its number may be a descriptor's", "[fabric][threads]") {
  Driven driven;
  driven.now = monotonic_now();
  static_cast<void>(driven.polls_until_driven());
  for (std::uint64_t token = 0; token < 1000; ++token) {
    CHECK_FALSE(driven.progress->callers_go_on(token));
    static_cast<void>(driven.progress->poll_for_caller(monotonic_now()));
  }
  const std::uint64_t timer = driven.next_token();
  REQUIRE(timer >= Progress::kOwnTokens);
  CHECK(driven.progress->callers_go_on(timer));
}

TEST_CASE("progress: what a caller posts while the thread sleeps wakes the peer, and its end wakes the thread",
          "[fabric][threads]") {
  Driven driven;
  for (int round = 0; round < 5; ++round) {
    REQUIRE(driven.receive(driven.peer, 1) == Status::ok);
    driven.poll_peer();
    REQUIRE(driven.links[1]->prepare_sleep());
    REQUIRE_FALSE(is_readable(driven.links[1]->descriptor()));
    REQUIRE_FALSE(driven.wakes());
    REQUIRE(driven.send(driven.own, 0, 7) == Status::ok);
    REQUIRE(driven.progress->wants_announcement());
    driven.progress->announce_post(driven.now);
    // The peer was rung; when it has consumed the message, it rings back, as the caller does not poll.
    CHECK(is_readable(driven.links[1]->descriptor()));
    REQUIRE_FALSE(driven.wakes());
    driven.links[1]->disarm();
    driven.poll_peer();
    CHECK(driven.completions(driven.peer, 1) == 1);
    REQUIRE(driven.wakes());
    driven.fall_asleep();
    CHECK(driven.completions(driven.own, 0) == 1);
  }
}

TEST_CASE("progress: a doorbell that a caller's announcement takes away is not the last", "[fabric][threads]") {
  Driven driven;
  for (int i = 0; i < 2; ++i) REQUIRE(driven.receive(driven.own, 0) == Status::ok);
  // The peer rings; the thread is slow; a caller's announcement polls the link, which takes the doorbell.
  REQUIRE(driven.send(driven.peer, 1, 7) == Status::ok);
  driven.peer.poll(driven.now);
  driven.pass(seconds(1));
  driven.progress->announce(driven.now);
  static_cast<void>(driven.wakes());
  static_cast<void>(driven.completions(driven.own, 0));
  // The thread never came. The next message rings again.
  REQUIRE(driven.send(driven.peer, 1, 8) == Status::ok);
  driven.peer.poll(driven.now);
  CHECK(driven.wakes());
}

TEST_CASE("progress: posts in a row while the thread sleeps make the caller take over", "[fabric][threads]") {
  Driven driven;
  for (int i = 1; i < 8; ++i) {
    REQUIRE(driven.send(driven.own, 0, 7) == Status::ok);
    driven.progress->announce_post(driven.now);
    CHECK(driven.progress->wants_announcement());
  }
  REQUIRE(driven.send(driven.own, 0, 7) == Status::ok);
  driven.progress->announce_post(driven.now);
  CHECK_FALSE(driven.progress->wants_announcement());
  CHECK(driven.progress->counters().caller_takeovers == 1);
}

TEST_CASE("progress: a caller that is about to sleep hands over, and what is there already is not left behind",
          "[fabric][threads]") {
  Driven driven;
  static_cast<void>(driven.polls_until_driven());
  driven.progress->hand_over(driven.now);
  CHECK(driven.progress->wants_announcement());  // asleep
  CHECK_FALSE(driven.wakes());
  REQUIRE(driven.receive(driven.own, 0) == Status::ok);
  REQUIRE(driven.send(driven.peer, 1, 7) == Status::ok);
  driven.poll_peer();
  CHECK(driven.wakes());
  driven.fall_asleep();
  CHECK(driven.completions(driven.own, 0) == 1);

  // In between a message has come: it is in before the thread sleeps.
  static_cast<void>(driven.polls_until_driven());
  REQUIRE(driven.receive(driven.own, 0) == Status::ok);
  REQUIRE(driven.send(driven.peer, 1, 8) == Status::ok);
  driven.poll_peer();
  driven.progress->hand_over(driven.now);
  CHECK(driven.completions(driven.own, 0) == 1);
  CHECK(driven.progress->counters().hand_overs == 2);
}

TEST_CASE("progress: a thread that serves leaves the adapter to callers as soon as they poll", "[fabric][threads]") {
  Driven driven;
  REQUIRE(driven.receive(driven.own, 0) == Status::ok);
  REQUIRE(driven.send(driven.peer, 1, 7) == Status::ok);
  driven.poll_peer();
  REQUIRE(driven.wakes());
  REQUIRE(driven.progress->thread_turn(driven.now));
  CHECK(driven.polls_until_driven() == 1);
  CHECK_FALSE(driven.progress->thread_turn(driven.now));
  CHECK(driven.polls_until_driven() == 1);
  const std::uint64_t polls = driven.progress->counters().thread_polls;
  CHECK_FALSE(driven.progress->thread_turn(driven.now));
  CHECK(driven.progress->counters().thread_polls == polls);
  // Unless the caller then sleeps.
  driven.progress->hand_over(driven.now);
  CHECK(driven.progress->wants_announcement());
}

TEST_CASE("progress: a thread that is to be cancelled still wakes the one that serves", "[fabric][threads]") {
  SeededRandom random{3};
  ChannelAdapter adapter({}, random);
  std::unique_ptr<Progress> progress;
  splitnic::test::check_not_cancelled([&](auto&& check) {
    auto made = Progress::make(adapter, times());  // which kicks
    check(made.has_value());
    progress = std::move(*made);
  });
  REQUIRE(progress);
  epoll_event fired;
  CHECK(epoll_wait(progress->descriptor(), &fired, 1, 0) == 1);
}

TEST_CASE("progress: a link that is removed is neither polled nor watched", "[fabric][threads]") {
  Driven driven;
  CHECK(driven.progress->find(driven.path) == driven.links[0].get());
  driven.progress->remove(driven.path);
  CHECK(driven.progress->find(driven.path) == nullptr);
  CHECK(driven.own.detach(driven.path) == Status::ok);
  REQUIRE(driven.send(driven.peer, 1, 7) == Status::ok);
  driven.poll_peer();
  CHECK_FALSE(driven.wakes());
  driven.progress->remove(driven.path);  // not there: nothing happens
}

}  // namespace splitnic::fabric::test::threads_progress_test
