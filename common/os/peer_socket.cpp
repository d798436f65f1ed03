#include "common/os/peer_socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "common/os/close_elsewhere.h"
#include "common/os/message_io.h"
#include "common/os/passed_descriptors.h"

namespace splitnic::os {

PeerSocket::PeerSocket(UniqueFd socket, bool refuse_descriptors) : socket_(std::move(socket)) {
  if (!socket_ || !refuse_descriptors) return;
  const int saved_errno = errno;
  refuses_ = os::refuse_descriptors(socket_.get());
  errno = saved_errno;
}

PeerSocket& PeerSocket::operator=(PeerSocket&& other) noexcept {
  if (this == &other) return *this;
  reset();
  socket_ = std::move(other.socket_);
  refuses_ = other.refuses_;
  return *this;
}

void PeerSocket::reset() {
  if (!socket_) return;
  const int saved_errno = errno;
  if (refuses_) {
    socket_.reset();
  } else {
    std::vector<UniqueFd> closing;
    closing.push_back(std::move(socket_));
    static_cast<void>(close_elsewhere(std::move(closing)));
  }
  errno = saved_errno;
}

PeerSocket::Received PeerSocket::receive(std::span<std::byte> to, int flags) const {
  switch (refuses_ ? Queued::message : look_at_queue(socket_.get())) {
    case Queued::nothing:
      errno = EAGAIN;
      return {};
    case Queued::with_descriptors:
      return {.attached = true};
    case Queued::message:
      break;
  }
  return {.bytes = receive_bytes(socket_.get(), to, flags | MSG_DONTWAIT)};
}

void PeerSocket::discard() const {
  std::byte first{};
  auto taken = receive_with_descriptors(socket_.get(), std::span(&first, 1), kMaxPassedDescriptors, MSG_DONTWAIT);
  static_cast<void>(close_elsewhere(std::move(taken.descriptors)));
}

}  // namespace splitnic::os
