#include "common/os/passed_descriptors.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/check.h"
#include "common/os/message_io.h"

namespace splitnic::os {
namespace {

using Control = std::array<std::byte, CMSG_SPACE(kMaxPassedDescriptors * sizeof(int))>;

}  // namespace

ssize_t send_with_descriptors(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors,
                              int flags) {
  SPLITNIC_CHECK_OP(descriptors.size(), <=, kMaxPassedDescriptors);
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message = message_of(piece);
  alignas(cmsghdr) Control control{};
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return send_message(socket, message, flags);
}

ReceivedDescriptors receive_with_descriptors(int socket, std::span<std::byte> to, std::size_t most, int flags) {
  SPLITNIC_CHECK_OP(most, <=, kMaxPassedDescriptors);
  iovec piece{to.data(), to.size()};
  msghdr message = message_of(piece);
  alignas(cmsghdr) Control control{};
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(most * sizeof(int));
  ReceivedDescriptors received;
  received.bytes = receive_message(socket, message, flags | MSG_CMSG_CLOEXEC);
  if (received.bytes < 0) return received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
      received.descriptors.emplace_back(descriptor);
    }
  }
  // CMSG_SPACE rounds up: the kernel may have put one descriptor more into the padding.
  received.more = (message.msg_flags & MSG_CTRUNC) != 0 || received.descriptors.size() > most;
  return received;
}

Queued look_at_queue(int socket) {
  std::byte first{};
  iovec piece{&first, 1};
  // Without room for descriptors: the kernel says that there are some, and they stay where they are.
  msghdr message = message_of(piece);
  if (receive_message(socket, message, MSG_PEEK | MSG_DONTWAIT) < 0)
    return errno == EAGAIN || errno == EINTR ? Queued::nothing : Queued::message;
  return (message.msg_flags & MSG_CTRUNC) != 0 ? Queued::with_descriptors : Queued::message;
}

bool refuse_descriptors(int socket) {
#ifdef SO_PASSRIGHTS
  constexpr int kOption = SO_PASSRIGHTS;
#else
  constexpr int kOption = 83;  // younger than the headers
#endif
  const int pass = 0;
  return ::setsockopt(socket, SOL_SOCKET, kOption, &pass, sizeof pass) == 0;
}

}  // namespace splitnic::os
