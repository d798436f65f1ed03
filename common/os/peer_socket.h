#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <utility>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// A Unix packet socket (SOCK_SEQPACKET or SOCK_DGRAM, also one that listens) on which a peer that is not trusted can
/// send. A peer may attach descriptors to a message, and their last close takes as long as the peer likes
/// (close_elsewhere.h). Neither receiving nor closing waits for it here.
///
/// How: the kernel refuses such messages when they are sent. Kernels older than Linux 6.16 can't. There, each message
/// is looked at before it is received, and the socket is closed elsewhere. If no thread can be started for that, the
/// close may wait after all.
///
/// Thread: the owner. No function is a cancellation point.
class PeerSocket {
 public:
  PeerSocket() = default;
  /// socket: nothing has been sent to it, so neither bound nor connected yet; or accepted by a PeerSocket, whose
  /// refusal it inherits. refuse_descriptors: false is for tests, as on an older kernel.
  explicit PeerSocket(UniqueFd socket, bool refuse_descriptors = true);
  PeerSocket(PeerSocket&& other) noexcept : socket_(std::move(other.socket_)), refuses_(other.refuses_) {}
  PeerSocket& operator=(PeerSocket&& other) noexcept;
  PeerSocket(const PeerSocket&) = delete;
  PeerSocket& operator=(const PeerSocket&) = delete;
  ~PeerSocket() { reset(); }

  [[nodiscard]] int get() const { return socket_.get(); }
  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(socket_); }
  /// Closes the socket. errno stays as it was.
  void reset();

  struct Received {
    ssize_t bytes = -1;  ///< as recv(2); -1: errno says why
    /// The next message has descriptors. It is not received and stays in the queue: close the socket, or discard().
    bool attached = false;
  };
  /// Receives one message, and never waits. flags: as for recv(2).
  [[nodiscard]] Received receive(std::span<std::byte> to, int flags = 0) const;
  /// Takes the next message out of the queue, with its descriptors. Without room for these in the process, the kernel
  /// closes the others here.
  void discard() const;

 private:
  UniqueFd socket_;
  bool refuses_ = false;
};

}  // namespace splitnic::os
