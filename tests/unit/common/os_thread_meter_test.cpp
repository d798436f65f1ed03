#include <catch2/catch.hpp>

#include "common/os/thread_meter.h"

namespace splitnic::os::os_thread_meter_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A thread whose clock and processor time a test moves.
struct FakeThread {
  Time now{std::chrono::hours(1)};
  Duration used{};
  std::size_t asked = 0;
  ThreadMeter meter{[this] { return now; },
                    [this] {
                      ++asked;
                      return used;
                    }};
  void run(Duration time) {
    now += time;
    used += time;
  }
  void wait(Duration time) { now += time; }
};

TEST_CASE("a thread's laps are what the clock says, each from the end of the one before", "[common][os]") {
  FakeThread thread;
  thread.meter.start(thread.now);
  thread.run(microseconds(30));
  CHECK(thread.meter.lap(1) == microseconds(30));
  CHECK(thread.meter.lap(1) == microseconds(0));
  thread.run(microseconds(199));
  CHECK(thread.meter.lap(1) == microseconds(199));
  CHECK(thread.asked == 1);  // at the start alone
}

TEST_CASE("a long lap does not count the time in which other threads ran", "[common][os]") {
  FakeThread thread;
  thread.meter.start(thread.now);
  thread.run(microseconds(10));
  thread.wait(milliseconds(4));
  thread.run(microseconds(20));
  CHECK(thread.meter.lap(1) == microseconds(30));
  thread.run(milliseconds(17));
  CHECK(thread.meter.lap(1) == milliseconds(17));  // all its own
}

TEST_CASE("sleep before a long lap excuses four milliseconds of it at most", "[common][os]") {
  FakeThread thread;
  thread.meter.start(thread.now);
  thread.wait(milliseconds(50));
  thread.meter.start(thread.now);
  thread.run(milliseconds(3));
  CHECK(thread.meter.lap(1) == milliseconds(3));
  thread.wait(microseconds(3999));
  thread.meter.start(thread.now);
  thread.run(milliseconds(5));
  CHECK(thread.meter.lap(1) == microseconds(1001));
}

TEST_CASE("the processor time of a thread does not pass while it waits for the time of others", "[common][os]") {
  const Duration before = thread_processor_time();
  CHECK(before > Duration::zero());
  Duration after = before;
  while (after == before) after = thread_processor_time();
  CHECK(after > before);
}

}  // namespace
}  // namespace splitnic::os::os_thread_meter_test
