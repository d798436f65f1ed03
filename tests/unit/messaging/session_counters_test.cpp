#include "messaging/session_counters.h"

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <numeric>

namespace splitnic::messaging::session_counters_test {

namespace {

using Values = std::array<std::uint64_t, sizeof(SessionTotals) / sizeof(std::uint64_t)>;

/// Every counter has a value of its own, the first one `first`.
SessionTotals distinct(std::uint64_t first) {
  Values values;
  std::iota(values.begin(), values.end(), first);
  return std::bit_cast<SessionTotals>(values);
}

}  // namespace

TEST_CASE("the sum of two sessions has the sum of every counter", "[messaging][statistics]") {
  SessionTotals sum = distinct(1000);
  sum += distinct(5);
  const auto values = std::bit_cast<Values>(sum);
  for (std::size_t index = 0; index < values.size(); ++index) {
    CAPTURE(index);
    CHECK(values[index] == 1005 + 2 * index);
  }
}

TEST_CASE("every counter of lost frames and of messages has a name of its own", "[messaging][statistics]") {
  const auto totals = distinct(1);
  for (const auto& counts : {drop_counts(totals), message_counts(totals)}) {
    for (auto one = counts.begin(); one != counts.end(); ++one) {
      for (auto other = counts.begin(); other != one; ++other) {
        CAPTURE(one->first, other->first);
        CHECK(one->first != other->first);
        CHECK(one->second != other->second);
      }
    }
  }
}

}  // namespace splitnic::messaging::session_counters_test
