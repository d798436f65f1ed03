#include "fabric/link/slot_receiver.h"

#include <array>

namespace splitnic::fabric {

SlotReceiver::SlotReceiver(Bridge& bridge, const SlotRingPlace& place, std::uint32_t seed)
    : bridge_(&bridge),
      window_(&bridge.peer_window()),
      slots_(bridge.local_memory().slice(place.slots_offset, place.slot_lines * kSlotLine)),
      payload_(bridge.local_memory().slice(place.payload_offset, place.payload_lines * kSlotLine)),
      place_(checked_place(place)),
      sequences_(seed) {
  SPLITNIC_CHECK(window_->contains(place.tail_offset, kSlotLine));
  if (window_->is_memory()) tail_line_ = window_->claim(place.tail_offset, kSlotLine).data();
}

/// In the order of push_tail().
void SlotReceiver::post_tail(std::uint64_t answers) {
  window_->write_word(place_.tail_offset + kTailAnswersAt, answers);
  bridge_->publish();  // R3
  window_->write_word(place_.tail_offset + kTailSettledAt, settled_);
  window_->write_word(place_.tail_offset + kTailAt, tail_);
}

}  // namespace splitnic::fabric
