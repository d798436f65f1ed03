// Statistics between a unit and its hosts, each flow to the exact number.
#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_statistics_test {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kFrameBytes = 14 + 46;

wire::Statistics ask(UnitBench& bench, TestHost& host, const wire::RequestBody& body) {
  const auto answer = bench.ask(host, body);
  REQUIRE(answer);
  return std::get<wire::Statistics>(*answer);
}

std::uint64_t count_of(const wire::Statistics& statistics, const std::string& name) {
  for (const auto& counter : statistics.counters) {
    if (counter.name == name) return counter.value;
  }
  FAIL("no counter " << name);
  return 0;
}

}  // namespace

TEST_CASE("a host is told frames, bytes, errors and drops of itself and of the LAN, since it attached",
          "[iounit][statistics]") {
  UnitBench bench;
  bench.from_lan(make_frame(station(9), station(1)), 7);  // before any host
  TestHost& host = bench.host_up("a");
  const Time attached = bench.now();
  bench.from_host(host, make_frame(station(1), host.mac()), 3);
  bench.from_lan(make_frame(host.mac(), station(1)), 2);
  bench.from_host(host, make_frame(station(1), group(1)), 4);  // an error of its sender's
  REQUIRE(bench.grants(host, wire::LinkState{.up = false}));
  bench.from_lan(make_frame(host.mac(), station(1)), 5);  // a drop
  bench.from_lan(make_frame(host.mac(), group(1)), 6);    // an error of the LAN's
  const auto told = ask(bench, host, wire::StatisticsReport{});
  REQUIRE(told.from_peer == wire::Flow{7, 7 * kFrameBytes, 4, 0});
  REQUIRE(told.to_peer == wire::Flow{2, 2 * kFrameBytes, 0, 5});
  REQUIRE(told.from_interface == wire::Flow{13, 13 * kFrameBytes, 6, 0});
  REQUIRE(told.to_interface == wire::Flow{3, 3 * kFrameBytes, 0, 0});
  CHECK(bench.unit().moved().frames == 7 + 3 + 2 + 4 + 5 + 6);
  REQUIRE(count_of(told, "from_host_bad_source") == 4);
  REQUIRE(count_of(told, "to_host_interface_down") == 5);
  REQUIRE(told.counted_for >= bench.now() - attached);
}

TEST_CASE("a clear tells the values before it and starts from nothing, for the host that asked alone",
          "[iounit][statistics]") {
  UnitBench bench;
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
  bench.from_host(a, make_frame(station(1), a.mac()), 3);
  const auto before = ask(bench, a, wire::StatisticsClear{});
  REQUIRE(before.from_peer.frames == 3);
  REQUIRE(before.to_interface.frames == 3);
  const Time cleared = bench.now();
  bench.run(milliseconds(1500));
  const auto after = ask(bench, a, wire::StatisticsReport{});
  REQUIRE(after.from_peer == wire::Flow{});
  REQUIRE(after.to_interface == wire::Flow{});
  REQUIRE(after.counted_for <= bench.now() - cleared);
  REQUIRE(after.counted_for >= milliseconds(1400));
  REQUIRE(ask(bench, b, wire::StatisticsReport{}).to_interface.frames == 3);
}

TEST_CASE("the unit asks a host every five seconds while frames pass, and keeps the last answer; a clear makes it zero",
          "[iounit][statistics]") {
  UnitBench bench;
  TestHost& host = bench.connect("a");
  host.statistics.from_interface.frames = 41;
  host.statistics.counted_for = seconds(3);
  REQUIRE(bench.run_until([&] { return host.statistics_asked == 1; }));
  bench.settle();
  REQUIRE(bench.attached("a")->host_statistics() == host.statistics);
  bench.run(seconds(20));
  REQUIRE(host.statistics_asked == 1);  // nothing passes
  REQUIRE(bench.run_until([&] { return host.statistics_asked == 2; }, seconds(42)));
  const Time first = bench.now();
  bench.from_host(host, make_frame(station(1), host.mac()));
  REQUIRE(bench.run_until([&] { return host.statistics_asked == 3; }, seconds(7)));
  REQUIRE(bench.now() - first >= seconds(5));
  bench.attached("a")->clear_host_statistics();
  REQUIRE(bench.run_until([&] { return bench.attached("a")->host_statistics() == wire::Statistics{}; }));
}

}  // namespace splitnic::iounit::test::io_unit_statistics_test
