#include "fabric/bridge/user_limits.h"

#include <catch2/catch.hpp>
#include <vector>

namespace splitnic::fabric::user_limits_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = UserLimits::Verdict;

constexpr uid_t kUser = 1000;
constexpr uid_t kOther = 1001;
constexpr std::size_t kMiB = 1U << 20U;

UserLimitOptions few() {
  UserLimitOptions options;
  options.places = 4;
  options.places_per_user = 2;
  options.bytes_per_user = 10 * kMiB;
  return options;
}

/// One bridge that comes and goes.
void come_and_go(UserLimits& limits, uid_t user, Time now) {
  REQUIRE(limits.reserve(user, kMiB, false) == Verdict::reserved);
  limits.release(user, kMiB, now);
}

}  // namespace

TEST_CASE("places are limited for all users together and for each, and come back", "[fabric][shm]") {
  UserLimits limits(few());
  CHECK(limits.reserve(kUser, kMiB, false) == Verdict::reserved);
  CHECK(limits.reserve(kUser, kMiB, false) == Verdict::reserved);
  CHECK(limits.reserve(kUser, kMiB, false) == Verdict::user_places);
  CHECK(limits.reserve(0, kMiB, true) == Verdict::reserved);
  CHECK(limits.reserve(0, kMiB, true) == Verdict::reserved);
  CHECK(limits.reserve(0, kMiB, true) == Verdict::no_place);
  CHECK(limits.reserve(kOther, kMiB, false) == Verdict::no_place);
  CHECK(limits.places() == 4);
  CHECK(limits.places_of(kUser) == 2);
  limits.release(kUser, kMiB, Time{});
  CHECK(limits.reserve(kOther, kMiB, false) == Verdict::reserved);
  CHECK(limits.reserve(kUser, kMiB, false) == Verdict::no_place);
  limits.release(0, kMiB, Time{});
  CHECK(limits.reserve(kUser, kMiB, false) == Verdict::reserved);
}

TEST_CASE("a user's memory is limited to the byte", "[fabric][shm]") {
  UserLimits limits(few());
  CHECK(limits.reserve(kUser, 10 * kMiB + 1, false) == Verdict::user_bytes);
  CHECK(limits.reserve(kUser, ~std::size_t{0}, false) == Verdict::user_bytes);
  CHECK(limits.reserve(kUser, 4 * kMiB, false) == Verdict::reserved);
  CHECK(limits.reserve(kUser, 6 * kMiB + 1, false) == Verdict::user_bytes);
  CHECK(limits.reserve(kOther, 10 * kMiB, false) == Verdict::reserved);
  CHECK(limits.reserve(kUser, 6 * kMiB, false) == Verdict::reserved);
  limits.release(kUser, 4 * kMiB, Time{});
  CHECK(limits.reserve(kUser, 4 * kMiB + 1, false) == Verdict::user_bytes);
  CHECK(limits.reserve(kUser, 4 * kMiB, false) == Verdict::reserved);
}

TEST_CASE(
    "after ten bridges that ended within a minute each set-up waits twice as long, up to 5 s, until a quiet minute",
    "[fabric][shm]") {
  UserLimits limits(few());
  Time now{};
  for (int i = 0; i < 9; ++i) {
    come_and_go(limits, kUser, now);
    now += milliseconds(100);
    REQUIRE(limits.next_setup(kUser, now) <= now);
  }
  std::vector<Duration> pauses;
  for (int i = 0; i < 12; ++i) {
    come_and_go(limits, kUser, now);
    pauses.push_back(limits.next_setup(kUser, now) - now);
    now += pauses.back();
    REQUIRE(limits.next_setup(kUser, now) <= now);
  }
  const std::vector<Duration> expected{milliseconds(10),   milliseconds(20),   milliseconds(40),   milliseconds(80),
                                       milliseconds(160),  milliseconds(320),  milliseconds(640),  milliseconds(1280),
                                       milliseconds(2560), milliseconds(5000), milliseconds(5000), milliseconds(5000)};
  CHECK(pauses == expected);
  CHECK(limits.next_setup(kOther, now) <= now);  // nobody else waits

  // The pause resumes where it was, unless no bridge has ended for a minute.
  const auto [silence, expected_next] =
      GENERATE(table<Duration, Duration>({{seconds(60) - Duration(1), seconds(5)}, {seconds(60), milliseconds(10)}}));
  now += silence - seconds(5);
  CHECK(limits.next_setup(kUser, now) <= now);
  for (int i = 0; i < 10; ++i) come_and_go(limits, kUser, now);
  CHECK(limits.next_setup(kUser, now) == now + expected_next);
}

TEST_CASE("bridges that stay cost nothing, and all hosts of a user may come at once", "[fabric][shm]") {
  UserLimits limits({});
  for (int i = 0; i < 64; ++i) {
    REQUIRE(limits.next_setup(kUser, Time{}) <= Time{});
    REQUIRE(limits.reserve(kUser, kMiB, false) == Verdict::reserved);
  }
}

TEST_CASE("ten ends that are spread over more than a minute cause no pause", "[fabric][shm]") {
  UserLimits limits(few());
  Time now{};
  for (int i = 0; i < 100; ++i) {
    come_and_go(limits, kUser, now);
    REQUIRE(limits.next_setup(kUser, now) <= now);
    now += milliseconds(6667);  // the tenth end is 60 003 ms after the first
  }
}

TEST_CASE("users without a bridge are forgotten after a quiet minute", "[fabric][shm]") {
  UserLimits limits(few());
  for (uid_t user = 2000; user < 3000; ++user) come_and_go(limits, user, Time{});
  CHECK(limits.users() == 1000);
  come_and_go(limits, kUser, Time{} + seconds(60));
  CHECK(limits.users() == 1);
}

}  // namespace splitnic::fabric::user_limits_test
