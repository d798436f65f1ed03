#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/bridge/peer_memory.h"

namespace splitnic::messaging {

/// One Ethernet frame that the peer has pushed, destination address first, without FCS. Valid during the call that
/// hands it over; afterwards its buffer goes back to the peer. The bytes may lie in memory that the peer still writes:
/// copy out what decides anything, once, and decide on the copy.
struct ReceivedFrame {
  fabric::PeerMemory bytes;  ///< exactly the frame: bytes.size() is its length

  /// A frame that arrived in cells and so lies in this process's own memory; it is only read.
  static ReceivedFrame in_private_memory(std::span<const std::byte> frame) {
    return {fabric::PeerMemory::over(const_cast<std::byte*>(frame.data()), frame.size())};
  }

  [[nodiscard]] std::size_t size() const { return bytes.size(); }
};

}  // namespace splitnic::messaging
