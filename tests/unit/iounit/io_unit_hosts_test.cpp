// Who may come in, with which address, for how long; what each option of the unit does.
#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_hosts_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

wire::CfgStatus refusal(const messaging::Answer& answer) {
  REQUIRE_FALSE(answer.has_value());
  return answer.error().status;
}

messaging::SessionOptions host_with(const std::string& name, const MacAddress& mac) {
  auto options = host_named(name);
  options.mac = mac;
  return options;
}

TEST_CASE("a host that comes up is told its address, the MTU and the carrier", "[iounit][hosts]") {
  UnitBench bench({}, 1400);
  bench.lan.has_carrier = GENERATE(true, false);
  TestHost& host = bench.host_up("a");
  REQUIRE(host.hellos.size() == 1);
  CHECK(host.hellos[0].assigned_mac == stable_mac_for("a"));
  CHECK(host.hellos[0].max_mtu == 1400);
  CHECK(host.hellos[0].link_up == bench.lan.has_carrier);
  CHECK(host.hellos[0].name == "unit");
  CHECK(bench.attached("a")->mac() == stable_mac_for("a"));
  CHECK(bench.notices.any_contains("host a is up: address " + to_string(stable_mac_for("a")) + ", mode R"));
  CHECK(bench.unit().hosts_up() == 1);
  // What the hello said may have changed meanwhile: it is told again.
  const auto told = std::ranges::find_if(
      host.requests, [](const auto& body) { return std::holds_alternative<wire::LinkState>(body); });
  REQUIRE(told != host.requests.end());
  CHECK(std::get<wire::LinkState>(*told) ==
        wire::LinkState{.up = bench.lan.has_carrier, .speed_mbps = 0, .max_mtu = 1400});
}

TEST_CASE("the unit's MTU limits the LAN's and never exceeds it", "[iounit][hosts]") {
  struct Row {
    std::uint32_t option, lan, granted;
  };
  const auto row = GENERATE(Row{0, 9000, 9000}, Row{1500, 9000, 1500}, Row{9000, 1500, 1500}, Row{1400, 1500, 1400});
  IoUnitOptions options;
  options.max_mtu = row.option;
  UnitBench bench(options, row.lan);
  auto session = host_named("a");
  session.max_mtu = 9000;
  TestHost& host = bench.host_up(session);
  CHECK(bench.unit().mtu() == row.granted);
  CHECK(host.hellos[0].max_mtu == row.granted);
  bench.from_lan(make_frame(host.mac(), station(1), {.payload_bytes = row.granted}));
  bench.from_host(host, make_frame(station(1), host.mac(), {.payload_bytes = row.granted}));
  CHECK(bench.drops().empty());
  bench.from_lan(make_frame(host.mac(), station(1), {.payload_bytes = row.granted + 1}));
  bench.from_host(host, make_frame(station(1), host.mac(), {.payload_bytes = row.granted + 1}));
  CHECK(bench.drops() == Drops{{"lan_oversize", 1}, {"a/from_host_too_long", 1}});
  const auto mtu = bench.ask(host, wire::SetMtu{row.granted + 1});
  CHECK(std::get<wire::MtuReply>(*mtu).in_force == row.granted);
  const auto less = bench.ask(host, wire::SetMtu{row.granted - 1});
  CHECK(std::get<wire::MtuReply>(*less).in_force == row.granted - 1);
}

