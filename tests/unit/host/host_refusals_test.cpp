#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>

#include "driver_bench.h"
#include "host/host_driver.h"

namespace splitnic::host::test::host_refusals_test {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a host that the unit's rules refuse tries less and less often", "[host][driver]") {
  DriverBench bench;
  bench.unit.refusal = messaging::Refusal{wire::CfgStatus::not_permitted, "no such name is in the policy"};
  bench.start_unit();
  const auto tries_within = [&](Duration time) {
    const std::size_t before = bench.unit.hellos.size();
    bench.run(time);
    return bench.unit.hellos.size() - before;
  };
  CHECK(tries_within(350ms) >= 2);
  CHECK(tries_within(20s) <= 14);
  CHECK(tries_within(20s) >= 9);
  CHECK(bench.unit.session().counters().faults == 0);  // it has not waited for the host in vain
  // The rules have changed.
  bench.unit.refusal.reset();
  REQUIRE(bench.run_until([&] { return bench.driver().up(); }, 2100ms));
  // What is no rule does not slow the host down, and its pauses begin anew.
  bench.unit.refusal = messaging::Refusal{wire::CfgStatus::busy, "a host named host is here already"};
  bench.unit.session().reset("again");
  CHECK(tries_within(2s) >= 15);
  bench.unit.refusal = messaging::Refusal{wire::CfgStatus::not_permitted, "no such name is in the policy"};
  CHECK(tries_within(900ms) >= 2);
}

TEST_CASE("a host that pauses after a refusal notices at once that the unit has gone", "[host][driver]") {
  DriverBench bench;
  bench.unit.refusal = messaging::Refusal{wire::CfgStatus::not_permitted, "no such name is in the policy"};
  bench.start_unit();
  bench.run(10s);
  const std::size_t tries = bench.unit.hellos.size();
  REQUIRE(bench.run_until([&] { return bench.unit.hellos.size() != tries; }));
  bench.run(500ms);
  bench.bridges.offered = false;
  bench.unit.stop();
  bench.pair.cut();
  bench.settle();
  CHECK(bench.driver().session() == nullptr);
  bench.pair.restore();
  bench.bridges.offered = true;
  bench.unit.refusal.reset();
  bench.start_unit();
  CHECK(bench.run_until([&] { return bench.driver().up(); }, 200ms));
}

}  // namespace
}  // namespace splitnic::host::test::host_refusals_test
