#include "iounit/shared_policy.h"

#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::shared_policy_test {
namespace {

using std::chrono::milliseconds;

constexpr Time kNow{std::chrono::hours(1)};

TEST_CASE("whoever asks, the policy is copied at most once in 10 ms, and at once for new rules",
          "[iounit][group][policy]") {
  SharedPolicy policy({}, 1);
  const auto change = [&] {
    policy.change([](Policy& of) { of.attach("a", {}, station(1), kNow); });
    return policy.version();
  };
  const auto first = policy.copy(kNow);
  CHECK(first.version == policy.version());
  CHECK(policy.copy(kNow + milliseconds(50)).policy == first.policy);  // nothing has changed
  CHECK(policy.copies() == 1);
  const auto second = change();
  CHECK(policy.copy(kNow + milliseconds(50)).version == second);
  const auto third = change();
  const auto early = policy.copy(kNow + milliseconds(59));  // another unit, a moment later
  CHECK(early.version == second);
  CHECK(early.next == kNow + milliseconds(60));
  CHECK(policy.copies() == 2);
  SECTION("later") { CHECK(policy.copy(early.next).version == third); }
  SECTION("at once") {
    CHECK(policy.copy(kNow + milliseconds(59), SharedPolicy::Age::now).version == third);
    CHECK(policy.copies() == 3);
    const auto fourth = change();
    CHECK(policy.copy(kNow + milliseconds(60)).version == third);
    CHECK(policy.copy(kNow + milliseconds(69)).version == fourth);
  }
}

}  // namespace
}  // namespace splitnic::iounit::test::shared_policy_test
