#include "fabric/rdmacm/listener_service.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <new>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "common/os/blocked_signals.h"
#include "fabric/rdmacm/rsocket.h"
#include "fabric/rdmacm/stream.h"
#include "fabric/threads/per_process.h"

namespace splitnic::rdmacm {
namespace {

/// A listener that has no descriptors or no memory for its callers is served again after this.
constexpr int kPauseMilliseconds = 100;
/// In the place of a socket's number.
constexpr int kWake = -1;

epoll_event once(int socket) {
  epoll_event readable{};
  readable.events = EPOLLIN | EPOLLONESHOT;
  readable.data.fd = socket;
  return readable;
}

/// false: it must be served again after a while. The number may be that of a later socket already.
bool serve(int number) {
  const auto socket = RsocketTable::get().find(number);
  if (!socket) return true;
  const std::lock_guard guard(socket->lock);
  if (!socket->listens()) return true;
  try {
    return static_cast<Stream&>(*socket).serve_callers();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

ListenerService& ListenerService::get() {
  static constinit fabric::PerProcess<ListenerService> of_process;
  return of_process.get();
}

int ListenerService::start() {
  const std::lock_guard guard(mutex_);
  if (set_) return 0;
  os::UniqueFd set(epoll_create1(EPOLL_CLOEXEC));
  os::UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event woken{};
  woken.events = EPOLLIN;
  woken.data.fd = kWake;
  if (!set || !wake || epoll_ctl(set.get(), EPOLL_CTL_ADD, wake.get(), &woken) != 0) return errno;
  set_ = std::move(set);
  wake_ = std::move(wake);
  const os::BlockedSignals signals;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    set_.reset();
    wake_.reset();
    return error.code().value();
  }
  return 0;
}

int ListenerService::watch(int descriptor, int socket) {
  if (const int error_number = start()) return error_number;
  epoll_event event = once(socket);
  return epoll_ctl(set_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0 ? 0 : errno;
}

void ListenerService::watch_again(int descriptor, int socket) const {
  epoll_event event = once(socket);
  epoll_ctl(set_.get(), EPOLL_CTL_MOD, descriptor, &event);
}

void ListenerService::unwatch(int descriptor) const { epoll_ctl(set_.get(), EPOLL_CTL_DEL, descriptor, nullptr); }

bool ListenerService::serve_later(int socket) {
  const std::lock_guard guard(mutex_);
  late_.push_back(socket);
  return eventfd_write(wake_.get(), 1) == 0;
}

void ListenerService::take_late(std::set<int>& unserved) {
  const std::lock_guard guard(mutex_);
  eventfd_t count = 0;
  if (late_.empty()) return;
  eventfd_read(wake_.get(), &count);
  unserved.insert(late_.begin(), late_.end());
  late_.clear();
}

void ListenerService::run() {
  std::set<int> unserved;
  std::array<epoll_event, 16> fired{};
  for (;;) {
    const int count = ::epoll_wait(set_.get(), fired.data(), static_cast<int>(fired.size()),
                                   unserved.empty() ? -1 : kPauseMilliseconds);
    // A program that closes all descriptors that it does not know, as some do when they start, has closed this one.
    if (count < 0 && errno != EINTR) return;
    for (const epoll_event& event : std::span(fired).first(static_cast<std::size_t>(count > 0 ? count : 0))) {
      if (event.data.fd != kWake) unserved.insert(event.data.fd);
    }
    take_late(unserved);
    std::erase_if(unserved, serve);
  }
}

}  // namespace splitnic::rdmacm
