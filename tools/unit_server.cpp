#include "tools/unit_server.h"

#include <utility>

#include "common/os/core_task.h"
#include "tools/unit_parts.h"
#include "tools/unit_threads.h"

namespace splitnic::tools {

namespace {

/// One I/O unit, which runs on the daemon's thread.
class LoneUnit final : public UnitServer {
 public:
  LoneUnit(iounit::IoUnitOptions options, std::unique_ptr<iounit::LanEngine> lan, fabric::BridgeSource& bridges,
           Notices& notices)
      : lan_(std::move(lan)),
        unit_(parts_.in(std::move(options)), *lan_, bridges, parts_.random, notices),
        task_(unit_) {}

  PolicyAccess policy() override {
    return {.change = [this](const auto& change) { change(unit_.policy()); },
            .read = [this](const auto& read) { read(unit_.policy()); },
            .set_rules = [this](iounit::PolicyRules rules) { unit_.set_rules(std::move(rules)); }};
  }
  void add_to(os::EventLoop& loop) override { loop.add(task_); }
  Result<std::vector<UnitReport>> reports(bool clear) override {
    std::vector<UnitReport> reports;
    reports.push_back(report_of(unit_, *lan_));
    if (clear) clear_statistics_of_hosts(unit_);
    return reports;
  }
  [[nodiscard]] os::SpinCounters spins() const override { return {}; }
  void shut_down() override { os::shut_down(unit_); }

 private:
  std::unique_ptr<iounit::LanEngine> lan_;
  UnitParts parts_;
  iounit::IoUnit unit_;
  os::CoreTask<iounit::IoUnit> task_;
};

}  // namespace

std::unique_ptr<UnitServer> make_unit_server(const DaemonOptions& daemon, const iounit::IoUnitOptions& options,
                                             std::vector<std::unique_ptr<iounit::LanEngine>> lans,
                                             fabric::BridgeSource& bridges, Notices& notices, os::Log& log) {
  if (lans.size() > 1) return std::make_unique<UnitThreads>(daemon, options, std::move(lans), bridges, log);
  return std::make_unique<LoneUnit>(options, std::move(lans.front()), bridges, notices);
}

}  // namespace splitnic::tools
