#include "iounit/bridge_spread.h"

#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::bridge_spread_test {
namespace {

constexpr Time kNow{std::chrono::hours(1)};

struct Spread {
  SeededRandom random{1};
  BridgeQueue source;
  std::vector<std::unique_ptr<fabric::SimBridgePair>> pairs;
  std::vector<std::size_t> woken;
  BridgeSpread spread{source, 3, [this](UnitNumber unit) { woken.push_back(unit.value); }};

  /// A new bridge, and the unit that gets it.
  std::size_t add(fabric::BridgeGroup group = {}) {
    auto options = plain_bridge();
    options.group = group;
    pairs.push_back(std::make_unique<fabric::SimBridgePair>(options, random));
    source.waiting.push_back({&pairs.back()->end(1), [](fabric::Bridge*) {}});
    REQUIRE(spread.poll(kNow));
    REQUIRE_FALSE(woken.empty());
    return woken.back();
  }
  std::shared_ptr<fabric::Bridge> take(std::size_t unit) {
    return spread.of(UnitNumber{static_cast<std::uint16_t>(unit)}).poll(kNow);
  }
};

TEST_CASE("hosts spread over the units, and fill up those that others have left", "[iounit][group]") {
  Spread spread;
  CHECK_FALSE(spread.spread.poll(kNow));
  CHECK(spread.add() == 0);
  CHECK(spread.add() == 1);
  CHECK(spread.add() == 2);
  CHECK(spread.add() == 0);
  std::vector<std::shared_ptr<fabric::Bridge>> held;
  for (const std::size_t unit : {0U, 0U, 1U, 2U}) {
    CHECK(spread.spread.of(UnitNumber{static_cast<std::uint16_t>(unit)}).next_deadline() == Time{});
    held.push_back(spread.take(unit));
    REQUIRE(held.back() != nullptr);
  }
  for (const std::size_t unit : {0U, 1U, 2U}) {
    CHECK(spread.take(unit) == nullptr);
    CHECK(spread.spread.of(UnitNumber{static_cast<std::uint16_t>(unit)}).next_deadline() == kNever);
  }
  CHECK(held[0].get() == &spread.pairs[0]->end(1));
  CHECK(held[1].get() == &spread.pairs[3]->end(1));
  held[3].reset();  // the third unit's host has gone
  CHECK(spread.spread.bridges_of(UnitNumber{2}) == 0);
  CHECK(spread.add() == 2);
}

TEST_CASE("a further queue goes to the unit of its host, as long as that is there", "[iounit][group]") {
  Spread spread;
  CHECK(spread.add() == 0);
  CHECK(spread.add({.cookie = 77, .further = false}) == 1);
  CHECK(spread.add({.cookie = 77, .further = true}) == 1);
  CHECK(spread.add({.cookie = 77, .further = true}) == 1);
  CHECK(spread.spread.bridges_of(UnitNumber{1}) == 3);
  auto host = spread.take(1);
  auto queue = spread.take(1);
  queue.reset();  // the session goes on
  CHECK(spread.add({.cookie = 77, .further = true}) == 1);
  host.reset();
  CHECK(spread.add({.cookie = 77, .further = true}) == 2);  // any unit refuses it
}

}  // namespace
}  // namespace splitnic::iounit::test::bridge_spread_test
