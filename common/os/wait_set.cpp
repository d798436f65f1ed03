#include "common/os/wait_set.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>

#include "common/check.h"
#include "common/os/errno_text.h"
#include "common/result.h"

namespace splitnic::os {

WaitSet::WaitSet() : timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  if (!timer_) throw StartupError{fmt::format("creating a timer: {}", errno_text())};
  rebuild();
}

// False if the kernel has the descriptor already.
bool WaitSet::add(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return true;
  CHECK_OP(errno, ==, EEXIST);
  return false;
}

// Adding a registered descriptor fails. If it succeeds, the number refers to another file than before. This detects,
// with one short system call each, descriptors that were closed and reused between two sleeps.
bool WaitSet::still_registered() {
  return std::none_of(descriptors_.begin(), descriptors_.end(), [this](int descriptor) { return add(descriptor); });
}

// Rebuilds the set. A file that another process holds open stays in an epoll after we close our descriptor for it, and
// nobody can remove it then. Changes are rare.
void WaitSet::rebuild() {
  epoll_.reset();  // first, so that a process that is short of descriptors gets this one back
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) throw StartupError{fmt::format("creating an epoll: {}", errno_text())};
  add(timer_.get());
  for (const int descriptor : descriptors_) add(descriptor);
}

bool WaitSet::update(std::span<const int> descriptors) {
  if (std::equal(descriptors.begin(), descriptors.end(), descriptors_.begin(), descriptors_.end())) {
    if (still_registered()) return false;
  } else {
    descriptors_.assign(descriptors.begin(), descriptors.end());
  }
  rebuild();
  return true;
}

void WaitSet::set_deadline(Time deadline) {
  if (deadline == deadline_) return;
  itimerspec when{};
  if (deadline != kNever) {
    // Zero would mean "off".
    const auto since_boot = std::max(deadline.time_since_epoch(), Duration(1));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
    when.it_value.tv_sec = seconds.count();
    when.it_value.tv_nsec = (since_boot - seconds).count();
  }
  CHECK(::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr) == 0);
  deadline_ = deadline;
}

}  // namespace splitnic::os
