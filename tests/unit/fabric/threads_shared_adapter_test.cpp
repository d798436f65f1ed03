#include "fabric/threads/shared_adapter.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "common/os/unique_fd.h"
#include "late_link.h"
#include "threads_fixtures.h"

/// Programs with real threads. Nothing here may hang: every wait has a limit, and fails the test.
namespace splitnic::fabric::test::threads_shared_adapter_test {
namespace {

std::uint64_t load_word(const std::byte* at) {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE);
}

/// A link that is never up, and hears the time of each poll.
class ClockedLink final : public LateLink {
 public:
  std::size_t poll(Time now) override {
    note(now);
    return 0;
  }
  [[nodiscard]] bool rests(Time now) const override {
    note(now);
    return false;
  }
  mutable std::atomic<std::uint64_t> times{0};
  mutable std::atomic<std::uint64_t> went_back{0};
  /// What it heard last. Under the adapter's lock.
  [[nodiscard]] Time last() const { return last_; }

 private:
  void note(Time now) const {
    ++times;
    if (now < last_) ++went_back;
    last_ = now;
  }
  mutable Time last_{};  // under the adapter's lock
};

SharedAdapterOptions taking_over_after(Duration time) {
  SharedAdapterOptions options;
  options.takeover_min = options.takeover_max = time;
  return options;
}

/// An end with such a link, whose progress thread takes over after this time.
struct ClockedEnd {
  explicit ClockedEnd(Duration takeover) : end(1, taking_over_after(takeover)) {
    REQUIRE(end.adapter->add_link(link).has_value());
  }

  SharedEnd end;
  std::shared_ptr<ClockedLink> link = std::make_shared<ClockedLink>();
};

}  // namespace

TEST_CASE("threads: programs that only sleep on their channels exchange messages", "[fabric][threads]") {
  SharedPair pair;
  constexpr std::uint64_t kRounds = 300;
  std::atomic<std::uint64_t> echoed{0};
  std::thread echo([&] {
    SharedEnd& end = pair.second();
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      if (end.receive(round) != Status::ok) return;
      for (bool received = false; !received;) {
        const auto done = end.await_completion();
        if (!done || done->status != CompletionStatus::success) return;
        received = done->receive;
      }
      if (end.send(round) != Status::ok) return;
      ++echoed;
    }
  });
  SharedEnd& end = pair.first();
  std::uint64_t answers = 0;
  bool fine = true;
  for (std::uint64_t round = 0; round < kRounds && fine; ++round) {
    fine = end.receive(round) == Status::ok && end.send(round) == Status::ok;
    for (bool received = false; fine && !received;) {
      const auto done = end.await_completion();
      fine = done && done->status == CompletionStatus::success;
      received = fine && done->receive;
      answers += received ? 1 : 0;
    }
  }
  echo.join();
  CHECK(answers == kRounds);
  CHECK(echoed == kRounds);
}

TEST_CASE("threads: a program that only watches its memory sees what a peer writes", "[fabric][threads]") {
  SharedPair pair;
  SharedEnd& owner = pair.second();
  SharedEnd& writer = pair.first();
  const RemoteAddress to = owner.remote(1024);
  for (std::uint64_t round = 1; round <= 100; ++round) {
    std::memcpy(writer.buffer.data(), &round, sizeof round);
    REQUIRE(writer.write(round, to, sizeof round) == Status::ok);
    // Neither end calls a verb.
    REQUIRE(eventually([&] { return load_word(owner.buffer.data() + 1024) == round; }));
    REQUIRE(eventually([&] { return writer.poll().has_value(); }));
  }
}

