#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "common/check.h"

namespace splitnic::fabric::hostile {

/// A process that ends with this object, and with the process that made it. Thread: the owner.
class Child {
 public:
  /// body: runs in the new process and returns the exit status.
  template <class Body>
  explicit Child(Body&& body) : pid_(fork()) {
    SPLITNIC_CHECK(pid_ >= 0);
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(body());
  }
  ~Child() {
    if (status_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void end() {
    if (status_) return;
    kill(pid_, SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
    status_ = status;
  }
  /// The status from waitpid(); nullopt: the process still runs.
  [[nodiscard]] std::optional<int> status() {
    int status = 0;
    if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    return status_;
  }

 private:
  pid_t pid_;
  std::optional<int> status_;
};

}  // namespace splitnic::fabric::hostile
