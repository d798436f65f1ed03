#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/os/event_loop.h"
#include "common/os/log.h"
#include "common/os/privileged_process.h"
#include "tools/commands.h"
#include "tools/privileges.h"
#include "tools/system_call_filter.h"

namespace splitnic::tools {

/// What a daemon gives up once its interface and its sockets are open, and in which order:
/// 1. start_privileged(): a process keeps the rights that the daemon needs now and then.
/// 2. drop(): no capabilities, the user of --user. Before the daemon has threads.
/// 3. close(): the filter of system calls. When everything is set up.
/// With --no-sandbox all three do nothing. Thread: the loop's.
class Sandbox {
 public:
  /// subject: in the log line about a forbidden call. options and log are lent. Throws UsageError.
  Sandbox(const DaemonOptions& options, std::string subject, os::Log& log);

  [[nodiscard]] bool on() const { return on_; }
  [[nodiscard]] const std::optional<Account>& account() const { return account_; }
  /// Gives a socket of this daemon to the user of --user, if any. Follows no symbolic link. Throws StartupError.
  void give_away(const std::string& path) const;

  /// keep: the capabilities of the privileged process, of those that the daemon has. filter: its system calls.
  /// sockets: this process removes them when the daemon has ended, in whatever way. Returns nullptr with --no-sandbox.
  /// The process sets itself up meanwhile; close() waits for it. Throws StartupError.
  std::shared_ptr<os::PrivilegedProcess> start_privileged(os::PrivilegedService service, std::vector<int> keep,
                                                          FilteredPart filter, const std::vector<std::string>& sockets);
  /// keep: the daemon's own capabilities. Throws StartupError.
  void drop(const std::vector<int>& keep);
  /// Ends the loop when the privileged process ends. Throws StartupError.
  void close(os::EventLoop& loop, FilteredPart part);

  /// Call it before the loop goes. Returns the daemon's exit code: 1 if it ended because the privileged process had
  /// ended.
  [[nodiscard]] int finish();
  /// Ends the privileged process, which removes the sockets, and waits for that. The sockets must be closed by now.
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

 private:
  struct Watch;

  bool on_;
  std::optional<Account> account_;
  std::string subject_;
  os::Log& log_;
  std::shared_ptr<os::PrivilegedProcess> process_;
  std::shared_ptr<Watch> watch_;
};

}  // namespace splitnic::tools
