// When a loop leaves its core to its peer, and how often.
#include "common/os/step_aside.h"

#include <catch2/catch.hpp>

namespace splitnic::os::os_step_aside_test {
namespace {

using namespace std::chrono_literals;

/// A loop whose pauses follow each other every 100 us.
struct Loop {
  /// How often it leaves in so many pauses.
  int leaves(int pauses, Duration worked, bool peer_waits) {
    int times = 0;
    for (int pause = 0; pause < pauses; ++pause) {
      now += 100us;
      if (step_aside.begin_pause(now, worked, peer_waits)) ++times, last = now;
    }
    return times;
  }

  StepAside step_aside;
  Time now{1s};
  Time last{};
};

TEST_CASE("a loop leaves its core at the eighth pause in which the peer of its conversation waits", "[common][spin]") {
  Loop loop;
  CHECK(loop.leaves(7, 15us, true) == 0);
  CHECK(loop.leaves(1, 15us, true) == 1);
}

TEST_CASE("pauses of a conversation in which no peer waits tell nothing", "[common][spin]") {
  Loop loop;
  CHECK(loop.leaves(1000, 5us, false) == 0);
  for (int message = 0; message < 7; ++message) {
    CHECK(loop.leaves(1, 5us, true) == 0);
    CHECK(loop.leaves(1, 5us, false) == 0);
  }
  CHECK(loop.leaves(1, 5us, true) == 1);
}

TEST_CASE("a loop that works for long stays with its peer", "[common][spin]") {
  Loop loop;
  CHECK(loop.leaves(1000, 16us, true) == 0);
  // Half of the pauses after long work outweigh the other half.
  for (int message = 0; message < 1000; ++message) {
    CHECK(loop.leaves(1, 16us, true) == 0);
    CHECK(loop.leaves(1, 5us, true) == 0);
  }
}

TEST_CASE("a loop that meets its peer again and again leaves less often, and soon again after a while",
          "[common][spin]") {
  Loop loop;
  // In 2, 4, 8, 16, 32 and then each 64 ms, instead of each 2 ms.
  CHECK(loop.leaves(10000, 5us, true) <= 21);
  CHECK(loop.leaves(640, 5us, true) == 1);
  loop.now = loop.last + 128ms;
  CHECK(loop.leaves(8, 5us, true) == 1);
  CHECK(loop.leaves(20, 5us, true) == 1);  // after 2 ms again
}

}  // namespace
}  // namespace splitnic::os::os_step_aside_test
