#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace splitnic::os {

/// A daemon that runs on this machine, of any user.
struct DaemonProcess {
  pid_t pid = 0;
  uid_t user = 0;
  std::string role;  ///< "host" or "iounit"
  friend bool operator==(const DaemonProcess&, const DaemonProcess&) = default;
};

/// All processes that run `splitnic host` or `splitnic iounit`, sorted by pid, if this user may see them. Their
/// privileged processes are left out. proc: the mount point of the proc file system.
std::vector<DaemonProcess> find_daemon_processes(const std::string& proc = "/proc");

}  // namespace splitnic::os
