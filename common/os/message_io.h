#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <span>

namespace splitnic::os {

/// All sockets are written with sendmmsg(2), read with recvmmsg(2), and all other files read with preadv2(2), because
/// the sandbox then needs to permit no other call for it. None is a cancellation point: verbs of programs lead here.
/// Any thread.

/// A message that consists of this piece, which must outlive it.
[[nodiscard]] msghdr message_of(iovec& piece);
/// As sendmsg(2): the bytes sent, or -1 and errno. MSG_NOSIGNAL is added to the flags.
ssize_t send_message(int socket, const msghdr& message, int flags);
/// The same for bytes alone.
ssize_t send_bytes(int socket, std::span<const std::byte> bytes, int flags);
/// As recvmsg(2): the bytes received, 0 at the end of a stream, or -1 and errno.
ssize_t receive_message(int socket, msghdr& message, int flags);
/// The same for bytes alone.
ssize_t receive_bytes(int socket, std::span<std::byte> to, int flags);
/// As read(2).
ssize_t read_some(int descriptor, std::span<std::byte> to);
/// As pread(2).
ssize_t read_some_at(int descriptor, std::span<std::byte> to, off_t offset);

/// The events (POLLIN, ...) of one descriptor that are there now; 0: none. errno is kept.
short events_now(int descriptor, short wanted);

}  // namespace splitnic::os
