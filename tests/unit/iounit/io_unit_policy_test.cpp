// Who may use which name and address, and which frames reach whom: what one host tries to get of another's, in
// simulated time, each refusal with its counter.
#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_policy_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uid_t kAlice = 1000;
constexpr uid_t kBob = 1001;
constexpr gid_t kWheel = 10;
const MacAddress kGateway = station(1);
constexpr MacAddress kBehindHost{{0x02, 0, 0, 0, 0x55, 0x01}};

messaging::SessionOptions host_with(const std::string& name, const MacAddress& mac) {
  auto options = host_named(name);
  options.mac = mac;
  return options;
}

/// A host that tries to come up and is refused.
void require_refused(UnitBench& bench, TestHost& host, const std::string& why) {
  bench.run(milliseconds(50));
  INFO(why);
  CHECK_FALSE(host.up());
  CHECK(std::ranges::any_of(bench.notices.lines, [&](const std::string& line) {
    return line.starts_with("refused host " + host.name + ": ") && line.find(why) != std::string::npos;
  }));
  REQUIRE_FALSE(host.downs.empty());
  CHECK_THAT(host.downs.back(), Catch::Contains(why));  // the host is told as well
}

void require_refused(const messaging::Answer& answer, const std::string& why) {
  REQUIRE_FALSE(answer.has_value());
  CHECK(answer.error().status == wire::CfgStatus::not_permitted);
  CHECK_THAT(answer.error().text, Catch::Contains(why));
}

TEST_CASE("a host does not get the address of a station that the LAN has shown within 60 s", "[iounit][policy]") {
  UnitBench bench;
  const auto tags = GENERATE(std::vector<std::uint16_t>{}, std::vector<std::uint16_t>{7});
  bench.from_lan(make_frame(station(2), kGateway, {.vlans = tags}));
  const std::string why = "address " + to_string(kGateway) + " is in use by a station of the LAN";
  SECTION("by its hello") {
    bench.run(seconds(59));
    require_refused(bench, bench.connect(host_with("thief", kGateway)), why);
    CHECK(bench.unit().counters().addresses_refused == bench.unit().counters().hosts_refused);
    CHECK(bench.unit().counters().addresses_refused > 0);
  }
  SECTION("by a later change") {
    TestHost& thief = bench.host_up("thief");
    require_refused(bench.ask(thief, wire::SetMacAddress{kGateway}), why);
    CHECK(bench.attached("thief")->mac() == stable_mac_for("thief"));
    CHECK(bench.notices.any_contains("host thief keeps address"));
    CHECK(bench.notices.any_contains(why));
    CHECK(bench.unit().counters().addresses_refused == 1);
    bench.from_lan(make_frame(kGateway, station(2)), 3);
    CHECK(thief.frames.empty());
  }
  SECTION("when it is silent for longer, the address is free") {
    TestHost& heir = bench.host_up("heir");
    bench.run(seconds(61));
    CHECK(bench.grants(heir, wire::SetMacAddress{kGateway}));
  }
}

TEST_CASE("an address that the policy keeps for the LAN is no host's, even if its station is silent",
          "[iounit][policy]") {
  IoUnitOptions options;
  options.policy.lan_addresses = {kGateway};
  UnitBench bench(options);
  require_refused(bench, bench.connect(host_with("thief", kGateway)), "is configured for a station of the LAN");
}

TEST_CASE("an address that is configured for a host is that host's, whatever the LAN shows, and nobody else's",
          "[iounit][policy]") {
  IoUnitOptions options;
  options.policy.allow("a", station(61));
  UnitBench bench(options);
  bench.from_lan(make_frame(station(2), station(61)));
  require_refused(bench, bench.connect(host_with("thief", station(61))), "is configured for host a");
  TestHost& b = bench.host_up("b");
  require_refused(bench.ask(b, wire::SetMacAddress{station(61)}), "is configured for host a");
  bench.from_host(b, make_frame(kGateway, station(61)), 3);
  CHECK(bench.drops() == Drops{{"lan_unwanted", 1}, {"b/from_host_forged", 3}});
  TestHost& a = bench.host_up("a");
  CHECK(a.mac() == station(61));
}

