// What hosts leave behind when they have died: no memory. And what happens where there is too little.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>

#include "tests/unit/other_process.h"

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

/// The unit's end of a bridge, for which there is no memory.
class PoorBridge final : public fabric::Bridge {
 public:
  explicit PoorBridge(std::shared_ptr<fabric::Bridge> real) : real_(std::move(real)) {}
  fabric::PeerMemory local_memory() override { return real_->local_memory(); }
  fabric::PeerWindow& peer_window() override { throw std::bad_alloc(); }
  std::uint32_t read_scratchpad(std::size_t index) override { return real_->read_scratchpad(index); }
  void write_scratchpad(std::size_t index, std::uint32_t value) override { real_->write_scratchpad(index, value); }
  void publish() override { real_->publish(); }
  void fence() override { real_->fence(); }
  void before_doorbell() override { real_->before_doorbell(); }
  void flush() override { real_->flush(); }
  void ring() override { real_->ring(); }
  bool take_doorbells() override { return real_->take_doorbells(); }
  [[nodiscard]] int doorbell_descriptor() const override { return real_->doorbell_descriptor(); }
  [[nodiscard]] fabric::BridgeGroup group() const override { return real_->group(); }
  fabric::LinkState link() override { return real_->link(); }

 private:
  std::shared_ptr<fabric::Bridge> real_;
};

TEST_CASE("a host for which there is no memory is refused, counted, and harms no other", "[iounit][memory]") {
  UnitBench bench;
  TestHost& served = bench.host_up("served");
  TestHost& late = bench.silent_bridge();
  REQUIRE(bench.run_until([&] { return bench.attached_count() == 2; }));
  late.die();
  REQUIRE(bench.run_until([&] { return bench.attached_count() == 1; }));
  bench.connect_again(std::make_shared<PoorBridge>(late.unit_end()));
  REQUIRE(bench.run_until([&] { return late.released; }));
  CHECK(bench.attached_count() == 1);
  CHECK(bench.unit().counters().hosts_refused == 1);
  CHECK(bench.notices.any_contains("a host was refused: no memory"));
  CHECK(served.up());
  CHECK(bench.host_up("next").up());
}

/// The pages of address space that this process has, in bytes.
std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

/// Hosts whose sessions need much more memory than the process may have. 0: each that came up was served, none broke
/// the unit, and all came up when there was memory.
int come_up_with_little_memory() {
  constexpr std::size_t kHosts = 8;
  IoUnitOptions options;
  options.max_hosts = kHosts;
  UnitBench bench(options);
  std::vector<TestHost*> hosts;
  for (std::size_t index = 0; index < kHosts; ++index) hosts.push_back(&bench.silent_bridge());
  if (!bench.run_until([&] { return bench.attached_count() == kHosts; })) return 1;
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  const rlim_t before = std::exchange(limit.rlim_cur, address_space() + (3U << 20U));
  for (std::size_t index = 0; index < kHosts; ++index) hosts[index]->start(host_named("host" + std::to_string(index)));
  if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
  bench.run(std::chrono::milliseconds(300));
  const std::size_t served = bench.unit().hosts_up();
  limit.rlim_cur = before;
  ::setrlimit(RLIMIT_AS, &limit);
  if (served == kHosts) return 3;
  return bench.run_until([&] { return bench.unit().hosts_up() == kHosts; }) ? 0 : 4;
}

TEST_CASE("sessions for which there is no memory come up when there is", "[iounit][memory]") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("skipped: a sanitizer needs the address space itself");
  return;
#endif
  CHECK(testing::exit_code_of(come_up_with_little_memory) == 0);
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_memory_test
