// Units that share a LAN: which frames go to which unit and to the wire, by every class of destination.
#include <poll.h>

#include <catch2/catch.hpp>

#include "group_bench.h"

namespace splitnic::iounit::test::io_unit_group_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const MacAddress kStation = station(1);
constexpr MacAddress kNobody{{0x02, 0, 0, 0, 0x99, 0x01}};
constexpr MacAddress kBehind{{0x02, 0, 0, 0, 0x55, 0x01}};

using Frames = std::vector<Frame>;

/// Hosts "a0", "b0" at the first unit, "a1", "b1" at the second. None has joined a group.
struct Two : GroupBench {
  explicit Two(IoUnitOptions options = trusting_options()) : GroupBench(2, std::move(options)) {
    for (TestHost* host : all()) REQUIRE(grants(*host, wire::ReceiveFilter{}));
    from_lan(0, make_frame(kNobody, kStation));  // the LAN shows its station
    clear();
  }
  TestHost& a0 = host_up(0, "a0");
  TestHost& b0 = host_up(0, "b0");
  TestHost& a1 = host_up(1, "a1");
  TestHost& b1 = host_up(1, "b1");
  [[nodiscard]] std::vector<TestHost*> all() { return {&a0, &b0, &a1, &b1}; }

  /// The names of the hosts that got this frame, each once, "wire" among them; then all is forgotten.
  std::vector<std::string> who_got(const Frame& frame) {
    std::vector<std::string> names;
    for (TestHost* host : all()) {
      for (const Frame& got : host->frames) {
        CHECK(got == frame);
        names.push_back(host->name);
      }
    }
    for (const Frame& got : wire_got()) {
      CHECK(got == frame);
      names.emplace_back("wire");
    }
    clear();
    require_sums();
    return names;
  }
  std::vector<std::string> sent(TestHost& from, const Frame& frame) {
    from_host(from, frame);
    return who_got(frame);
  }
  std::vector<std::string> arrived(std::size_t unit, const Frame& frame) {
    from_lan(unit, frame);
    return who_got(frame);
  }
};

using Names = std::vector<std::string>;

/// The own address of this host and kBehind are configured for it.
IoUnitOptions configured_for(const std::string& name) {
  IoUnitOptions options = trusting_options();
  options.policy.allow(name, stable_mac_for(name));
  options.policy.allow(name, kBehind);
  return options;
}

TEST_CASE("a host's frame for a host of another unit goes there alone, and one for a host here stays here",
          "[iounit][group]") {
  Two bench;
  CHECK(bench.sent(bench.a0, make_frame(bench.a1.mac(), bench.a0.mac())) == Names{"a1"});
  CHECK(bench.sent(bench.b1, make_frame(bench.b0.mac(), bench.b1.mac())) == Names{"b0"});
  CHECK(bench.at(0).lan.group_counters().to_others == 1);
  CHECK(bench.sent(bench.a0, make_frame(bench.b0.mac(), bench.a0.mac())) == Names{"b0"});
  CHECK(bench.at(0).lan.group_counters().to_others == 1);
  CHECK(bench.at(0).lan.group_counters().from_unit == 1);
  CHECK(bench.drops() == Drops{{"lan_unwanted", 1}});  // by which the LAN has shown its station
}

TEST_CASE("a host's frame for a station goes to the wire alone, and to promiscuous hosts of every unit",
          "[iounit][group]") {
  Two bench;
  const Frame frame = make_frame(kStation, bench.a1.mac());
  CHECK(bench.sent(bench.a1, frame) == Names{"wire"});
  CHECK(bench.at(1).lan.group_counters().to_others == 0);
  REQUIRE(bench.grants(bench.b0, wire::ReceiveFilter{.promiscuous = true}));
  CHECK(bench.sent(bench.a1, frame) == Names{"b0", "wire"});
  CHECK(bench.sent(bench.a1, make_frame(bench.b1.mac(), bench.a1.mac())) == Names{"b0", "b1"});
  CHECK(bench.sent(bench.a0, make_frame(bench.a1.mac(), bench.a0.mac())) == Names{"b0", "a1"});
  REQUIRE(bench.grants(bench.b0, wire::ReceiveFilter{}));
  CHECK(bench.sent(bench.a1, make_frame(bench.b1.mac(), bench.a1.mac())) == Names{"b1"});
  CHECK(bench.sent(bench.a1, frame) == Names{"wire"});
}