/// The addresses A and B are configured for the host "h", which uses A and receives B.
struct TwoAddresses : UnitBench {
  TwoAddresses() : UnitBench(options()) {
    REQUIRE(h.mac() == kA);
    REQUIRE(grants(h, wire::ReceiveFilter{.unicast = {kB}}));
  }
  static IoUnitOptions options() {
    IoUnitOptions options;
    options.policy.allow("h", kA);
    options.policy.allow("h", kB);
    return options;
  }
  [[nodiscard]] std::size_t got(const MacAddress& to) {
    h.frames.clear();
    from_lan(make_frame(to, kGateway));
    from_host(other, make_frame(to, other.mac()));
    return h.frames.size();
  }
  static constexpr MacAddress kA{{0x02, 0, 0, 0, 0x66, 0x0a}};
  static constexpr MacAddress kB{{0x02, 0, 0, 0, 0x66, 0x0b}};
  TestHost& h = host_up("h");
  TestHost& other = host_up("other");
};

TEST_CASE("the LAN does not get the further addresses of a host that is attached", "[iounit][policy]") {
  TwoAddresses bench;
  const MacAddress a = TwoAddresses::kA;
  const MacAddress b = TwoAddresses::kB;
  REQUIRE(bench.got(b) == 2);
  const auto lan_shows_both = [&] {
    const std::uint64_t before = bench.drops()["lan_forged"];
    for (const MacAddress& address : {a, b}) bench.from_lan(make_frame(bench.other.mac(), address));
    return bench.drops()["lan_forged"] - before;
  };
  CHECK(lan_shows_both() == 2);
  CHECK(bench.got(a) == 2);
  CHECK(bench.got(b) == 2);
  SECTION("whichever it uses") {
    REQUIRE(bench.grants(bench.h, wire::SetMacAddress{b}));
    REQUIRE(bench.grants(bench.h, wire::ReceiveFilter{.unicast = {a}}));
    CHECK(lan_shows_both() == 2);
    CHECK(bench.got(a) == 2);
    CHECK(bench.got(b) == 2);
  }
  SECTION("also if it does not receive them") {
    REQUIRE(bench.grants(bench.h, wire::ReceiveFilter{}));
    bench.lan.sent.clear();
    CHECK(lan_shows_both() == 2);
    CHECK(bench.got(b) == 0);
    CHECK(bench.lan.sent.empty());
    CHECK(bench.drops()["h/to_host_filtered"] == 2);
  }
  SECTION("until the host is gone") {
    bench.h.die();
    REQUIRE(bench.run_until([&] { return bench.attached_count() == 1; }));
    CHECK(lan_shows_both() == 0);
  }
  SECTION("until it has come again under another name") {
    bench.h.start(host_named("guest"));
    REQUIRE(bench.run_until([&] { return bench.attached("guest") != nullptr; }));
    bench.settle();
    CHECK(lan_shows_both() == 0);
  }
  SECTION("until new rules take them from it, and others get them") {
    PolicyRules rules;
    rules.allow("h", a);
    rules.allow("other", bench.other.mac());
    rules.allow("other", b);
    bench.unit().set_rules(rules);
    bench.settle();
    CHECK(lan_shows_both() == 2);
    bench.from_host(bench.other, make_frame(kGateway, b));
    CHECK(bench.drops().count("other/from_host_forged") == 0);
    bench.unit().set_rules({});
    CHECK(lan_shows_both() == 1);  // the one that the host uses
  }
  CHECK(bench.sum().in == bench.sum().delivered + bench.sum().dropped);
}

TEST_CASE("of two hosts that an address is configured for, the one that is up has it, and then the other",
          "[iounit][policy]") {
  IoUnitOptions options;
  options.policy.allow("a", station(61));
  options.policy.allow("b", station(61));
  UnitBench bench(options);
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.connect(host_with("b", station(61)));
  require_refused(bench, b, "is host a's");
  a.die();
  REQUIRE(bench.run_until([&] { return b.up(); }));
  CHECK(b.mac() == station(61));
}