TEST_CASE("a LAN whose MTU shrinks or grows is followed, within the unit's limit", "[iounit][hosts]") {
  IoUnitOptions options;
  options.max_mtu = 9000;
  UnitBench bench(options, 1500);
  auto session = host_named("a");
  session.max_mtu = 9000;
  TestHost& host = bench.host_up(session);
  host.requests.clear();

  bench.lan.lan_mtu = 1400;
  bench.settle();
  CHECK(host.requests == std::vector<wire::RequestBody>{wire::LinkState{.up = true, .speed_mbps = 0, .max_mtu = 1400}});
  CHECK(host.downs.empty());
  bench.from_lan(make_frame(host.mac(), station(1), {.payload_bytes = 1401}));
  CHECK(bench.drops() == Drops{{"lan_oversize", 1}});

  bench.lan.lan_mtu = 1500;  // what the session was made for
  bench.settle();
  CHECK(host.requests.size() == 2);
  CHECK(host.downs.empty());
  bench.from_lan(make_frame(host.mac(), station(1), {.payload_bytes = 1500}));
  CHECK(host.frames.size() == 1);

  bench.lan.lan_mtu = 1501;  // larger elements are needed
  REQUIRE(bench.run_until([&] { return host.hellos.size() == 2; }));
  CHECK(host.hellos[1].max_mtu == 1501);
  bench.settle();
  CHECK(bench.notices.any_contains("the LAN's MTU has grown"));
  bench.from_lan(make_frame(host.mac(), station(1), {.payload_bytes = 1501}));
  CHECK(host.frames.size() == 2);

  bench.lan.lan_mtu = 65535;
  REQUIRE(bench.run_until([&] { return host.hellos.size() == 3; }));
  CHECK(host.hellos[2].max_mtu == 9000);
  bench.lan.lan_mtu = 20000;
  bench.run(seconds(2));
  CHECK(host.hellos.size() == 3);
}

TEST_CASE("hosts are told of a carrier that goes and comes, once each", "[iounit][hosts]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  a.requests.clear();
  b.requests.clear();
  bench.lan.has_carrier = false;
  bench.run(milliseconds(500));
  CHECK(bench.notices.any_contains("LAN memory: no carrier"));
  bench.lan.has_carrier = true;
  bench.run(milliseconds(500));
  const std::vector<wire::RequestBody> expected{wire::LinkState{.up = false, .speed_mbps = 0, .max_mtu = 1500},
                                                wire::LinkState{.up = true, .speed_mbps = 0, .max_mtu = 1500}};
  CHECK(a.requests == expected);
  CHECK(b.requests == expected);
}

TEST_CASE("as many hosts as permitted come in; one more is turned away, and let in when a place is free",
          "[iounit][hosts]") {
  IoUnitOptions options;
  options.max_hosts = 2;
  UnitBench bench(options);
  TestHost& a = bench.host_up("a");
  CHECK(bench.unit().counters().hosts_refused == 0);
  bench.host_up("b");
  CHECK(bench.unit().counters().hosts_refused == 0);
  TestHost& c = bench.connect("c");
  bench.run(milliseconds(100));
  CHECK(bench.unit().counters().hosts_refused == 1);
  CHECK(c.released);
  CHECK(bench.notices.any_contains("2 hosts are attached already"));
  CHECK(bench.unit().hosts_up() == 2);

  a.die();
  REQUIRE(bench.run_until([&] { return bench.attached_count() == 1; }));
  CHECK(a.released);
  bench.connect_again(c);
  REQUIRE(bench.run_until([&] { return c.up(); }));
  CHECK(bench.attached("c")->number() == ForwardingTarget{0});  // the place that a had
  CHECK(bench.unit().counters().hosts_refused == 1);
}

TEST_CASE("a second host of the same name is refused while the first is up", "[iounit][hosts]") {
  UnitBench bench;
  TestHost& first = bench.host_up("a");
  TestHost& second = bench.connect("a");
  bench.run(milliseconds(50));
  CHECK_FALSE(second.up());
  CHECK(bench.unit().counters().hosts_refused >= 1);
  CHECK(bench.notices.any_contains("refused host a: a host named a is here already"));
  CHECK(first.up());
  bench.from_lan(make_frame(first.mac(), station(1)));
  CHECK(first.frames.size() == 1);
  first.die();
  REQUIRE(bench.run_until([&] { return second.up(); }));
  CHECK(second.mac() == stable_mac_for("a"));
  bench.from_lan(make_frame(second.mac(), station(1)));
  CHECK(second.frames.size() == 1);
}

/// A host "a" that stops between the unit's answer to its hello and ready, and another "a" that comes then.
struct TwoOfOneName : UnitBench {
  TestHost& first = connect_and_stop();
  TestHost& second = connect(host_with("a", station(51)));

  TwoOfOneName() {
    run(milliseconds(50));
    REQUIRE_FALSE(first.up());
    CHECK_FALSE(second.up());
    CHECK(notices.any_contains("refused host a: a host named a is here already"));
  }
  TestHost& connect_and_stop() {
    TestHost& host = connect(host_with("a", station(50)));
    while (attached_count() == 0 || !unit().hosts()[0]->is_admitted()) step();
    host.paused = true;
    return host;
  }
};