TEST_CASE("a host's frame for an unknown address goes to the wire and to hosts of every unit that want the address",
          "[iounit][group]") {
  Two bench;
  const Frame frame = make_frame(kNobody, bench.a0.mac());
  CHECK(bench.sent(bench.a0, frame) == Names{"wire"});
  CHECK(bench.at(0).lan.group_counters().to_others == 0);
  REQUIRE(bench.grants(bench.b1, wire::ReceiveFilter{.unicast = {kNobody}}));
  CHECK(bench.sent(bench.a0, frame) == Names{"b1", "wire"});
  CHECK(bench.arrived(0, make_frame(kNobody, kStation)) == Names{"b1"});
  CHECK(bench.arrived(1, make_frame(kNobody, kStation)) == Names{"b1"});
}

TEST_CASE("frames for unknown addresses reach the bridges behind the hosts of every unit", "[iounit][group]") {
  IoUnitOptions options;
  options.policy.others.foreign_sources = true;
  Two bench(options);
  REQUIRE(bench.grants(bench.b1, wire::ReceiveFilter{.promiscuous = true}));
  CHECK(bench.sent(bench.a0, make_frame(kBehind, bench.a0.mac())) == Names{"b1", "wire"});
  CHECK(bench.sent(bench.a1, make_frame(kBehind, bench.a1.mac())) == Names{"b1", "wire"});
  CHECK(bench.arrived(0, make_frame(kBehind, kStation)) == Names{"b1"});
  CHECK(bench.arrived(1, make_frame(kBehind, kStation)) == Names{"b1"});
  CHECK(bench.sent(bench.a0, make_frame(kStation, bench.a0.mac())) == Names{"wire"});
  CHECK(bench.sent(bench.a0, make_frame(bench.b0.mac(), bench.a0.mac())) == Names{"b0"});
}

TEST_CASE("frames to groups reach every unit's members and the wire once", "[iounit][group]") {
  Two bench;
  for (TestHost* host : {&bench.b0, &bench.a1}) {
    REQUIRE(bench.grants(*host, wire::ReceiveFilter{.multicast = {group(1)}}));
  }
  CHECK(bench.sent(bench.a0, make_frame(group(1), bench.a0.mac())) == Names{"b0", "a1", "wire"});
  CHECK(bench.sent(bench.a1, make_frame(group(1), bench.a1.mac())) == Names{"b0", "wire"});
  CHECK(bench.sent(bench.a0, make_frame(kBroadcastMac, bench.a0.mac())) == Names{"b0", "a1", "b1", "wire"});
  for (const std::size_t unit : {0U, 1U}) {
    CHECK(bench.arrived(unit, make_frame(group(1), kStation)) == Names{"b0", "a1"});
    CHECK(bench.arrived(unit, make_frame(kBroadcastMac, kStation)) == Names{"a0", "b0", "a1", "b1"});
  }
}

TEST_CASE("a frame of the wire reaches its host, whichever unit the wire gives it to", "[iounit][group]") {
  Two bench;
  for (const std::size_t unit : {0U, 1U}) {
    CHECK(bench.arrived(unit, make_frame(bench.a0.mac(), kStation)) == Names{"a0"});
    CHECK(bench.arrived(unit, make_frame(bench.b1.mac(), station(5))) == Names{"b1"});
    CHECK(bench.arrived(unit, make_frame(kStation, station(2))).empty());
  }
  CHECK(bench.drops()["lan_to_lan"] == 2);
  REQUIRE(bench.grants(bench.b1, wire::ReceiveFilter{.promiscuous = true}));
  CHECK(bench.arrived(0, make_frame(bench.a0.mac(), kStation)) == Names{"a0", "b1"});
  CHECK(bench.arrived(1, make_frame(bench.a0.mac(), kStation)) == Names{"a0", "b1"});
  CHECK(bench.arrived(0, make_frame(kStation, station(2))) == Names{"b1"});
}

TEST_CASE("nobody gets a frame twice with three units, and none goes round", "[iounit][group]") {
  GroupBench bench(3, trusting_options());
  std::vector<TestHost*> hosts;
  for (std::size_t unit = 0; unit < 3; ++unit) hosts.push_back(&bench.host_up(unit, "h" + std::to_string(unit)));
  for (TestHost* host : hosts) REQUIRE(bench.grants(*host, wire::ReceiveFilter{.promiscuous = true}));
  for (const MacAddress& to : {kBroadcastMac, group(3), kNobody, hosts[1]->mac()}) {
    for (std::size_t sender = 0; sender < 3; ++sender) {
      bench.clear();
      bench.from_host(*hosts[sender], make_frame(to, hosts[sender]->mac()));
      for (std::size_t other = 0; other < 3; ++other) {
        INFO(to_string(to) << " from " << sender << " at " << other);
        CHECK(hosts[other]->frames.size() == (other == sender ? 0 : 1));
      }
      CHECK(bench.wire_got().size() == (to == hosts[1]->mac() ? 0 : 1));
      bench.require_sums();
    }
  }
}