/// Nobody gets the address, which is held for host a: by name, by a change of b's, or as a source.
void check_held_for_a(UnitBench& bench, TestHost& b, const MacAddress& address) {
  const std::string why = "address " + to_string(address) + " is held for host a";
  require_refused(bench.ask(b, wire::SetMacAddress{address}), why);
  TestHost& thief = bench.connect(host_with("thief", address));
  require_refused(bench, thief, why);
  thief.die();
  bench.from_host(b, make_frame(kGateway, address), 2);
  CHECK(bench.drops()["b/from_host_forged"] == 2);
}

TEST_CASE("a restarting host's address is not to be had meanwhile, by name, by change or as a source",
          "[iounit][policy]") {
  UnitBench bench;
  TestHost& a = bench.host_up(host_with("a", station(50)));
  TestHost& b = bench.host_up("b");
  a.die();
  REQUIRE(bench.run_until([&] { return bench.attached_count() == 1; }));
  bench.run(seconds(299));
  check_held_for_a(bench, b, station(50));
  SECTION("it comes back in time") {
    TestHost& again = bench.host_up(host_with("a", station(50)));
    CHECK(again.mac() == station(50));
  }
  SECTION("it comes back although a station of the LAN has used the address in between") {
    bench.from_lan(make_frame(station(2), station(50)));
    TestHost& again = bench.host_up(host_with("a", station(50)));
    CHECK(again.mac() == station(50));
  }
  SECTION("later the address is free") {
    bench.run(seconds(2));
    CHECK(bench.grants(b, wire::SetMacAddress{station(50)}));
  }
}

TEST_CASE("the last address of a host that has changed it is not to be had for as long as one of a host that is gone",
          "[iounit][policy]") {
  IoUnitOptions options;
  options.policy.allow("rightful", station(52));
  UnitBench bench(options);
  TestHost& a = bench.host_up(host_with("a", station(50)));
  TestHost& b = bench.host_up("b");
  REQUIRE(bench.grants(a, wire::SetMacAddress{station(51)}));
  bench.run(seconds(299));
  check_held_for_a(bench, b, station(50));
  SECTION("it goes back in time") {
    CHECK(bench.grants(a, wire::SetMacAddress{station(50)}));
    require_refused(bench.ask(b, wire::SetMacAddress{station(51)}), "is held for host a");
  }
  SECTION("later the address is free") {
    bench.run(seconds(2));
    CHECK(bench.grants(b, wire::SetMacAddress{station(50)}));
    require_refused(bench.ask(a, wire::SetMacAddress{station(50)}), "is host b's");
  }
  SECTION("a host that comes back with another address holds the one before") {
    a.session().reset("test");
    a.start(host_with("a", station(53)));
    REQUIRE(bench.run_until([&] { return a.up() && a.mac() == station(53) && bench.attached("a") != nullptr; }));
    require_refused(bench.ask(b, wire::SetMacAddress{station(51)}), "is held for host a");
  }
  SECTION("the host that it is configured for gets it") {
    PolicyRules rules = options.policy;
    rules.allow("rightful", station(50));
    bench.unit().set_rules(rules);
    CHECK(bench.host_up(host_with("rightful", station(50))).mac() == station(50));
  }
}

TEST_CASE("the address that is derived from a known name stays that name's", "[iounit][policy]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  a.die();
  bench.run(seconds(1000));
  require_refused(bench.ask(b, wire::SetMacAddress{stable_mac_for("a")}), "is kept for host a");
  CHECK(bench.host_up("a").mac() == stable_mac_for("a"));
}

TEST_CASE("a host that requests no address gets none that a station of the LAN uses", "[iounit][policy]") {
  UnitBench bench;
  bench.from_lan(make_frame(station(2), stable_mac_for("a")));
  CHECK(bench.host_up("a").mac() == stable_mac_for("a+"));
}

