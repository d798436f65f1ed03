// The C interface of sockets over RDMA: making, connecting, closing and naming them. Each call does what the one
// without the `r` does.
#include <fcntl.h>
#include <rdma/rsocket.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "common/os/uncancelled.h"
#include "fabric/rdmacm/rsocket_calls.h"
#include "fabric/rdmacm/stream.h"

namespace splitnic::rdmacm {
namespace {

/// How long rclose() waits for bytes that are on their way, if the program does not say (SO_LINGER). They need only the
/// fabric's threads at the other end, not its program.
constexpr Duration kDrainMax = std::chrono::seconds(10);
/// The same for all sockets of a program that ends without closing them.
constexpr Duration kExitDrainMax = std::chrono::seconds(1);

/// Sends what is posted and the stream's end, as far as the time allows.
void drain(const std::shared_ptr<Rsocket>& socket, Time deadline) {
  {
    const std::lock_guard guard(socket->lock);
    if (socket->closed) return;
    static_cast<void>(socket->shut_down(SHUT_RDWR));
  }
  while (await_one(socket, kDrained, deadline) == EINTR) {
  }
}

/// A program that ends does not have to close its sockets.
void drain_all() {
  const Time deadline = monotonic_now() + kExitDrainMax;
  for (const auto& socket : RsocketTable::get().all()) {
    if (socket->lock.try_lock()) {
      const bool listens = socket->listens();
      socket->lock.unlock();
      if (!listens) drain(socket, deadline);
    }
  }
}

int set_descriptor_flags(Rsocket& socket, int command, long argument) {
  switch (command) {
    case F_GETFL:
      return O_RDWR | (socket.options.nonblocking ? O_NONBLOCK : 0);
    case F_SETFL:
      socket.options.nonblocking = (argument & O_NONBLOCK) != 0;
      return 0;
    case F_GETFD:
    case F_SETFD:
      return ::fcntl(socket.descriptor(), command, argument);
    default:
      return refuse(EINVAL);
  }
}

Address loopback_for(const Address& any) {
  Address address = any;
  if (any.is_ip4()) address.bytes[12] = 127;
  address.bytes[15] = 1;
  return address;
}

}  // namespace

int await_one(const std::shared_ptr<Rsocket>& socket, short event, Time deadline, const Transfer* transfer) {
  std::array<Interest, 1> interest{{{socket, event, 0, transfer}}};
  const auto count = await(interest, {}, deadline);
  if (!count) return count.error();
  return *count == 0 ? EAGAIN : 0;
}

Time deadline_after(Duration timeout) { return timeout == Duration(0) ? kNever : monotonic_now() + timeout; }

void tell_address(const Address& address, int family, sockaddr* to, socklen_t* bytes) {
  if (bytes == nullptr) return;
  sockaddr_storage system{};
  const socklen_t length = put_address_as(address, family, system);
  if (to != nullptr) std::memcpy(to, &system, std::min(*bytes, length));
  *bytes = length;
}

extern "C" {

int rsocket(int domain, int type, int protocol) {
  constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;
  if (domain != AF_INET && domain != AF_INET6) return refuse(EAFNOSUPPORT);
  const int kind = type & ~kFlags;
  const int usual = kind == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
  if ((kind != SOCK_STREAM && kind != SOCK_DGRAM) || (protocol != 0 && protocol != usual))
    return refuse(EPROTONOSUPPORT);
  return keeping_errno([&] {
    return guarded([&] {
      if (Library::get() == nullptr) return -1;
      static const int drains_at_exit = std::atexit(drain_all);
      static_cast<void>(drains_at_exit);
      const auto made = Rsocket::create(domain, kind);
      if (!made) return -1;
      made->options.nonblocking = (type & SOCK_NONBLOCK) != 0;
      RsocketTable::get().insert(made);
      return made->descriptor();
    });
  });
}

int rbind(int socket, const sockaddr* address, socklen_t) {
  return on_socket(socket, [&](const std::shared_ptr<Rsocket>& one) {
    const auto wanted = address != nullptr ? address_of(address) : std::nullopt;
    if (!wanted) return refuse(address == nullptr ? EFAULT : EAFNOSUPPORT);
    const std::lock_guard guard(one->lock);
    return answer(one->bind(*wanted));
  });
}

int rlisten(int socket, int backlog) {
  return on_socket(socket, [&](const std::shared_ptr<Rsocket>& one) {
    const std::lock_guard guard(one->lock);
    return answer(one->listen(backlog));
  });
}

int raccept(int socket, sockaddr* address, socklen_t* bytes) {
  return on_socket(socket, [&](const std::shared_ptr<Rsocket>& one) {
    const Time deadline = deadline_after(one->options.receive_timeout);
    for (;;) {
      Outcome<std::shared_ptr<Rsocket>> made = error(EBADF);
      {
        const std::lock_guard guard(one->lock);
        if (!one->closed) made = one->accept();
      }
      if (made) {
        RsocketTable::get().insert(*made);
        const std::lock_guard guard((*made)->lock);
        if (const auto peer = (*made)->peer_address(); peer && address != nullptr)
          tell_address(*peer, one->family, address, bytes);
        return (*made)->descriptor();
      }
      if (made.error() != EAGAIN || one->options.nonblocking) return refuse(made.error());
      if (const int error_number = await_one(one, POLLIN, deadline)) return refuse(error_number);
    }
  });
}

int rconnect(int socket, const sockaddr* address, socklen_t) {
  return on_socket(socket, [&](const std::shared_ptr<Rsocket>& one) {
    auto to = address != nullptr ? address_of(address) : std::nullopt;
    if (!to) return refuse(address == nullptr ? EFAULT : EAFNOSUPPORT);
    if (to->is_any()) to = loopback_for(*to);
    const Time deadline = deadline_after(one->options.send_timeout);
    {
      const std::lock_guard guard(one->lock);
      if (const int error_number = one->connect(*to)) return refuse(error_number);
    }
    for (;;) {
      {
        const std::lock_guard guard(one->lock);
        const int outcome = one->closed ? EBADF : one->connected();
        if (outcome != EINPROGRESS || one->options.nonblocking) return answer(outcome);
      }
      const int error_number = await_one(one, POLLOUT, deadline);
      if (error_number != 0) return refuse(error_number == EAGAIN ? EINPROGRESS : error_number);
    }
  });
}

int rshutdown(int socket, int how) {
  return on_socket(socket, [&](const std::shared_ptr<Rsocket>& one) {
    const std::lock_guard guard(one->lock);
    const int error_number = one->shut_down(how);
    one->wake_sleepers();
    return answer(error_number);
  });
}

int rclose(int socket) {
  return keeping_errno([&] {
    return guarded([&] {
      const os::Uncancelled whole;  // otherwise nobody could close it any more
      bool inherited = false;
      const auto one = RsocketTable::get().remove(socket, inherited);
      if (!one) return inherited ? 0 : refuse(EBADF);
      const bool aborts = one->options.lingers && one->options.linger_seconds == 0;
      const Duration linger = one->options.lingers ? std::chrono::seconds(one->options.linger_seconds) : kDrainMax;
      if (!aborts) drain(one, monotonic_now() + linger);
      const std::lock_guard guard(one->lock);
      one->closed = true;
      one->close();
      one->wake_sleepers();
      return 0;
    });
  });
}

int rgetsockname(int socket, sockaddr* address, socklen_t* bytes) {
  return on_socket(socket, [&](const std::shared_ptr<Rsocket>& one) {
    if (bytes == nullptr) return refuse(EFAULT);
    const std::lock_guard guard(one->lock);
    tell_address(one->own_address().value_or(one->family == AF_INET ? any_ip4() : Address{}), one->family, address,
                 bytes);
    return 0;
  });
}

int rgetpeername(int socket, sockaddr* address, socklen_t* bytes) {
  return on_socket(socket, [&](const std::shared_ptr<Rsocket>& one) {
    if (bytes == nullptr) return refuse(EFAULT);
    const std::lock_guard guard(one->lock);
    const auto peer = one->peer_address();
    if (!peer) return refuse(ENOTCONN);
    tell_address(*peer, one->family, address, bytes);
    return 0;
  });
}

int rfcntl(int socket, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = command == F_SETFL || command == F_SETFD ? va_arg(arguments, long) : 0;
  va_end(arguments);
  return on_socket(socket, [&](const std::shared_ptr<Rsocket>& one) {
    const std::lock_guard guard(one->lock);
    return set_descriptor_flags(*one, command, argument);
  });
}

// --- Buffers that the other end writes directly.

off_t riomap(int socket, void* buffer, size_t bytes, int protection, int flags, off_t offset) {
  return on_socket(socket, [&](const std::shared_ptr<Rsocket>& one) -> off_t {
    if (one->type != SOCK_STREAM || buffer == nullptr || flags != 0 || (protection & ~PROT_WRITE) != 0)
      return refuse(EINVAL);
    const bool remote = (protection & PROT_WRITE) != 0;
    const auto wanted = offset == -1 ? std::nullopt : std::optional<std::uint64_t>(static_cast<std::uint64_t>(offset));
    const std::lock_guard guard(one->lock);
    const auto made = static_cast<Stream&>(*one).map_buffer(buffer, bytes, remote, wanted);
    return made ? static_cast<off_t>(*made) : refuse(made.error());
  });
}

int riounmap(int socket, void* buffer, size_t bytes) {
  return on_socket(socket, [&](const std::shared_ptr<Rsocket>& one) {
    if (one->type != SOCK_STREAM) return refuse(EINVAL);
    const std::lock_guard guard(one->lock);
    return answer(static_cast<Stream&>(*one).unmap_buffer(buffer, bytes));
  });
}

}  // extern "C"

}  // namespace splitnic::rdmacm
