// What ends with a session, and when a unit may sleep.
#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_rules_test {
namespace {

using std::chrono::seconds;

TEST_CASE("a restarted host starts without the VLAN list of its last session", "[iounit][hosts]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  REQUIRE(bench.grants(a, wire::VlanFilter{std::vector<std::uint16_t>{5}}));
  bench.from_lan(make_frame(group(9), station(1), {.vlans = {6}}));
  REQUIRE(a.frames.empty());
  a.session().reset("test");
  REQUIRE(bench.run_until([&] { return a.hellos.size() == 2 && bench.attached("a") != nullptr; }));
  bench.settle();
  bench.from_lan(make_frame(group(9), station(1), {.vlans = {6}}));
  CHECK(a.frames.size() == 1);
}

TEST_CASE("a unit does not sleep while a host's frame waits", "[iounit][sleep]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  bench.settle();
  REQUIRE(bench.unit().prepare_sleep());
  bench.unit().disarm();
  TestHost& sender = GENERATE(0, 1) == 0 ? a : b;
  REQUIRE(sender.send(make_frame(station(1), sender.mac())));
  sender.poll(bench.now());
  CHECK_FALSE(bench.unit().prepare_sleep());
  bench.unit().disarm();
  bench.settle();
  CHECK(bench.lan.sent.size() == 1);
}

TEST_CASE("a unit's deadline is not later than what a silent bridge has left", "[iounit][sleep]") {
  UnitBench bench;
  bench.silent_bridge();
  bench.settle();
  REQUIRE(bench.attached_count() == 1);
  const Time came = bench.now();
  while (bench.attached_count() == 1) {
    REQUIRE(bench.unit().next_deadline() <= came + seconds(10));
    REQUIRE(bench.now() <= came + seconds(11));
    bench.run(seconds(1));
  }
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_rules_test
