#include "iounit/vlan_membership.h"

#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::vlan_membership_test {
namespace {

using Inward = VlanMembership::Inward;

frame::EthernetHeader header(std::vector<std::uint16_t> tags, std::uint8_t tpid_high = 0x81) {
  Frame frame = make_frame(station(1), station(2), {.vlans = std::move(tags)});
  if (tpid_high == 0x88 && frame.size() > 13) {
    frame[12] = std::byte{0x88};
    frame[13] = std::byte{0xa8};
  }
  return *frame::parse_ethernet(frame);
}

TEST_CASE("a host without VLAN rules is in every VLAN, and its frames stay as they are", "[iounit][vlan]") {
  const VlanMembership all;
  for (const std::vector<std::uint16_t>& tags : {std::vector<std::uint16_t>{}, {0}, {5}, {5, 6}, {4095}}) {
    CHECK(all.inward(header(tags)) == Inward::unchanged);
    CHECK(all.outward(header(tags)) == header(tags).vlan_id);
    CHECK_FALSE(all.untags(header(tags)));
  }
}

TEST_CASE("an access VLAN: untagged at the host, tagged on the LAN, and nothing else", "[iounit][vlan]") {
  const VlanMembership five(5, {});
  CHECK(five.inward(header({})) == Inward::tag);
  CHECK(five.inward(header({0})) == Inward::retag);
  CHECK(five.inward(header({0, 6})) == Inward::refuse);  // a tag hidden behind the priority tag
  CHECK(five.inward(header({0}, 0x88)) == Inward::refuse);
  CHECK(five.inward(header({5})) == Inward::refuse);
  CHECK(five.inward(header({6})) == Inward::refuse);
  CHECK(five.outward(header({5})) == 0);
  CHECK(five.untags(header({5})));
  CHECK(five.outward(header({5}, 0x88)) == std::nullopt);  // a service VLAN is another network
  CHECK_FALSE(five.untags(header({5}, 0x88)));
  CHECK(five.outward(header({6})) == std::nullopt);
  CHECK(five.outward(header({})) == std::nullopt);
  CHECK(five.outward(header({0})) == std::nullopt);
}

TEST_CASE("trunk VLANs stay tagged; untagged frames need an access VLAN", "[iounit][vlan]") {
  const VlanMembership trunk({}, {5, 6});
  CHECK(trunk.inward(header({5})) == Inward::unchanged);
  CHECK(trunk.inward(header({5, 7})) == Inward::unchanged);
  CHECK(trunk.inward(header({5}, 0x88)) == Inward::refuse);
  CHECK(trunk.inward(header({7})) == Inward::refuse);
  CHECK(trunk.inward(header({4095})) == Inward::refuse);
  CHECK(trunk.inward(header({})) == Inward::refuse);
  CHECK(trunk.outward(header({6})) == 6);
  CHECK_FALSE(trunk.untags(header({6})));
  CHECK(trunk.outward(header({7})) == std::nullopt);
  CHECK(trunk.outward(header({})) == std::nullopt);
  const VlanMembership both(0, {6});
  CHECK(both.inward(header({})) == Inward::unchanged);
  CHECK(both.inward(header({0})) == Inward::unchanged);
  CHECK(both.outward(header({})) == 0);
  CHECK(both.outward(header({6})) == 6);
  CHECK(both.inward(header({7})) == Inward::refuse);
}

TEST_CASE("no tag hides behind a priority tag, in the LAN's untagged network neither", "[iounit][vlan]") {
  const VlanMembership untagged(0, {});
  CHECK(untagged.inward(header({})) == Inward::unchanged);
  CHECK(untagged.inward(header({0})) == Inward::unchanged);
  CHECK(untagged.inward(header({0, 7})) == Inward::refuse);  // Linux receives it in VLAN 7
  CHECK(untagged.inward(header({0, 0, 7})) == Inward::refuse);
  CHECK(untagged.inward(header({0}, 0x88)) == Inward::refuse);
  CHECK(untagged.outward(header({})) == 0);
  CHECK(untagged.outward(header({0})) == 0);
  CHECK(untagged.outward(header({0, 7})) == std::nullopt);
  CHECK(untagged.outward(header({0}, 0x88)) == std::nullopt);
}

}  // namespace
}  // namespace splitnic::iounit::test::vlan_membership_test
