#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/os/control_server.h"
#include "common/os/core_task.h"
#include "common/os/daemon_status.h"
#include "common/os/event_loop.h"
#include "common/os/log.h"
#include "common/os/log_notices.h"
#include "common/os/service_manager.h"
#include "common/os/unix_listener.h"
#include "common/result.h"
#include "messaging/session.h"
#include "tools/commands.h"

namespace splitnic::tools {

/// The session options that both daemons derive from their options. Throws UsageError for wrong values.
messaging::SessionOptions session_options(const DaemonOptions& options, const std::string& name);
/// options.name, or a name derived from the machine's name and the interface that the daemon serves, so that the names
/// of several daemons on a machine differ. Throws UsageError for an impossible name.
std::string daemon_name(const DaemonOptions& options, const std::string& interface);
std::unique_ptr<os::Log> make_log(const DaemonOptions& options, const std::string& subject);
/// Throws UsageError unless it is an address that an interface may have. words: those of the command line, for the
/// error.
MacAddress parse_mac_option(const std::string& text, const std::string& words);
/// Moves this thread into options.netns, if set. Throws StartupError.
void enter_netns(const DaemonOptions& options);

/// Blocks the signals that end a daemon, for the life of the process. Only its loop reads them (EventLoop), so a second
/// signal does not interrupt the clean end. Call it before the daemon makes anything that must not stay behind, and
/// before it has threads.
void hold_signals();

/// Raises this process's limit of open descriptors to so many, as far as it may. Returns the limit that it then has.
std::size_t permit_descriptors(std::size_t wanted);

/// Opens the daemon's control socket: options.control, or one in the run-time directory. Throws StartupError.
os::UnixListener listen_for_control(const DaemonOptions& options, const std::string& role);
/// Answers requests on the control socket. Adds pid, version and up-time to each status that handle replies with.
std::unique_ptr<os::ControlServer> serve_control(os::EventLoop& loop, os::UnixListener listener,
                                                 os::ControlHandler handle, os::Log& log);

/// The service manager that started this daemon. If it can't be reached, the function writes a log line.
os::ServiceManager connect_service_manager(os::Log& log);

/// Forwards a core's notices. The service manager shows the last notice or state() as the status. Both arguments are
/// lent.
class ServiceNotices final : public Notices {
 public:
  ServiceNotices(Notices& next, os::ServiceManager& service) : next_(next), service_(service) {}
  void notice(const std::string& line) override {
    next_.notice(line);
    service_.status(line);
  }
  /// Writes to the log only: with several notices a second, the status would hide the last important event.
  void recurring_notice(const std::string& line) override { next_.recurring_notice(line); }
  /// To the log only: a peer must not choose the text that the service manager shows.
  void notice_from(std::string_view source, const std::string& line) override { next_.notice_from(source, line); }
  void recurring_notice_from(std::string_view source, const std::string& line) override {
    next_.recurring_notice_from(source, line);
  }
  void state(const std::string& text) override { service_.status(text); }

 private:
  Notices& next_;
  os::ServiceManager& service_;
};

/// Writes waiting log lines when their reader reads again. log is lent.
class LogTask final : public os::Task {
 public:
  explicit LogTask(os::Log& log) : log_(log) {}
  std::size_t poll(Time now) override {
    if (now < next_try_) return 0;
    next_try_ = log_.flush() ? kNever : now + kRetryInterval;
    return 0;
  }
  bool prepare_sleep(Time now) override {
    if (next_try_ == kNever && log_.waiting()) next_try_ = now + kRetryInterval;
    return true;
  }
  void disarm() override {}
  [[nodiscard]] Time next_deadline() const override { return next_try_; }
  void collect_descriptors(std::vector<int>&) const override {}

 private:
  static constexpr Duration kRetryInterval = std::chrono::milliseconds(100);
  os::Log& log_;
  Time next_try_ = kNever;
};

/// The loop's options for a daemon. On SIGHUP a daemon whose standard input is a terminal ends; any other daemon calls
/// reload and continues. Without reload it writes a line that there is nothing to reload. log is lent to the loop.
os::EventLoopOptions loop_options(const DaemonOptions& options, os::Log& log, std::function<void()> reload = {});
/// The same for the loop of a further thread, which leaves signals to the daemon's.
os::EventLoopOptions loop_options_of_thread(const DaemonOptions& options, os::Log& log);
/// Starts a thread of the daemon, which may write to the log once the filter of system calls has closed. Throws
/// StartupError.
[[nodiscard]] std::thread start_thread(std::function<void()> run);

/// The counts of one peer, as the control socket reports them.
os::PeerStatus peer_status(const messaging::SessionTotals& totals, const std::string& name, const std::string& state);
/// Adds what the peer reports about itself, each name with the prefix: frames and bytes go to the messages, errors and
/// drops to the drops.
void add_statistics(os::PeerStatus& peer, const messaging::wire::Statistics& statistics, const std::string& prefix);
void add_count(std::vector<os::NamedCount>& counts, const std::string& name, std::uint64_t value);
void add_spins(std::vector<os::NamedCount>& counts, const os::SpinCounters& spins);

}  // namespace splitnic::tools
