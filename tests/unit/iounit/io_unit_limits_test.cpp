// VLANs, rates and storm limits of a host, in simulated time, to the exact frame.
#include <catch2/catch.hpp>

#include "tests/unit/common/packet_builder.h"
#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_limits_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const MacAddress kStation = station(1);

HostRule host_in(const std::string& name, std::optional<std::uint16_t> access, std::vector<std::uint16_t> trunk = {}) {
  HostRule rule{.name = name, .user = {}, .group = {}, .rights = {}};
  rule.rights.access_vlan = access;
  rule.rights.trunk_vlans = std::move(trunk);
  return rule;
}

/// "a" and "b" in VLAN 5, "c" in VLAN 6, "t" on a trunk of both, "u" in the untagged network; nobody has joined a
/// group.
struct Vlans : UnitBench {
  Vlans() : UnitBench(options()) {
    for (TestHost* host : {&a, &b, &c, &t, &u}) REQUIRE(grants(*host, wire::ReceiveFilter{}));
    for (TestHost* host : {&a, &b, &c, &t, &u}) host->frames.clear();
  }
  static IoUnitOptions options() {
    IoUnitOptions options;
    options.policy.hosts = {host_in("a", 5), host_in("b", 5), host_in("c", 6), host_in("t", {}, {5, 6}),
                            host_in("u", 0)};
    return options;
  }
  TestHost& a = host_up("a");
  TestHost& b = host_up("b");
  TestHost& c = host_up("c");
  TestHost& t = host_up("t");
  TestHost& u = host_up("u");
  /// How many frames each has got since the last call: a, b, c, t, u, LAN.
  std::vector<std::size_t> got() {
    std::vector<std::size_t> counts;
    for (TestHost* host : {&a, &b, &c, &t, &u}) counts.push_back(std::exchange(host->frames, {}).size());
    counts.push_back(std::exchange(lan.sent, {}).size());
    return counts;
  }
};

using Got = std::vector<std::size_t>;

TEST_CASE("the unit tags what an access host sends and untags what it receives, and leaves a trunk's tags",
          "[iounit][vlan]") {
  Vlans bench;
  const std::size_t payload = GENERATE(46U, 1500U);
  bench.from_host(bench.a, make_frame(kStation, bench.a.mac(), {.payload_bytes = payload}));
  CHECK(bench.lan.sent ==
        std::vector<Frame>{make_frame(kStation, bench.a.mac(), {.vlans = {5}, .payload_bytes = payload})});
  bench.from_lan(make_frame(bench.a.mac(), kStation, {.vlans = {5}, .payload_bytes = payload}));
  CHECK(bench.a.frames == std::vector<Frame>{make_frame(bench.a.mac(), kStation, {.payload_bytes = payload})});
  CHECK(bench.got() == Got{1, 0, 0, 0, 0, 1});
  // The priority stays when the VLAN is put into a priority tag.
  Frame urgent = make_frame(kStation, bench.a.mac(), {.vlans = {0xe000}});
  bench.from_host(bench.a, urgent);
  CHECK(bench.lan.sent == std::vector<Frame>{make_frame(kStation, bench.a.mac(), {.vlans = {0xe005}})});
  // Between two access hosts, and between an access host and a trunk.
  bench.from_host(bench.a, make_frame(bench.b.mac(), bench.a.mac()));
  CHECK(bench.b.frames == std::vector<Frame>{make_frame(bench.b.mac(), bench.a.mac())});
  bench.from_host(bench.c, make_frame(bench.t.mac(), bench.c.mac()));
  CHECK(bench.t.frames == std::vector<Frame>{make_frame(bench.t.mac(), bench.c.mac(), {.vlans = {6}})});
  bench.from_host(bench.t, make_frame(bench.b.mac(), bench.t.mac(), {.vlans = {5}}));
  CHECK(bench.b.frames.back() == make_frame(bench.b.mac(), bench.t.mac()));
  bench.from_host(bench.u, make_frame(kStation, bench.u.mac(), {.payload_bytes = payload}));
  CHECK(bench.lan.sent.back() == make_frame(kStation, bench.u.mac(), {.payload_bytes = payload}));
  CHECK(bench.drops().empty());
}

