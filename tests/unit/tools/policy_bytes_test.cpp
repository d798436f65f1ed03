#include "tools/policy_bytes.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <string_view>

#include "iounit/policy_file.h"

namespace splitnic::tools::policy_bytes_test {
namespace {

/// No value is the default one.
iounit::PolicyRules unusual_rules() {
  iounit::PolicyRules rules;
  rules.others = {.addresses = {{{2, 0, 0, 0, 0, 1}}, {{2, 0, 0, 0, 0, 2}}},
                  .foreign_sources = true,
                  .promiscuous = true,
                  .multicast = false,
                  .access_vlan = 7,
                  .trunk_vlans = {8, 9},
                  .send = {.bytes = 10, .frames = 11},
                  .receive = {.bytes = 12, .frames = 13},
                  .broadcasts = 14,
                  .multicasts = 15,
                  .multicast_copies = 16,
                  .ip = {.addresses = {*iounit::parse_ip_address("10.1.2.3"), *iounit::parse_ip_address("fd00::1")},
                         .dhcp_server = false,
                         .router = false}};
  rules.hosts = {
      {.name = "web", .user = 1000, .group = std::nullopt, .rights = rules.others, .inherits_foreign_sources = false},
      {.name = std::string(300, 'x'), .user = std::nullopt, .group = 0, .rights = {}}};
  rules.listed_only = true;
  rules.lan_addresses = {{{2, 0, 0, 0, 0, 3}}};
  rules.station_memory = std::chrono::seconds(17);
  rules.address_hold = std::chrono::seconds(18);
  return rules;
}

TEST_CASE("a policy's rules are the same after the way to the unit", "[tools][policy]") {
  const iounit::PolicyRules rules = unusual_rules();
  CHECK(rules_in(to_bytes(rules)).value() == rules);
  CHECK(rules_in(to_bytes({})).value() == iounit::PolicyRules{});
}

TEST_CASE("bytes that are no policy are refused, wherever they end", "[tools][policy]") {
  const std::string bytes = to_bytes(unusual_rules());
  std::size_t taken = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    if (rules_in(std::string_view(bytes).substr(0, size))) ++taken;
  }
  CHECK(taken == 0);
  CHECK_FALSE(rules_in(bytes + '\0'));
  CHECK_FALSE(rules_in(std::string(1000, '\xff')));
}

}  // namespace
}  // namespace splitnic::tools::policy_bytes_test
