#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "common/os/timespec.h"
#include "common/time.h"

namespace splitnic::os {

/// Whether the future is ready by then. Looks every millisecond and sleeps in ppoll in between. Not by wait_until():
/// its futex wait has a time limit, so the kernel resumes it with restart_syscall after SIGSTOP and SIGCONT. The
/// sandbox forbids this call.
template <class Value>
[[nodiscard]] bool ready_before(const std::future<Value>& future, Time deadline) {
  const timespec pause = timespec_of(std::chrono::milliseconds(1));
  while (future.wait_for(Duration(0)) != std::future_status::ready) {
    if (monotonic_now() >= deadline) return false;
    ::ppoll(nullptr, 0, &pause, nullptr);
  }
  return true;
}

}  // namespace splitnic::os
