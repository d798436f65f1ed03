#pragma once

#include <string>

#include "common/os/unique_fd.h"
#include "common/result.h"

namespace splitnic::os {

/// Reports this process's progress to the service manager that started it (the protocol of sd_notify(3)). Without
/// a service manager every report does nothing. Each report is one datagram. ready() and stopping() wait while the
/// service manager's queue is full; status() drops its report then, so that it never delays the data path. The class
/// implements the protocol without libsystemd: systemd promises never to change it, and the library would load its
/// compression and encryption libraries into every splitnic process. Thread: one at a time.
class ServiceManager {
 public:
  /// Reports to nobody.
  ServiceManager() = default;
  /// Connects to the socket that NOTIFY_SOCKET names: an absolute path, or '@' and an abstract name. Connect before
  /// entering a network namespace, because abstract names belong to one.
  /// Errors: the variable holds no such address, or nobody listens there.
  static Result<ServiceManager> from_environment();

  /// The start-up is complete: units that wait for this one may start. status: one line for `systemctl status`.
  void ready(const std::string& status) { send("READY=1\nSTATUS=" + one_line(status), true); }
  /// status: one line for `systemctl status`, in place of the previous one.
  void status(const std::string& status) { send("STATUS=" + one_line(status), false); }
  /// The process begins to shut down.
  void stopping() { send("STOPPING=1\nSTATUS=ending", true); }

 private:
  static std::string one_line(std::string text);
  void send(const std::string& report, bool wait);

  UniqueFd socket_;  ///< none without a service manager
};

}  // namespace splitnic::os
