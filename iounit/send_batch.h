#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "iounit/lan_engine.h"

namespace splitnic::iounit {

/// Frames that wait to leave through a packet socket, many with one system call (sendmmsg). Before each frame may lie
/// the header that the socket expects there. Thread: the owner's. Source: sendmmsg(2), packet(7).
class SendBatch {
 public:
  SendBatch();

  /// bytes: of the header and the part of the frame that add() copies.
  [[nodiscard]] bool has_room(std::size_t bytes) const {
    return queued_ < messages_.size() && memory_.size() - used_ >= bytes;
  }
  /// A copy of both, for which there is room.
  void add(std::span<const std::byte> header, std::span<const std::byte> frame);
  /// A copy of the header. The frame and the payload behind it, in at most two parts, must stay as they are until
  /// send().
  void refer(std::span<const std::byte> header, std::span<const std::byte> frame, std::span<const iovec> payload = {});

  /// Sends everything without waiting, and forgets it. socket: negative, if there is none. counters: gets tx_frames,
  /// and tx_errors and tx_lost for what the socket refuses. refused: called with the number of each such message; errno
  /// says why. Returns how many errors (EINVAL) were not about what is sent: the kernel keeps that of a received frame
  /// which it can't describe for the socket's next call, whichever that is.
  std::size_t send(int socket, LanCounters& counters, const std::function<void(std::size_t message)>& refused);
  /// Of a message, inside of `refused`.
  [[nodiscard]] std::span<const std::byte> header(std::size_t message) const;
  [[nodiscard]] std::size_t frame_bytes(std::size_t message) const;

 private:
  static constexpr std::size_t kMostFrames = 64;
  static constexpr std::size_t kMostBytes = 256 << 10;

  std::vector<std::byte> memory_;
  std::array<std::array<iovec, 4>, kMostFrames> parts_{};  // header, frame or its head, payload
  std::array<mmsghdr, kMostFrames> messages_{};
  std::size_t queued_ = 0;
  std::size_t used_ = 0;
};

/// Whether the socket's interface is gone or down. error: errno of a call that sends.
[[nodiscard]] bool interface_lost(int error);

}  // namespace splitnic::iounit