TEST_CASE("a host sends from its own address alone; foreign sources are neither learned nor forwarded",
          "[iounit][policy]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  bench.from_lan(make_frame(station(2), kGateway));
  const auto before = bench.drops();
  SECTION("the gateway's") {
    bench.from_host(a, make_frame(kBroadcastMac, kGateway), 5);
    bench.from_host(b, make_frame(kGateway, b.mac()));
    CHECK(bench.lan.sent.size() == 1);  // still to the LAN
    CHECK(bench.drops()["a/from_host_not_allowed"] == 5);
  }
  SECTION("an unknown one") {
    bench.from_host(a, make_frame(kGateway, kBehindHost), 5);
    CHECK(bench.lan.sent.empty());
    CHECK(bench.drops()["a/from_host_not_allowed"] == 5);
    bench.from_lan(make_frame(kBehindHost, kGateway));
    CHECK(a.frames.empty());
    CHECK(bench.drops()["lan_unwanted"] == before.contains("lan_unwanted") + 1U);
  }
}

TEST_CASE("with foreign sources allowed, those of the LAN's stations and of other hosts stay refused",
          "[iounit][policy]") {
  IoUnitOptions options;
  options.policy.others.foreign_sources = true;
  options.policy.lan_addresses = {station(9)};
  UnitBench bench(options);
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  bench.from_lan(make_frame(a.mac(), kGateway));
  bench.from_host(a, make_frame(kBroadcastMac, kGateway), 5);
  bench.from_host(a, make_frame(kBroadcastMac, station(9)), 2);
  bench.from_host(a, make_frame(kBroadcastMac, b.mac()), 3);
  CHECK(bench.drops() == Drops{{"a/from_host_lan_source", 7}, {"a/from_host_forged", 3}});
  CHECK(b.frames.empty());
  CHECK(bench.lan.sent.empty());
  // Its bridge's stations reach the LAN, and the LAN them, once the bridge makes the NIC promiscuous.
  bench.from_host(a, make_frame(kGateway, kBehindHost));
  CHECK(bench.lan.sent.size() == 1);
  a.frames.clear();
  REQUIRE(bench.grants(a, wire::ReceiveFilter{.promiscuous = true}));
  bench.from_lan(make_frame(kBehindHost, kGateway));
  CHECK(a.frames.size() == 1);
  bench.from_lan(make_frame(b.mac(), kGateway));
  bench.from_host(b, make_frame(kGateway, b.mac()));
  CHECK(a.frames.size() == 1);  // not the others'
  CHECK(bench.unit().counters().filters_limited == 0);
  // A station that falls silent on the LAN may move behind the host.
  bench.run(seconds(61));
  bench.from_host(a, make_frame(kBroadcastMac, kGateway));
  CHECK(bench.lan.sent.size() == 3);
}

TEST_CASE("a station behind a host's bridge is reached before it has sent, and after it was silent for long",
          "[iounit][policy]") {
  IoUnitOptions options;
  options.policy.others.foreign_sources = true;
  UnitBench bench(options);
  TestHost& bridge = bench.host_up("bridge");
  TestHost& other = bench.host_up("other");
  bench.from_lan(make_frame(bridge.mac(), kGateway));
  REQUIRE(bench.grants(bridge, wire::ReceiveFilter{.promiscuous = true}));
  const auto reached = [&] { return std::exchange(bridge.frames, {}).size(); };
  static_cast<void>(reached());
  bench.from_lan(make_frame(kBehindHost, kGateway));
  CHECK(reached() == 1);
  bench.from_host(other, make_frame(kBehindHost, other.mac()));  // the LAN may have the station as well
  CHECK(reached() == 1);
  CHECK(bench.lan.sent.size() == 1);
  bench.from_host(bridge, make_frame(kGateway, kBehindHost));
  bench.run(seconds(301));
  bench.from_lan(make_frame(kBehindHost, kGateway));
  CHECK(reached() == 1);
  // It gets nothing that is known to be somebody else's.
  bench.from_lan(make_frame(other.mac(), kGateway));
  bench.from_host(other, make_frame(kGateway, other.mac()));
  CHECK(reached() == 0);
  CHECK(bench.drops().empty());
  const auto sum = bench.sum();
  CHECK(sum.in == sum.delivered + sum.dropped);
  SECTION("not in a VLAN that the host has left out") {
    REQUIRE(bench.grants(bridge, wire::VlanFilter{std::vector<std::uint16_t>{5}}));
    bench.from_lan(make_frame(kBehindHost, kGateway, {.vlans = {6}}));
    CHECK(reached() == 0);
    bench.from_lan(make_frame(kBehindHost, kGateway, {.vlans = {5}}));
    CHECK(reached() == 1);
  }
  SECTION("not after the bridge has left the interface") {
    REQUIRE(bench.grants(bridge, wire::ReceiveFilter{}));
    bench.from_lan(make_frame(kBehindHost, kGateway));
    CHECK(reached() == 0);
    CHECK(bench.drops() == Drops{{"lan_unwanted", 1}});
  }
}

