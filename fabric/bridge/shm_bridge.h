#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "common/result.h"
#include "fabric/bridge/bridge.h"
#include "fabric/bridge/shm_doorbell.h"
#include "fabric/bridge/shm_memory.h"

namespace splitnic::fabric {

inline constexpr std::size_t kShmDefaultBytes = 16U << 20U;
/// A link's rings lie in the first one of so many parts of a memory. Where the rest may never be used, only this part
/// is mapped ahead of use.
inline constexpr std::size_t kShmRingsShare = 4;
inline constexpr std::size_t kShmMinBytes = 1U << 20U;

/// What a bridge holds of the system: two mappings and doorbells.
struct ShmParts {
  std::shared_ptr<const ShmMemory> local;
  std::shared_ptr<const ShmMemory> peer;
  std::unique_ptr<ShmDoorbell> doorbell;
};

/// A bridge between two processes of one machine. Both memories are shared and coherent, and writes arrive at once. A
/// peer that has hung up does not come back: a new connection gets a new bridge with new memory. Made by ShmListener,
/// ShmConnector or shm_pair().
class ShmBridge final : public Bridge {
 public:
  /// process: that of the other end, if it is known. release: if set, gets the parts when the bridge ends, on the
  /// thread that ends it, because unmapping takes long; otherwise the destructor unmaps and closes.
  explicit ShmBridge(ShmParts parts, std::optional<BridgePeer> process = std::nullopt,
                     std::function<void(ShmParts)> release = {}, BridgeGroup group = {});
  ~ShmBridge() override;
  ShmBridge(const ShmBridge&) = delete;
  ShmBridge& operator=(const ShmBridge&) = delete;

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
  [[nodiscard]] int doorbell_descriptor() const override { return parts_.doorbell->descriptor(); }
  [[nodiscard]] std::optional<BridgePeer> peer() const override { return process_; }
  [[nodiscard]] BridgeGroup group() const override { return group_; }
  [[nodiscard]] LinkState link() override { return parts_.doorbell->hung_up() ? LinkState::down : LinkState::up; }

 private:
  ShmParts parts_;
  PeerMemory local_memory_;
  PeerWindow peer_window_;
  PeerMemory scratchpads_in_;
  PeerWindow scratchpads_out_;
  std::optional<BridgePeer> process_;
  std::function<void(ShmParts)> release_;
  BridgeGroup group_;
};

/// Makes two ends in this process over the same mappings: for the appliance API, and for tests of threads under
/// ThreadSanitizer. first_bytes, second_bytes: of each end's local memory, multiples of 4096, of which
/// the links' rings are mapped ahead of use. Each end may have a thread of its own.
[[nodiscard]] Result<std::pair<std::unique_ptr<Bridge>, std::unique_ptr<Bridge>>> shm_pair(
    std::size_t first_bytes = kShmDefaultBytes, std::size_t second_bytes = kShmDefaultBytes);

}  // namespace splitnic::fabric
