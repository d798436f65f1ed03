// What hosts leave behind when they have died: no memory.
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_memory_test {
namespace {

/// Pages of this process that no file backs, in KiB.
std::uint64_t anonymous_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8));
  }
  return 0;
}

TEST_CASE("hosts that have died leave no memory with the unit", "[iounit][memory]") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("skipped: a sanitizer's allocator keeps what is freed");
  return;
#endif
  constexpr std::size_t kHosts = 48;
  IoUnitOptions options;
  options.max_hosts = kHosts;
  UnitBench bench(options);
  std::vector<TestHost*> hosts;
  for (std::size_t index = 0; index < kHosts; ++index) hosts.push_back(&bench.silent_bridge());
  REQUIRE(bench.run_until([&] { return bench.attached_count() == kHosts; }));
  const std::uint64_t before = anonymous_kib();
  REQUIRE(before > 0);
  for (std::size_t index = 0; index < kHosts; ++index) hosts[index]->start(host_named("host" + std::to_string(index)));
  REQUIRE(bench.run_until([&] { return bench.unit().hosts_up() == kHosts; }));
  const std::uint64_t serving = anonymous_kib();
  REQUIRE(serving > before + kHosts * 512);

  for (TestHost* host : hosts) host->die();
  REQUIRE(bench.run_until([&] { return bench.attached_count() == 0; }));
  bench.run(std::chrono::seconds(2));
  const std::uint64_t after = anonymous_kib();
  INFO("before " << before << " KiB, serving " << serving << ", after " << after);
  CHECK(after < before + (serving - before) / 10);
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_memory_test