/// The host "bridge" may send from foreign addresses and does so for a virtual machine, "thief" has no right at all,
/// and the address of the virtual machine is configured for "heir".
struct BridgedMachine : UnitBench {
  explicit BridgedMachine(std::vector<std::uint16_t> vlans) : UnitBench(options()), tags(std::move(vlans)) {
    REQUIRE(grants(bridge, wire::ReceiveFilter{.promiscuous = true}));
    from_lan(make_frame(bridge.mac(), kGateway, {.vlans = tags}));
    machine_sends();
    bridge.frames.clear();
    lan.sent.clear();
  }
  static IoUnitOptions options() {
    IoUnitOptions options;
    HostRule rule{.name = "bridge", .user = {}, .group = {}, .rights = {}};
    rule.rights.foreign_sources = true;
    options.policy.hosts = {rule};
    return options;
  }
  void machine_sends() { from_host(bridge, make_frame(kGateway, kBehindHost, {.vlans = tags})); }
  [[nodiscard]] std::size_t machine_gets() {
    bridge.frames.clear();
    from_lan(make_frame(kBehindHost, kGateway, {.vlans = tags}));
    return bridge.frames.size();
  }
  std::vector<std::uint16_t> tags;
  TestHost& bridge = host_up("bridge");
};

TEST_CASE("a host does not get an address that is in use behind another host's bridge", "[iounit][policy]") {
  BridgedMachine bench(GENERATE(std::vector<std::uint16_t>{}, std::vector<std::uint16_t>{7}));
  const std::string why = "address " + to_string(kBehindHost) + " is in use behind another host";
  SECTION("by its hello") {
    bench.run(seconds(299));
    require_refused(bench, bench.connect(host_with("thief", kBehindHost)), why);
  }
  SECTION("by a later change") {
    TestHost& thief = bench.host_up("thief");
    require_refused(bench.ask(thief, wire::SetMacAddress{kBehindHost}), why);
    CHECK(bench.machine_gets() == 1);
    CHECK(thief.frames.empty());
    bench.machine_sends();
    CHECK(bench.lan.sent.size() == 1);
    CHECK(bench.drops().empty());
  }
  SECTION("when it is silent for longer, the address is free") {
    TestHost& heir = bench.host_up("heir");
    bench.run(seconds(301));
    CHECK(bench.grants(heir, wire::SetMacAddress{kBehindHost}));
  }
  SECTION("the host itself may take it") { CHECK(bench.grants(bench.bridge, wire::SetMacAddress{kBehindHost})); }
  SECTION("a host for which it is configured gets it") {
    PolicyRules rules = BridgedMachine::options().policy;
    rules.allow("heir", kBehindHost);
    bench.unit().set_rules(rules);
    CHECK(bench.host_up("heir").mac() == kBehindHost);
  }
}

