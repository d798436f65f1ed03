#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tl/expected.hpp>
#include <type_traits>

#include "common/range.h"
#include "fabric/ids.h"
#include "fabric/link/slot_ring.h"

namespace splitnic::fabric {

using MemoryRange = ByteRange;  // as in cell_link.h

/// The anchor record: where a peer finds everything in this end's local memory. All numbers little-endian.
///
///       0        4        8        12       16               24               32
///      +-----------------+--------+--------+----------------+----------------+
///      | magic           | version| bytes  | epoch          | peer's epoch   |
///      +-----------------+--------+--------+----------------+----------------+
///   32 | port address    | memory bytes    | regions|         reserved        |
///      +-----------------+-----------------+--------+-------------------------+
///   64 | 16 x { kind 16 | lane 8 | writer 8 | reserved 32 | offset 64 | bytes 64 | reserved 64 }
///      +----------------------------------------------------------------------+
///  576 | CRC-32C | commit |  reserved 56                                      |
///      +---------+--------+---------------------------------------------------+
///
/// The checksum covers bytes 0 .. 575; the commit word is stored last. Source: S2 Figs. 4, 5 (404, 500, 502).
inline constexpr std::uint64_t kAnchorMagic = 0x3148434e41544c53;  // "SLTANCH1"
inline constexpr std::uint32_t kAnchorVersion = 4;
inline constexpr std::uint32_t kAnchorCommit = 0x54494d43;  // "CMIT"
inline constexpr std::size_t kAnchorMaxRegions = 16;
inline constexpr std::size_t kMptEntryBytes = 64;
inline constexpr std::size_t kAdmissionPlaceBytes = 16;

enum class AnchorRegion : std::uint16_t {
  slots = 1,
  payload = 2,
  tail = 3,
  armed = 4,
  mpt = 5,
  buffers = 6,
  admissions = 7
};
/// A line for the count of changes, and so many places, rounded up to lines.
[[nodiscard]] constexpr std::size_t admissions_bytes(std::size_t places) {
  return kSlotLine + (places * kAdmissionPlaceBytes + kSlotLine - 1) / kSlotLine * kSlotLine;
}
enum class RegionWriter : std::uint8_t { owner = 0, peer = 1 };

struct AnchorRegionBytes {
  boost::endian::little_uint16_buf_t kind;
  boost::endian::little_uint8_buf_t lane;
  boost::endian::little_uint8_buf_t writer;
  boost::endian::little_uint32_buf_t reserved;
  boost::endian::little_uint64_buf_t offset;
  boost::endian::little_uint64_buf_t bytes;
  boost::endian::little_uint64_buf_t reserved2;
};

struct AnchorBytes {
  boost::endian::little_uint64_buf_t magic;
  boost::endian::little_uint32_buf_t version;
  boost::endian::little_uint32_buf_t record_bytes;
  boost::endian::little_uint64_buf_t epoch;
  boost::endian::little_uint64_buf_t peer_epoch;
  boost::endian::little_uint64_buf_t port_address;
  boost::endian::little_uint64_buf_t memory_bytes;
  boost::endian::little_uint32_buf_t region_count;
  boost::endian::little_uint32_buf_t reserved;
  boost::endian::little_uint64_buf_t reserved2;
  AnchorRegionBytes regions[kAnchorMaxRegions];
  boost::endian::little_uint32_buf_t checksum;
  boost::endian::little_uint32_buf_t commit;
  boost::endian::little_uint64_buf_t reserved3[7];
};
inline constexpr std::size_t kAnchorBytes = 640;
static_assert(std::is_trivially_copyable_v<AnchorBytes> && alignof(AnchorBytes) == 1);
static_assert(sizeof(AnchorRegionBytes) == 32 && sizeof(AnchorBytes) == kAnchorBytes);
static_assert(offsetof(AnchorBytes, regions) == 64 && offsetof(AnchorBytes, checksum) == 576);
static_assert(offsetof(AnchorBytes, commit) == 580);

/// The fields of an anchor that has passed all checks. Every range is a multiple of 64 bytes at a multiple of 64 and
/// overlaps no other range, nor the record itself.
struct Anchor {
  Epoch epoch{};
  Epoch peer_epoch{};
  PortAddress port_address{};
  std::uint64_t memory_bytes = 0;
  std::array<MemoryRange, kLanes> slots{};     ///< rings that the peer sends into, powers of two (slot_ring.h)
  std::array<MemoryRange, kLanes> payloads{};  ///< their payload rings, powers of two
  std::array<MemoryRange, kLanes> tails{};     ///< the tail lines of the rings that this end sends into
  MemoryRange armed{};                         ///< a line
  MemoryRange mpt{};
  MemoryRange admissions{};  ///< at least a line
  MemoryRange buffers{};     ///< may be empty
};

/// The record with its commit word set. A caller that stores the record in shared memory stores that word last.
[[nodiscard]] AnchorBytes encode_anchor(const Anchor& anchor);

/// Checks a peer's record, a private copy; the error is the name of the first impossible field. anchor_offset: where
/// the record lies; window_bytes: how much of the peer's memory this end can reach.
[[nodiscard]] tl::expected<Anchor, const char*> decode_anchor(const AnchorBytes& bytes, std::size_t anchor_offset,
                                                              std::size_t window_bytes);

}  // namespace splitnic::fabric
