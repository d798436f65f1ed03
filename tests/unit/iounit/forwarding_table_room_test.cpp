#include <catch2/catch.hpp>

#include "iounit/forwarding_table.h"

namespace splitnic::iounit::forwarding_table_room_test {
namespace {

using std::chrono::seconds;

MacAddress station(std::uint8_t number) { return {{2, 0, 0, 0, 0, number}}; }

}  // namespace

TEST_CASE("in a full set the address heard longest ago makes room", "[iounit][forwarding]") {
  ForwardingTable table({.entries = 1}, 42);  // one set
  const auto ways = static_cast<std::uint8_t>(table.capacity());
  Time now{seconds(1000)};
  for (std::uint8_t number = 1; number <= ways; ++number, now += seconds(1)) {
    REQUIRE(table.learn(station(number), 0, kLanTarget, now) == ForwardingTable::Learned::kAdded);
  }
  REQUIRE(table.learn(station(1), 0, kLanTarget, now) == ForwardingTable::Learned::kKnown);
  REQUIRE(table.learn(station(100), 0, kLanTarget, now) == ForwardingTable::Learned::kAdded);
  CHECK(table.size() == ways);
  for (std::uint8_t number = 1; number <= ways; ++number) {
    CAPTURE(int{number});
    CHECK(table.find(station(number), 0, now).has_value() == (number != 2));
  }
}

}  // namespace splitnic::iounit::forwarding_table_room_test