TEST_CASE("a second host of the same name is refused while the first is about to come up", "[iounit][hosts]") {
  TwoOfOneName bench;
  bench.first.paused = false;
  REQUIRE(bench.run_until([&] { return bench.first.up(); }));
  bench.run(seconds(1));
  CHECK(bench.first.up());
  CHECK_FALSE(bench.second.up());
  TestHost& third = bench.host_up("third");
  CHECK(refusal(bench.ask(third, wire::SetMacAddress{station(50)})) == wire::CfgStatus::not_permitted);
  bench.from_host(third, make_frame(station(1), third.mac()));
  CHECK(bench.lan.sent.size() == 1);
}

TEST_CASE("a host comes up in place of one of its name that died before it was up", "[iounit][hosts]") {
  TwoOfOneName bench;
  bench.first.die();
  REQUIRE(bench.run_until([&] { return bench.second.up(); }, milliseconds(250)));
  CHECK(bench.second.mac() == station(51));
}

TEST_CASE("a host comes up in place of one of its name that was stopped before it was up", "[iounit][hosts]") {
  TwoOfOneName bench;
  REQUIRE(bench.run_until([&] { return bench.second.up(); }, seconds(4)));
}

TEST_CASE("a host gets the address that it asks for, unless it is another's", "[iounit][hosts]") {
  UnitBench bench;
  TestHost& a = bench.host_up(host_with("a", station(50)));
  CHECK(a.mac() == station(50));
  TestHost& b = bench.connect(host_with("b", station(50)));
  bench.run(milliseconds(50));
  CHECK_FALSE(b.up());
  CHECK(bench.notices.any_contains("refused host b: address " + to_string(station(50)) + " is host a's"));
  CHECK(bench.unit().counters().hosts_refused >= 1);
  bench.from_lan(make_frame(station(50), station(1)));
  CHECK(a.frames.size() == 1);
}

TEST_CASE("a name's own address that another host uses already is replaced", "[iounit][hosts]") {
  UnitBench bench;
  bench.host_up(host_with("thief", stable_mac_for("a")));
  TestHost& a = bench.host_up("a");
  CHECK(a.mac() == stable_mac_for("a+"));
}

TEST_CASE("addresses by configuration: the first when none is asked for, another of them on request, no other",
          "[iounit][hosts]") {
  IoUnitOptions options;
  options.policy.others.foreign_sources = true;
  options.policy.allow("other", station(60));
  options.policy.allow("a", station(61));
  options.policy.allow("a", station(62));
  UnitBench bench(options);
  SECTION("none asked for") { CHECK(bench.host_up("a").mac() == station(61)); }
  SECTION("the second asked for") { CHECK(bench.host_up(host_with("a", station(62))).mac() == station(62)); }
  SECTION("another host's asked for") {
    TestHost& host = bench.connect(host_with("a", station(60)));
    bench.run(milliseconds(50));
    CHECK_FALSE(host.up());
    CHECK(bench.notices.any_contains("it may not use address " + to_string(station(60))));
  }
  SECTION("a host that is not named has the address of its name, and may send from others") {
    TestHost& host = bench.host_up("free");
    CHECK(host.mac() == stable_mac_for("free"));
    bench.from_host(host, make_frame(station(1), station(99)));
    CHECK(bench.drops().empty());
    CHECK(bench.lan.sent.size() == 1);
  }
  SECTION("it sends from both of its addresses and from no other") {
    TestHost& host = bench.host_up("a");
    bench.from_host(host, make_frame(station(1), station(61)));
    bench.from_host(host, make_frame(station(1), station(62)));
    CHECK(bench.lan.sent.size() == 2);
    bench.from_host(host, make_frame(station(1), station(60)));
    CHECK(bench.drops() == Drops{{"a/from_host_forged", 1}});  // the other host's, although it is not here
    bench.from_host(host, make_frame(station(1), station(63)));
    CHECK(bench.drops() == Drops{{"a/from_host_forged", 1}, {"a/from_host_not_allowed", 1}});
  }
  SECTION("a later change is held to the same list") {
    TestHost& host = bench.host_up("a");
    CHECK(refusal(bench.ask(host, wire::SetMacAddress{station(60)})) == wire::CfgStatus::not_permitted);
    CHECK(bench.attached("a")->mac() == station(61));
    CHECK(bench.grants(host, wire::SetMacAddress{station(62)}));
    CHECK(bench.attached("a")->mac() == station(62));
  }
}

