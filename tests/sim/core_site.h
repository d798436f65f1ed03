#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/bridge/bridge_source.h"
#include "host/host_driver.h"
#include "iounit/io_unit.h"
#include "queue_link.h"
#include "sim_nic.h"
#include "tests/sim_bridge/sim_bridge.h"
#include "tests/unit/loads_once.h"

namespace splitnic::sim {

/// One end of each bridge pair that a core may use. Hands out a bridge while nobody holds it and the link is there.
class SimSource final : public fabric::BridgeSource {
 public:
  void add(fabric::SimBridgePair& pair, std::size_t end) { slots_.push_back({&pair, end, false}); }
  /// The unit's end of it.
  void add(QueueLink& link) { links_.push_back(&link); }
  std::shared_ptr<fabric::Bridge> poll(Time now) override;
  [[nodiscard]] Time next_deadline() const override { return kNever; }
  void collect_descriptors(std::vector<int>& out) const override { out.push_back(kSourceDescriptor); }
  [[nodiscard]] bool readable() const;
  /// A doorbell or a change of the link is pending on a bridge in use.
  [[nodiscard]] bool wake_pending() const;
  [[nodiscard]] bool wake_pending(const fabric::Bridge& bridge) const;
  /// The program that used these ends has died.
  void forget(bool scribble);

 private:
  struct Slot {
    fabric::SimBridgePair* pair;
    std::size_t end;
    bool held;
  };
  std::vector<Slot> slots_;
  std::vector<QueueLink*> links_;
};

class QueueSite;

/// When a core runs, and how it sleeps: it polls while awake, every poll takes time; it goes to sleep by
/// prepare_sleep() alone, and is woken by a descriptor that it asked for or by its own deadline. So a wake-up that
/// gets lost shows as a frame that comes late or never.
class CoreSite {
 public:
  CoreSite(std::string name, const Scenario& scenario, const Edge& edge, RandomSource& random)
      : name_(std::move(name)), scenario_(scenario), edge_(edge), random_(random) {}
  virtual ~CoreSite() = default;
  CoreSite(const CoreSite&) = delete;
  CoreSite& operator=(const CoreSite&) = delete;

  /// The next time at which this core does something, unless it is woken before.
  [[nodiscard]] Time next_time() const;
  /// Polls, falls asleep or wakes up, as is due.
  void run();
  [[nodiscard]] bool asleep() const { return asleep_; }
  [[nodiscard]] virtual bool alive() const = 0;
  void start();
  /// As kill -9.
  void kill(bool scribble);
  /// As SIGSTOP, and SIGCONT at `until`.
  void pause(Time until);
  void resume() { paused_until_ = Time{}; }
  /// The orderly end; kill() follows when it has finished, or when patience ends.
  void shut_down(Time patience);
  [[nodiscard]] bool shutting_down() const { return patience_ != kNever; }

  [[nodiscard]] SimSource& source() { return source_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t polls() const { return polls_; }
  [[nodiscard]] std::uint64_t wakes() const { return wakes_; }

 protected:
  virtual void make() = 0;
  virtual void destroy() = 0;
  virtual std::size_t poll_core(Time now) = 0;
  [[nodiscard]] virtual Time core_deadline() const = 0;
  [[nodiscard]] virtual bool core_prepare_sleep() = 0;
  virtual void core_awake() = 0;
  virtual void core_begin_shutdown() = 0;
  [[nodiscard]] virtual bool core_finished() const = 0;
  virtual void core_descriptors(std::vector<int>& out) const = 0;
  /// descriptor: one of core_descriptors(), but the bridge source's.
  [[nodiscard]] virtual bool port_readable(int descriptor) const = 0;
  /// A doorbell is pending at a bridge that is not source_'s.
  [[nodiscard]] virtual bool bridge_wakes() const { return false; }

  std::string name_;
  const Scenario& scenario_;
  Edge edge_;
  RandomSource& random_;
  SimSource source_;

 private:
  [[nodiscard]] bool readable() const;
  void poll_once();

  bool asleep_ = false;
  bool just_woken_ = false;
  Time next_run_{};
  Time deadline_ = kNever;
  Time paused_until_{};
  Time patience_ = kNever;
  unsigned idle_polls_ = 0;
  std::uint64_t polls_ = 0;
  std::uint64_t wakes_ = 0;
  mutable std::vector<int> descriptors_;
};

/// A core that is a driver: HostDriver, QueueDriver or IoUnit. Derived classes make it, and end it before what it uses.
template <class Driver>
class DriverSite : public CoreSite, protected Notices {
 public:
  using CoreSite::CoreSite;

