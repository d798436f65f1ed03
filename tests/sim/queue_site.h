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
class QueueSite final : public DriverSite<host::QueueDriver> {
 public:
  /// number: 0 for the first further queue. options: of its bridge.
  QueueSite(std::size_t number, const HostScenario& host, const fabric::SimBridgeOptions& options, SimNic& nic,
            const Scenario& scenario, const Edge& edge, RandomSource& random);
  ~QueueSite() override { driver_.reset(); }

  /// The host's process has started: before start().
  void join(host::QueueGroup& group) { group_ = &group; }
  [[nodiscard]] QueueLink& link() { return link_; }
  [[nodiscard]] bool finished() const { return !driver_ || driver_->finished(); }
  void begin_shutdown() {
    if (driver_) driver_->begin_shutdown();
  }

 private:
  void make() override;
  [[nodiscard]] bool port_readable(int descriptor) const override;
  [[nodiscard]] bool bridge_wakes() const override { return link_.held(0) && link_.pair().wake_pending(0); }

  std::size_t number_;
  const HostScenario& host_;
  SimNic& nic_;
  QueueLink link_;
  QueueSource source_of_queue_;
  host::QueueGroup* group_ = nullptr;
};

}  // namespace splitnic::sim
