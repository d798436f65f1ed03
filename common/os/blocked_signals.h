#pragma once

#include <csignal>

namespace splitnic::os {

/// While it lives, the calling thread, and the threads that it creates, leave the process's signals to the process's
/// other threads. Those that the thread itself causes stay open: SIGSYS, by which the sandbox reports a forbidden
/// system call, and the faults of an access to memory that is gone. Blocked, a fault would kill the process instead of
/// reaching the handler that knows it (fabric/memory/guarded_copy.h).
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGSYS, SIGSEGV, SIGBUS}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace splitnic::os