  [[nodiscard]] bool alive() const override { return driver_ != nullptr; }
  /// Null while the core's process is dead.
  [[nodiscard]] const Driver* driver() const { return driver_.get(); }

 protected:
  void destroy() override { driver_.reset(); }
  std::size_t poll_core(Time now) override { return driver_->poll(now); }
  [[nodiscard]] Time core_deadline() const override { return driver_->next_deadline(); }
  [[nodiscard]] bool core_prepare_sleep() override { return driver_->prepare_sleep(); }
  void core_awake() override { driver_->disarm(); }
  void core_begin_shutdown() override { driver_->begin_shutdown(); }
  [[nodiscard]] bool core_finished() const override { return driver_->finished(); }
  void core_descriptors(std::vector<int>& out) const override { driver_->collect_descriptors(out); }
  void notice(const std::string& line) override { edge_.trace.line(edge_.now, name_, line); }

  std::unique_ptr<SeededRandom> driver_random_;
  std::unique_ptr<Driver> driver_;
};

class HostSite final : public DriverSite<host::HostDriver> {
 public:
  HostSite(std::size_t index, const Scenario& scenario, const Edge& edge, RandomSource& random);
  ~HostSite() override;

  /// Its further queues: cores in its process.
  [[nodiscard]] const std::vector<std::unique_ptr<QueueSite>>& queues() const { return queues_; }
  /// How many queues it has when everything is up.
  [[nodiscard]] std::size_t wanted_queues() const;
  [[nodiscard]] bool up() const { return driver_ && driver_->up(); }
  [[nodiscard]] SimNic& nic() { return nic_; }
  [[nodiscard]] const SimNic& nic() const { return nic_; }
  [[nodiscard]] fabric::SimBridgePair& pair() { return pair_; }
  [[nodiscard]] const fabric::SimBridgePair& pair() const { return pair_; }
  /// Where a planted fault takes effect; before start().
  void plant(Plant plant, SimNic& other) { planted_ = planted_nic(plant, nic_, other); }

 private:
  void make() override;
  void destroy() override;
  std::size_t poll_core(Time now) override;
  void core_begin_shutdown() override;
  [[nodiscard]] bool core_finished() const override;
  [[nodiscard]] bool port_readable(int) const override { return nic_.readable(); }

  const HostScenario& host_;
  SimNic nic_;
  std::unique_ptr<host::VirtualNic> planted_;
  fabric::SimBridgePair pair_;
  test::LoadsOnce loads_{pair_.end(0).local_memory(), pair_.end(1).local_memory()};
  std::vector<std::unique_ptr<QueueSite>> queues_;
  std::unique_ptr<host::QueueGroup> group_;
  bool was_up_ = false;
};

/// What an epoll of the unit would tell.
class SimWatch final : public iounit::DoorbellWatch {
 public:
  SimWatch(const SimSource& source, Plant plant) : source_(source), plant_(plant) {}
  [[nodiscard]] bool watch(const fabric::Bridge& bridge, std::size_t place) override;
  void forget(const fabric::Bridge& bridge) override;
  [[nodiscard]] std::size_t rung(std::span<std::size_t> out) override;
  [[nodiscard]] int descriptor() const override { return -1; }

 private:
  const SimSource& source_;
  Plant plant_;
  std::vector<std::pair<const fabric::Bridge*, std::size_t>> places_;
};

class UnitSite final : public DriverSite<iounit::IoUnit> {
 public:
  UnitSite(const Scenario& scenario, const Edge& edge, RandomSource& random)
      : DriverSite("unit", scenario, edge, random), lan_(edge, scenario.lan_mtu) {}
  ~UnitSite() override { driver_.reset(); }

  [[nodiscard]] SimLan& lan() { return lan_; }
  /// The unit's port of that host, if its session is up; else null.
  [[nodiscard]] const iounit::AttachedHost* port_of(const std::string& host) const;

 private:
  void make() override;
  [[nodiscard]] bool port_readable(int) const override { return lan_.readable(); }

  SimLan lan_;
  std::unique_ptr<SimWatch> watch_;
};

}  // namespace splitnic::sim