TEST_CASE("a host gets nothing of a VLAN that it is not in, whoever sends and whatever the address", "[iounit][vlan]") {
  Vlans bench;
  bench.from_lan(make_frame(kBroadcastMac, kStation));
  CHECK(bench.got() == Got{0, 0, 0, 0, 1, 0});
  bench.from_lan(make_frame(kBroadcastMac, kStation, {.vlans = {5}}));
  CHECK(bench.got() == Got{1, 1, 0, 1, 0, 0});
  bench.from_lan(make_frame(kBroadcastMac, kStation, {.vlans = {7}}));
  CHECK(bench.got() == Got{0, 0, 0, 0, 0, 0});
  bench.from_host(bench.a, make_frame(kBroadcastMac, bench.a.mac()));
  CHECK(bench.got() == Got{0, 1, 0, 1, 0, 1});
  // To a host of another VLAN by its address: as to a stranger's on the LAN.
  bench.from_host(bench.a, make_frame(bench.c.mac(), bench.a.mac()));
  CHECK(bench.got() == Got{0, 0, 0, 0, 0, 1});
  bench.from_lan(make_frame(bench.c.mac(), kStation, {.vlans = {5}}));
  bench.from_lan(make_frame(bench.c.mac(), kStation));
  CHECK(bench.got() == Got{0, 0, 0, 0, 0, 0});
  CHECK(bench.drops() == Drops{{"lan_unwanted", 3}});
  const auto sum = bench.sum();
  CHECK(sum.in == sum.delivered + sum.dropped);
}

TEST_CASE("frames with a tag that a host may not use are dropped and counted", "[iounit][vlan]") {
  Vlans bench;
  bench.from_host(bench.a, make_frame(kBroadcastMac, bench.a.mac(), {.vlans = {5}}), 2);
  bench.from_host(bench.a, make_frame(kBroadcastMac, bench.a.mac(), {.vlans = {6}}), 3);
  bench.from_host(bench.a, make_frame(kBroadcastMac, bench.a.mac(), {.vlans = {0, 6}}), 4);
  bench.from_host(bench.t, make_frame(kBroadcastMac, bench.t.mac(), {.vlans = {7}}), 5);
  bench.from_host(bench.t, make_frame(kBroadcastMac, bench.t.mac()), 6);
  CHECK(bench.drops() == Drops{{"a/from_host_vlan", 9}, {"t/from_host_vlan", 11}});
  CHECK(bench.got() == Got{0, 0, 0, 0, 0, 0});
}

TEST_CASE("a host without the right to groups neither sends to them nor receives from them; broadcast works",
          "[iounit][policy]") {
  IoUnitOptions options;
  options.policy.others.multicast = false;
  UnitBench bench(options);
  TestHost& a = bench.host_up("a");
  bench.from_lan(make_frame(group(1), kStation));
  REQUIRE(bench.grants(a, wire::ReceiveFilter{.multicast = {group(1)}, .all_multicast = true}));
  bench.from_lan(make_frame(group(1), kStation));
  CHECK(a.frames.empty());
  bench.from_host(a, make_frame(group(1), a.mac()), 3);
  CHECK(bench.lan.sent.empty());
  CHECK(bench.drops() == Drops{{"lan_unwanted", 2}, {"a/from_host_group", 3}});
  bench.from_host(a, make_frame(kBroadcastMac, a.mac()));
  bench.from_lan(make_frame(kBroadcastMac, kStation));
  CHECK(bench.lan.sent.size() == 1);
  CHECK(a.frames.size() == 1);
}

TEST_CASE("a host sends and receives at its rates, and loses the exact rest", "[iounit][rate]") {
  IoUnitOptions options;
  HostRights& rights = options.policy.others;
  const Frame probe = make_frame(station(1), station(2), {.payload_bytes = 1486});
  const std::size_t bytes = probe.size();
  REQUIRE(bytes == 1500);
  SECTION("frames") {
    rights.send.frames = 40;
    rights.receive.frames = 80;
  }
  SECTION("bytes") {
    rights.send.bytes = 400 * bytes;  // a burst of 100 frames
    rights.receive.bytes = 400 * bytes;
  }
  const bool by_frames = rights.send.frames != 0;
  UnitBench bench(options);
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  const Frame out = make_frame(kStation, a.mac(), {.payload_bytes = 1486});
  bench.from_host(a, out, 110);
  const std::size_t burst = by_frames ? 10 : 100;
  CHECK(bench.lan.sent.size() == burst);
  CHECK(bench.drops() == Drops{{"a/from_host_over_rate", 110 - burst}});
  bench.run(milliseconds(100));
  bench.from_host(a, out, 50);
  const std::size_t later = by_frames ? 4 : 40;
  CHECK(bench.lan.sent.size() == burst + later);
  // b is not limited by what a does, and receives at its own rate.
  bench.from_host(b, make_frame(kStation, b.mac()));
  CHECK(bench.lan.sent.size() == burst + later + 1);
  const std::size_t into = by_frames ? 20 : 100;
  for (std::size_t sent = 0; sent < into + 7; ++sent) {
    bench.from_lan(make_frame(b.mac(), kStation, {.payload_bytes = 1486}));
    bench.run(Duration(1));  // elements return
  }
  CHECK(b.frames.size() >= into);
  CHECK(b.frames.size() + bench.drops()["b/to_host_over_rate"] == into + 7);
  CHECK(bench.drops()["b/to_host_over_rate"] > 0);
  const auto sum = bench.sum();
  CHECK(sum.in == sum.delivered + sum.dropped);
}

