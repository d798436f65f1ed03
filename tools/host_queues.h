#pragma once

#include <memory>
#include <vector>

#include "common/os/log.h"
#include "common/os/near_cores.h"
#include "fabric/bridge/shm_connector.h"
#include "host/host_driver.h"
#include "host/queue_group.h"
#include "host/tap_nic.h"
#include "tools/daemon.h"

namespace splitnic::tools {

/// The further queues of a host daemon, each with a thread that runs its driver. Thread: the daemon's.
class HostQueues {
 public:
  /// Starts the threads, which serve the TAP's further queues and wait for driver's session. Returns when all of them
  /// run, so that the filter of system calls can close. connect, session: as for the first queue. All references must
  /// outlive this. Null if the TAP has no further queues. Throws StartupError.
  [[nodiscard]] static std::unique_ptr<HostQueues> start(const DaemonOptions& options,
                                                         const fabric::ShmConnectOptions& connect,
                                                         const messaging::SessionOptions& session, host::TapNic& tap,
                                                         host::HostDriver& driver, const os::NearCores& cores,
                                                         os::Log& log);
  /// Shuts the queues down in good order. Call it before the driver's shut-down.
  void stop();
  ~HostQueues();
  HostQueues(const HostQueues&) = delete;
  HostQueues& operator=(const HostQueues&) = delete;

  /// What the threads spun.
  [[nodiscard]] os::SpinCounters spins() const;
  /// What the threads reported last.
  [[nodiscard]] host::QueueGroup::Sum sum() const { return group_.sum(); }

 private:
  class Queue;
  explicit HostQueues(std::size_t further);

  host::QueueGroup group_;
  std::vector<std::unique_ptr<Queue>> queues_;
};

}  // namespace splitnic::tools
