#pragma once

#include <csignal>

namespace splitnic::os {

/// While it lives, the calling thread, and the threads that it creates, leave the process's signals to the process's
/// other threads. SIGSYS stays open, because the sandbox reports a forbidden system call in the thread that made it.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGSYS);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace splitnic::os
