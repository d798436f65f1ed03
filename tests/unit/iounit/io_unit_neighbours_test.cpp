// What a noisy or lying host does to its neighbours: nothing.
#include <catch2/catch.hpp>

#include "common/os/log_notices.h"
#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_neighbours_test {
namespace {

using std::chrono::milliseconds;

TEST_CASE("one host's flood of words, refusals and restarts hides no other host's news from the log",
          "[iounit][neighbours]") {
  UnitBench bench;
  std::vector<std::string> written;
  os::LogOptions options;
  options.write = [&](std::string_view line) { written.emplace_back(line); };
  options.clock = [&] { return bench.now(); };
  os::Log log("unit", options);
  os::LogNotices notices(log);
  bench.notices.also = &notices;
  TestHost& noisy = bench.host_up("noisy");
  TestHost& calm = bench.host_up("calm");
  const auto lines_with = [&](const std::string& text) {
    return std::ranges::count_if(written, [&](const auto& line) { return line.find(text) != std::string::npos; });
  };
  constexpr unsigned kStations = 40;
  for (unsigned i = 0; i < kStations; ++i) bench.from_lan(make_frame(kBroadcastMac, station(100 + i)));
  const auto flood = [&] {
    for (unsigned i = 0; i < kStations; ++i) {
      REQUIRE_FALSE(bench.grants(noisy, wire::SetMacAddress{station(100 + i)}));  // each a line of its own
      REQUIRE(bench.grants(noisy, wire::StatusReport{wire::kFramesLost, "flood " + std::to_string(i)}));
      REQUIRE_FALSE(bench.grants(noisy, wire::SetMacAddress{calm.mac()}));
      REQUIRE(bench.grants(noisy, wire::ReceiveFilter{.promiscuous = true}));
    }
  };
  const Time begin = bench.now();
  flood();
  REQUIRE(bench.now() - begin < std::chrono::seconds(1));
  const auto of_noisy = lines_with("noisy");
  CHECK(of_noisy < 20);  // a few of each kind
  REQUIRE(bench.grants(calm, wire::StatusReport{wire::kFramesLost, "quiet word"}));
  CHECK(lines_with("host calm says: quiet word") == 1);
  REQUIRE_FALSE(bench.grants(calm, wire::SetMacAddress{noisy.mac()}));
  CHECK(lines_with("host calm keeps address") == 1);
  calm.session().reset("test");
  bench.settle();
  CHECK(lines_with("host calm is down") == 1);
}

/// A host on core `own`, as it says; the unit runs on core 1.
TestHost& host_on_core(UnitBench& bench, const std::string& name, std::uint32_t own) {
  auto bridge = plain_bridge();
  bridge.cores = {own, 1};
  return bench.wait_up(bench.connect(host_named(name), bridge));
}

void say_core(UnitBench& bench, TestHost& host) {
  static_cast<void>(host.session().prepare_sleep());
  host.session().disarm();
  bench.settle();
}

TEST_CASE("a host's word that it waits for the unit's core stops no spinning while another host has traffic",
          "[iounit][neighbours]") {
  UnitBench bench;
  TestHost& honest = host_on_core(bench, "honest", GENERATE(2U, 1U));
  TestHost& liar = host_on_core(bench, "liar", 1);
  const bool honest_waits = honest.pair().end(0).core() == 1;
  static_cast<void>(bench.unit().peer_waits_for_core());
  bench.run(milliseconds(20));  // what they said while they came up is too old
  bench.from_host(honest, make_frame(station(1), honest.mac()));
  bench.from_host(liar, make_frame(station(1), liar.mac()));
  say_core(bench, liar);
  CHECK_FALSE(bench.unit().peer_waits_for_core());
  say_core(bench, honest);
  CHECK(bench.unit().peer_waits_for_core() == honest_waits);
  // A host without traffic has nothing to lose.
  bench.run(milliseconds(200));
  bench.from_host(liar, make_frame(station(1), liar.mac()));
  say_core(bench, liar);
  CHECK(bench.unit().peer_waits_for_core());
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_neighbours_test
