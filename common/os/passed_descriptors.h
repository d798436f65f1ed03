#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// Descriptors that travel over Unix sockets (SCM_RIGHTS). Any thread.

/// The kernel's maximum of descriptors in one message (SCM_MAX_FD).
inline constexpr std::size_t kMaxPassedDescriptors = 253;

/// Sends `bytes` in one call, with copies of the descriptors; the caller keeps its own. descriptors: at most
/// kMaxPassedDescriptors, none is right. flags: as for sendmsg(2); MSG_NOSIGNAL is added. Returns what sendmsg does:
/// the bytes sent, or -1 and errno.
[[nodiscard]] ssize_t send_with_descriptors(int socket, std::span<const std::byte> bytes,
                                            std::span<const int> descriptors, int flags);

struct ReceivedDescriptors {
  ssize_t bytes = -1;                   ///< what recvmsg(2) returned; -1: errno says why
  std::vector<UniqueFd> descriptors{};  ///< close-on-exec
  bool more = false;                    ///< more came than there was room for; the kernel has closed the others
};
/// Receives bytes and the descriptors that came with them. most: room for so many descriptors, at most
/// kMaxPassedDescriptors. flags: as for recvmsg(2).
[[nodiscard]] ReceivedDescriptors receive_with_descriptors(int socket, std::span<std::byte> to, std::size_t most,
                                                           int flags);

enum class Queued : std::uint8_t {
  nothing,
  message,  ///< without descriptors; or what a receive reports instead of a message, such as the end of a stream
  with_descriptors,
};
/// What the next receive on a Unix packet socket would take. It stays in the queue. The receiver of a stranger's
/// descriptors has to close them, also without room for them, and that may take as long as the stranger likes
/// (close_elsewhere.h).
[[nodiscard]] Queued look_at_queue(int socket);

/// From now on the kernel refuses descriptors that are sent to this Unix socket, or to a connection that it accepts.
/// False: the kernel is older than Linux 6.16 and does not know how.
bool refuse_descriptors(int socket);

}  // namespace splitnic::os
