#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <thread>

#include "common/os/event_loop.h"
#include "common/os/unique_fd.h"

namespace splitnic::os::os_event_loop_test {
namespace {

using namespace std::chrono_literals;

const EventLoopOptions kQuiet{.spin_max = 0us, .handle_signals = false};

/// A core made of functions.
struct ScriptedTask final : Task {
  std::function<std::size_t(Time)> on_poll = [](Time) { return 0; };
  std::function<bool()> on_prepare = [] { return true; };
  std::function<Time()> deadline = [] { return kNever; };
  std::vector<int> descriptors;
  bool peer_waits = false;
  MovedFrames frames;
  Time rests{};
  int prepared = 0;
  int awoken = 0;

  std::size_t poll(Time now) override { return on_poll(now); }
  bool prepare_sleep(Time) override { return ++prepared, on_prepare(); }
  void disarm() override { ++awoken; }
  bool peer_waits_for_core() override { return peer_waits; }
  MovedFrames moved() const override { return frames; }
  Time rests_until() const override { return rests; }
  Time next_deadline() const override { return deadline(); }
  void collect_descriptors(std::vector<int>& out) const override {
    out.insert(out.end(), descriptors.begin(), descriptors.end());
  }
};

UniqueFd make_event() { return UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

void ring(const UniqueFd& event) {
  const std::uint64_t one = 1;
  REQUIRE(::write(event.get(), &one, sizeof one) == sizeof one);
}

bool take(const UniqueFd& event) {
  std::uint64_t value = 0;
  return ::read(event.get(), &value, sizeof value) == sizeof value;
}

Duration cpu_time() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto of = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

TEST_CASE("the loop polls while there is work and then sleeps", "[common][event_loop]") {
  EventLoop loop(kQuiet);
  ScriptedTask task;
  int left = 1000;
  task.on_poll = [&](Time) { return left > 0 ? static_cast<std::size_t>(left--) : 0; };
  task.on_prepare = [&] { return loop.stop(), true; };
  loop.add(task);
  CHECK(loop.run() == 0);
  CHECK(left == 0);
  CHECK(loop.counters().sleeps == 1);
  CHECK(task.prepared == 1);
  CHECK(task.awoken == 1);
}

TEST_CASE("data that comes between the last poll and the sleep wakes the loop, every time", "[common][event_loop]") {
  EventLoop loop(kQuiet);
  ScriptedTask task;
  const UniqueFd event = make_event();
  task.descriptors = {event.get()};
  int received = 0;
  task.on_poll = [&](Time) -> std::size_t {
    if (!take(event)) return 0;
    if (++received == 200) loop.stop();
    return 1;
  };
  // After the look and before the wait is armed: the worst moment.
  task.on_prepare = [&] { return ring(event), true; };
  loop.add(task);
  CHECK(loop.run() == 0);
  CHECK(received == 200);
  CHECK(loop.counters().sleeps == 200);
}

TEST_CASE("a descriptor that stays readable keeps waking the loop", "[common][event_loop]") {
  EventLoop loop(kQuiet);
  ScriptedTask task;
  const UniqueFd event = make_event();
  task.descriptors = {event.get()};
  ring(event);
  int polls = 0;
  task.on_poll = [&](Time) -> std::size_t {
    if (++polls == 50) loop.stop();
    return 0;  // leaves the data where it is
  };
  loop.add(task);
  loop.run();
  CHECK(polls == 50);
}

TEST_CASE("a wake-up by another descriptor leaves the waits in order", "[common][event_loop]") {
  EventLoop loop(kQuiet);
  ScriptedTask task;
  const UniqueFd first = make_event();
  const UniqueFd second = make_event();
  task.descriptors = {first.get(), second.get()};
  int firsts = 0;
  int seconds = 0;
  int round = 0;
  task.on_poll = [&](Time) -> std::size_t {
    std::size_t work = 0;
    if (take(first)) ++firsts, ++work;
    if (take(second)) ++seconds, ++work;
    if (firsts + seconds == 100) loop.stop();
    return work;
  };
  task.on_prepare = [&] { return ring(++round % 3 == 0 ? second : first), true; };
  loop.add(task);
  loop.run();
  CHECK(firsts + seconds == 100);
  CHECK(seconds == 33);
}

TEST_CASE("a descriptor closed and made again under the same number is waited for", "[common][event_loop]") {
  EventLoop loop(kQuiet);
  ScriptedTask task;
  UniqueFd event = make_event();
  const UniqueFd elsewhere(::dup(event.get()));  // keeps the old file alive, and readable
  const int number = event.get();
  task.descriptors = {number};
  int received = 0;
  task.on_poll = [&](Time) -> std::size_t {
    if (!take(event)) return 0;
    if (++received == 3) loop.stop();
    if (received == 1) {
      event.reset();
      event = make_event();
      REQUIRE(event.get() == number);
      ring(elsewhere);
    }
    return 1;
  };
  task.on_prepare = [&] { return ring(event), true; };
  loop.add(task);
  loop.run();
  CHECK(received == 3);
  CHECK(loop.counters().sleeps == 3);  // the old file, readable for ever, woke nobody
}

TEST_CASE("a deadline ends a sleep, not before its time", "[common][event_loop]") {
  EventLoop loop(kQuiet);
  ScriptedTask task;
  const Time start = monotonic_now();
  Time next = start + 300us;
  int fired = 0;
  task.deadline = [&] { return next; };
  task.on_poll = [&](Time now) -> std::size_t {
    if (now < next) return 0;
    next += 300us;
    if (++fired == 10) loop.stop();
    return 1;
  };
  loop.add(task);
  loop.run();
  CHECK(monotonic_now() - start >= 3ms);
  CHECK(loop.counters().sleeps <= 10);
}

TEST_CASE("a task that finds work while arming keeps the loop awake, and all are disarmed", "[common][event_loop]") {
  EventLoop loop(kQuiet);
  ScriptedTask busy;
  ScriptedTask quiet;
  int refusals = 20;
  busy.on_prepare = [&] { return --refusals < 0; };
  quiet.on_prepare = [&] { return loop.stop(), true; };
  loop.add(busy);
  loop.add(quiet);
  loop.run();
  CHECK(loop.counters().sleeps == 1);
  CHECK(busy.prepared == 21);
  CHECK(busy.awoken == 21);
  CHECK(quiet.prepared == 1);
  CHECK(quiet.awoken == 1);
}

TEST_CASE("what is posted to the loop is served while the tasks are busy", "[common][event_loop]") {
  EventLoop loop(kQuiet);
  ScriptedTask task;
  std::uint64_t polls = 0;
  task.on_poll = [&](Time) -> std::size_t { return ++polls; };
  loop.add(task);
  std::uint64_t served_at = 0;
  boost::asio::post(loop.context(), [&] {
    boost::asio::post(loop.context(), [&] {
      served_at = polls;
      loop.stop();
    });
  });
  loop.run();
  CHECK(served_at <= 130);
}

TEST_CASE("busy loops look at the io_context once in many iterations", "[common][event_loop]") {
  EventLoop loop(kQuiet);
  ScriptedTask task;
  int left = 6400;
  task.on_poll = [&](Time) -> std::size_t {
    if (--left == 0) loop.stop();
    return 1;
  };
  loop.add(task);
  const Time start = monotonic_now();
  loop.run();
  const auto by_time = static_cast<std::uint64_t>((monotonic_now() - start) / 200us);
  CHECK(loop.counters().services <= 6400 / 64 + 1 + by_time);
}

TEST_CASE("an idle loop costs no processor time", "[common][event_loop]") {
  EventLoop loop({.spin_max = 50us, .handle_signals = false});
  ScriptedTask task;
  const UniqueFd event = make_event();
  task.descriptors = {event.get()};
  loop.add(task);
  boost::asio::steady_timer end(loop.context(), 500ms);
  end.async_wait([&](const boost::system::error_code&) { loop.stop(); });
  const Duration before = cpu_time();
  loop.run();
  CHECK(cpu_time() - before < 15ms);  // three times 1% of half a second
  CHECK(loop.counters().sleeps <= 3);
}

TEST_CASE("an idle loop spares itself the brief sleeps, until something comes soon again", "[common][event_loop]") {
  EventLoop loop(kQuiet);
  ScriptedTask task;
  const UniqueFd event = make_event();
  task.descriptors = {event.get()};
  Time next = monotonic_now() + 100ms;
  int woken = 0;
  task.deadline = [&] { return next; };
  task.on_poll = [&](Time now) -> std::size_t {
    if (!take(event) && now < next) return 0;
    next = now + 100ms;
    if (++woken == 7) loop.stop();
    return 1;
  };
  std::vector<std::uint64_t> brief;  // at each sleep
  task.on_prepare = [&] {
    brief.push_back(loop.counters().brief_sleeps);
    if (woken >= 4) ring(event);
    return true;
  };
  loop.add(task);
  loop.run();
  CHECK(brief == std::vector<std::uint64_t>{0, 1, 2, 2, 2, 2, 3});
  CHECK(loop.counters().sleeps == 7);
}

TEST_CASE("a signal ends the loop and says which", "[common][event_loop]") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    EventLoop loop;
    ScriptedTask task;
    loop.add(task);
    boost::asio::post(loop.context(), [signal] { ::raise(signal); });
    CHECK(loop.run() == signal);
  }
}

TEST_CASE("a hangup calls on_hangup, and the loop continues", "[common][event_loop]") {
  std::signal(SIGHUP, SIG_DFL);  // nohup, which may run the tests, ignores it
  int hangups = 0;
  EventLoop* running = nullptr;
  EventLoopOptions options;
  options.on_hangup = [&] {
    ++hangups;
    boost::asio::post(running->context(), [&] { ::raise(hangups < 3 ? SIGHUP : SIGTERM); });
  };
  EventLoop loop(options);
  running = &loop;
  boost::asio::post(loop.context(), [] { ::raise(SIGHUP); });
  boost::asio::steady_timer limit(loop.context(), 5s);
  limit.async_wait([&](const boost::system::error_code&) { loop.stop(); });
  CHECK(loop.run() == SIGTERM);
  CHECK(hangups == 3);
}

TEST_CASE("a hangup that nohup ignores stays ignored", "[common][event_loop]") {
  std::signal(SIGHUP, SIG_IGN);
  {
    EventLoop loop;
    boost::asio::post(loop.context(), [&] {
      ::raise(SIGHUP);
      loop.stop();
    });
    CHECK(loop.run() == 0);
  }
  CHECK(std::signal(SIGHUP, SIG_DFL) == SIG_IGN);
}

TEST_CASE("another thread can stop a loop that sleeps", "[common][event_loop]") {
  EventLoop loop(kQuiet);
  std::thread other;
  boost::asio::post(loop.context(), [&] { other = std::thread([&] { loop.stop(); }); });
  CHECK(loop.run() == 0);
  other.join();
}

/// Whether a loop with this task looks on, in a pause after pieces of work that came soon after each other.
bool looks_on(ScriptedTask& task) {
  EventLoop loop({.spin_max = 10s, .handle_signals = false});
  int polls = 0;
  // Two pieces of work at once, so that the pause before the second has been short; then none.
  task.on_poll = [&](Time) -> std::size_t {
    ++polls;
    if (polls == 1 || polls == 3) return 1;
    if (polls == 100) loop.stop();
    return 0;
  };
  task.on_prepare = [&] {
    if (polls > 3) loop.stop();
    return true;
  };
  task.deadline = [] { return Time{}; };
  loop.add(task);
  loop.run();
  return polls >= 10;
}

TEST_CASE("the loop does not look on while the one whose work it awaits waits for the same core",
          "[common][event_loop]") {
  ScriptedTask task;
  CHECK(looks_on(task));
  task.peer_waits = true;
  CHECK_FALSE(looks_on(task));
}

TEST_CASE("the loop does not look on while its tasks move long frames", "[common][event_loop]") {
  ScriptedTask task;
  task.frames = {.frames = 10, .long_frames = 1};
  CHECK(looks_on(task));
  task.frames = {.frames = 10, .long_frames = 5};
  CHECK_FALSE(looks_on(task));
}

TEST_CASE("the loop does not look on while a task rests", "[common][event_loop]") {
  ScriptedTask task;
  task.rests = kNever;
  CHECK_FALSE(looks_on(task));
}

TEST_CASE("a rest, whose end was known beforehand, does not make the loop look on later", "[common][event_loop]") {
  ScriptedTask task;
  EventLoop loop({.spin_max = 10s, .handle_signals = false});
  Time end{};
  int polls_after = 0;
  task.on_poll = [&](Time now) -> std::size_t {
    if (end == Time{}) {
      task.rests = end = now + 100us;
      return 1;
    }
    if (now < end) return 0;
    if (++polls_after == 1) return 1;
    if (polls_after == 100) loop.stop();
    return 0;
  };
  task.on_prepare = [&] {
    if (polls_after > 1) loop.stop();
    return true;
  };
  task.deadline = [] { return Time{}; };
  loop.add(task);
  loop.run();
  CHECK(polls_after < 10);
}

TEST_CASE("a loop whose peer waits for its core leaves it, if it may spin", "[common][event_loop]") {
  for (const bool may_spin : {true, false}) {
    for (const bool peer_waits : {true, false}) {
      for (const bool can_leave : {true, false}) {
        CAPTURE(may_spin, peer_waits, can_leave);
        int left = 0;
        EventLoop loop({.spin_max = may_spin ? Duration(1us) : Duration(0),
                        .leave_core = [&] { return ++left, can_leave; },
                        .handle_signals = false});
        ScriptedTask task;
        task.peer_waits = peer_waits;
        int polls = 0;
        // Each other poll finds work, so that pauses come one after the other.
        task.on_poll = [&](Time) -> std::size_t {
          if (++polls == 10000 || left > 0) loop.stop();
          return static_cast<std::size_t>(polls % 2);
        };
        task.deadline = [] { return Time{}; };
        loop.add(task);
        loop.run();
        CHECK((left > 0) == (may_spin && peer_waits));
        CHECK(loop.spins().cores_left == (left > 0 && can_leave ? 1 : 0));
      }
    }
  }
}

}  // namespace
}  // namespace splitnic::os::os_event_loop_test
