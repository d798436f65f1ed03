#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "common/result.h"

namespace splitnic::iounit {

/// Several packet sockets that share the frames of one interface by their flow: the frames of a flow arrive at one of
/// them, in order, as long as the sockets stay the same. The kernel numbers such groups, per interface and namespace.
/// An interface that comes back as another one (with another index) gets another group. Any thread. Source: packet(7),
/// PACKET_FANOUT.
class PacketFanout {
 public:
  /// Adds a packet socket that is bound to the interface with this index. Errors: the kernel refuses.
  [[nodiscard]] Result<void> join(int socket, int index);

 private:
  struct Group {
    int index = 0;  ///< of the interface
    std::uint16_t number = 0;
  };
  std::mutex mutex_;
  std::optional<Group> group_;  ///< that the last socket has joined
};

}  // namespace splitnic::iounit