TEST_CASE("frames of the LAN from the address of a virtual machine do not cut it off while it sends",
          "[iounit][policy]") {
  BridgedMachine bench(GENERATE(std::vector<std::uint16_t>{}, std::vector<std::uint16_t>{7}));
  const Frame reflected = make_frame(kGateway, kBehindHost, {.vlans = bench.tags});
  std::size_t sent = 0;
  SECTION("a forged one each minute") {
    for (unsigned minute = 0; minute < 2; ++minute) {
      bench.from_lan(reflected);
      for (unsigned second = 0; second < 60; second += 4, ++sent) {
        bench.machine_sends();
        bench.run(seconds(4));
      }
    }
  }
  SECTION("each frame comes back twice") {
    for (; sent < 20; ++sent) {
      bench.machine_sends();
      bench.from_lan(reflected, 2);
      bench.run(seconds(1));
    }
    bench.machine_sends();
    ++sent;
  }
  CHECK(bench.lan.sent.size() == sent);
  CHECK(bench.drops().count("bridge/from_host_lan_source") == 0);
  CHECK(bench.machine_gets() == 1);
}

TEST_CASE("a virtual machine that has moved to the LAN is a station there, whatever its last host sends later",
          "[iounit][policy]") {
  BridgedMachine bench({});
  const Frame moved = make_frame(bench.bridge.mac(), kBehindHost);
  const bool host_ends = GENERATE(false, true);
  bench.from_lan(moved);
  if (host_ends) {
    bench.bridge.session().reset("test");
    REQUIRE(bench.run_until([&] { return bench.bridge.hellos.size() == 2 && bench.attached("bridge") != nullptr; }));
    REQUIRE(bench.grants(bench.bridge, wire::ReceiveFilter{.promiscuous = true}));
  } else {
    bench.run(seconds(6));
  }
  bench.machine_sends();
  CHECK(bench.lan.sent.empty());
  CHECK(bench.drops()["bridge/from_host_lan_source"] == 1);
  CHECK(bench.machine_gets() == 0);
}

TEST_CASE("an address that is configured for the LAN is no host's, even if the host is using it", "[iounit][policy]") {
  BridgedMachine bench({});
  PolicyRules rules = BridgedMachine::options().policy;
  rules.lan_addresses = {kBehindHost};
  bench.unit().set_rules(rules);
  bench.machine_sends();
  CHECK(bench.lan.sent.empty());
  CHECK(bench.drops()["bridge/from_host_lan_source"] == 1);
}

TEST_CASE("a bridge that sends from the address of a host's name keeps that host from nothing", "[iounit][policy]") {
  BridgedMachine bench({});
  SECTION("a name that is new gets another address") {
    bench.from_host(bench.bridge, make_frame(kGateway, stable_mac_for("new")));
    CHECK(bench.host_up("new").mac() == stable_mac_for("new+"));
  }
  SECTION("a name that is known gets its address") {
    TestHost& known = bench.host_up("known");
    known.die();
    bench.run(seconds(301));
    bench.from_host(bench.bridge, make_frame(kGateway, stable_mac_for("known")));
    CHECK(bench.host_up("known").mac() == stable_mac_for("known"));
  }
}

