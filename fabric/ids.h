#pragma once

#include <cstdint>

#include "common/strong_id.h"

namespace splitnic::fabric {

/// Queue-pair number, 24 bits; 0 is never a queue pair.
using QpNumber = StrongId<struct QpNumberTag, std::uint32_t>;
/// Shared receive queue, 24 bits; 0 is never one.
using SrqNumber = StrongId<struct SrqNumberTag, std::uint32_t>;
using CqNumber = StrongId<struct CqNumberTag, std::uint32_t>;
using ProtectionDomain = StrongId<struct ProtectionDomainTag, std::uint32_t>;
/// S1's MAC of a channel-adapter port, 48 bits. It is not the virtual NIC's MAC.
using PortAddress = StrongId<struct PortAddressTag, std::uint64_t>;
inline constexpr std::uint64_t kPortAddressLimit = std::uint64_t{1} << 48U;
/// A path of an adapter: the way to one peer; 0 is never one.
using PathNumber = StrongId<struct PathNumberTag, std::uint32_t>;
/// Identifies one life of one end: random, compared for equality only. 0 means none.
using Epoch = StrongId<struct EpochTag, std::uint64_t>;

/// Both ends of a connection in one word of shared memory: bits 0 .. 23 the queue pair, 24 .. 47 its peer. Bits 48 ..
/// 63 are 0, for the format that uses the word.
[[nodiscard]] constexpr std::uint64_t connection_ends(QpNumber number, QpNumber peer) {
  return std::uint64_t{number.value} | std::uint64_t{peer.value} << 24U;
}

/// Steering tag: names an entry of the owner's protection table. The upper 24 bits are the index, drawn at random. The
/// lower 8 bits are the instance, so that a stale tag of a reused index is refused. S1: memory handle. S4: RKey.
/// Source: S3.
struct Stag {
  std::uint32_t value = 0;
  [[nodiscard]] constexpr std::uint32_t index() const { return value >> 8U; }
  [[nodiscard]] constexpr std::uint8_t instance() const { return static_cast<std::uint8_t>(value & 0xffU); }
  static constexpr Stag from(std::uint32_t index, std::uint8_t instance) { return Stag{index << 8U | instance}; }
  friend constexpr bool operator==(Stag, Stag) = default;
};

enum class VirtualLane : std::uint8_t { control = 0, data = 1 };
inline constexpr std::size_t kLanes = 2;

}  // namespace splitnic::fabric
