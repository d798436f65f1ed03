#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "core_site.h"
#include "host/queue_driver.h"
#include "host/queue_group.h"
#include "queue_link.h"

namespace splitnic::sim {

/// A further queue of a host: a core of its own in the host's process, so it starts and dies with the host.
class QueueSite final : public CoreSite, private Notices {
 public:
  /// number: 0 for the first further queue. options: of its bridge.
  QueueSite(std::size_t number, const HostScenario& host, const fabric::SimBridgeOptions& options, SimNic& nic,
            const Scenario& scenario, const Edge& edge, RandomSource& random);
  ~QueueSite() override { driver_.reset(); }

  /// The host's process has started: before start().
  void join(host::QueueGroup& group) { group_ = &group; }
  [[nodiscard]] bool alive() const override { return driver_ != nullptr; }
  [[nodiscard]] QueueLink& link() { return link_; }
  [[nodiscard]] const host::QueueDriver* driver() const { return driver_.get(); }
  [[nodiscard]] bool finished() const { return !driver_ || driver_->finished(); }
  void begin_shutdown() {
    if (driver_) driver_->begin_shutdown();
  }

 private:
  void make() override;
  void destroy() override { driver_.reset(); }
  std::size_t poll_core(Time now) override { return driver_->poll(now); }
  [[nodiscard]] Time core_deadline() const override { return driver_->next_deadline(); }
  [[nodiscard]] bool core_prepare_sleep() override { return driver_->prepare_sleep(); }
  void core_awake() override { driver_->disarm(); }
  void core_begin_shutdown() override { driver_->begin_shutdown(); }
  [[nodiscard]] bool core_finished() const override { return driver_->finished(); }
  void core_descriptors(std::vector<int>& out) const override { driver_->collect_descriptors(out); }
  [[nodiscard]] bool port_readable(int descriptor) const override;
  [[nodiscard]] bool bridge_wakes() const override { return link_.held(0) && link_.pair().wake_pending(0); }
  void notice(const std::string& line) override { edge_.trace.line(edge_.now, name_, line); }

  std::size_t number_;
  const HostScenario& host_;
  SimNic& nic_;
  QueueLink link_;
  QueueSource source_of_queue_;
  host::QueueGroup* group_ = nullptr;
  std::unique_ptr<SeededRandom> driver_random_;
  std::unique_ptr<host::QueueDriver> driver_;
};

}  // namespace splitnic::sim
