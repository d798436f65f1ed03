#pragma once

#include <cerrno>
#include <memory>
#include <new>

#include "fabric/rdmacm/objects.h"
#include "fabric/rdmacm/rsocket.h"

/// What the calls of the C interface have in common. Thread: any; not under a socket's lock.
namespace splitnic::rdmacm {

/// A call that succeeds leaves errno alone: there are programs that look at it at a stream's end (rstream).
template <class Run>
auto keeping_errno(Run&& run) -> decltype(run()) {
  const int before = errno;
  const auto answered = run();
  if (answered != static_cast<decltype(run())>(-1)) errno = before;
  return answered;
}

/// Runs a call on a socket. -1 with errno.
template <class Run>
auto on_socket(int descriptor, Run&& run) -> decltype(run(std::shared_ptr<Rsocket>())) {
  using Answer = decltype(run(std::shared_ptr<Rsocket>()));
  return keeping_errno([&]() -> Answer {
    try {
      auto socket = RsocketTable::get().find(descriptor);
      if (!socket) return static_cast<Answer>(refuse(EBADF));
      return run(std::move(socket));
    } catch (const std::bad_alloc&) {
      return static_cast<Answer>(refuse(ENOMEM));
    }
  });
}

/// Waits for one event of one socket, as Rsocket::ready_for() has it if there is a transfer to do. 0 or an errno;
/// EAGAIN: the deadline has passed.
[[nodiscard]] int await_one(const std::shared_ptr<Rsocket>& socket, short event, Time deadline,
                            const Transfer* transfer = nullptr);
/// timeout: of an option; none is kNever.
[[nodiscard]] Time deadline_after(Duration timeout);
/// An address as a socket of this family tells it. to: may be null; bytes: the room there, and then the full length.
void tell_address(const Address& address, int family, sockaddr* to, socklen_t* bytes);

}  // namespace splitnic::rdmacm
