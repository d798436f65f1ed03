#include "fabric/memory/store_habit.h"

#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/time.h"

namespace splitnic::fabric::store_habit_test {
namespace {

using std::chrono::nanoseconds;

constexpr std::size_t kPayload = 16U << 10U;
const nanoseconds kFast = StoreHabit::longest_fast(kPayload);
const nanoseconds kSlow = kFast + nanoseconds(1);

/// A clock that goes on by as much as one copy takes, between its two readings.
struct FakeClock {
  static Time read() {
    if (++readings % 2 == 0) time += copy_takes;
    return time;
  }
  static void start() {
    time = Time{};
    readings = 0;
  }
  static inline Time time{};
  static inline nanoseconds copy_takes{};
  static inline std::size_t readings = 0;
};

struct Stored {
  Stored() { FakeClock::start(); }

  /// Returns whether the clock was read.
  bool store(nanoseconds takes, std::size_t bytes = kPayload) {
    FakeClock::copy_takes = takes;
    const std::size_t before = FakeClock::readings;
    from.assign(bytes, std::byte(++stamp));
    REQUIRE(habit.store(to.data(), from.data(), bytes));
    REQUIRE(std::equal(from.begin(), from.end(), to.begin()));
    return FakeClock::readings != before;
  }
  /// Stores until a copy is timed; returns how many were not.
  std::size_t store_until_timed(nanoseconds takes, std::size_t at_most = 1000) {
    for (std::size_t untimed = 0; untimed < at_most; ++untimed) {
      if (store(takes)) return untimed;
    }
    return at_most;
  }
  void become_plain() {
    while (!habit.plain()) store_until_timed(kFast);
  }

  StoreHabit habit{&FakeClock::read};
  std::vector<std::byte> from = std::vector<std::byte>(kPayload);
  std::vector<std::byte> to = std::vector<std::byte>(kPayload);
  std::uint8_t stamp = 0;
};

}  // namespace

TEST_CASE("without a clock, stores are plain", "[fabric][memory]") {
  Stored stored;
  stored.habit = StoreHabit();
  CHECK_FALSE(stored.habit.chooses());
  CHECK(stored.habit.plain());
  for (int n = 0; n < 100; ++n) CHECK_FALSE(stored.store(kSlow));
  CHECK(stored.habit.plain());
}

TEST_CASE("short payloads are plain, and not timed", "[fabric][memory]") {
  Stored stored;
  for (int n = 0; n < 1000; ++n) CHECK_FALSE(stored.store(kSlow, StoreHabit::kLongBytes - 1));
  CHECK_FALSE(stored.habit.plain());
}

TEST_CASE("long payloads go past the caches until plain stores turn out to be fast", "[fabric][memory]") {
  Stored stored;
  CHECK(stored.habit.chooses());
  CHECK_FALSE(stored.habit.plain());
  CHECK(stored.store_until_timed(kFast) == StoreHabit::kFirstTryAfter / kPayload - 1);
  for (unsigned n = 1; n < StoreHabit::kAgreeing; ++n) {
    CHECK_FALSE(stored.habit.plain());
    CHECK(stored.store(kFast));
  }
  CHECK(stored.habit.plain());
}

TEST_CASE("a plain copy may take an eighth of a nanosecond for each byte, and 160 for its end", "[fabric][memory]") {
  CHECK(StoreHabit::longest_fast(16384) == nanoseconds(160 + 2048));
  CHECK(StoreHabit::longest_fast(1500) == nanoseconds(160 + 187));
}

TEST_CASE("where plain stores are slow, they are tried again after a while", "[fabric][memory]") {
  Stored stored;
  stored.store_until_timed(kSlow);
  for (int n = 0; n < 3; ++n) {
    CHECK(stored.store_until_timed(kSlow) == StoreHabit::kTryAgainAfter / kPayload - 1);
    CHECK_FALSE(stored.habit.plain());
  }
  SECTION("one slow copy among fast ones ends the try") {
    stored.store_until_timed(kFast);
    CHECK(stored.store(kSlow));
    CHECK(stored.store_until_timed(kFast) == StoreHabit::kTryAgainAfter / kPayload - 1);
    CHECK_FALSE(stored.habit.plain());
  }
  SECTION("the cores have come closer") {
    stored.become_plain();
    CHECK(stored.habit.plain());
  }
}

TEST_CASE("plain stores are timed now and then, and given up once they are slow", "[fabric][memory]") {
  Stored stored;
  stored.become_plain();
  for (int n = 0; n < 20; ++n) CHECK(stored.store_until_timed(kFast) == StoreHabit::kTimedOneIn - 1);
  SECTION("interrupts change nothing") {
    for (int n = 0; n < 20; ++n) {
      for (unsigned slow = 1; slow < StoreHabit::kAgreeing; ++slow) stored.store_until_timed(kSlow);
      stored.store_until_timed(kFast);
      CHECK(stored.habit.plain());
    }
  }
  SECTION("the cores have moved apart") {
    for (unsigned n = 0; n < StoreHabit::kAgreeing; ++n) {
      CHECK(stored.habit.plain());
      stored.store_until_timed(kSlow);
    }
    CHECK_FALSE(stored.habit.plain());
    CHECK(stored.store_until_timed(kSlow) == StoreHabit::kTryAgainAfter / kPayload - 1);
  }
}

TEST_CASE("memory that is gone is no reason to change the habit", "[fabric][memory]") {
  enable_guarded_copy();  // again: the test runner has handlers of its own
  Stored stored;
  void* const gone = ::mmap(nullptr, kPayload, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(gone != MAP_FAILED);
  const auto* const from = static_cast<const std::byte*>(gone);
  const auto fails = [&] { return !stored.habit.store(stored.to.data(), from, kPayload); };
  const bool plain = GENERATE(false, true);
  FakeClock::copy_takes = kFast;
  if (plain) stored.become_plain();
  for (std::size_t n = 0; n < StoreHabit::kFirstTryAfter / kPayload + 20; ++n) CHECK(fails());
  CHECK(stored.habit.plain() == plain);
  ::munmap(gone, kPayload);
}

}  // namespace splitnic::fabric::store_habit_test
