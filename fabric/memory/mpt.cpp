#include "fabric/memory/mpt.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/crc32c.h"
#include "common/range.h"

namespace splitnic::fabric {
namespace {

struct SetRange {
  std::size_t first = 0;
  std::size_t ways = 0;
};

/// Where a tag's set is. Both ends compute it.
SetRange set_range(std::size_t slots, Stag tag) {
  const std::size_t ways = std::min(slots, kMptWays);
  if (ways == 0) return {};
  return {tag.index() % (slots / ways) * ways, ways};
}

}  // namespace

MptSlot encode_mpt_slot(const MptGrant& grant, std::uint32_t tag) {
  MptSlot slot{};
  slot.generation = grant.generation;
  slot.tag = grant.tag.value;
  slot.address = grant.address;
  slot.length = grant.length;
  slot.window_offset = grant.window_offset;
  slot.rights = grant.rights.bits;
  slot.check = crc32c(std::as_bytes(std::span(&slot, 1)).first(offsetof(MptSlot, check)), tag);
  slot.check_generation = grant.generation;
  return slot;
}

std::optional<MptGrant> decode_mpt_slot(std::span<const std::byte, sizeof(MptSlot)> bytes, std::uint32_t tag) {
  MptSlot slot;
  std::memcpy(&slot, bytes.data(), sizeof slot);
  const bool whole = slot.generation.value() != 0 && slot.generation.value() == slot.check_generation.value() &&
                     slot.check.value() == crc32c(bytes.first(offsetof(MptSlot, check)), tag) &&
                     slot.reserved == decltype(slot.reserved){};
  if (!whole) return std::nullopt;
  MptGrant grant;
  grant.generation = slot.generation.value();
  grant.tag = Stag{slot.tag.value()};
  grant.address = slot.address.value();
  grant.length = slot.length.value();
  grant.window_offset = slot.window_offset.value();
  grant.rights = Rights{slot.rights.value()};
  return grant;
}

void MptPublisher::start(DirectAccess& direct) { slots_.assign(direct.peer_mpt.bytes / sizeof(MptSlot), Slot{}); }

std::span<MptPublisher::Slot> MptPublisher::set_of(Stag tag) {
  const SetRange range = set_range(slots_.size(), tag);
  return std::span(slots_).subspan(range.first, range.ways);
}

std::size_t MptPublisher::offset_of(const DirectAccess& direct, const Slot& slot) const {
  return direct.peer_mpt.offset + static_cast<std::size_t>(&slot - slots_.data()) * sizeof(MptSlot);
}

bool MptPublisher::grant(DirectAccess& direct, const MptGrant& grant) {
  for (Slot& slot : set_of(grant.tag)) {
    if (slot.used) continue;
    slot.used = true;
    slot.tag = grant.tag;
    if (++slot.generation == 0) slot.generation = 1;
    MptGrant with_generation = grant;
    with_generation.generation = slot.generation;
    const MptSlot wire = encode_mpt_slot(with_generation, direct.tag_out);
    PeerWindow& window = direct.bridge.peer_window();
    const std::size_t at = offset_of(direct, slot);
    // The generation is written last: a reader that sees it sees the rest; to any other reader the slot is empty.
    window.write(at + sizeof wire.generation, std::as_bytes(std::span(&wire, 1)).subspan(sizeof wire.generation));
    direct.bridge.publish();
    window.write_word<std::uint32_t>(at, slot.generation);
    return true;
  }
  return false;
}

void MptPublisher::revoke(DirectAccess& direct, Stag tag) {
  for (Slot& slot : set_of(tag)) {
    if (!slot.used || slot.tag != tag) continue;
    slot.used = false;
    direct.bridge.peer_window().write_word<std::uint32_t>(offset_of(direct, slot), 0);
    direct.bridge.publish();
    return;
  }
}

void MptView::start() { cache_ = {}; }

bool MptView::look_up(DirectAccess& direct, Stag tag, Cached& into) const {
  const MemoryRange mpt = direct.mpt;
  const SetRange set = set_range(mpt.bytes / sizeof(MptSlot), tag);
  const PeerMemory memory = direct.bridge.local_memory();
  for (std::size_t way = 0; way < set.ways; ++way) {
    const std::size_t at = mpt.offset + (set.first + way) * sizeof(MptSlot);
    std::array<std::byte, sizeof(MptSlot)> copy;
    memory.next_message(at, copy.size());
    memory.copy_out(at, copy);
    const auto grant = decode_mpt_slot(copy, direct.tag_in);
    if (!grant || grant->tag != tag) continue;
    // The owner may be hostile: the grant must lie in the owner's buffers, and in this end's mapping of them.
    const bool believable = direct.peer_buffers.contains({grant->window_offset, grant->length}) &&
                            direct.bridge.peer_window().contains(grant->window_offset, grant->length) &&
                            grant->length <= ~grant->address;
    if (!believable) return false;
    into = Cached{*grant, at, true};
    return true;
  }
  return false;
}

std::optional<std::size_t> MptView::claim(DirectAccess& direct, Stag tag, std::uint64_t address, std::uint64_t bytes) {
  Cached& cached = cache_[tag.index() % kCacheSlots];
  // Every change of a grant changes the generation, so the generation alone says whether the private copy is valid.
  const bool current = cached.used && cached.grant.tag == tag &&
                       direct.bridge.local_memory().watch<std::uint32_t>(cached.slot_offset) == cached.grant.generation;
  if (!current && !look_up(direct, tag, cached)) return std::nullopt;
  const MptGrant& grant = cached.grant;
  if (!grant.rights.has(Right::remote_write) || address < grant.address) return std::nullopt;
  const std::uint64_t offset = address - grant.address;
  if (!within(grant.length, {offset, bytes})) return std::nullopt;
  return static_cast<std::size_t>(grant.window_offset + offset);
}

}  // namespace splitnic::fabric
