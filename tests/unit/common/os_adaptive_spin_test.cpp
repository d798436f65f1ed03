// How long a loop spins before it sleeps, what it learns from pauses, and what spins in vain may cost.
#include "common/os/adaptive_spin.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <initializer_list>

namespace splitnic::os::os_adaptive_spin_test {
namespace {

using namespace std::chrono_literals;

/// Pauses one after the other, in a time of their own.
struct Pauses {
  explicit Pauses(Duration max, unsigned budget = 100) : spin(max, budget) {}

  /// A pause. Returns how long the loop would have spun at most.
  Duration pause(Duration time) {
    const Duration most = spin.begin_pause(now, moved);
    if (most > 0us && time > most) spin.spun_in_vain(most), in_vain += most;
    now += time;
    spin.end_pause(time);
    return most;
  }
  /// The same, many times. Returns the last answer.
  Duration pauses(int count, Duration time) {
    Duration most{};
    for (int i = 0; i < count; ++i) most = pause(time);
    return most;
  }

  AdaptiveSpin spin;
  MovedFrames moved;  // before the next pause
  Time now{1s};
  Duration in_vain{};
};

TEST_CASE("a loop spins while one pause in three is short, and soon stops where none is", "[common][spin]") {
  Pauses loop(50us);
  CHECK(loop.pause(51us) == 0us);
  CHECK(loop.pauses(4, 50us) == 50us);
  for (int question = 0; question < 100; ++question) {
    CHECK(loop.pause(1ms) == 50us);
    CHECK(loop.pause(50us) == 50us);
    CHECK(loop.pause(1ms) == 50us);
  }
  loop.pauses(8, 1ms);
  CHECK(loop.pause(1ms) == 0us);
  loop.pauses(1000, 1ms);
  loop.pauses(6, 50us);
  CHECK(loop.pause(50us) == 50us);
}

TEST_CASE("a loop that may spin for no time never does", "[common][spin]") {
  Pauses never(0us);
  CHECK(never.pauses(10, 0us) == 0us);
  CHECK(never.pauses(10, 1us) == 0us);
}

TEST_CASE("a loop spins for as long as it gains most", "[common][spin]") {
  Pauses loop(48us);
  CHECK(loop.pauses(100, 3us) == 3us);
  CHECK(loop.pauses(100, 4us) == 6us);
  CHECK(loop.pauses(100, 12us) == 12us);
  CHECK(loop.pauses(100, 13us) == 24us);
  CHECK(loop.pauses(100, 25us) == 48us);
  // Among short pauses, one of 40 us in twenty is worth a longer spin.
  for (int i = 0; i < 20; ++i) {
    loop.pauses(19, 3us);
    loop.pause(40us);
  }
  CHECK(loop.pause(3us) == 48us);
  // Where the others are long, one in ten is worth spins of 3 us, and not of 40.
  for (int i = 0; i < 20; ++i) {
    loop.pauses(9, 1ms);
    loop.pause(3us);
  }
  CHECK(loop.pause(1ms) == 3us);
  for (int i = 0; i < 20; ++i) {
    loop.pauses(9, 1ms);
    loop.pause(40us);
  }
  CHECK(loop.pause(1ms) == 0us);
}

TEST_CASE("spins in vain keep to their budget, and spins that paid have none", "[common][spin]") {
  constexpr Duration kMost = 50us;
  Pauses loop(kMost, 5);
  const Time start = loop.now;
  // A conversation whose second pause is always a little too long for the longest spin.
  while (loop.now - start < 1s) {
    loop.pause(50us);
    loop.pause(60us);
  }
  CHECK(loop.in_vain > 40ms);
  CHECK(loop.in_vain < 50ms + 41 * kMost);
  for (int i = 0; i < 100'000; ++i) loop.pause(40us);
  CHECK(loop.pause(40us) == kMost);
}

TEST_CASE("a budget that was not used lasts for forty spins, and comes back with time", "[common][spin]") {
  constexpr Duration kMost = 50us;
  AdaptiveSpin spin(kMost, 5);
  const Time now{1000s};
  spin.end_pause(kMost);
  for (int i = 0; i < 40; ++i) {
    CHECK(spin.begin_pause(now) == kMost);
    spin.spun_in_vain(kMost);
  }
  CHECK(spin.begin_pause(now) == 0us);
  CHECK(spin.begin_pause(now + 1ms) == kMost);
  spin.spun_in_vain(kMost);
  CHECK(spin.begin_pause(now + 1ms) == 0us);
}

TEST_CASE("a loop that moves long frames sleeps at once, until short ones prevail", "[common][spin]") {
  constexpr std::size_t kLong = 65'000;
  constexpr std::size_t kShort = 66;
  Pauses loop(50us);
  const auto pause_after = [&](std::initializer_list<std::size_t> frames) {
    for (const std::size_t bytes : frames) loop.moved.add(bytes);
    return loop.pause(40us);
  };
  REQUIRE(loop.pauses(10, 40us) == 50us);  // without frames
  REQUIRE(pause_after({kShort}) == 50us);
  // A stream, with its acknowledgements.
  CHECK(pause_after({kLong}) == 0us);
  for (int i = 0; i < 100; ++i) {
    CHECK(pause_after({kLong, kLong, kShort}) == 0us);
    CHECK(pause_after({kShort}) == 0us);
    CHECK(loop.pause(40us) == 0us);
  }
  // A conversation after it.
  int conversation = 0;
  while (pause_after({kShort}) == 0us) REQUIRE(++conversation < 200);
  CHECK(conversation > 20);
  for (int i = 0; i < 100; ++i) CHECK(pause_after({kShort}) == 50us);
  // One long frame in eight changes nothing, and those of an interface without offloads are not long.
  for (int i = 0; i < 1000; ++i) CHECK(pause_after({i % 8 == 0 ? kLong : kShort}) == 50us);
  for (int i = 0; i < 1000; ++i) CHECK(pause_after({9014, 9014, 1514}) == 50us);
}

TEST_CASE("spins of several loops are added up", "[common][spin]") {
  SpinCounters sum{.spins_paid = 1, .spins_in_vain = 2, .spin_us_paid = 3, .spin_us_in_vain = 4};
  sum += {.spins_paid = 10, .spins_in_vain = 20, .spin_us_paid = 30, .spin_us_in_vain = 40};
  CHECK(sum.spins_paid == 11);
  CHECK(sum.spins_in_vain == 22);
  CHECK(sum.spin_us_paid == 33);
  CHECK(sum.spin_us_in_vain == 44);
}

}  // namespace
}  // namespace splitnic::os::os_adaptive_spin_test
