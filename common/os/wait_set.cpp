#include "common/os/wait_set.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "common/check.h"
#include "common/os/errno_text.h"
#include "common/os/timespec.h"
#include "common/result.h"

namespace splitnic::os {

WaitSet::WaitSet() : timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  if (!timer_) throw StartupError{fmt::format("creating a timer: {}", errno_text())};
  if (const auto made = rebuild(); !made) throw StartupError{made.error().message};
}

WaitSet::Added WaitSet::add(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return Added::yes;
  if (errno == EEXIST) return Added::present;
  // Bugs of the caller: a closed descriptor, and one that can't be waited for. The kernel may refuse any other
  // descriptor at any time, because the watches of a user have a limit (ENOSPC), and because memory has (ENOMEM).
  SPLITNIC_CHECK_OP(errno, !=, EBADF);
  SPLITNIC_CHECK_OP(errno, !=, EPERM);
  return Added::refused;
}

// Adding a registered descriptor fails. If it succeeds, the number refers to another file than before. This detects,
// with one short system call each, descriptors that were closed and reused between two sleeps.
bool WaitSet::still_registered() {
  return complete_ && std::all_of(descriptors_.begin(), descriptors_.end(),
                                  [this](int descriptor) { return add(descriptor) == Added::present; });
}

// Rebuilds the set. A file that another process holds open stays in an epoll after we close our descriptor for it, and
// nobody can remove it then. Changes are rare.
Result<void> WaitSet::rebuild() {
  complete_ = false;
  epoll_.reset();  // first, so that a process that is short of descriptors gets this one back
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail("creating an epoll: {}", errno_text());
  if (add(timer_.get()) == Added::refused) return fail("watching the timer: {}", errno_text());
  for (const int descriptor : descriptors_) {
    if (add(descriptor) == Added::refused) return fail("watching a descriptor: {}", errno_text());
  }
  complete_ = true;
  return {};
}

Result<bool> WaitSet::update(std::span<const int> descriptors) {
  if (std::equal(descriptors.begin(), descriptors.end(), descriptors_.begin(), descriptors_.end())) {
    if (still_registered()) return false;
  } else {
    descriptors_.assign(descriptors.begin(), descriptors.end());
  }
  if (auto rebuilt = rebuild(); !rebuilt) return tl::unexpected(std::move(rebuilt.error()));
  return true;
}

std::size_t WaitSet::ready(std::span<int> out) const {
  std::array<epoll_event, 64> events;
  const auto most = static_cast<int>(std::min(events.size(), out.size()));
  const int count = ::epoll_wait(epoll_.get(), events.data(), most, 0);
  SPLITNIC_CHECK(count >= 0 || errno == EINTR);
  std::size_t found = 0;
  for (const epoll_event& event : std::span(events).first(static_cast<std::size_t>(std::max(count, 0)))) {
    if (event.data.fd != timer_.get()) out[found++] = event.data.fd;
  }
  return found;
}

void WaitSet::set_deadline(Time deadline) {
  if (deadline == deadline_) return;
  itimerspec when{};
  // Zero would mean "off".
  if (deadline != kNever) when.it_value = timespec_of(std::max(deadline.time_since_epoch(), Duration(1)));
  SPLITNIC_CHECK(::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr) == 0);
  deadline_ = deadline;
}

}  // namespace splitnic::os
