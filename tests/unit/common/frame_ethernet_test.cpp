#include "common/frame/ethernet.h"

#include <catch2/catch.hpp>

#include "tests/unit/common/packet_builder.h"

namespace splitnic::frame::frame_ethernet_test {
namespace {

using test::Below;
using test::Bytes;

}  // namespace

TEST_CASE("an untagged frame's header is read", "[common][frame]") {
  const auto header = parse_ethernet(test::ethernet_frame({}, kEtherTypeArp, test::pattern(28)));
  REQUIRE(header);
  CHECK(to_string(header->destination) == "02:00:00:00:00:02");
  CHECK(to_string(header->source) == "02:00:00:00:00:01");
  CHECK(header->vlan_tags == 0);
  CHECK(header->vlan_id == 0);
  CHECK(header->ethertype == kEtherTypeArp);
  CHECK(header->payload_offset == 14);
  CHECK_FALSE(header->is_ip());
}

TEST_CASE("tags are counted and the outermost VLAN is named without priority bits", "[common][frame]") {
  Below below;
  below.vlans = {{0x88a8, 0xe064}, {0x8100, 0x2007}};
  const auto header = parse_ethernet(test::ethernet_frame(below, kEtherTypeIpv6, {}));
  REQUIRE(header);
  CHECK(header->vlan_tags == 2);
  CHECK(header->vlan_id == 0x064);
  CHECK(header->ethertype == kEtherTypeIpv6);
  CHECK(header->payload_offset == 22);
  CHECK(header->is_ip());
}

TEST_CASE("tags beyond the fourth are payload", "[common][frame]") {
  Below below;
  below.vlans.assign(6, {0x8100, 5});
  const auto header = parse_ethernet(test::ethernet_frame(below, kEtherTypeIpv4, {}));
  REQUIRE(header);
  CHECK(header->vlan_tags == kMaxVlanTags);
  CHECK(header->ethertype == kEtherTypeVlan);
  CHECK(header->payload_offset == 30);
}

TEST_CASE("a header cut anywhere, between tags too, is refused", "[common][frame]") {
  Below below;
  below.vlans = {{0x88a8, 1}, {0x8100, 2}};
  const Bytes whole = test::ethernet_frame(below, kEtherTypeIpv4, {});
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    INFO(bytes << " bytes");
    CHECK_FALSE(parse_ethernet(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes))));
  }
  CHECK(parse_ethernet(whole));
}

TEST_CASE("a destination is for one, for a group or for all", "[common][frame]") {
  EthernetHeader header;
  header.destination = {{0x02, 0, 0, 0, 0, 1}};
  CHECK(header.audience() == Audience::unicast);
  header.destination = {{0x01, 0x00, 0x5e, 0, 0, 1}};
  CHECK(header.audience() == Audience::multicast);
  header.destination = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xfe}};
  CHECK(header.audience() == Audience::multicast);
  header.destination = kBroadcastMac;
  CHECK(header.audience() == Audience::broadcast);
}

}  // namespace splitnic::frame::frame_ethernet_test
