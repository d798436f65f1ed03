#pragma once

#include <memory>
#include <vector>

#include "common/notices.h"
#include "common/os/event_loop.h"
#include "common/os/log.h"
#include "common/result.h"
#include "fabric/bridge/shm_source.h"
#include "iounit/io_unit.h"
#include "tools/daemon.h"
#include "tools/unit_policy.h"
#include "tools/unit_status.h"

namespace splitnic::tools {

/// What moves the frames of `splitnic iounit`: one I/O unit on the daemon's thread, or several with threads of their
/// own (UnitThreads). Thread: the daemon's.
class UnitServer {
 public:
  virtual ~UnitServer() = default;
  /// For UnitPolicy. Works as long as this lives.
  [[nodiscard]] virtual PolicyAccess policy() = 0;
  /// Adds its tasks to the daemon's loop. Lent; outlives the loop's run.
  virtual void add_to(os::EventLoop& loop) = 0;
  /// A report of each unit. clear: then clear_statistics_of_hosts(). Not after shut_down(). Errors: a thread does not
  /// answer; nothing is cleared.
  [[nodiscard]] virtual Result<std::vector<UnitReport>> reports(bool clear) = 0;
  /// What the threads of the server's own spun.
  [[nodiscard]] virtual os::SpinCounters spins() const = 0;
  /// Ends all sessions in good order, within a limited time.
  virtual void shut_down() = 0;
};

/// options: of the only unit, or of each unit; the server adds what belongs to a thread. lans: one for each unit.
/// bridges, notices, log: lent, outlive the server. The filter of system calls can close when this returns. Throws
/// StartupError.
[[nodiscard]] std::unique_ptr<UnitServer> make_unit_server(const DaemonOptions& daemon,
                                                           const iounit::IoUnitOptions& options,
                                                           std::vector<std::unique_ptr<iounit::LanEngine>> lans,
                                                           fabric::BridgeSource& bridges, Notices& notices,
                                                           os::Log& log);

}  // namespace splitnic::tools
