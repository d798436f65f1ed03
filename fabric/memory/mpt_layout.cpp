#include "fabric/memory/mpt_layout.h"

#include <cstring>

#include "common/crc32c.h"

namespace splitnic::fabric {

MptSlot encode_mpt_slot(const MptGrant& grant, std::uint32_t tag) {
  MptSlot slot{};
  slot.generation = grant.generation;
  slot.tag = grant.tag.value;
  slot.address = grant.address;
  slot.length = grant.length;
  slot.window_offset = grant.window_offset;
  slot.rights = grant.rights.bits;
  slot.domain = grant.domain.value;
  slot.queue_pair = grant.queue_pair.value;
  slot.check = crc32c(std::as_bytes(std::span(&slot, 1)).first(offsetof(MptSlot, check)), tag);
  slot.check_generation = grant.generation;
  return slot;
}

std::optional<MptGrant> decode_mpt_slot(std::span<const std::byte, sizeof(MptSlot)> bytes, std::uint32_t tag) {
  MptSlot slot;
  std::memcpy(&slot, bytes.data(), sizeof slot);
  const bool whole = slot.generation.value() != 0 && slot.generation.value() == slot.check_generation.value() &&
                     slot.check.value() == crc32c(bytes.first(offsetof(MptSlot, check)), tag);
  if (!whole || slot.reserved.value() != 0 || slot.reserved2 != decltype(slot.reserved2){}) return std::nullopt;
  MptGrant grant;
  grant.generation = slot.generation.value();
  grant.tag = Stag{slot.tag.value()};
  grant.address = slot.address.value();
  grant.length = slot.length.value();
  grant.window_offset = slot.window_offset.value();
  grant.rights = Rights{slot.rights.value()};
  grant.domain = ProtectionDomain{slot.domain.value()};
  grant.queue_pair = QpNumber{slot.queue_pair.value()};
  return grant;
}

}  // namespace splitnic::fabric
