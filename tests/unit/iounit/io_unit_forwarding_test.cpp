// Where frames go: between hosts, to and from the LAN, by address, group, VLAN and filter.
#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_forwarding_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr MacAddress kBehindHost{{0x02, 0, 0, 0, 0x55, 0x01}};

struct ThreeHosts : UnitBench {
  ThreeHosts() : UnitBench(trusting_options()) {
    for (TestHost* host : {&a, &b, &c}) REQUIRE(grants(*host, wire::ReceiveFilter{}));
  }
  TestHost& a = host_up("a");
  TestHost& b = host_up("b");
  TestHost& c = host_up("c");

  /// How many frames each has got since the last call: a, b, c, LAN.
  std::vector<std::size_t> got() {
    std::vector<std::size_t> counts;
    for (TestHost* host : {&a, &b, &c}) counts.push_back(std::exchange(host->frames, {}).size());
    counts.push_back(std::exchange(lan.sent, {}).size());
    return counts;
  }
};

using Got = std::vector<std::size_t>;

TEST_CASE("a frame goes to the one host or the LAN that has its address, unchanged", "[iounit][traffic]") {
  ThreeHosts bench;
  const Frame to_b = make_frame(bench.b.mac(), bench.a.mac(), {.payload_bytes = 1500});
  bench.from_host(bench.a, to_b);
  CHECK(bench.b.frames == std::vector<Frame>{to_b});
  CHECK(bench.got() == Got{0, 1, 0, 0});
  const Frame to_lan = make_frame(station(1), bench.a.mac(), {.vlans = {7}, .payload_bytes = 1500});
  bench.from_host(bench.a, to_lan);
  CHECK(bench.lan.sent == std::vector<Frame>{to_lan});
  CHECK(bench.got() == Got{0, 0, 0, 1});
  const Frame to_c = make_frame(bench.c.mac(), station(1));
  bench.from_lan(to_c);
  CHECK(bench.c.frames == std::vector<Frame>{to_c});
  CHECK(bench.got() == Got{0, 0, 1, 0});
  CHECK(bench.drops().empty());
}

TEST_CASE("broadcast goes to all but the sender; a group to those who joined it, and to the LAN", "[iounit][traffic]") {
  ThreeHosts bench;
  REQUIRE(bench.grants(bench.a, wire::ReceiveFilter{.multicast = {group(1)}}));
  REQUIRE(bench.grants(bench.b, wire::ReceiveFilter{.multicast = {group(1), group(2)}}));
  bench.from_lan(make_frame(kBroadcastMac, station(1)));
  CHECK(bench.got() == Got{1, 1, 1, 0});
  bench.from_host(bench.a, make_frame(kBroadcastMac, bench.a.mac()));
  CHECK(bench.got() == Got{0, 1, 1, 1});
  bench.from_lan(make_frame(group(1), station(1)));
  CHECK(bench.got() == Got{1, 1, 0, 0});
  bench.from_host(bench.a, make_frame(group(1), bench.a.mac()));
  CHECK(bench.got() == Got{0, 1, 0, 1});
  bench.from_host(bench.c, make_frame(group(2), bench.c.mac()));
  CHECK(bench.got() == Got{0, 1, 0, 1});
  bench.from_host(bench.c, make_frame(group(3), bench.c.mac()));
  CHECK(bench.got() == Got{0, 0, 0, 1});
  CHECK(bench.drops().empty());
}

TEST_CASE("a host that asks for all groups gets all, one that asks no more gets its own", "[iounit][traffic]") {
  ThreeHosts bench;
  REQUIRE(bench.grants(bench.a, wire::ReceiveFilter{.multicast = {group(1)}, .all_multicast = true}));
  bench.from_lan(make_frame(group(9), station(1)));
  CHECK(bench.got() == Got{1, 0, 0, 0});
  bench.from_lan(make_frame(kBehindHost, station(1)));
  CHECK(bench.got() == Got{0, 0, 0, 0});
  REQUIRE(bench.grants(bench.a, wire::ReceiveFilter{.multicast = {group(1)}}));
  bench.from_lan(make_frame(group(9), station(1)));
  CHECK(bench.got() == Got{0, 0, 0, 0});
  bench.from_lan(make_frame(group(1), station(1)));
  CHECK(bench.got() == Got{1, 0, 0, 0});
}