TEST_CASE("the source of a frame is a host's of any unit, or a station's", "[iounit][group][policy]") {
  Two bench;
  // On the wire: forged, whichever unit gets it.
  for (const std::size_t unit : {0U, 1U}) {
    CHECK(bench.arrived(unit, make_frame(bench.b0.mac(), bench.a1.mac())).empty());
    CHECK(bench.arrived(unit, make_frame(kBroadcastMac, bench.a0.mac())).empty());
  }
  CHECK(bench.drops()["lan_forged"] == 4);
  // From a host that may send from foreign addresses: not from those of hosts and stations, wherever they are.
  CHECK(bench.sent(bench.a0, make_frame(kStation, bench.a1.mac())).empty());
  CHECK(bench.sent(bench.b1, make_frame(bench.a1.mac(), bench.a0.mac())).empty());
  CHECK(bench.sent(bench.b1, make_frame(bench.a1.mac(), kStation)).empty());  // the first unit has heard it
  CHECK(bench.drops()["a0/from_host_forged"] == 1);
  CHECK(bench.drops()["b1/from_host_forged"] == 1);
  CHECK(bench.drops()["b1/from_host_lan_source"] == 1);
  // What a unit gets from another one is no sign of a station.
  CHECK(bench.sent(bench.a0, make_frame(bench.a1.mac(), kBehind)) == Names{"a1"});
  CHECK(bench.sent(bench.b1, make_frame(bench.a1.mac(), kBehind)) == Names{"a1"});
}

TEST_CASE("an address behind a host is found from every unit, and when it has moved", "[iounit][group]") {
  Two bench;
  REQUIRE(bench.grants(bench.b1, wire::ReceiveFilter{.promiscuous = true}));
  CHECK(bench.sent(bench.b1, make_frame(bench.a1.mac(), kBehind)) == Names{"a1"});
  CHECK(bench.sent(bench.a0, make_frame(kBehind, bench.a0.mac())) == Names{"b1"});
  CHECK(bench.arrived(0, make_frame(kBehind, kStation)) == Names{"b1"});
  REQUIRE(bench.grants(bench.b1, wire::ReceiveFilter{}));
  SECTION("to the LAN, as the other unit has heard") {
    CHECK(bench.arrived(0, make_frame(bench.a0.mac(), kBehind)) == Names{"a0"});
    CHECK(bench.sent(bench.a0, make_frame(kBehind, bench.a0.mac())) == Names{"wire"});
    CHECK(bench.sent(bench.a1, make_frame(kBehind, bench.a1.mac())) == Names{"wire"});
  }
  SECTION("to a host of the other unit") {
    REQUIRE(bench.grants(bench.b0, wire::ReceiveFilter{.promiscuous = true}));
    CHECK(bench.sent(bench.b0, make_frame(bench.a0.mac(), kBehind)) == Names{"a0"});
    CHECK(bench.sent(bench.a1, make_frame(kBehind, bench.a1.mac())) == Names{"b0"});
  }
  SECTION("when its host has gone, it is unknown") {
    bench.b1.die();
    bench.run(milliseconds(100));
    bench.clear();
    CHECK(bench.sent(bench.a0, make_frame(kBehind, bench.a0.mac())) == Names{"wire"});
  }
}

TEST_CASE("the wire does not get a host's further addresses, and new rules give them to a host of another unit",
          "[iounit][group][policy]") {
  Two bench(configured_for("b1"));
  REQUIRE(bench.grants(bench.b1, wire::ReceiveFilter{.unicast = {kBehind}}));
  for (const std::size_t unit : {0U, 1U}) CHECK(bench.arrived(unit, make_frame(kBroadcastMac, kBehind)).empty());
  CHECK(bench.drops()["lan_forged"] == 2);
  CHECK(bench.sent(bench.a0, make_frame(kBehind, bench.a0.mac())) == Names{"b1"});
  CHECK(bench.arrived(0, make_frame(kBehind, kStation)) == Names{"b1"});
  // The first unit has the new rules before the second one, which has the address.
  bench.unit(0).set_rules(configured_for("b0").policy);
  bench.run(seconds(2));
  REQUIRE(bench.grants(bench.b0, wire::ReceiveFilter{.unicast = {kBehind}}));
  bench.clear();
  for (const std::size_t unit : {0U, 1U}) CHECK(bench.arrived(unit, make_frame(kBroadcastMac, kBehind)).empty());
  CHECK(bench.drops()["lan_forged"] == 4);
  CHECK(bench.sent(bench.a1, make_frame(kBehind, bench.a1.mac())) == Names{"b0"});
}