TEST_CASE("threads: the time that an adapter hears of never goes back, whoever polls it", "[fabric][threads]") {
  ClockedEnd clocked(microseconds(1));
  std::array<std::thread, 2> callers;
  for (std::thread& caller : callers) {
    caller = std::thread([&end = clocked.end] {
      for (int i = 0; i < 30'000; ++i)
        static_cast<void>(i % 64 == 0 ? end.adapter->progress() : end.poll().has_value());
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(clocked.link->times > 1'000);
  CHECK(clocked.link->went_back == 0);
}

TEST_CASE("threads: an adapter hears of the time although its caller polls only now and then", "[fabric][threads]") {
  ClockedEnd clocked(milliseconds(2));
  SharedEnd& end = clocked.end;
  // The clock is read by every sixteenth poll, at the latest; here that is 16 ms. A thread that was kept from its
  // processor asks for it later.
  CHECK(eventually([&] {
    for (int i = 0; i < 100; ++i) static_cast<void>(end.poll());
    Duration worst{};
    for (int polls = 0; polls < 16; ++polls) {
      const Time next = monotonic_now() + milliseconds(1);
      while (monotonic_now() < next) std::this_thread::yield();
      static_cast<void>(end.poll());
      const Time heard = end.adapter->use([&](ChannelAdapter&) { return clocked.link->last(); });
      worst = std::max(worst, Duration(monotonic_now() - heard));
    }
    return worst < milliseconds(6);
  }));
}

TEST_CASE("threads: a caller that polls keeps the thread asleep, and gets everything itself", "[fabric][threads]") {
  SharedPair pair(patient_thread());
  // From here on the callers have polled, and the thread waits for an hour.
  for (SharedEnd& end : pair.ends) static_cast<void>(end.adapter->progress());
  std::array<std::uint64_t, 2> before{};
  for (std::size_t i = 0; i < 2; ++i) before[i] = pair.ends[i].adapter->counters().thread_polls;
  for (std::uint64_t round = 0; round < 200; ++round) pair.exchange(round);
  for (std::size_t i = 0; i < 2; ++i) {
    const SharedAdapterCounters counters = pair.ends[i].adapter->counters();
    CHECK(counters.thread_polls == before[i]);
    CHECK(counters.thread_takeovers == 0);
  }
  // Without it nothing moves, although a message is there: the caller's polls alone did all of that.
  REQUIRE(pair.second().receive(1) == Status::ok);
  REQUIRE(pair.first().send(1) == Status::ok);
  static_cast<void>(pair.first().adapter->progress());
  CHECK(pair.second().adapter->counters().thread_polls == before[1]);
}

TEST_CASE("threads: the lock becomes biased to a caller that polls, and the thread looks whether it does without it",
          "[fabric][threads]") {
  constexpr Duration kTakeover = milliseconds(200);
  SharedEnd end(1, taking_over_after(kTakeover));
  const auto is_biased = [&] {
    static_cast<void>(end.poll());
    const SharedAdapterCounters counters = end.adapter->counters();
    return counters.biases == counters.revocations + 1;
  };
  // The thread's first look comes while a caller has the lock, and finds that it has polled. Only its next one would
  // have to revoke the bias; a busy machine may let the caller meet that.
  const auto undisturbed = [&] {
    REQUIRE(eventually(is_biased));
    const std::uint64_t before = end.adapter->counters().revocations;
    const Time until = monotonic_now() + kTakeover + kTakeover / 4;
    end.adapter->use([&](ChannelAdapter&) {
      while (monotonic_now() < until) std::this_thread::yield();
    });
    return end.adapter->counters().revocations == before;
  };
  CHECK((undisturbed() || undisturbed() || undisturbed()));
}

TEST_CASE("threads: when callers stop polling, the thread takes over within the takeover time", "[fabric][threads]") {
  SharedPair pair;
  for (int round = 0; round < 20; ++round) {
    // Spins for a while, as before a computation.
    for (int i = 0; i < 100; ++i) static_cast<void>(pair.second().poll());
    const std::uint64_t word = 1000 + static_cast<std::uint64_t>(round);
    std::memcpy(pair.first().buffer.data(), &word, sizeof word);
    REQUIRE(pair.first().write(word, pair.second().remote(0), sizeof word) == Status::ok);
    REQUIRE(eventually([&] { return load_word(pair.second().buffer.data()) == word; }));
    REQUIRE(eventually([&] { return pair.first().poll().has_value(); }));
  }
}

TEST_CASE("threads: two threads post to and poll one queue pair, and every request ends once", "[fabric][threads]") {
  SharedPair pair;
  constexpr std::uint64_t kEach = 500;
  constexpr std::size_t kThreads = 2;
  constexpr std::uint64_t kAll = kEach * kThreads;
  struct Counts {
    std::array<std::atomic<unsigned>, kAll> sent{};
    std::array<std::atomic<unsigned>, kAll> received{};
    std::atomic<std::uint64_t> failures{0};
  };
  const auto counts = std::make_unique<Counts>();
  std::atomic<std::uint64_t> ended{0};
  const Time limit = monotonic_now() + seconds(30);
  const auto poll = [&](SharedEnd& end) {
    std::array<Completion, 8> done;
    const std::size_t found = end.adapter->poll_completions(end.completions, done);
    for (std::size_t i = 0; i < found; ++i) {
      if (done[i].status != CompletionStatus::success || done[i].id >= kAll) {
        ++counts->failures;
        continue;
      }
      ++(done[i].receive ? counts->received : counts->sent).at(done[i].id);
      ++ended;
    }
  };
  const auto program = [&](SharedEnd& end, std::size_t thread, bool sends) {
    std::uint64_t posted = 0;
    while (ended < 2 * kAll && monotonic_now() < limit) {
      const std::uint64_t id = thread * kEach + posted;
      if (posted < kEach &&
          (sends ? end.send(id) : end.receive(id, SharedEnd::kBytes / 2 + id % 64 * 16, 16)) == Status::ok) {
        ++posted;
      }
      poll(end);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back(program, std::ref(pair.first()), i, true);
    threads.emplace_back(program, std::ref(pair.second()), i, false);
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(ended == 2 * kAll);
  CHECK(counts->failures == 0);
  CHECK(std::ranges::all_of(counts->sent, [](const auto& times) { return times == 1; }));
  CHECK(std::ranges::all_of(counts->received, [](const auto& times) { return times == 1; }));
}

TEST_CASE("threads: two threads with an adapter each share nothing", "[fabric][threads]") {
  const auto links = linked_ends();
  std::atomic<std::uint64_t> got{0};
  std::array<std::atomic<std::uint32_t>, 2> numbers{};
  std::atomic<unsigned> finished{0};
  constexpr std::uint64_t kMessages = 2000;
  const auto program = [&](std::size_t index) {
    SeededRandom random(index + 1);
    ChannelAdapter adapter(patient_requests(), random);
    CellLink& link = *links.at(index);
    const PathNumber path = *adapter.attach(link);
    const CqNumber queue = *adapter.make_completion_queue(256);
    std::array<std::byte, 64> bytes{};
    QueuePairAttributes with;
    with.domain = adapter.allocate_domain();
    const Stag tag = *adapter.register_memory(with.domain, bytes, kThreadRights);
    with.send_completions = with.receive_completions = queue;
    const QpNumber number = *adapter.create_queue_pair(with);
    numbers.at(index) = number.value;
    std::uint64_t posted = 0;
    std::uint64_t ended = 0;
    bool connected = false;
    const Time limit = monotonic_now() + seconds(30);
    while (finished < 2 && monotonic_now() < limit) {
      const Time now = monotonic_now();
      link.poll(now);
      adapter.poll(now);
      const QpNumber peer{numbers.at(1 - index)};
      if (!connected) connected = peer.value != 0 && adapter.connect(number, {peer, 5, 5, 4, path}) == Status::ok;
      if (!connected) continue;
      if (index == 0) {
        WorkRequest request;
        request.segments[0] = {bytes.data(), 8, tag};
        request.segment_count = 1;
        if (posted < kMessages && adapter.post_send(number, request) == Status::ok) ++posted;
      } else if (posted < kMessages &&
                 adapter.post_receive(number, {posted, {bytes.data(), 64, tag}, {}}) == Status::ok) {
        ++posted;
      }
      std::array<Completion, 16> done;
      const std::size_t found = adapter.poll_completions(queue, done);
      for (std::size_t i = 0; i < found; ++i) got += done[i].status == CompletionStatus::success ? 1 : 0;
      if (ended < kMessages && (ended += found) == kMessages) ++finished;
    }
  };
  std::thread first(program, 0);
  std::thread second(program, 1);
  first.join();
  second.join();
  CHECK(finished == 2);
  CHECK(got == 2 * kMessages);
}

TEST_CASE("threads: links come and go from any thread, under traffic of another", "[fabric][threads]") {
  SharedPair pair;
  SharedEnd other(20);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> failed{0};
  std::thread traffic([&] {
    while (!stop) {
      if (pair.second().receive(1) != Status::ok || pair.first().send(1) != Status::ok) ++failed;
      const auto one = pair.first().await_completion();
      const auto two = pair.second().await_completion();
      if (!one || !two || one->status != CompletionStatus::success) ++failed;
      if (failed != 0) return;
      ++sent;
    }
  });
  bool up = true;
  for (int round = 0; round < 20 && up; ++round) {
    const auto links = linked_ends(static_cast<std::uint64_t>(round) + 100);
    const auto here = pair.first().adapter->add_link(links[0]);
    const auto there = other.adapter->add_link(links[1]);
    up = here && there && eventually([&] {
           bool is_up = false;
           return pair.first().adapter->with_link(*here, [&](CellLink& link) { is_up = link.up(); }) && is_up;
         });
    up = up && pair.first().adapter->remove_link(*here) == Status::ok &&
         other.adapter->remove_link(*there) == Status::ok;
    up = up && links[0].use_count() == 1;  // nobody uses it any more
  }
  const std::uint64_t so_far = sent;
  CHECK(eventually([&] { return sent > so_far || failed != 0; }));
  stop = true;
  traffic.join();
  CHECK(up);
  CHECK(failed == 0);
  CHECK(pair.first().adapter->remove_link(PathNumber{77}) == Status::bad_argument);
  CHECK_FALSE(pair.first().adapter->with_link(PathNumber{77}, [](CellLink&) {}));
}

TEST_CASE("threads: a removed link ends what used it, and the event has a descriptor", "[fabric][threads]") {
  SharedPair pair;
  SharedEnd& end = pair.first();
  CHECK_FALSE(is_readable(end.adapter->event_descriptor()));
  CHECK(end.adapter->wait_event(monotonic_now()) == Waited::timeout);
  REQUIRE(end.adapter->remove_link(end.path) == Status::ok);
  CHECK(is_readable(end.adapter->event_descriptor()));
  std::array<AsyncEvent, 1> one;
  std::vector<AsyncEventKind> kinds;
  while (end.adapter->poll_events(one) == 1) kinds.push_back(one[0].kind);
  CHECK(std::ranges::count(kinds, AsyncEventKind::path_down) == 1);
  CHECK_FALSE(is_readable(end.adapter->event_descriptor()));
  // The peer's thread notices, although its program does nothing.
  CHECK(pair.second().adapter->wait_event(monotonic_now() + seconds(10)) == Waited::ready);
}

TEST_CASE("threads: a channel's descriptor is readable exactly while a notification waits", "[fabric][threads]") {
  SharedPair pair;
  SharedEnd& end = pair.second();
  const int descriptor = end.adapter->channel_descriptor(end.channel);
  REQUIRE(descriptor >= 0);
  // As programs do; it changes nothing.
  REQUIRE(fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0);
  for (int round = 0; round < 3; ++round) {
    CHECK_FALSE(is_readable(descriptor));
    CHECK_FALSE(end.adapter->take_notification(end.channel));
    REQUIRE(end.adapter->arm(end.completions, Arm::next) == Status::ok);
    REQUIRE(end.receive(1) == Status::ok);
    REQUIRE(pair.first().send(1) == Status::ok);
    pollfd waits{descriptor, POLLIN, 0};
    REQUIRE(::poll(&waits, 1, 10'000) == 1);
    CHECK(end.adapter->take_notification(end.channel) == end.completions);
    CHECK_FALSE(is_readable(descriptor));
    CHECK(eventually([&] { return end.poll().has_value(); }));
  }
  CHECK(end.adapter->wait_notification(end.channel, monotonic_now() + milliseconds(1)) == Waited::timeout);
  CHECK(end.adapter->destroy_completion_channel(end.channel) == Status::in_use);
  const auto unused = end.adapter->create_completion_channel();
  REQUIRE(unused.has_value());
  CHECK(end.adapter->destroy_completion_channel(*unused) == Status::ok);
  CHECK(end.adapter->channel_descriptor(*unused) == -1);
  CHECK(end.adapter->wait_notification(*unused) == Waited::timeout);  // and does not sleep for ever
}

TEST_CASE("threads: a queue that ends takes its notification along", "[fabric][threads]") {
  SharedPair pair;
  SharedEnd& end = pair.second();
  REQUIRE(end.adapter->arm(end.completions, Arm::next) == Status::ok);
  REQUIRE(end.receive(1) == Status::ok);
  REQUIRE(pair.first().send(1) == Status::ok);
  const int descriptor = end.adapter->channel_descriptor(end.channel);
  REQUIRE(eventually([&] { return is_readable(descriptor); }));
  end.adapter->use([&](ChannelAdapter& verbs) {
    CHECK(verbs.destroy_queue_pair(end.number) == Status::ok);
    CHECK(verbs.destroy_completion_queue(end.completions) == Status::ok);
  });
  CHECK_FALSE(end.adapter->take_notification(end.channel));
  CHECK_FALSE(is_readable(descriptor));
}

TEST_CASE("threads: the progress thread serves further descriptors, and their functions may use the adapter",
          "[fabric][threads]") {
  SharedEnd end(30);
  const os::UniqueFd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::atomic<int> calls{0};
  std::atomic<int> posted{-1};
  WatchNumber number{};
  const auto watched = end.adapter->watch(bell.get(), [&] {
    std::uint64_t count = 0;
    static_cast<void>(::read(bell.get(), &count, sizeof count));
    posted = static_cast<int>(end.receive(1));
    ++calls;
  });
  REQUIRE(watched.has_value());
  number = *watched;
  CHECK_FALSE(end.adapter->watch(bell.get(), [] {}).has_value());  // it is watched already
  const std::uint64_t one = 1;
  for (int round = 1; round <= 3; ++round) {
    REQUIRE(::write(bell.get(), &one, sizeof one) == sizeof one);
    REQUIRE(eventually([&] { return calls == round; }));
  }
  CHECK(posted == static_cast<int>(Status::ok));
  REQUIRE(end.adapter->unwatch(number) == Status::ok);
  CHECK(end.adapter->unwatch(number) == Status::bad_argument);
  REQUIRE(::write(bell.get(), &one, sizeof one) == sizeof one);
  static_cast<void>(end.adapter->progress());
  CHECK(calls == 3);

  // A function that ends its own watch.
  WatchNumber own{};
  std::atomic<bool> known{false};
  std::atomic<int> ended{0};
  const auto again = end.adapter->watch(bell.get(), [&] {
    if (!known) return;
    ended += end.adapter->unwatch(own) == Status::ok ? 1 : 100;
  });
  REQUIRE(again.has_value());
  own = *again;
  known = true;
  CHECK(eventually([&] { return ended != 0; }));
  CHECK(ended == 1);
}

TEST_CASE("threads: unwatch waits for the function that runs", "[fabric][threads]") {
  SharedEnd end(31);
  const os::UniqueFd bell(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  std::atomic<bool> inside{false};
  std::atomic<bool> unwatched{false};
  std::atomic<bool> returned{false};
  const auto watched = end.adapter->watch(bell.get(), [&] {
    if (inside.exchange(true)) return;
    // The other thread is in unwatch() by now, or will be: it must not return before this does.
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    returned = !unwatched;
  });
  REQUIRE(watched.has_value());
  REQUIRE(eventually([&] { return inside.load(); }));
  CHECK(end.adapter->unwatch(*watched) == Status::ok);
  unwatched = true;
  CHECK(returned);
}

TEST_CASE("threads: lists are posted under one lock, up to the first that is refused", "[fabric][threads]") {
  SharedPair pair;
  SharedEnd& end = pair.first();
  std::vector<WorkRequest> requests(4);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = i;
    requests[i].segments[0] = end.segment(0, 8);
    requests[i].segment_count = 1;
  }
  requests[2].segments[0].tag = Stag{};
  std::size_t posted = 9;
  CHECK(end.adapter->post_send(end.number, requests, posted) == Status::bad_tag);
  CHECK(posted == 2);
  const std::array receives{ReceiveRequest{0, pair.second().segment(0, 64), {}},
                            ReceiveRequest{1, pair.second().segment(64, 64), {}}};
  CHECK(pair.second().adapter->post_receive(pair.second().number, receives, posted) == Status::ok);
  CHECK(posted == 2);
  for (int i = 0; i < 2; ++i) CHECK(eventually([&] { return pair.second().poll().has_value(); }));
}

TEST_CASE("threads: a single-threaded adapter has no thread, and works when it is called", "[fabric][threads]") {
  SharedPair pair(alone());
  const os::UniqueFd bell(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  int calls = 0;
  REQUIRE(pair.first().adapter->watch(bell.get(), [&] {
    std::uint64_t count = 0;
    static_cast<void>(::read(bell.get(), &count, sizeof count));
    static_cast<void>(pair.first().adapter->progress());  // not called by itself
    ++calls;
  }));
  for (std::uint64_t round = 0; round < 50; ++round) pair.exchange(round);
  CHECK(eventually([&] {
    static_cast<void>(pair.first().poll());
    return calls != 0;
  }));
  CHECK(calls == 1);
  CHECK(pair.first().adapter->counters().thread_polls == 0);
  CHECK(pair.first().adapter->counters().contended == 0);
  CHECK(pair.first().adapter->counters().biases == 0);

  // Its waits do the work: a peer of another thread, which sleeps on its channel likewise.
  std::atomic<int> fine{0};
  std::thread peer([&] {
    SharedEnd& end = pair.second();
    for (std::uint64_t round = 0; round < 20; ++round) {
      if (end.receive(round) != Status::ok) return;
      const auto done = end.await_completion();
      if (!done || !done->receive) return;
      ++fine;
    }
  });
  int done = 0;
  for (std::uint64_t round = 0; round < 20; ++round) {
    if (pair.first().send(round) != Status::ok) break;
    const auto end = pair.first().await_completion();
    if (!end || end->status != CompletionStatus::success) break;
    ++done;
  }
  peer.join();
  CHECK(done == 20);
  CHECK(fine == 20);
}

TEST_CASE("threads: a forked child neither hangs nor disturbs its parent", "[fabric][threads]") {
  SharedPair pair;
  // A link that says when it is ended.
  bool ended = false;
  const auto links = linked_ends(41);
  SharedEnd third(40);
  REQUIRE(third.adapter->add_link(std::shared_ptr<CellLink>(links[0].get(), [&](CellLink*) { ended = true; })));
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) static_cast<void>(pair.first().poll());
  });
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(20);  // a child that hangs is killed
      const bool knows = pair.first().adapter->forked() && pair.second().adapter->forked();
      for (SharedEnd& end : pair.ends) end.adapter.reset();
      third.adapter.reset();
      _exit(knows && !ended ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  stop = true;
  busy.join();
  CHECK_FALSE(pair.first().adapter->forked());
  REQUIRE(pair.second().receive(1) == Status::ok);
  REQUIRE(pair.first().send(1) == Status::ok);
  const auto done = pair.second().await_completion();
  REQUIRE(done.has_value());
  CHECK(done->status == CompletionStatus::success);
}

TEST_CASE("threads: callers that poll let a waiting verb in", "[fabric][threads]") {
  SharedPair pair;
  std::atomic<bool> stop{false};
  std::vector<std::thread> pollers;
  for (int i = 0; i < 2; ++i) {
    pollers.emplace_back([&] {
      std::array<Completion, 1> one;
      while (!stop) static_cast<void>(pair.first().adapter->poll_completions(pair.first().completions, one));
    });
  }
  int calls = 0;
  const Time limit = monotonic_now() + seconds(20);
  for (; calls < 500 && monotonic_now() < limit; ++calls) pair.first().adapter->use([](ChannelAdapter&) {});
  stop = true;
  for (std::thread& poller : pollers) poller.join();
  CHECK(calls == 500);
}

}  // namespace splitnic::fabric::test::threads_shared_adapter_test
