#include "common/os/message_io.h"

#include <poll.h>
#include <sys/uio.h>

#include <cerrno>
#include <ctime>

#include "common/os/uncancelled.h"

namespace splitnic::os {

msghdr message_of(iovec& piece) {
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  return message;
}

ssize_t send_message(int socket, const msghdr& message, int flags) {
  const Uncancelled whole;
  mmsghdr one{message, 0};
  return ::sendmmsg(socket, &one, 1, flags | MSG_NOSIGNAL) < 0 ? -1 : static_cast<ssize_t>(one.msg_len);
}

ssize_t send_bytes(int socket, std::span<const std::byte> bytes, int flags) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return send_message(socket, message_of(piece), flags);
}

ssize_t receive_message(int socket, msghdr& message, int flags) {
  const Uncancelled whole;
  mmsghdr one{message, 0};
  int received = ::recvmmsg(socket, &one, 1, flags, nullptr);
  if (received < 0 && errno == ECONNRESET) {
    // A stream's peer has hung up without reading everything. recvmmsg says so once, before it returns what the peer
    // sent in time; recvmsg says so afterwards.
    received = ::recvmmsg(socket, &one, 1, flags, nullptr);
    if (received < 0 || one.msg_len == 0) {
      errno = ECONNRESET;
      return -1;
    }
  }
  message = one.msg_hdr;
  return received < 0 ? -1 : static_cast<ssize_t>(one.msg_len);
}

ssize_t receive_bytes(int socket, std::span<std::byte> to, int flags) {
  iovec piece{to.data(), to.size()};
  msghdr message = message_of(piece);
  return receive_message(socket, message, flags);
}

ssize_t read_some(int descriptor, std::span<std::byte> to) {
  constexpr off_t kCurrent = -1;
  return read_some_at(descriptor, to, kCurrent);
}

ssize_t read_some_at(int descriptor, std::span<std::byte> to, off_t offset) {
  const Uncancelled whole;
  const iovec piece{to.data(), to.size()};
  return ::preadv2(descriptor, &piece, 1, offset, 0);
}

short events_now(int descriptor, short wanted) {
  const Uncancelled whole;
  const int saved_errno = errno;
  pollfd state{descriptor, wanted, 0};
  const timespec at_once{};
  const int ready = ::ppoll(&state, 1, &at_once, nullptr);
  errno = saved_errno;
  return ready == 1 ? state.revents : short{0};
}

}  // namespace splitnic::os