TEST_CASE("until its first filter is in, a host misses no group, also after a restart", "[iounit][traffic]") {
  ThreeHosts bench;
  TestHost& fresh = bench.host_up("fresh");
  bench.from_lan(make_frame(group(9), station(1)));
  CHECK(fresh.frames.size() == 1);
  REQUIRE(bench.grants(fresh, wire::ReceiveFilter{.promiscuous = true}));
  REQUIRE(bench.grants(fresh, wire::LinkState{.up = false}));
  fresh.session().reset("test");
  REQUIRE(bench.run_until([&] { return fresh.hellos.size() == 2 && bench.attached("fresh") != nullptr; }));
  bench.settle();
  fresh.frames.clear();
  bench.from_lan(make_frame(group(9), station(1)));
  CHECK(fresh.frames.size() == 1);  // all groups, and the interface counts as up
  bench.from_lan(make_frame(kBehindHost, station(1)));
  CHECK(fresh.frames.size() == 1);  // promiscuous no more
}

TEST_CASE("a promiscuous host overhears what is addressed to others, within its VLANs", "[iounit][traffic]") {
  ThreeHosts bench;
  REQUIRE(bench.grants(bench.c, wire::ReceiveFilter{.promiscuous = true}));
  REQUIRE(bench.grants(bench.c, wire::VlanFilter{std::vector<std::uint16_t>{5}}));
  bench.from_host(bench.a, make_frame(bench.b.mac(), bench.a.mac()));
  CHECK(bench.got() == Got{0, 1, 1, 0});
  bench.from_host(bench.a, make_frame(station(1), bench.a.mac()));
  CHECK(bench.got() == Got{0, 0, 1, 1});
  bench.from_lan(make_frame(station(2), station(1)));
  CHECK(bench.got() == Got{0, 0, 1, 0});
  bench.from_lan(make_frame(kBehindHost, station(1)));
  CHECK(bench.got() == Got{0, 0, 1, 0});
  bench.from_lan(make_frame(group(7), station(1)));
  CHECK(bench.got() == Got{0, 0, 1, 0});
  bench.from_lan(make_frame(bench.c.mac(), station(1)));
  CHECK(bench.got() == Got{0, 0, 1, 0});  // once
  bench.from_host(bench.a, make_frame(bench.b.mac(), bench.a.mac(), {.vlans = {5}}));
  CHECK(bench.got() == Got{0, 1, 1, 0});
  bench.from_host(bench.a, make_frame(bench.b.mac(), bench.a.mac(), {.vlans = {6}}));
  CHECK(bench.got() == Got{0, 1, 0, 0});
  CHECK(bench.drops().empty());

  REQUIRE(bench.grants(bench.c, wire::ReceiveFilter{}));
  bench.from_host(bench.a, make_frame(bench.b.mac(), bench.a.mac()));
  CHECK(bench.got() == Got{0, 1, 0, 0});
}

TEST_CASE("further addresses that a host asked for reach it before it ever sent from them", "[iounit][traffic]") {
  ThreeHosts bench;
  bench.from_lan(make_frame(kBehindHost, station(1)));
  CHECK(bench.drops() == Drops{{"lan_unwanted", 1}});
  REQUIRE(bench.grants(bench.a, wire::ReceiveFilter{.unicast = {kBehindHost}}));
  bench.from_lan(make_frame(kBehindHost, station(1)));
  CHECK(bench.got() == Got{1, 0, 0, 0});
  bench.from_host(bench.b, make_frame(kBehindHost, bench.b.mac()));
  CHECK(bench.got() == Got{1, 0, 0, 1});  // it may as well be on the LAN
  // Asking for another's address gives no copy of what is the other's.
  REQUIRE(bench.grants(bench.a, wire::ReceiveFilter{.unicast = {kBehindHost, bench.b.mac()}}));
  bench.from_lan(make_frame(bench.b.mac(), station(1)));
  CHECK(bench.got() == Got{0, 1, 0, 0});
  REQUIRE(bench.grants(bench.c, wire::ReceiveFilter{.promiscuous = true}));
  bench.from_lan(make_frame(bench.b.mac(), station(1)));
  CHECK(bench.got() == Got{0, 1, 1, 0});
  REQUIRE(bench.grants(bench.c, wire::ReceiveFilter{}));
  // Heard on the LAN, it is the LAN's.
  bench.from_lan(make_frame(bench.b.mac(), kBehindHost));
  CHECK(bench.got() == Got{0, 1, 0, 0});
  bench.from_lan(make_frame(kBehindHost, station(1)));
  CHECK(bench.got() == Got{0, 0, 0, 0});
  CHECK(bench.drops() == Drops{{"lan_unwanted", 1}, {"lan_to_lan", 1}});
  REQUIRE(bench.grants(bench.a, wire::ReceiveFilter{}));
  bench.from_lan(make_frame(station(99), station(1)));
  CHECK(bench.drops() == Drops{{"lan_unwanted", 2}, {"lan_to_lan", 1}});
}

