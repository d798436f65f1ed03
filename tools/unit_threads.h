#pragma once

#include <memory>
#include <vector>

#include "common/os/event_loop.h"
#include "common/random.h"
#include "iounit/bridge_spread.h"
#include "iounit/unit_group.h"
#include "tools/unit_server.h"

namespace splitnic::tools {

/// Several I/O units, each with a thread, a part of the hosts and a LAN engine of its own. The daemon's thread moves no
/// frame: it gives bridges to the units, answers on the control socket and reads the policy.
class UnitThreads final : public UnitServer, private os::Task {
 public:
  /// See make_unit_server(). lans: at least two, at most kMaxUnits. Returns when all threads run.
  UnitThreads(const DaemonOptions& daemon, const iounit::IoUnitOptions& options,
              std::vector<std::unique_ptr<iounit::LanEngine>> lans, fabric::BridgeSource& bridges, os::Log& log);
  ~UnitThreads() override;
  UnitThreads(const UnitThreads&) = delete;
  UnitThreads& operator=(const UnitThreads&) = delete;

  [[nodiscard]] PolicyAccess policy() override;
  void add_to(os::EventLoop& loop) override { loop.add(*this); }
  [[nodiscard]] Result<std::vector<UnitReport>> reports(bool clear) override;
  [[nodiscard]] os::SpinCounters spins() const override;
  void shut_down() override;

 private:
  class Member;
  class MemberNotices;

  // The task of the daemon's loop: bridges from the doorman to the units.
  std::size_t poll(Time now) override { return spread_.poll(now) ? 1 : 0; }
  bool prepare_sleep(Time /*now*/) override { return true; }
  void disarm() override {}
  [[nodiscard]] Time next_deadline() const override { return bridges_.next_deadline(); }
  void collect_descriptors(std::vector<int>& out) const override { bridges_.collect_descriptors(out); }

  SystemRandom random_;
  fabric::BridgeSource& bridges_;
  iounit::UnitGroup group_;
  iounit::BridgeSpread spread_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace splitnic::tools
