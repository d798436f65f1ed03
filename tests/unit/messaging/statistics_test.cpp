#include "messaging/statistics.h"

#include <catch2/catch.hpp>

#include "messaging/statistics_schedule.h"

namespace splitnic::messaging::statistics_test {

namespace {

wire::Statistics report(std::uint64_t scale) {
  return {.counters = {{"a", scale}, {"b", 2 * scale}},
          .counted_for = std::chrono::milliseconds(10 * scale),
          .from_peer = {scale, 2 * scale, 3 * scale, 4 * scale},
          .to_peer = {5 * scale, 6 * scale, 7 * scale, 8 * scale},
          .from_interface = {9 * scale, 10 * scale, 11 * scale, 12 * scale},
          .to_interface = {13 * scale, 14 * scale, 15 * scale, 16 * scale}};
}

}  // namespace

TEST_CASE("what was counted since an earlier report is the difference of every value", "[messaging][statistics]") {
  auto expected = report(2);
  expected.counted_for = report(3).counted_for;  // the caller's to say
  REQUIRE(since(report(3), report(1)) == expected);
  REQUIRE(since(report(3), {}) == report(3));
}

TEST_CASE("the answer to a clear says that everything is zero now, that to a report what it is",
          "[messaging][statistics]") {
  REQUIRE(as_of_now(wire::CfgRequest::statistics_report, report(3)) == report(3));
  REQUIRE(as_of_now(wire::CfgRequest::statistics_clear, report(3)) ==
          wire::Statistics{.counters = {{"a", 0}, {"b", 0}}});
}

TEST_CASE("a quiet peer is asked at the deadline, whenever its frames were looked at before",
          "[messaging][statistics]") {
  using namespace std::chrono_literals;
  const auto no_frames = [] { return 0U; };
  for (const Duration step : {100ms, 300ms, 700ms}) {
    StatisticsSchedule schedule;
    schedule.start();
    Time now{1h};
    REQUIRE(schedule.due(now, no_frames));
    const Time deadline = schedule.next_deadline();
    CHECK(deadline == now + StatisticsSchedule::kQuietInterval);
    while ((now += step) < deadline) CHECK_FALSE(schedule.due(now, no_frames));
    CHECK(schedule.due(deadline, no_frames));
    CHECK(schedule.next_deadline() > deadline);
  }
}

TEST_CASE("a report has a name for every value, losses apart from the rest", "[messaging][statistics]") {
  const auto names = named(report(1), "unit_");
  using Names = std::vector<std::pair<std::string, std::uint64_t>>;
  REQUIRE(names.counts == Names{{"unit_from_peer_frames", 1},
                                {"unit_from_peer_bytes", 2},
                                {"unit_to_peer_frames", 5},
                                {"unit_to_peer_bytes", 6},
                                {"unit_from_interface_frames", 9},
                                {"unit_from_interface_bytes", 10},
                                {"unit_to_interface_frames", 13},
                                {"unit_to_interface_bytes", 14},
                                {"unit_counted_ms", 10}});
  REQUIRE(names.losses == Names{{"unit_from_peer_errors", 3},
                                {"unit_from_peer_drops", 4},
                                {"unit_to_peer_errors", 7},
                                {"unit_to_peer_drops", 8},
                                {"unit_from_interface_errors", 11},
                                {"unit_from_interface_drops", 12},
                                {"unit_to_interface_errors", 15},
                                {"unit_to_interface_drops", 16},
                                {"unit_a", 1},
                                {"unit_b", 2}});
}

}  // namespace splitnic::messaging::statistics_test
