#include "fabric/rdmacm/listener_service.h"

#include <sys/epoll.h>

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
  if (!set) return errno;
  set_ = std::move(set);
  const os::BlockedSignals signals;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    set_.reset();
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

void ListenerService::run() const {
  std::set<int> unserved;
  std::array<epoll_event, 16> fired{};
  for (;;) {
    const int count = ::epoll_wait(set_.get(), fired.data(), static_cast<int>(fired.size()),
                                   unserved.empty() ? -1 : kPauseMilliseconds);
    // A program that closes all descriptors that it does not know, as some do when they start, has closed this one.
    if (count < 0 && errno != EINTR) return;
    for (const epoll_event& event : std::span(fired).first(static_cast<std::size_t>(count > 0 ? count : 0)))
      unserved.insert(event.data.fd);
    std::erase_if(unserved, serve);
  }
}

}  // namespace splitnic::rdmacm
