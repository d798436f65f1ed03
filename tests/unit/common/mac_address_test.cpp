#include "common/mac_address.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace splitnic::mac_address_test {

TEST_CASE("a MAC address is read in either case and printed in lower case", "[common][mac_address]") {
  const auto mac = parse_mac("02:aB:5E:10:00:0f");
  REQUIRE(mac);
  CHECK(mac->octets == std::array<std::uint8_t, 6>{0x02, 0xab, 0x5e, 0x10, 0x00, 0x0f});
  CHECK(to_string(*mac) == "02:ab:5e:10:00:0f");
  CHECK(mac->as_number() == 0x02ab5e10000fULL);
}

TEST_CASE("anything but six two-digit groups is no MAC address", "[common][mac_address]") {
  for (const char* text : {"", "02", "02:00:00:00:00", "02:00:00:00:00:0", "02:00:00:00:00:001", "02-00-00-00-00-01",
                           "02:00:00:00:00:0g", "020000000001", " 2:00:00:00:00:01", "02:00:00:00:00:01:",
                           "2:0:0:0:0:1", "02:00:00:00:00 01", "+2:00:00:00:00:01", "0x:00:00:00:00:01"}) {
    INFO('"' << text << '"');
    CHECK_FALSE(parse_mac(text));
  }
}

TEST_CASE("every octet value survives printing and parsing", "[common][mac_address]") {
  for (unsigned octet = 0; octet < 256; ++octet) {
    const auto value = static_cast<std::uint8_t>(octet);
    const MacAddress mac{{value, static_cast<std::uint8_t>(255 - value), 0, value, 0xff, value}};
    CHECK(parse_mac(to_string(mac)) == mac);
  }
}

TEST_CASE("a name's MAC address never changes between versions", "[common][mac_address]") {
  CHECK(to_string(stable_mac_for("")) == "9e:e4:84:22:e8:d7");
  CHECK(to_string(stable_mac_for("host")) == "fa:cc:7e:af:0d:18");
  CHECK(to_string(stable_mac_for("host2")) == "22:7b:43:e0:4e:2e");
}

TEST_CASE("a name's MAC address is unicast, locally administered and its own", "[common][mac_address]") {
  std::set<MacAddress> seen;
  for (int i = 0; i < 10000; ++i) {
    const MacAddress mac = stable_mac_for("host" + std::to_string(i));
    CHECK_FALSE(mac.is_multicast());
    CHECK((mac.octets[0] & 2U) == 2U);
    CHECK(seen.insert(mac).second);
  }
}

}  // namespace splitnic::mac_address_test