TEST_CASE("a frame of the wire does not take an address from a host that is using it, whichever unit hears it",
          "[iounit][group][policy]") {
  Two bench;
  REQUIRE(bench.grants(bench.b1, wire::ReceiveFilter{.promiscuous = true}));
  const Frame frame = make_frame(kStation, kBehind);
  CHECK(bench.sent(bench.b1, frame) == Names{"wire"});
  for (const std::size_t unit : {0U, 1U}) {
    bench.from_lan(unit, frame, 2);
    bench.clear();
    CHECK(bench.sent(bench.b1, frame) == Names{"wire"});
    CHECK(bench.arrived(0, make_frame(kBehind, kStation)) == Names{"b1"});
    CHECK(bench.arrived(1, make_frame(kBehind, kStation)) == Names{"b1"});
  }
  bench.from_lan(0, frame);
  bench.clear();
  bench.run(seconds(6));
  CHECK(bench.sent(bench.b1, frame).empty());
  CHECK(bench.drops()["b1/from_host_lan_source"] == 1);
}

TEST_CASE("a host does not get an address that is in use behind a host of another unit", "[iounit][group][policy]") {
  Two bench;
  const std::vector<std::uint16_t> tags = GENERATE(std::vector<std::uint16_t>{}, std::vector<std::uint16_t>{7});
  REQUIRE(bench.grants(bench.b1, wire::ReceiveFilter{.promiscuous = true}));
  bench.from_host(bench.b1, make_frame(kStation, kBehind, {.vlans = tags}));
  const auto refused = bench.ask(bench.a0, wire::SetMacAddress{kBehind});
  REQUIRE_FALSE(refused.has_value());
  CHECK_THAT(refused.error().text, Catch::Contains("is in use behind another host"));
  SECTION("its own host may take it") { CHECK(bench.grants(bench.b1, wire::SetMacAddress{kBehind})); }
  SECTION("another one, when it is silent for longer") {
    bench.run(seconds(301));
    CHECK(bench.grants(bench.a0, wire::SetMacAddress{kBehind}));
  }
}

TEST_CASE("in a VLAN that the addressed host of another unit is not in, its address is the LAN's", "[iounit][group]") {
  auto options = trusting_options();
  HostRule access{.name = "a1", .user = {}, .group = {}, .rights = options.policy.others};
  access.rights.access_vlan = 5;
  options.policy.hosts.push_back(access);
  Two bench(options);
  const FrameOptions tagged5{.vlans = {5}};
  // The tag of the access VLAN is the unit's matter, on both sides.
  bench.from_host(bench.a0, make_frame(bench.a1.mac(), bench.a0.mac(), tagged5));
  CHECK(bench.a1.frames == Frames{make_frame(bench.a1.mac(), bench.a0.mac())});
  CHECK(bench.wire_got().empty());
  bench.from_host(bench.a1, make_frame(bench.a0.mac(), bench.a1.mac()));
  CHECK(bench.a0.frames == Frames{make_frame(bench.a0.mac(), bench.a1.mac(), tagged5)});
  bench.clear();
  // In VLAN 6 nobody knows the address: the frame comes back to the wire.
  CHECK(bench.sent(bench.a0, make_frame(bench.a1.mac(), bench.a0.mac(), {.vlans = {6}})) == Names{"wire"});
  CHECK(bench.sent(bench.a0, make_frame(bench.a1.mac(), bench.a0.mac())) == Names{"wire"});
  CHECK(bench.arrived(0, make_frame(bench.a1.mac(), kStation, {.vlans = {6}})).empty());
  CHECK(bench.drops()["lan_unwanted"] == 2);
}