TEST_CASE("a host keeps its address if the one that it asks for is another's against all the policy knows",
          "[iounit][hosts]") {
  UnitBench bench;
  TestHost& a = bench.host_up(host_with("a", station(60)));
  TestHost& b = bench.host_up(host_with("b", station(70)));
  bench.unit().policy().ownership().detach("b", Time::min());
  CHECK(refusal(bench.ask(a, wire::SetMacAddress{station(70)})) == wire::CfgStatus::not_permitted);
  CHECK(bench.notices.any_contains("host a keeps address " + to_string(station(60)) + ": address " +
                                   to_string(station(70)) + " is another host's"));
  CHECK(bench.attached("a")->mac() == station(60));
  bench.from_lan(make_frame(station(1), station(60)));  // from nobody else
  CHECK(bench.drops() == Drops{{"lan_forged", 1}});
  bench.from_host(a, make_frame(b.mac(), a.mac()));
  bench.from_host(b, make_frame(a.mac(), b.mac()));
  CHECK(a.frames.size() == 1);
  CHECK(b.frames.size() == 1);
  CHECK(bench.drops() == Drops{{"lan_forged", 1}});
}

TEST_CASE("a changed address holds from the answer on, and frames to the old one reach nobody", "[iounit][hosts]") {
  UnitBench bench(trusting_options());
  TestHost& a = bench.host_up(host_with("a", station(60)));
  TestHost& b = bench.host_up("b");
  const MacAddress old = a.mac();
  REQUIRE(bench.grants(a, wire::ReceiveFilter{.unicast = {station(80)}}));
  const auto answer = bench.ask(a, wire::SetMacAddress{station(70)});
  REQUIRE(answer.has_value());
  CHECK(std::get<wire::MacAddressReply>(*answer).in_force == station(70));
  CHECK(bench.notices.any_contains("host a: address " + to_string(station(70))));

  bench.from_lan(make_frame(station(70), station(1)));
  CHECK(a.frames.size() == 1);
  bench.from_lan(make_frame(station(80), station(1)));  // asked for before; the change takes nothing of it away
  CHECK(a.frames.size() == 2);
  bench.from_lan(make_frame(old, station(1)));
  CHECK(a.frames.size() == 2);
  CHECK(bench.drops() == Drops{{"lan_unwanted", 1}});
  bench.from_host(b, make_frame(station(1), station(70)));
  CHECK(bench.drops() == Drops{{"lan_unwanted", 1}, {"b/from_host_forged", 1}});
  CHECK_FALSE(bench.grants(b, wire::SetMacAddress{old}));  // held for a
}

TEST_CASE("another host's address is not to be had, one's own is granted again", "[iounit][hosts]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  CHECK(refusal(bench.ask(a, wire::SetMacAddress{b.mac()})) == wire::CfgStatus::not_permitted);
  CHECK(bench.attached("a")->mac() == stable_mac_for("a"));
  CHECK(bench.grants(a, wire::SetMacAddress{a.mac()}));
  bench.from_lan(make_frame(a.mac(), station(1)));
  bench.from_lan(make_frame(b.mac(), station(1)));
  CHECK(a.frames.size() == 1);
  CHECK(b.frames.size() == 1);
}

TEST_CASE("a bridge whose session does not come up is let go after ten seconds, not before", "[iounit][hosts]") {
  UnitBench bench;
  TestHost& silent = bench.silent_bridge();
  bench.settle();
  REQUIRE(bench.attached_count() == 1);
  const Time connected = bench.now();
  CHECK(bench.unit().next_deadline() <= connected + seconds(10));
  bench.run(seconds(10));
  CHECK(bench.attached_count() == 1);
  CHECK_FALSE(silent.released);
  bench.run(milliseconds(60));
  CHECK(bench.attached_count() == 0);
  CHECK(silent.released);
  CHECK(bench.unit().counters().hosts_evicted == 1);
  CHECK(bench.notices.any_contains("closed the bridge of a nameless peer: its session did not come up"));
}