TEST_CASE("without permission, promiscuous mode and further addresses give a host nobody else's frames",
          "[iounit][policy]") {
  UnitBench bench;
  TestHost& spy = bench.host_up("spy");
  TestHost& b = bench.host_up("b");
  spy.requests.clear();
  spy.frames.clear();
  wire::ReceiveFilter filter{.multicast = {group(1)}};
  std::string why;
  SECTION("promiscuous") {
    filter.promiscuous = true;
    why = "promiscuous mode is not permitted to this host";
  }
  SECTION("further addresses") {
    filter.unicast = {kGateway, kBehindHost, b.mac()};
    why = "frames to further addresses are not permitted to this host";
  }
  REQUIRE(bench.grants(spy, filter));  // as far as it is permitted
  bench.from_lan(make_frame(station(2), kGateway));
  bench.from_lan(make_frame(kBehindHost, kGateway));
  bench.from_lan(make_frame(b.mac(), kGateway));
  bench.from_host(b, make_frame(kGateway, b.mac()));
  CHECK(spy.frames.empty());
  bench.from_lan(make_frame(group(1), kGateway));
  bench.from_lan(make_frame(spy.mac(), kGateway));
  CHECK(spy.frames.size() == 2);
  CHECK(bench.unit().counters().filters_limited == 1);
  CHECK(bench.notices.any_contains("host spy: " + why));
  const auto told = [&] {
    return std::ranges::count_if(spy.requests, [&](const auto& body) {
      const auto* report = std::get_if<wire::StatusReport>(&body);
      return report != nullptr && report->code == wire::kNotPermitted && report->text.find(why) != std::string::npos;
    });
  };
  CHECK(told() == 1);
  for (unsigned again = 0; again < 20; ++again) REQUIRE(bench.grants(spy, filter));
  CHECK(told() == 1);  // once in ten seconds
  CHECK(bench.unit().counters().filters_limited == 21);
}

TEST_CASE("a name is the user's who brought it first", "[iounit][policy]") {
  UnitBench bench;
  TestHost& first = bench.host_up_as(kAlice, "web");
  require_refused(bench, bench.connect_as(kBob, "web"), "the name belongs to user 1000");
  CHECK(bench.unit().counters().names_refused == bench.unit().counters().hosts_refused);
  first.die();
  bench.run(std::chrono::hours(24));
  require_refused(bench, bench.connect_as(kBob, "web"), "the name belongs to user 1000");
  CHECK(bench.host_up_as(kAlice, "web").mac() == stable_mac_for("web"));
}

TEST_CASE("the policy gives a name to a user or to a group, and may admit nobody else", "[iounit][policy]") {
  IoUnitOptions options;
  options.policy.hosts = {{.name = "web", .user = kAlice, .group = {}, .rights = {}},
                          {.name = "db", .user = {}, .group = kWheel, .rights = {}}};
  options.policy.listed_only = true;
  UnitBench bench(options);
  require_refused(bench, bench.connect_as(kBob, "web"), "the policy gives this name to another user");
  require_refused(bench, bench.connect("web"), "the policy gives this name to another user");
  require_refused(bench, bench.connect_as(kBob, "db"), "the policy gives this name to another user");
  require_refused(bench, bench.connect_as(kAlice, "other"), "the policy does not list this host");
  bench.host_up_as(kAlice, "web");
  bench.host_up_as(kBob, "db", kWheel);
}

TEST_CASE("new rules hold at once, and end only the sessions of hosts that they do not permit", "[iounit][policy]") {
  UnitBench bench(trusting_options());
  TestHost& a = bench.host_up(host_with("a", station(50)));
  TestHost& b = bench.host_up("b");
  TestHost& spy = bench.host_up("spy");
  REQUIRE(bench.grants(spy, wire::ReceiveFilter{.promiscuous = true}));
  for (TestHost* host : {&a, &b, &spy}) host->frames.clear();
  PolicyRules rules;
  rules.allow("c", station(50));
  bench.unit().set_rules(rules);
  bench.run(milliseconds(100));
  CHECK_FALSE(a.up());
  CHECK(bench.notices.any_contains("the new policy does not permit this host"));
  CHECK(bench.notices.any_contains("refused host a: address " + to_string(station(50)) + " is configured for host c"));
  CHECK(bench.host_up("c").mac() == station(50));
  CHECK(b.downs.empty());
  CHECK(spy.downs.empty());
  const auto lost = bench.drops();
  bench.from_lan(make_frame(b.mac(), kGateway));
  bench.from_host(spy, make_frame(kGateway, kBehindHost), 3);
  CHECK(b.frames.size() == 1);
  CHECK(spy.frames.empty());
  CHECK(bench.drops()["spy/from_host_not_allowed"] == 3);
  bench.unit().set_rules(trusting_options().policy);
  bench.from_lan(make_frame(b.mac(), kGateway));
  CHECK(spy.frames.size() == 1);  // as it had requested
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_policy_test
