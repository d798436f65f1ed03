#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "fabric/ids.h"
#include "fabric/link/cell_link.h"
#include "fabric/memory/rights.h"

namespace splitnic::fabric {

/// A slot of the protection-table copy, written by the owner of the memory into the initiator's MPT range:
///
///      0 generation 32 | tag 32
///      8 address 64                  of byte 0, as the initiator addresses it
///     16 length 64
///     24 window offset 64            of byte 0, in the initiator's peer window
///     32 rights 16 | reserved 16, 32
///     40 reserved 64, 64
///     56 check 32 | generation 32
///
/// check: CRC-32C over bytes 0 .. 55, continued from the epoch tag (owner first, see epoch_tag()). generation: never 0,
/// new with each grant and revocation of the slot; 0 means empty. Slots form sets of four: a tag's set is its index
/// modulo the number of sets. Source: S2 (memory protection table); design, "Protection".
struct MptSlot {
  boost::endian::little_uint32_buf_t generation;
  boost::endian::little_uint32_buf_t tag;
  boost::endian::little_uint64_buf_t address;
  boost::endian::little_uint64_buf_t length;
  boost::endian::little_uint64_buf_t window_offset;
  boost::endian::little_uint16_buf_t rights;
  std::array<std::uint8_t, 22> reserved;
  boost::endian::little_uint32_buf_t check;
  boost::endian::little_uint32_buf_t check_generation;
};
static_assert(sizeof(MptSlot) == 64 && std::is_trivially_copyable_v<MptSlot>);
static_assert(offsetof(MptSlot, rights) == 32 && offsetof(MptSlot, check) == 56);

inline constexpr std::size_t kMptWays = 4;

/// The content of a valid slot.
struct MptGrant {
  std::uint32_t generation = 0;
  Stag tag{};
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t window_offset = 0;
  Rights rights{};
};

[[nodiscard]] MptSlot encode_mpt_slot(const MptGrant& grant, std::uint32_t epoch_tag);
/// nullopt: empty, torn, of another epoch, or with reserved bits set.
[[nodiscard]] std::optional<MptGrant> decode_mpt_slot(std::span<const std::byte, sizeof(MptSlot)> bytes,
                                                      std::uint32_t epoch_tag);

/// The owner's side: grants placeable entries to the peer. The slots are a bounded cache: an entry that finds no free
/// slot is not granted, and the peer's writes to it arrive segmented. Thread: the adapter's owner.
class MptPublisher {
 public:
  /// Forgets all grants: an epoch has begun, and the peer's slots are empty. direct: of a link that is up.
  void start(DirectAccess& direct);
  /// False: the tag's set is full. grant.generation is ignored.
  bool grant(DirectAccess& direct, const MptGrant& grant);
  /// The peer stops storing at its next claim(); stores that it claimed before may still arrive.
  void revoke(DirectAccess& direct, Stag tag);

 private:
  struct Slot {
    std::uint32_t generation = 0;
    Stag tag{};
    bool used = false;
  };
  [[nodiscard]] std::span<Slot> set_of(Stag tag);
  std::size_t offset_of(const DirectAccess& direct, const Slot& slot) const;

  std::vector<Slot> slots_;
};

/// The initiator's side: where in the peer window a remote range may be stored. It trusts no slot unchecked: it copies
/// the slot out, verifies it, checks it against its own mapping, and caches it privately. A use of a cached grant reads
/// only the slot's generation. Thread: the adapter's owner.
class MptView {
 public:
  /// An epoch has begun: all cached grants are void.
  void start();
  /// Offset in the peer window for [address, address + bytes) of the tag's entry. nullopt: not granted, so send the
  /// data segmented.
  [[nodiscard]] std::optional<std::size_t> claim(DirectAccess& direct, Stag tag, std::uint64_t address,
                                                 std::uint64_t bytes);

 private:
  struct Cached {
    MptGrant grant{};
    std::size_t slot_offset = 0;  // in local memory
    bool used = false;
  };
  [[nodiscard]] bool look_up(DirectAccess& direct, Stag tag, Cached& into) const;

  static constexpr std::size_t kCacheSlots = 32;
  std::array<Cached, kCacheSlots> cache_{};
};

}  // namespace splitnic::fabric
