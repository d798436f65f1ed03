#include "iounit/receive_filter.h"

#include <catch2/catch.hpp>
#include <vector>

namespace splitnic::iounit::receive_filter_test {
namespace {

constexpr MacAddress kOwn{{0x02, 0, 0, 0, 0, 1}};
constexpr MacAddress kAlias{{0x02, 0, 0, 0, 0, 2}};
constexpr MacAddress kForeign{{0x02, 0, 0, 0, 0, 3}};
constexpr MacAddress kGroup{{0x01, 0, 0x5e, 0, 0, 0xfb}};
constexpr MacAddress kOtherGroup{{0x33, 0x33, 0, 0, 0, 1}};

TEST_CASE("a new filter passes broadcast alone", "[iounit][filter]") {
  const ReceiveFilter filter;
  CHECK(filter.accepts(kBroadcastMac, 0));
  CHECK_FALSE(filter.accepts(kOwn, 0));
  CHECK_FALSE(filter.accepts(kGroup, 0));
}

TEST_CASE("own addresses and joined groups pass, a new list replaces the old", "[iounit][filter]") {
  ReceiveFilter filter;
  REQUIRE(filter.set_unicast(std::vector{kOwn, kAlias}));
  REQUIRE(filter.set_multicast(std::vector{kGroup}));
  CHECK(filter.accepts(kOwn, 0));
  CHECK(filter.accepts(kAlias, 0));
  CHECK_FALSE(filter.accepts(kForeign, 0));
  CHECK(filter.accepts(kGroup, 0));
  CHECK_FALSE(filter.accepts(kOtherGroup, 0));

  REQUIRE(filter.set_unicast(std::vector{kForeign}));
  REQUIRE(filter.set_multicast(std::vector<MacAddress>{}));
  CHECK_FALSE(filter.accepts(kOwn, 0));
  CHECK(filter.accepts(kForeign, 0));
  CHECK_FALSE(filter.accepts(kGroup, 0));
}

TEST_CASE("all-multicast passes every group, promiscuous every address", "[iounit][filter]") {
  ReceiveFilter filter;
  filter.set_all_multicast(true);
  CHECK(filter.accepts(kOtherGroup, 0));
  CHECK_FALSE(filter.accepts(kForeign, 0));
  filter.set_all_multicast(false);
  CHECK_FALSE(filter.accepts(kOtherGroup, 0));
  filter.set_promiscuous(true);
  CHECK(filter.accepts(kOtherGroup, 0));
  CHECK(filter.accepts(kForeign, 0));
}

TEST_CASE("a VLAN list limits tagged frames, in promiscuous mode too", "[iounit][filter]") {
  ReceiveFilter filter;
  filter.set_promiscuous(true);
  CHECK(filter.accepts(kForeign, 100));
  REQUIRE(filter.set_vlans(std::vector<std::uint16_t>{5, 4094}));
  CHECK(filter.accepts(kForeign, 0));
  CHECK(filter.accepts(kForeign, 5));
  CHECK(filter.accepts(kBroadcastMac, 4094));
  CHECK_FALSE(filter.accepts(kForeign, 100));
  CHECK_FALSE(filter.accepts(kBroadcastMac, 100));
  REQUIRE(filter.set_vlans(std::vector<std::uint16_t>{}));
  CHECK_FALSE(filter.accepts(kForeign, 5));
  REQUIRE(filter.set_vlans(std::nullopt));
  CHECK(filter.accepts(kForeign, 100));
}

TEST_CASE("a list that is too long or of the wrong kind changes nothing", "[iounit][filter]") {
  ReceiveFilter filter;
  REQUIRE(filter.set_unicast(std::vector{kOwn}));
  REQUIRE(filter.set_multicast(std::vector{kGroup}));
  REQUIRE(filter.set_vlans(std::vector<std::uint16_t>{5}));
  CHECK_FALSE(filter.set_unicast(std::vector{kForeign, kGroup}));
  CHECK_FALSE(filter.set_unicast(std::vector{MacAddress{}}));
  CHECK_FALSE(filter.set_unicast(std::vector<MacAddress>(ReceiveFilter::kMaxUnicast + 1, kForeign)));
  CHECK_FALSE(filter.set_multicast(std::vector{kOtherGroup, kOwn}));
  CHECK_FALSE(filter.set_multicast(std::vector<MacAddress>(ReceiveFilter::kMaxMulticast + 1, kOtherGroup)));
  CHECK_FALSE(filter.set_vlans(std::vector<std::uint16_t>{0}));
  CHECK_FALSE(filter.set_vlans(std::vector<std::uint16_t>{7, 4095}));
  CHECK(filter.accepts(kOwn, 5));
  CHECK(filter.accepts(kGroup, 5));
  CHECK_FALSE(filter.accepts(kForeign, 0));
  CHECK_FALSE(filter.accepts(kOwn, 7));
}

}  // namespace
}  // namespace splitnic::iounit::receive_filter_test
