#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/check.h"
#include "fabric/bridge/peer_memory.h"
#include "fabric/ids.h"
#include "fabric/memory/rights.h"

namespace splitnic::fabric {

/// The bytes behind a table entry: memory of the process, or a range of the bridge's local memory, which the peer can
/// write besides. Does not own them.
class RegionMemory {
 public:
  RegionMemory() = default;
  static RegionMemory of_process(std::span<std::byte> memory) {
    RegionMemory result;
    result.process_ = memory;
    result.bytes_ = memory.size();
    return result;
  }
  /// offset: of `memory` in the bridge's local memory.
  static RegionMemory of_bridge(PeerMemory memory, std::size_t offset) {
    RegionMemory result;
    result.bridge_ = memory;
    result.bytes_ = memory.size();
    result.bridge_offset_ = offset;
    result.in_bridge_ = true;
    return result;
  }

  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] bool in_bridge() const { return in_bridge_; }
  /// Of byte 0, in the bridge's local memory. Only in_bridge().
  [[nodiscard]] std::size_t bridge_offset() const { return bridge_offset_; }

  /// Whether [address, address + bytes) are bytes of this, by address within the process.
  [[nodiscard]] bool holds(const std::byte* address, std::size_t bytes) const {
    if (in_bridge_) return false;
    const auto begin = reinterpret_cast<std::uintptr_t>(process_.data());
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= begin && at - begin <= bytes_ && bytes <= bytes_ - (at - begin);
  }

  /// Of an address that holds() has found inside.
  [[nodiscard]] std::size_t offset_of(const std::byte* address) const {
    return static_cast<std::size_t>(address - process_.data());
  }

  /// The segmented path's placing. The range is inside: the table checked it.
  void store(std::uint64_t offset, std::span<const std::byte> from) const {
    CHECK(offset <= bytes_ && from.size() <= bytes_ - offset);
    if (in_bridge_) {
      bridge_.store_bytes(static_cast<std::size_t>(offset), from);
    } else if (!from.empty()) {
      std::memcpy(process_.data() + offset, from.data(), from.size());
    }
  }

 private:
  std::span<std::byte> process_{};
  PeerMemory bridge_{};
  std::size_t bytes_ = 0;
  std::size_t bridge_offset_ = 0;
  bool in_bridge_ = false;
};

enum class EntryKind : std::uint8_t {
  reserved,  ///< index 0, so that a zero tag never names memory
  region,
};

/// An entry of the protection table. Source: S3 Fig. 13.
struct ProtectionEntry {
  bool valid = false;
  EntryKind kind = EntryKind::region;
  std::uint8_t instance = 0;
  ProtectionDomain domain{};
  std::uint64_t base = 0;  ///< the address that peers use for byte 0: opaque, not one of this process
  std::uint64_t length = 0;
  Rights rights{};
  bool placeable = false;  ///< peers may store through their window; what is stored so passed no check here
  RegionMemory memory{};
};

}  // namespace splitnic::fabric
