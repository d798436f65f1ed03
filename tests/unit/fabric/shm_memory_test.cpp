// Programs make shared memory in threads that get signals. Linux 6.1 ends fallocate() at any of them, 6.18 at those
// alone that end the process: there nothing here can fail.
#include "fabric/bridge/shm_memory.h"

#include <sched.h>
#include <sys/time.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>

#include "tests/unit/other_process.h"

namespace splitnic::fabric::shm_memory_test {
namespace {

using std::chrono::microseconds;

/// While it lives, a signal that is handled comes every so often.
class HandledTimer {
 public:
  explicit HandledTimer(microseconds every) {
    handled_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { ++handled_; };
    REQUIRE(sigaction(SIGALRM, &action, &before_) == 0);
    const timeval interval{0, static_cast<suseconds_t>(every.count())};
    const itimerval timer{interval, interval};
    REQUIRE(setitimer(ITIMER_REAL, &timer, nullptr) == 0);
  }
  ~HandledTimer() {
    const itimerval off{};
    setitimer(ITIMER_REAL, &off, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }
  HandledTimer(const HandledTimer&) = delete;
  HandledTimer& operator=(const HandledTimer&) = delete;

  static int handled() { return handled_; }

 private:
  static inline std::atomic<int> handled_{0};
  struct sigaction before_ {};
};

TEST_CASE("signals that come all the time do not keep a program from making shared memory", "[fabric][shm]") {
  constexpr std::size_t kBytes = std::size_t{32} << 20U;
  constexpr int kTimes = 4;
  const HandledTimer timer(microseconds(100));
  for (int time = 0; time < kTimes; ++time) {
    const auto made = ShmMemory::create(kBytes);
    REQUIRE(made.has_value());
    CHECK((*made)->mapped_bytes() == ShmMemory::kHeaderBytes + kBytes);
  }
  CHECK(HandledTimer::handled() >= kTimes);  // each of them takes longer than the timer
}

TEST_CASE("a program that is stopped and continued while it makes shared memory gets it", "[fabric][shm]") {
  constexpr std::size_t kBytes = std::size_t{1} << 20U;
  constexpr int kTimes = 200;
  constexpr int kStops = 500;
  testing::OtherProcess program([](testing::OtherProcess::Pipe& pipe) {
    pipe.say_number(kTimes);
    int made = 0;
    for (int time = 0; time < kTimes; ++time) made += ShmMemory::create(kBytes) ? 1 : 0;
    pipe.say_number(made);
  });
  REQUIRE(program.number() == kTimes);
  for (int stop = 0; stop < kStops; ++stop) {
    ::kill(program.pid(), SIGSTOP);
    ::kill(program.pid(), SIGCONT);
    ::sched_yield();
  }
  CHECK(program.number() == kTimes);
}

}  // namespace
}  // namespace splitnic::fabric::shm_memory_test
