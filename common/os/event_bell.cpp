#include "common/os/event_bell.h"

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>

#include "common/os/errno_text.h"
#include "common/result.h"

namespace splitnic::os {

EventBell::EventBell() : bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!bell_) throw StartupError{fmt::format("creating an eventfd: {}", errno_text())};
}

void EventBell::ring() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t told = ::write(bell_.get(), &one, sizeof one);  // a full counter is readable, too
  // E1 (release): stored after the write to the eventfd; pairs with E1 in heard(). Without it heard() could clear the
  // flag before the write, and the descriptor would stay readable with nobody to empty it.
  rung_.store(true, std::memory_order_release);
}

bool EventBell::heard() {
  if (!rung_.load(std::memory_order_relaxed)) return false;
  rung_.exchange(false, std::memory_order_acquire);  // E1
  std::uint64_t count = 0;
  const iovec part{&count, sizeof count};
  [[maybe_unused]] const ssize_t taken = ::preadv2(bell_.get(), &part, 1, -1, 0);
  return true;
}

}  // namespace splitnic::os