TEST_CASE("an address is learned per VLAN, moves, and is forgotten after 300 s", "[iounit][traffic]") {
  ThreeHosts bench;
  for (TestHost* host : {&bench.a, &bench.b}) {
    REQUIRE(bench.grants(*host, wire::ReceiveFilter{.unicast = {kBehindHost}}));
  }
  bench.from_host(bench.a, make_frame(station(1), kBehindHost));
  bench.from_host(bench.b, make_frame(station(1), kBehindHost, {.vlans = {5}}));
  bench.got();
  bench.from_lan(make_frame(kBehindHost, station(1)));
  CHECK(bench.got() == Got{1, 0, 0, 0});
  bench.from_lan(make_frame(kBehindHost, station(1), {.vlans = {5}}));
  CHECK(bench.got() == Got{0, 1, 0, 0});
  bench.from_host(bench.b, make_frame(station(1), kBehindHost));
  bench.got();
  bench.from_lan(make_frame(kBehindHost, station(1)));
  CHECK(bench.got() == Got{0, 1, 0, 0});
  bench.run(seconds(299));
  bench.from_lan(make_frame(kBehindHost, station(1)));
  CHECK(bench.got() == Got{0, 1, 0, 0});
  bench.run(seconds(2));
  bench.from_lan(make_frame(kBehindHost, station(1)));
  CHECK(bench.got() == Got{1, 1, 0, 0});  // unknown again: to everybody who asked for it
}

TEST_CASE("64 frames of the LAN are one poll's work", "[iounit][traffic]") {
  ThreeHosts bench;
  for (unsigned i = 0; i < 65; ++i) bench.lan.arriving.push_back(make_frame(station(2), station(1)));
  bench.step();
  CHECK(bench.lan.arriving.size() == 1);
  bench.step();
  CHECK(bench.lan.arriving.empty());
}

TEST_CASE("the LAN engine is flushed once after a batch, and not without one", "[iounit][traffic]") {
  ThreeHosts bench;
  const std::size_t before = bench.lan.flushes;
  bench.run(milliseconds(100));
  CHECK(bench.lan.flushes == before);
  for (unsigned i = 0; i < 5; ++i) REQUIRE(bench.a.send(make_frame(station(1), bench.a.mac())));
  bench.settle();
  CHECK(bench.lan.sent.size() == 5);
  CHECK(bench.lan.flushes == before + 1);
}

TEST_CASE("frames for the LAN leave before the unit looks for the LAN's", "[iounit][traffic]") {
  ThreeHosts bench;
  for (unsigned i = 0; i < 5; ++i) REQUIRE(bench.a.send(make_frame(station(1), bench.a.mac())));
  const std::size_t before = bench.lan.flushes;
  std::size_t looks_in_vain = 0;
  bench.lan.before_receive = [&] {
    if (!bench.lan.sent.empty() && bench.lan.flushes == before) ++looks_in_vain;
  };
  bench.settle();
  CHECK(bench.lan.sent.size() == 5);
  CHECK(looks_in_vain == 0);
  CHECK(bench.lan.flushes == before + 1);
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_forwarding_test