TEST_CASE("a name and an address have one host in all units", "[iounit][group][policy]") {
  Two bench;
  auto twin = host_named("a0");
  twin.mac = station(50);
  TestHost& second = bench.connect(1, twin);
  bench.run(milliseconds(200));
  CHECK_FALSE(second.up());
  CHECK(bench.notices.any_contains("refused host a0: a host named a0 is here already"));
  const auto version = bench.shared.policy().version();
  const auto refused = bench.unit(1).counters().hosts_refused;
  bench.run(seconds(1));
  CHECK(bench.unit(1).counters().hosts_refused > refused);
  CHECK(bench.shared.policy().version() == version);  // a refusal makes no unit copy the policy
  auto thief_options = host_named("thief");
  thief_options.mac = bench.a0.mac();
  TestHost& thief = bench.connect(1, thief_options);
  bench.run(milliseconds(200));
  CHECK_FALSE(thief.up());
  CHECK(bench.notices.any_contains("refused host thief: address " + to_string(bench.a0.mac()) + " is host a0's"));
  CHECK(bench.unit(1).counters().addresses_refused > 0);
  for (const MacAddress& wanted : {bench.a0.mac(), kStation}) {
    const auto answer = bench.ask(bench.b1, wire::SetMacAddress{wanted});
    REQUIRE_FALSE(answer.has_value());
    CHECK(answer.error().status == wire::CfgStatus::not_permitted);
  }
  CHECK(bench.grants(bench.b1, wire::SetMacAddress{station(60)}));
  bench.clear();
  CHECK(bench.sent(bench.a0, make_frame(station(60), bench.a0.mac())) == Names{"b1"});
  // The address of a host that has gone is held for it.
  second.die();
  thief.die();
  const MacAddress held = bench.a0.mac();
  bench.a0.die();
  bench.run(milliseconds(100));
  const auto answer = bench.ask(bench.b1, wire::SetMacAddress{held});
  REQUIRE_FALSE(answer.has_value());
  CHECK_THAT(answer.error().text, Catch::Contains("is held for host a0"));
}

TEST_CASE("a host that changes its address all the time makes the units copy the policy no more than each 10 ms",
          "[iounit][group][policy]") {
  Two bench;
  bench.run(seconds(1));
  SharedPolicy& policy = bench.shared.policy();
  const std::uint64_t copies = policy.copies();
  const Time began = bench.now();
  for (unsigned round = 0; round < 200; ++round) {
    REQUIRE(bench.grants(bench.a0, wire::SetMacAddress{station(60 + round % 2)}));
    bench.run(std::chrono::microseconds(500));
  }
  const auto passed = bench.now() - began;
  REQUIRE(passed >= milliseconds(100));
  CHECK(policy.copies() - copies <= static_cast<std::uint64_t>(passed / SharedPolicy::kBetweenCopies) + 1);
  CHECK(policy.copies() - copies >= 9);
  // Both units have the last one soon.
  bench.run(milliseconds(10));
  const std::uint64_t settled = policy.copies();
  bench.run(seconds(1));
  CHECK(policy.copies() == settled);
  const MacAddress last = station(61);
  CHECK(bench.sent(bench.b1, make_frame(bench.a1.mac(), last)).empty());
  CHECK(bench.drops()["b1/from_host_forged"] == 1);
}

TEST_CASE("a host that comes again at another unit has its address and its frames there", "[iounit][group]") {
  Two bench;
  const MacAddress address = bench.a0.mac();
  bench.a0.die();
  REQUIRE(bench.run_until([&] { return bench.attached(0, "a0") == nullptr; }));
  TestHost& again = bench.host_up(1, "a0");
  CHECK(again.mac() == address);
  bench.clear();
  const Frame to_it = make_frame(address, bench.b0.mac());
  bench.from_host(bench.b0, to_it);
  CHECK(again.frames == Frames{to_it});
  bench.from_host(bench.a1, make_frame(address, bench.a1.mac()));
  CHECK(again.frames.size() == 2);
  for (const std::size_t unit : {0U, 1U}) bench.from_lan(unit, make_frame(address, kStation));
  CHECK(again.frames.size() == 4);
  const Frame from_it = make_frame(bench.b0.mac(), address);
  bench.from_host(again, from_it);
  CHECK(bench.b0.frames == Frames{from_it});
  CHECK(bench.wire_got().empty());
  bench.require_sums();
}

