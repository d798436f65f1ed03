#include "iounit/policy_file.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::policy_file_test {
namespace {

using std::chrono::seconds;

PolicyRules rules_of(std::string_view text, const PolicyRules& base = {}) {
  auto rules = parse_policy(text, "p.toml", base);
  INFO((rules ? "" : rules.error().message));
  REQUIRE(rules.has_value());
  return *rules;
}

const HostRule& rule_of(const PolicyRules& rules, std::string_view name) {
  const auto at = std::ranges::find(rules.hosts, name, &HostRule::name);
  REQUIRE(at != rules.hosts.end());
  return *at;
}

std::string error_of(std::string_view text) {
  const auto rules = parse_policy(text, "p.toml");
  return rules ? "none" : rules.error().message;
}

TEST_CASE("an empty policy file changes nothing", "[iounit][policy]") {
  CHECK(rules_of("") == PolicyRules{});
  PolicyRules base;
  base.others.promiscuous = true;
  CHECK(rules_of("[policy]\n", base) == base);
}

TEST_CASE("every key of a policy file is read, and a written policy is read back", "[iounit][policy]") {
  const PolicyRules rules = rules_of(R"(
[policy]
listed-only = true
lan-addresses = ["02:00:00:00:00:fe", "02:00:00:00:00:ff"]
station-memory = 30
address-hold = 0
foreign-sources = true

[[host]]
name = "web \"1\""
user = 1000
addresses = ["02:00:00:00:00:01", "02:00:00:00:00:02"]

[[host]]
promiscuous = true
name = "probe"
group = 20
foreign-sources = false
)");
  CHECK(rules.listed_only);
  CHECK(rules.lan_addresses == std::vector<MacAddress>{{{2, 0, 0, 0, 0, 0xfe}}, {{2, 0, 0, 0, 0, 0xff}}});
  CHECK(rules.station_memory == seconds(30));
  CHECK(rules.address_hold == Duration::zero());
  HostRights others;
  others.foreign_sources = true;
  CHECK(rules.others == others);
  REQUIRE(rules.hosts.size() == 2);
  CHECK(rules.hosts[0].name == "web \"1\"");
  CHECK(rules.hosts[0].user == uid_t{1000});
  CHECK(rules.hosts[0].rights.addresses == std::vector<MacAddress>{{{2, 0, 0, 0, 0, 1}}, {{2, 0, 0, 0, 0, 2}}});
  CHECK_FALSE(rules.hosts[0].rights.foreign_sources);  // it has addresses
  CHECK(rules.hosts[1].name == "probe");
  CHECK(rules.hosts[1].user == std::nullopt);
  CHECK(rules.hosts[1].group == gid_t{20});
  CHECK_FALSE(rules.hosts[1].rights.foreign_sources);
  CHECK(rules.hosts[1].rights.promiscuous);
  CHECK(rules_of(to_toml(rules)) == rules);
}

TEST_CASE("VLANs, rates and limits of a policy file are read and written back", "[iounit][policy]") {
  const PolicyRules rules = rules_of(R"(
[policy]
trunk-vlans = [7, 8]
broadcast-frames = 10
[[host]]
name = "a"
access-vlan = 0
trunk-vlans = [5, 4094]
multicast = false
ip-addresses = ["10.1.2.3", "fd00::1"]
dhcp-server = false
router = false
send-bytes = 10000000000
send-frames = 1
receive-bytes = 2
receive-frames = 3
broadcast-frames = 4
multicast-frames = 5
multicast-copies = 6
[[host]]
name = "b"
access-vlan = 4094
)");
  CHECK(rules.others.broadcasts == 10);
  const HostRights& a = rule_of(rules, "a").rights;
  CHECK(a.access_vlan == 0);
  CHECK(a.trunk_vlans == std::vector<std::uint16_t>{5, 4094});  // in place of those of [policy]
  CHECK_FALSE(a.multicast);
  CHECK(a.ip == IpGuard{.addresses = {*parse_ip_address("10.1.2.3"), *parse_ip_address("fd00::1")},
                        .dhcp_server = false,
                        .router = false});
  CHECK(a.send == RateLimits{.bytes = 10'000'000'000, .frames = 1});
  CHECK(a.receive == RateLimits{.bytes = 2, .frames = 3});
  CHECK(a.broadcasts == 4);
  CHECK(a.multicasts == 5);
  CHECK(a.multicast_copies == 6);
  const HostRights& b = rule_of(rules, "b").rights;
  CHECK(b.access_vlan == 4094);
  CHECK(b.trunk_vlans == std::vector<std::uint16_t>{7, 8});
  CHECK(b.broadcasts == 10);
  CHECK(rules_of(to_toml(rules)) == rules);
  CHECK(error_of("[policy]\naccess-vlan = 4095\n") == "p.toml:2: access-vlan: 4095 is no number from 0 to 4094");
  CHECK(error_of("[policy]\ntrunk-vlans = [1, 0]\n") == "p.toml:2: trunk-vlans: 0 is no number from 1 to 4094");
  CHECK(error_of("[policy]\nip-addresses = '10.1.2'\n") == "p.toml:2: ip-addresses: 10.1.2 is not an IP address");
  CHECK(error_of("[policy]\nsend-bytes = 10000000001\n") ==
        "p.toml:2: send-bytes: 10000000001 is no number from 0 to 10000000000");
}

TEST_CASE("an empty list of a host replaces the inherited one", "[iounit][policy]") {
  const PolicyRules rules = rules_of(R"(
[policy]
trunk-vlans = [7, 8]
ip-addresses = ["10.1.2.3"]
lan-addresses = []
[[host]]
name = "a"
access-vlan = 5
trunk-vlans = []
[[host]]
name = "b"
ip-addresses = []
addresses = []
)");
  CHECK(rule_of(rules, "a").rights.trunk_vlans.empty());
  CHECK(rule_of(rules, "a").rights.ip.addresses.size() == 1);
  CHECK(rule_of(rules, "b").rights.trunk_vlans == std::vector<std::uint16_t>{7, 8});
  CHECK(rule_of(rules, "b").rights.ip.addresses.empty());
  CHECK(rules_of(to_toml(rules)) == rules);
  CHECK(error_of("[policy]\nfrobnicate = []\n") == "p.toml:2: frobnicate: no such key in [policy]");
  CHECK(error_of("[policy]\nmulticast = []\n") == "p.toml:2: multicast: must be true or false");
  CHECK(error_of("[[host]]\nname = 'x'\nlan-addresses = []\n") == "p.toml:3: lan-addresses: no such key in [[host]]");
  CHECK(error_of("[policy]\naddresses = []\n") == "p.toml:2: addresses: no such key in [policy]");
  CHECK(error_of("[[host]]\nname = 'x'\ntrunk-vlans = []\ntrunk-vlans = 7\n").starts_with("p.toml:4: "));
}

TEST_CASE("hosts inherit from [policy] wherever it stands, and may say otherwise", "[iounit][policy]") {
  const PolicyRules rules = rules_of(
      "[[host]]\nname = 'a'\n[[host]]\nname = 'b'\nforeign-sources = true\naddresses = '02:00:00:00:00:01'\n"
      "[[host]]\nname = 'c'\npromiscuous = false\n[policy]\npromiscuous = true\n");
  CHECK(rule_of(rules, "a").rights.promiscuous);
  CHECK(rule_of(rules, "b").rights.promiscuous);
  CHECK(rule_of(rules, "b").rights.foreign_sources);
  CHECK_FALSE(rule_of(rules, "c").rights.promiscuous);
  CHECK(std::ranges::find(rules.hosts, "d", &HostRule::name) == rules.hosts.end());
}

TEST_CASE("every fault of a policy file is told with its line", "[iounit][policy]") {
  CHECK(error_of("[policy]\nx = = 1\n").starts_with("p.toml:2: "));
  CHECK(error_of("promiscuous = true\n") == "p.toml:1: promiscuous is not in [policy] or [[host]]");
  CHECK(error_of("[iounit]\nlan = 'x'\n") == "p.toml:2: lan is not in [policy] or [[host]]");
  CHECK(error_of("[host]\nname = 'x'\n") == "p.toml:2: name is not in [policy] or [[host]]");
  CHECK(error_of("[[name]]\n") == "p.toml:1: [[name]] is not [policy] or [[host]]");
  CHECK(error_of("[policy]\nlan-addresses = []\nfrobnicate = 1\n") == "p.toml:3: frobnicate: no such key in [policy]");
  CHECK(error_of("[[host]]\nname = 'x'\nlisted-only = true\n") == "p.toml:3: listed-only: no such key in [[host]]");
  CHECK(error_of("[[host]]\nname = 'x'\n\n[[host]]\nuser = 1\n") == "p.toml:4: this [[host]] has no name");
  CHECK(error_of("[[host]]\nname = 'x'\n[[host]]\nname = 'x'\n") ==
        "p.toml:4: name: there is another [[host]] named x");
  CHECK(error_of("[[host]]\nname = 'a/b'\n") == "p.toml:2: name: a/b is not a host's name");
  CHECK(error_of("[[host]]\nname = 'x'\nuser = 'nosuchuser'\n") == "p.toml:3: user: no user named nosuchuser");
  CHECK(error_of("[[host]]\nname = 'x'\ngroup = 'nosuchgroup'\n") == "p.toml:3: group: no group named nosuchgroup");
  CHECK(error_of("[[host]]\nname = 'x'\naddresses = ['02:00:00:00:00:01',\n'ff:ff:ff:ff:ff:ff']\n") ==
        "p.toml:4: addresses: ff:ff:ff:ff:ff:ff is not the address of a station");
  CHECK(error_of("[[host]]\nname = 'x'\naddresses = '02:00:00:00:00:01'\n"
                 "[[host]]\nname = 'y'\naddresses = ['02:00:00:00:00:02', '02:00:00:00:00:01']\n") ==
        "p.toml:6: addresses: 02:00:00:00:00:01 belongs to host x");
  CHECK(error_of("[[host]]\nname = 'x'\naddresses = '02:00:00:00:00:01'\n"
                 "[policy]\nlan-addresses = '02:00:00:00:00:01'\n") ==
        "p.toml:3: addresses: 02:00:00:00:00:01 is among lan-addresses");
  CHECK(error_of("[[host]]\nname = 'x'\npromiscuous = 'yes'\n") == "p.toml:3: promiscuous: must be true or false");
  CHECK(error_of("[[host]]\nname = ['x', 'y']\n") == "p.toml:2: name: takes one value");
  CHECK(error_of("[policy]\naddress-hold = -1\n") == "p.toml:2: address-hold: -1 is no number from 0 to 31536000");
  CHECK(error_of("[policy]\nstation-memory = 1.5\n").starts_with("p.toml:2: station-memory: "));
}

TEST_CASE("the file of names is read back, and its faults are told", "[iounit][policy]") {
  const std::vector<OwnedName> names{{.name = "web \"1\" \\", .user = 0, .address = {{2, 0, 0, 0, 0, 1}}},
                                     {.name = "db", .user = 4294967294, .address = {}}};
  const auto read = parse_names(to_toml(names), "n.toml");
  REQUIRE(read.has_value());
  REQUIRE(read->size() == 2);
  for (const std::size_t index : {0U, 1U}) {
    CHECK((*read)[index].name == names[index].name);
    CHECK((*read)[index].user == names[index].user);
    CHECK((*read)[index].address == names[index].address);
  }
  CHECK(parse_names("", "n.toml")->empty());
  const auto fault = [](std::string_view text) { return parse_names(text, "n.toml").error().message; };
  CHECK(fault("[[name]]\nname = 'x'\n") == "n.toml: a [[name]] without name or user");
  CHECK(fault("[[name]]\nname = 'x'\nuser = 'root'\n").starts_with("n.toml:3: "));
  CHECK(fault("[[host]]\nname = 'x'\n") == "n.toml:1: only tables [[name]] are known");
  CHECK(fault("[[name]]\naddress = 'x'\n").starts_with("n.toml:2: "));
}

}  // namespace
}  // namespace splitnic::iounit::test::policy_file_test