TEST_CASE("a host that was up and falls silent is let go ten seconds after its session ended", "[iounit][hosts]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  bench.run(seconds(30));
  CHECK(bench.attached_count() == 1);
  CHECK(bench.unit().counters().hosts_evicted == 0);
  a.paused = true;
  bench.attached("a")->session().reset("test");
  bench.run(seconds(9));
  CHECK(bench.attached_count() == 1);
  CHECK(bench.unit().hosts_up() == 0);
  bench.run(seconds(2));
  CHECK(bench.attached_count() == 0);
  CHECK(a.released);
  CHECK(bench.unit().counters().hosts_evicted == 1);
  CHECK(bench.notices.any_contains("closed the bridge of host a: its session did not come up"));
}

TEST_CASE("a session that ends and comes up again in time keeps its place, and its limit starts anew",
          "[iounit][hosts]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  for (unsigned time = 0; time < 3; ++time) {
    a.paused = true;
    bench.attached("a")->session().reset("test");
    bench.run(seconds(8));
    a.paused = false;
    REQUIRE(bench.run_until([&] { return bench.attached("a") != nullptr && a.up(); }));
    bench.run(seconds(1));
  }
  CHECK(bench.unit().counters().hosts_evicted == 0);
  CHECK_FALSE(a.released);
}

TEST_CASE("between two sessions of a host its addresses are nobody's", "[iounit][hosts]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  a.paused = true;
  bench.attached("a")->session().reset("test");
  bench.run(seconds(1));
  CHECK(bench.attached_count() == 2);
  bench.from_lan(make_frame(a.mac(), station(1)));
  CHECK(bench.drops() == Drops{{"lan_unwanted", 1}});
  bench.from_host(b, make_frame(a.mac(), b.mac()));
  CHECK(bench.lan.sent.size() == 1);
  // It comes back to them.
  a.paused = false;
  REQUIRE(bench.run_until([&] { return a.up() && bench.attached("a") != nullptr && a.hellos.size() == 2; }));
  bench.settle();
  bench.from_lan(make_frame(a.mac(), station(1)));
  CHECK(a.frames.size() == 1);
}

TEST_CASE("frames to a host that has died have no receiver at once, but its address stays its own", "[iounit][hosts]") {
  UnitBench bench(trusting_options());
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  REQUIRE(bench.grants(a, wire::ReceiveFilter{.promiscuous = true}));
  const MacAddress behind{{2, 0, 0, 0, 0x55, 1}};
  bench.from_host(a, make_frame(station(1), behind));
  bench.from_lan(make_frame(behind, station(1)));
  REQUIRE(a.frames.size() == 1);
  const MacAddress own = a.mac();
  a.die();
  bench.run(milliseconds(1));
  CHECK(bench.attached_count() == 1);
  CHECK(a.released);
  CHECK(bench.unit().counters().hosts_evicted == 0);
  CHECK(bench.notices.any_contains("host a is down: "));
  bench.lan.sent.clear();
  bench.from_lan(make_frame(own, station(1)));
  bench.from_lan(make_frame(behind, station(1)));
  CHECK(bench.drops() == Drops{{"lan_unwanted", 2}});
  bench.from_host(b, make_frame(own, b.mac()));
  CHECK(bench.lan.sent.size() == 1);
  CHECK(refusal(bench.ask(b, wire::SetMacAddress{own})) == wire::CfgStatus::not_permitted);
}

TEST_CASE("the LAN is told how many sessions there are, whenever that changes", "[iounit][hosts]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  a.die();
  bench.run(milliseconds(10));
  b.die();
  bench.run(milliseconds(10));
  CHECK(bench.lan.sessions == std::vector<std::size_t>{1, 2, 1, 0});
}

TEST_CASE("an orderly end tells every host, takes no new one, and finishes", "[iounit][hosts]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  CHECK_FALSE(bench.unit().finished());
  bench.unit().begin_shutdown();
  TestHost& late = bench.connect("late");
  REQUIRE(bench.run_until([&] { return bench.unit().finished(); }, seconds(1)));
  for (const TestHost* host : {&a, &b}) {
    REQUIRE(host->downs.size() == 1);
    CHECK_THAT(host->downs[0], Catch::Contains("shutting down"));
  }
  CHECK(late.hellos.empty());
  CHECK(bench.attached("late") == nullptr);
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_hosts_test
