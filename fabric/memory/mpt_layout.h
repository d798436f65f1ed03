#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "fabric/ids.h"
#include "fabric/memory/rights.h"

namespace splitnic::fabric {

/// What the owner of memory tells an initiator about direct stores, in two ranges of the initiator's local memory that
/// the owner writes: slots (which memory is granted) and admissions (through which queue pairs). All numbers are
/// little-endian. An initiator may store for a queue pair only where all of this holds:
///   - a place of the admissions names both ends of the connection
///   - a slot has the tag, and the domain of that place
///   - a slot that names a queue pair names the owner's end of the connection
///   - the range is inside, and the slot has the right
/// It may pull what the queue pair reads under the same conditions. A place says nothing about reading, so a slot has
/// the right of remote read only while every admitted queue pair that may use it lets its peer read.
/// The table is a bounded cache: what is not in it is written segmented, and read by asking the owner. Source: S2
/// (memory protection table); design, "Protection".

/// A slot:
///
///      0 generation 32 | tag 32
///      8 address 64                  of byte 0, as the initiator addresses it
///     16 length 64
///     24 window offset 64            of byte 0, in the initiator's peer window
///     32 rights 16 | reserved 16 | domain 32
///     40 queue pair 32 | reserved 32
///     48 reserved 64
///     56 check 32 | generation 32
///
/// queue pair: the only one of the owner's through which the range may be stored to; 0: any of the domain. check:
/// CRC-32C over bytes 0 .. 55, continued from the epoch tag (owner first, see epoch_tag()). generation: never 0, new
/// with each grant of the slot; 0 means empty. Slots form sets of four: a tag's set is its index modulo the number of
/// sets.
struct MptSlot {
  boost::endian::little_uint32_buf_t generation;
  boost::endian::little_uint32_buf_t tag;
  boost::endian::little_uint64_buf_t address;
  boost::endian::little_uint64_buf_t length;
  boost::endian::little_uint64_buf_t window_offset;
  boost::endian::little_uint16_buf_t rights;
  boost::endian::little_uint16_buf_t reserved;
  boost::endian::little_uint32_buf_t domain;
  boost::endian::little_uint32_buf_t queue_pair;
  std::array<std::uint8_t, 12> reserved2;
  boost::endian::little_uint32_buf_t check;
  boost::endian::little_uint32_buf_t check_generation;
};
static_assert(sizeof(MptSlot) == 64 && std::is_trivially_copyable_v<MptSlot>);
static_assert(offsetof(MptSlot, rights) == 32 && offsetof(MptSlot, domain) == 36);
static_assert(offsetof(MptSlot, queue_pair) == 40 && offsetof(MptSlot, check) == 56);

inline constexpr std::size_t kMptWays = 4;

/// The content of a valid slot.
struct MptGrant {
  std::uint32_t generation = 0;
  Stag tag{};
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t window_offset = 0;
  Rights rights{};
  ProtectionDomain domain{};
  QpNumber queue_pair{};
};

[[nodiscard]] MptSlot encode_mpt_slot(const MptGrant& grant, std::uint32_t epoch_tag);
/// nullopt: empty, torn, of another epoch, or with reserved bits set.
[[nodiscard]] std::optional<MptGrant> decode_mpt_slot(std::span<const std::byte, sizeof(MptSlot)> bytes,
                                                      std::uint32_t epoch_tag);

/// The admissions:
///
///      0 changes 64 | reserved 448   a line
///     64 places of 16 bytes, in sets of four, each a line:
///
///      0 generation 32 | domain 32
///      8 queue pair 24 | peer 24 | reserved 16
///
/// changes: the owner raises it after each change of a slot or place, so that an initiator may remember what it has
/// found, and what it has not found, while the number stands still. queue pair: the owner's; peer: the initiator's.
/// Each half of a place is one 64-bit store. generation: never 0, new with each admission of the place; 0 means empty.
/// It is written last and cleared first. The set of a queue pair is the owner's number modulo the number of sets.
struct MptPlace {
  boost::endian::little_uint32_buf_t generation;
  boost::endian::little_uint32_buf_t domain;
  boost::endian::little_uint64_buf_t ends;  ///< connection_ends()
};
static_assert(sizeof(MptPlace) == 16 && offsetof(MptPlace, ends) == 8);

inline constexpr std::size_t kMptPlacesAt = 64;
static_assert(kMptWays * sizeof(MptPlace) == 64);

/// The first half of a place.
[[nodiscard]] constexpr std::uint64_t mpt_place_head(std::uint32_t generation, ProtectionDomain domain) {
  return generation | std::uint64_t{domain.value} << 32U;
}

}  // namespace splitnic::fabric
