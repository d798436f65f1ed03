#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/check.h"
#include "common/frame/frame_offload.h"
#include "fabric/bridge/peer_memory.h"
#include "messaging/frame_memory.h"

namespace splitnic::messaging {

/// One Ethernet frame from the peer, destination address first, without FCS. Valid during the call that delivers it;
/// its buffer then returns to the peer. The bytes may be in memory that the peer can still write: copy every field that
/// a decision needs once, and decide on the copy.
struct ReceivedFrame {
  fabric::PeerMemory bytes{};  ///< the frame, or its first part
  fabric::PeerMemory rest{};   ///< continues `bytes` where the frame goes round the end of a ring of elements
  /// What the peer left to this end. The values may be anything: see frame::why_not_offload(). Without
  /// Session::offloads(), the frame is complete.
  frame::FrameOffload offload{};

  /// A frame that arrived in cells and is therefore in this process's own memory. Callers only read it.
  static ReceivedFrame in_private_memory(std::span<const std::byte> frame) {
    return {fabric::PeerMemory::over(const_cast<std::byte*>(frame.data()), frame.size())};
  }

  [[nodiscard]] std::size_t size() const { return bytes.size() + rest.size(); }
  /// The frame's first bytes, at most size(), and what follows them.
  [[nodiscard]] ReceivedFrame first(std::size_t count) const {
    const std::size_t here = std::min(count, bytes.size());
    return {bytes.slice(0, here), rest.slice(0, count - here), offload};
  }
  [[nodiscard]] ReceivedFrame behind(std::size_t count) const {
    const std::size_t here = std::min(count, bytes.size());
    return {bytes.slice(here, bytes.size() - here), rest.slice(count - here, rest.size() - (count - here)), offload};
  }
  /// Copies the whole frame and reads each byte once. to: size() bytes.
  void copy_out(std::span<std::byte> to) const {
    SPLITNIC_CHECK_OP(to.size(), ==, size());
    bytes.copy_out(0, to.first(bytes.size()));
    rest.copy_out(0, to.subspan(bytes.size()));
  }
  void copy_out(const FrameMemory& to) const {
    first(to.bytes.size()).copy_out(to.bytes);
    behind(to.bytes.size()).copy_out(to.rest);
  }
};

}  // namespace splitnic::messaging
