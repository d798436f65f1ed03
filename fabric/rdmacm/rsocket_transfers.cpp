// The C interface of sockets over RDMA: sending and receiving.
#include <rdma/rsocket.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "fabric/rdmacm/rsocket_calls.h"
#include "fabric/rdmacm/stream.h"

namespace splitnic::rdmacm {
namespace {

/// Repeats a transfer until it does something, all of it if `whole`. what: where it goes, null if all go one way. step:
/// answers Outcome<std::size_t> under the lock.
template <class Step>
ssize_t transfer(const std::shared_ptr<Rsocket>& socket, short event, bool waits, Duration timeout, std::size_t whole,
                 const Transfer* what, Step&& step) {
  std::size_t done = 0;
  Time deadline = kNever;
  for (bool first = true;; first = false) {
    Outcome<std::size_t> some = error(EBADF);
    {
      const std::lock_guard guard(socket->lock);
      if (!socket->closed) some = step(done);
    }
    if (some) done += *some;
    if (some && (done >= whole || *some == 0)) return static_cast<ssize_t>(done);
    if (!some && some.error() != EAGAIN) return done != 0 ? static_cast<ssize_t>(done) : refuse(some.error());
    if (!waits) return done != 0 ? static_cast<ssize_t>(done) : refuse(EAGAIN);
    if (first) deadline = deadline_after(timeout);
    if (const int error_number = await_one(socket, event, deadline, what))
      return done != 0 ? static_cast<ssize_t>(done) : refuse(error_number);
  }
}

/// The parts of a list that follow its first bytes.
std::vector<iovec> rest_of(std::span<const iovec> parts, std::size_t skipped) {
  std::vector<iovec> rest;
  for (const iovec& part : parts) {
    const std::size_t gone = std::min(skipped, part.iov_len);
    skipped -= gone;
    if (gone != part.iov_len) rest.push_back({static_cast<std::byte*>(part.iov_base) + gone, part.iov_len - gone});
  }
  return rest;
}

bool waits(const Rsocket& socket, int flags) { return !socket.options.nonblocking && (flags & MSG_DONTWAIT) == 0; }

ssize_t send_parts(int descriptor, std::span<const iovec> parts, int flags, const sockaddr* to) {
  return on_socket(descriptor, [&](const std::shared_ptr<Rsocket>& socket) -> ssize_t {
    if ((flags & MSG_OOB) != 0) return refuse(EOPNOTSUPP);
    Transfer what{.parts = parts, .flags = flags};
    if (to != nullptr && socket->type == SOCK_DGRAM) {
      const auto address = address_of(to);
      if (!address) return refuse(EAFNOSUPPORT);
      what.has_address = true;
      what.address = *address;
    }
    what.waits = waits(*socket, flags);
    return transfer(socket, POLLOUT, what.waits, socket->options.send_timeout, bytes_of(parts), &what,
                    [&](std::size_t done) {
                      if (done == 0) return socket->send(what);
                      const std::vector<iovec> rest = rest_of(parts, done);
                      what.parts = rest;
                      what.continues = true;
                      return socket->send(what);
                    });
  });
}

ssize_t receive_parts(int descriptor, std::span<const iovec> parts, Transfer& what) {
  return on_socket(descriptor, [&](const std::shared_ptr<Rsocket>& socket) -> ssize_t {
    if ((what.flags & MSG_OOB) != 0) return refuse(EOPNOTSUPP);
    // Only a stream has more to come; what a peek has seen, it would see again.
    const bool all = (what.flags & (MSG_WAITALL | MSG_PEEK)) == MSG_WAITALL && socket->type == SOCK_STREAM;
    what.parts = parts;
    return transfer(socket, POLLIN, waits(*socket, what.flags), socket->options.receive_timeout,
                    all ? bytes_of(parts) : 0, nullptr, [&](std::size_t done) {
                      if (done == 0) return socket->receive(what);
                      const std::vector<iovec> rest = rest_of(parts, done);
                      what.parts = rest;
                      what.continues = true;
                      return socket->receive(what);
                    });
  });
}

/// The program's own part, written through an iovec that a send only reads.
iovec part_of(const void* from, std::size_t bytes) {
  iovec part{};
  std::memcpy(&part.iov_base, &from, sizeof from);
  part.iov_len = bytes;
  return part;
}

bool are_parts(const iovec* parts, std::size_t count) { return count <= IOV_MAX && (count == 0 || parts != nullptr); }

}  // namespace

extern "C" {

ssize_t rsend(int socket, const void* buffer, size_t bytes, int flags) {
  const iovec part = part_of(buffer, bytes);
  return send_parts(socket, {&part, 1}, flags, nullptr);
}

ssize_t rsendto(int socket, const void* buffer, size_t bytes, int flags, const sockaddr* to, socklen_t) {
  const iovec part = part_of(buffer, bytes);
  return send_parts(socket, {&part, 1}, flags, to);
}

ssize_t rsendmsg(int socket, const msghdr* message, int flags) {
  if (!are_parts(message->msg_iov, message->msg_iovlen)) return refuse(EMSGSIZE);
  if (message->msg_controllen != 0) return refuse(EOPNOTSUPP);
  const auto* to = message->msg_namelen != 0 ? static_cast<const sockaddr*>(message->msg_name) : nullptr;
  return send_parts(socket, {message->msg_iov, message->msg_iovlen}, flags, to);
}

ssize_t rwrite(int socket, const void* buffer, size_t bytes) { return rsend(socket, buffer, bytes, 0); }

ssize_t rwritev(int socket, const iovec* parts, int count) {
  if (count < 0 || !are_parts(parts, static_cast<std::size_t>(count))) return refuse(EINVAL);
  return send_parts(socket, {parts, static_cast<std::size_t>(count)}, 0, nullptr);
}

ssize_t rrecv(int socket, void* buffer, size_t bytes, int flags) {
  const iovec part{buffer, bytes};
  Transfer what{.parts = {}, .flags = flags};
  return receive_parts(socket, {&part, 1}, what);
}

ssize_t rrecvfrom(int socket, void* buffer, size_t bytes, int flags, sockaddr* from, socklen_t* length) {
  const iovec part{buffer, bytes};
  Transfer what{.parts = {}, .flags = flags};
  const ssize_t received = receive_parts(socket, {&part, 1}, what);
  if (received >= 0 && from != nullptr && length != nullptr) {
    const auto one = RsocketTable::get().find(socket);
    if (what.has_address && one) {
      tell_address(what.address, one->family, from, length);
    } else {
      rgetpeername(socket, from, length);
    }
  }
  return received;
}

ssize_t rrecvmsg(int socket, msghdr* message, int flags) {
  if (!are_parts(message->msg_iov, message->msg_iovlen)) return refuse(EMSGSIZE);
  Transfer what{.parts = {}, .flags = flags};
  const ssize_t received = receive_parts(socket, {message->msg_iov, message->msg_iovlen}, what);
  if (received < 0) return received;
  message->msg_controllen = 0;
  message->msg_flags = what.truncated ? MSG_TRUNC : 0;
  const auto one = RsocketTable::get().find(socket);
  if (what.has_address && one && message->msg_name != nullptr) {
    tell_address(what.address, one->family, static_cast<sockaddr*>(message->msg_name), &message->msg_namelen);
  } else {
    message->msg_namelen = 0;
  }
  return received;
}

ssize_t rread(int socket, void* buffer, size_t bytes) { return rrecv(socket, buffer, bytes, 0); }

ssize_t rreadv(int socket, const iovec* parts, int count) {
  if (count < 0 || !are_parts(parts, static_cast<std::size_t>(count))) return refuse(EINVAL);
  Transfer what{.parts = {}, .flags = 0};
  return receive_parts(socket, {parts, static_cast<std::size_t>(count)}, what);
}

size_t riowrite(int socket, const void* buffer, size_t bytes, off_t offset, int flags) {
  return static_cast<size_t>(on_socket(socket, [&](const std::shared_ptr<Rsocket>& one) -> ssize_t {
    if (one->type != SOCK_STREAM) return refuse(EINVAL);
    const std::span from(static_cast<const std::byte*>(buffer), bytes);
    const auto step = [&](std::size_t done) {
      return static_cast<Stream&>(*one).write_at(from.subspan(done), static_cast<std::uint64_t>(offset) + done,
                                                 /*continues=*/done != 0);
    };
    return transfer(one, kRequestRoom, waits(*one, flags), one->options.send_timeout, bytes, nullptr, step);
  }));
}

}  // extern "C"

}  // namespace splitnic::rdmacm
