#include "tools/unit_threads.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/quiet_log.h"

namespace splitnic::tools::unit_threads_test {
namespace {

/// A LAN without frames. While `holds`, it keeps the thread that polls it.
class HoldingLan final : public iounit::LanEngine {
 public:
  std::atomic<bool> holds = false;
  std::atomic<bool> held = false;

  std::size_t receive(iounit::LanSink& /*sink*/, std::size_t /*budget*/) override {
    held = holds.load();
    held.notify_all();
    holds.wait(true);
    return 0;
  }
  bool send(std::span<const std::byte> /*frame*/) override { return true; }
  void flush() override {}
  void poll(Time now) override { next_poll_ = now + std::chrono::milliseconds(1); }
  [[nodiscard]] Time next_deadline() const override { return next_poll_; }
  [[nodiscard]] bool carrier() const override { return true; }
  [[nodiscard]] std::uint32_t mtu() const override { return 1500; }
  [[nodiscard]] const iounit::LanCounters& counters() const override { return counters_; }
  void collect_descriptors(std::vector<int>& /*out*/) const override {}
  [[nodiscard]] std::string name() const override { return "lan"; }

 private:
  Time next_poll_{};
  iounit::LanCounters counters_;
};

class NoBridges final : public fabric::BridgeSource {
 public:
  std::shared_ptr<fabric::Bridge> poll(Time /*now*/) override { return nullptr; }
  [[nodiscard]] Time next_deadline() const override { return kNever; }
  void collect_descriptors(std::vector<int>& /*out*/) const override {}
};

TEST_CASE("a thread of a unit that does not answer is named while the client still waits", "[tools][status]") {
  std::vector<std::unique_ptr<iounit::LanEngine>> lans;
  lans.push_back(std::make_unique<HoldingLan>());
  auto second = std::make_unique<HoldingLan>();
  HoldingLan& lan = *second;
  lans.push_back(std::move(second));
  iounit::IoUnitOptions options;
  options.session.name = "unit";
  NoBridges bridges;
  UnitThreads units(DaemonOptions{}, options, std::move(lans), bridges, testing::quiet_log());
  REQUIRE(units.reports(false));

  lan.holds = true;
  lan.held.wait(false);
  const auto reports = units.reports(true);
  REQUIRE_FALSE(reports);
  CHECK(reports.error().message == "thread 2 does not answer");

  lan.holds = false;
  lan.holds.notify_all();
  const auto again = units.reports(true);
  REQUIRE(again);
  CHECK(again->size() == 2);
}

}  // namespace
}  // namespace splitnic::tools::unit_threads_test
