#include "fabric/link/slot_ring.h"

#include <bit>

#include "common/check.h"

namespace splitnic::fabric {

// Words go to memory as they lie in a register; a big-endian build would swap them in PeerMemory and PeerWindow.
static_assert(std::endian::native == std::endian::little);

const SlotRingPlace& checked_place(const SlotRingPlace& place) {
  SPLITNIC_CHECK(place.slots_offset % kSlotLine == 0 && place.payload_offset % kSlotLine == 0);
  SPLITNIC_CHECK(place.tail_offset % kSlotLine == 0);
  SPLITNIC_CHECK(std::has_single_bit(place.slot_lines) && std::has_single_bit(place.payload_lines));
  SPLITNIC_CHECK(place.slot_lines >= kMinRingLines && place.slot_lines <= kMaxSlotLines);
  SPLITNIC_CHECK(place.payload_lines >= kMinRingLines && place.payload_lines <= kMaxPayloadLines);
  return place;
}

}  // namespace splitnic::fabric
