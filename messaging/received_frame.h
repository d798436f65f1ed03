#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/bridge/peer_memory.h"

namespace splitnic::messaging {

/// One Ethernet frame from the peer, destination address first, without FCS. Valid during the call that delivers it;
/// its buffer then returns to the peer. The bytes may be in memory that the peer can still write: copy every field that
/// a decision needs once, and decide on the copy.
struct ReceivedFrame {
  fabric::PeerMemory bytes;  ///< exactly the frame: bytes.size() is its length

  /// A frame that arrived in cells and is therefore in this process's own memory. Callers only read it.
  static ReceivedFrame in_private_memory(std::span<const std::byte> frame) {
    return {fabric::PeerMemory::over(const_cast<std::byte*>(frame.data()), frame.size())};
  }

  [[nodiscard]] std::size_t size() const { return bytes.size(); }
};

}  // namespace splitnic::messaging