TEST_CASE("a ring without room drops frames and counts them, and the others pass", "[iounit][group]") {
  Two bench;
  const Frame frame = make_frame(bench.a1.mac(), kStation, {.payload_bytes = 1500});
  const std::size_t fit = (256U << 10U) / (1500 + 14);
  // The second unit does not poll: the ring keeps what fits.
  for (std::size_t n = 0; n < fit + 40; ++n) bench.at(0).wire.arriving.push_back(frame);
  while (!bench.at(0).wire.arriving.empty()) bench.unit(0).poll(bench.now());
  const std::uint64_t lost = bench.at(0).lan.group_counters().full;
  CHECK(lost >= 40);
  CHECK(lost <= 60);
  CHECK(bench.drops()["handover_full"] == lost);
  CHECK(bench.at(0).lan.group_counters().to_others == fit + 40 - lost);
  bench.run(milliseconds(50));
  bench.require_sums();
  bench.clear();
  CHECK(bench.sent(bench.a0, make_frame(bench.b1.mac(), bench.a0.mac())) == Names{"b1"});
  CHECK(bench.at(0).lan.group_counters().full == lost);
}

TEST_CASE("new rules reach the hosts of every unit", "[iounit][group][policy]") {
  Two bench;
  PolicyRules rules = trusting_options().policy;
  HostRule no_groups{.name = "b1", .user = {}, .group = {}, .rights = rules.others};
  no_groups.rights.multicast = false;
  rules.hosts.push_back(no_groups);
  bench.unit(0).set_rules(rules);
  CHECK(bench.unit(1).next_deadline() <= bench.now() + SharedPolicy::kBetweenCopies);  // it has something to follow
  bench.run(milliseconds(10));
  CHECK(bench.sent(bench.b1, make_frame(group(1), bench.b1.mac())).empty());
  CHECK(bench.drops()["b1/from_host_group"] == 1);
  rules.listed_only = true;  // ends the sessions of all but b1
  bench.unit(1).set_rules(rules);
  bench.run(milliseconds(50));
  CHECK(bench.attached(0, "a0") == nullptr);
  CHECK(bench.attached(0, "b0") == nullptr);
  CHECK(bench.attached(1, "a1") == nullptr);
  CHECK(bench.attached(1, "b1") != nullptr);
}

TEST_CASE("the limit on copies of frames to groups counts those for other units", "[iounit][group][policy]") {
  auto options = trusting_options();
  options.policy.others.multicast_copies = 10;
  Two bench(options);
  REQUIRE(bench.grants(bench.b1, wire::ReceiveFilter{.multicast = {group(1)}}));
  const Frame frame = make_frame(group(1), bench.a0.mac());
  bench.from_host(bench.a0, frame, 30);
  CHECK(bench.wire_got().size() == 30);
  CHECK(bench.b1.frames.size() == 10);
  CHECK(bench.drops()["a0/from_host_copies"] == 20);
  bench.require_sums();
}

TEST_CASE("a unit with frames in a ring does not sleep, and one that sleeps is woken", "[iounit][group]") {
  Two bench;
  const auto readable = [&](std::size_t unit) {
    pollfd waits{bench.shared.descriptor(UnitNumber{static_cast<std::uint16_t>(unit)}), POLLIN, 0};
    return ::poll(&waits, 1, 0) == 1;
  };
  REQUIRE(bench.at(1).lan.prepare_sleep());
  CHECK_FALSE(readable(1));
  bench.at(0).wire.arriving.push_back(make_frame(bench.a1.mac(), kStation));
  bench.unit(0).poll(bench.now());
  CHECK(readable(1));
  bench.at(1).lan.disarm();
  CHECK_FALSE(readable(1));
  CHECK_FALSE(bench.at(1).lan.prepare_sleep());
  bench.at(1).lan.disarm();
  bench.settle();
  CHECK(bench.a1.frames.size() == 1);
  CHECK(bench.at(1).lan.prepare_sleep());
  bench.at(1).lan.disarm();
  // Awake, it needs no bell.
  bench.at(0).wire.arriving.push_back(make_frame(bench.a1.mac(), kStation));
  bench.unit(0).poll(bench.now());
  CHECK_FALSE(readable(1));
}

TEST_CASE("when the wire refuses a frame to a group, the other units get it all the same", "[iounit][group]") {
  Two bench;
  bench.at(0).wire.refuses = true;
  CHECK(bench.sent(bench.a0, make_frame(kBroadcastMac, bench.a0.mac())) == Names{"b0", "a1", "b1"});
  CHECK(bench.drops()["a0/from_host_lan_refused"] == 1);
  CHECK(bench.sent(bench.a0, make_frame(bench.a1.mac(), bench.a0.mac())) == Names{"a1"});
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_group_test
