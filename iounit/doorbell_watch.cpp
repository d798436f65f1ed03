#include "iounit/doorbell_watch.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/check.h"
#include "common/os/errno_text.h"
#include "common/result.h"

namespace splitnic::iounit {

EpollWatch::EpollWatch() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw StartupError{fmt::format("creating an epoll: {}", os::errno_text())};
}

// The kernel may refuse for lack of memory or watches.
bool EpollWatch::watch(const fabric::Bridge& bridge, std::size_t place) {
  const int descriptor = bridge.doorbell_descriptor();
  if (descriptor < 0) return false;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = place;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void EpollWatch::forget(const fabric::Bridge& bridge) {
  const int done = ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, bridge.doorbell_descriptor(), nullptr);
  SPLITNIC_CHECK(done == 0);
}

std::size_t EpollWatch::rung(std::span<std::size_t> out) {
  std::array<epoll_event, 64> events;
  const auto most = static_cast<int>(std::min(events.size(), out.size()));
  const int count = ::epoll_wait(epoll_.get(), events.data(), most, 0);
  SPLITNIC_CHECK(count >= 0 || errno == EINTR);
  const auto found = static_cast<std::size_t>(std::max(count, 0));
  for (std::size_t at = 0; at < found; ++at) out[at] = static_cast<std::size_t>(events[at].data.u64);
  return found;
}

}  // namespace splitnic::iounit