/// A limit of "a", and a frame that it counts. No limit is used up by fewer than 10 frames, or by more than 100.
struct Limited {
  void (*set)(HostRights&);
  MacAddress to;
  std::string drop;
};

const Limited kLimited[] = {
    {[](HostRights& rights) { rights.send.frames = 40; }, kStation, "a/from_host_over_rate"},
    {[](HostRights& rights) { rights.send.bytes = 400'000; }, kStation, "a/from_host_over_rate"},
    {[](HostRights& rights) { rights.broadcasts = 10; }, kBroadcastMac, "a/from_host_broadcasts"},
    {[](HostRights& rights) { rights.multicasts = 10; }, group(1), "a/from_host_multicasts"},
    {[](HostRights& rights) { rights.multicast_copies = 10; }, group(1), "a/from_host_copies"},
};

/// A host "a" that has used up its burst.
struct SpentHost : UnitBench {
  explicit SpentHost(const Limited& of) : UnitBench(options(of)), limited(of) {
    REQUIRE(passed(110) >= 10);
    REQUIRE(passed(10) == 0);
  }
  static IoUnitOptions options(const Limited& limited) {
    IoUnitOptions options;
    limited.set(options.policy.others);
    return options;
  }
  /// Of so many frames of this host: those that the limit did not stop.
  std::size_t passed(std::size_t frames) {
    const std::uint64_t before = drops()[limited.drop];
    from_host(a, make_frame(limited.to, a.mac(), {.payload_bytes = 1486}), frames);
    return frames - (drops()[limited.drop] - before);
  }
  /// Its program starts again, on the same bridge.
  void restart(const std::string& name = "a") {
    const Time began = now();
    const std::size_t before = a.hellos.size();
    a.start(host_named(name));
    REQUIRE(run_until([&] { return a.hellos.size() > before && attached(name) != nullptr; }));
    settle();
    REQUIRE(now() - began <= milliseconds(2));
  }
  Limited limited;
  TestHost& a = host_up("a");
  TestHost& b = host_up("b");
};

TEST_CASE("a host that restarts its session on the same bridge gets no burst again", "[iounit][rate]") {
  SpentHost bench(GENERATE(from_range(std::begin(kLimited), std::end(kLimited))));
  for (unsigned times = 0; times < 3; ++times) {
    bench.restart();
    CHECK(bench.passed(20) <= 1);  // what it has earned meanwhile
  }
}

TEST_CASE("a new policy gives a host no burst again, also with other limits", "[iounit][rate]") {
  SpentHost bench(GENERATE(from_range(std::begin(kLimited), std::end(kLimited))));
  PolicyRules rules = SpentHost::options(bench.limited).policy;
  rules.lan_addresses = {station(9)};
  bench.unit().set_rules(rules);
  CHECK(bench.passed(20) == 0);
  HostRights& rights = rules.others;
  for (std::uint64_t* rate :
       {&rights.send.frames, &rights.send.bytes, &rights.broadcasts, &rights.multicasts, &rights.multicast_copies}) {
    *rate *= 2;
  }
  bench.unit().set_rules(rules);
  CHECK(bench.passed(20) <= 1);  // the rest of a burst of bytes, twice
  bench.run(seconds(1));
  CHECK(bench.passed(30) >= 20);
}

TEST_CASE("a host that alternates between names with different limits on one bridge gets no burst again",
          "[iounit][rate]") {
  IoUnitOptions options;
  HostRule fast{.name = "fast", .user = {}, .group = {}, .rights = {}};
  fast.rights.send.frames = 400;
  HostRule free{.name = "free", .user = {}, .group = {}, .rights = {}};
  options.policy.hosts = {fast, free};
  options.policy.others.send.frames = 40;
  UnitBench bench(options);
  TestHost& a = bench.host_up("a");
  const auto restart_as = [&](const std::string& name) {
    const std::size_t before = a.hellos.size();
    a.start(host_named(name));
    REQUIRE(bench.run_until([&] { return a.hellos.size() > before && bench.attached(name) != nullptr; }));
    bench.settle();
  };
  const auto passed = [&](std::size_t frames) {
    const std::size_t before = bench.lan.sent.size();
    bench.from_host(a, make_frame(kStation, a.mac()), frames);
    return bench.lan.sent.size() - before;
  };
  REQUIRE(passed(30) == 10);
  for (const std::string name : {"fast", "a", "free", "a"}) {
    restart_as(name);
    CHECK(passed(20) <= (name == "free" ? 20 : 1));
  }
}

TEST_CASE("a burst of any rate of bytes has room for the longest frame", "[iounit][rate]") {
  IoUnitOptions options;
  options.policy.others.send.bytes = options.policy.others.receive.bytes = 1000;
  UnitBench bench(options, wire::kMaxMtu);
  auto host_options = host_named("a");
  host_options.max_mtu = wire::kMaxMtu;
  TestHost& a = bench.host_up(host_options);
  bench.from_lan(make_frame(a.mac(), kStation, {.payload_bytes = wire::kMaxMtu}));
  CHECK(a.frames.size() == 1);
  bench.from_host(a, make_frame(kStation, a.mac(), {.payload_bytes = wire::kMaxMtu}));
  CHECK(bench.lan.sent.size() == 1);
  bench.from_host(a, make_frame(kStation, a.mac(), {.payload_bytes = 1000}));
  CHECK(bench.drops() == Drops{{"a/from_host_over_rate", 1}});
}

TEST_CASE("broadcasts and frames to groups have limits of their own; the default is 1000 broadcasts a second",
          "[iounit][rate]") {
  IoUnitOptions options;
  REQUIRE(options.policy.others.broadcasts == 1000);
  REQUIRE(options.policy.others.multicasts == 0);
  options.policy.others.multicasts = 20;
  UnitBench bench(options);
  TestHost& a = bench.host_up("a");
  bench.run(seconds(1));
  const Time begin = bench.now();
  bench.from_host(a, make_frame(kBroadcastMac, a.mac()), 1005);
  bench.from_host(a, make_frame(group(1), a.mac()), 23);
  bench.from_host(a, make_frame(kStation, a.mac()), 2000);
  REQUIRE(bench.now() == begin);
  CHECK(bench.drops() == Drops{{"a/from_host_broadcasts", 5}, {"a/from_host_multicasts", 3}});
  CHECK(bench.lan.sent.size() == 1000 + 20 + 2000);
}

TEST_CASE("of a flood to a group, neighbours get 1000 frames a second by default, and the LAN gets all",
          "[iounit][rate]") {
  IoUnitOptions options;
  REQUIRE(options.policy.others.multicast_copies == 1000);
  UnitBench bench(options);
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  TestHost& c = bench.host_up("c");
  bench.run(seconds(1));
  const Time begin = bench.now();
  for (unsigned burst = 0; burst < 110; ++burst) {
    bench.from_host(a, make_frame(group(1), a.mac()), 10);
    bench.run(Duration(1));  // elements return
  }
  const auto refilled = static_cast<std::size_t>((bench.now() - begin) / std::chrono::milliseconds(1));
  REQUIRE(refilled < 50);
  CHECK(bench.lan.sent.size() == 1100);
  CHECK(b.frames.size() >= 1000);
  CHECK(b.frames.size() <= 1000 + refilled);
  CHECK(c.frames.size() == b.frames.size());
  CHECK(bench.drops() == Drops{{"a/from_host_copies", 2 * (1100 - b.frames.size())}});
  // Broadcasts have a limit of their own.
  const std::size_t before = b.frames.size();
  bench.from_host(a, make_frame(kBroadcastMac, a.mac()), 5);
  CHECK(b.frames.size() == before + 5);
  bench.run(seconds(1));
  bench.from_host(a, make_frame(group(1), a.mac()), 5);
  CHECK(b.frames.size() == before + 10);
  const auto sum = bench.sum();
  CHECK(sum.in == sum.delivered + sum.dropped);
}

TEST_CASE("a frame to a group that no neighbour has joined counts as no copy", "[iounit][rate]") {
  IoUnitOptions options;
  options.policy.others.multicast_copies = 1;
  UnitBench bench(options);
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  const auto joined = bench.ask(b, wire::ReceiveFilter{.multicast = {group(2)}});
  REQUIRE(joined);
  bench.from_host(a, make_frame(group(1), a.mac()), 5);
  CHECK(bench.drops().empty());
  bench.from_host(a, make_frame(group(2), a.mac()), 2);
  CHECK(bench.drops() == Drops{{"a/from_host_copies", 1}});
  CHECK(bench.lan.sent.size() == 7);
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_limits_test
