#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "common/os/unique_fd.h"
#include "common/result.h"
#include "fabric/bridge/bridge.h"
#include "fabric/bridge/shm_memory.h"

namespace splitnic::fabric {

inline constexpr std::size_t kShmDefaultBytes = 4U << 20U;
inline constexpr std::size_t kShmMinBytes = 1U << 20U;

/// A bridge between two processes of one machine. Both memories are shared and coherent, writes arrive at once, and
/// doorbells are one-byte datagrams. A peer that has hung up does not come back: a new connection gets a new bridge
/// with new memory. Made by ShmListener, ShmConnector or shm_pair().
class ShmBridge final : public Bridge {
 public:
  /// doorbell: one end of a SOCK_SEQPACKET pair; only the peer holds the other end.
  /// process: that of the other end, if it is known.
  ShmBridge(std::shared_ptr<const ShmMemory> local, std::shared_ptr<const ShmMemory> peer, os::UniqueFd doorbell,
            std::optional<BridgePeer> process = std::nullopt);

  PeerMemory local_memory() override { return local_memory_; }
  PeerWindow& peer_window() override { return peer_window_; }
  [[nodiscard]] std::uint32_t read_scratchpad(std::size_t index) override;
  void write_scratchpad(std::size_t index, std::uint32_t value) override;
  void publish() override;
  void fence() override;
  void before_doorbell() override;
  void flush() override;
  void ring() override;
  bool take_doorbells() override;
  [[nodiscard]] std::uint32_t core() const override;
  [[nodiscard]] int doorbell_descriptor() const override { return doorbell_.get(); }
  [[nodiscard]] std::optional<BridgePeer> peer() const override { return process_; }
  [[nodiscard]] LinkState link() override { return hung_up_ ? LinkState::down : LinkState::up; }

 private:
  std::shared_ptr<const ShmMemory> local_;
  std::shared_ptr<const ShmMemory> peer_;
  PeerMemory local_memory_;
  PeerWindow peer_window_;
  PeerMemory scratchpads_in_;
  PeerWindow scratchpads_out_;
  os::UniqueFd doorbell_;
  std::optional<BridgePeer> process_;
  bool hung_up_ = false;
};

/// Makes two ends in this process over the same mappings: for the appliance API, and for tests of threads under
/// ThreadSanitizer. first_bytes, second_bytes: of each end's local memory, multiples of 4096. Each end may have a
/// thread of its own.
[[nodiscard]] Result<std::pair<std::unique_ptr<Bridge>, std::unique_ptr<Bridge>>> shm_pair(
    std::size_t first_bytes = kShmDefaultBytes, std::size_t second_bytes = kShmDefaultBytes);

}  // namespace splitnic::fabric
