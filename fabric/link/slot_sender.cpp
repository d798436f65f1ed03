#include "fabric/link/slot_sender.h"

#include <cstring>

namespace splitnic::fabric {

SlotSender::SlotSender(Bridge& bridge, const SlotRingPlace& place, std::uint32_t seed)
    : bridge_(&bridge),
      window_(&bridge.peer_window()),
      tail_line_(bridge.local_memory().slice(place.tail_offset, kSlotLine)),
      place_(checked_place(place)),
      sequences_(seed),
      payload_lines_(place.payload_lines),
      payload_after_(place.slot_lines) {
  SPLITNIC_CHECK(window_->contains(place.slots_offset, place.slot_lines * kSlotLine));
  SPLITNIC_CHECK(window_->contains(place.payload_offset, place.payload_lines * kSlotLine));
  if (!window_->is_memory()) return;
  lines_ = window_->claim(place.slots_offset, place.slot_lines * kSlotLine).data();
  payloads_ = window_->claim(place.payload_offset, place.payload_lines * kSlotLine).data();
}

bool SlotSender::find_room(std::uint64_t lines, std::uint64_t payload) {
  if (!room_for(lines, payload)) static_cast<void>(refresh_tail());
  return !faulty_ && room_for(lines, payload);
}

/// A payload does not wrap: the end of the ring that is too short for it is skipped, and freed with it.
SlotSender::PayloadPlace SlotSender::place_payload(std::size_t bytes) const {
  const std::uint64_t at = payload_head_ & (payload_lines_ - 1);
  const std::uint64_t lines = lines_of(bytes);
  const std::uint64_t from = lines > payload_lines_ - at ? payload_head_ + payload_lines_ - at : payload_head_;
  return {from, from + lines};
}

[[gnu::noinline]] void SlotSender::fetch_payload(std::size_t bytes) const {
  constexpr std::size_t kMostBytes = 2048;  // the lines of longer ones arrive while the first are written
  if (payloads_ == nullptr || bytes > kMostBytes) return;
  const PayloadPlace next = place_payload(bytes);
  if (next.after - payload_tail_ > payload_lines_) return;  // perhaps the peer has yet to read what lies there
  const std::byte* line = payloads_ + static_cast<std::size_t>(next.from & (payload_lines_ - 1)) * kSlotLine;
  for (const std::byte* const end = line + bytes; line < end; line += kSlotLine) fetch_to_write(line);
}

/// Everything of a staged slot but the word that releases it.
void SlotSender::write_staged(SlotLayout layout, std::span<const std::byte> payload) {
  if (layout.in_payload_ring) {
    window_->commit(place_.payload_offset + layout.payload_at * kSlotLine, payload);
  }
  const std::uint32_t second_sequence = sequences_.of(head_ + 1);
  std::memcpy(staged_.data() + kSlotLine, &second_sequence, sizeof second_sequence);
  const std::span<const std::byte> staged(staged_);
  if (layout.two_lines) window_->write(line_offset(head_ + 1), staged.subspan(kSlotLine));
  window_->write(line_offset(head_) + kSlotSequenceBytes,
                 staged.subspan(kSlotSequenceBytes, kSlotLine - kSlotSequenceBytes));
  // P1 (publish): the payload and the rest of the slot before the word that releases it; pairs with A2 in
  // SlotReceiver::waiting(). Without it the receiver could take bytes that have not arrived.
  bridge_->publish();
}

std::uint64_t SlotSender::refresh_tail() {
  // A4 (acquire, in watch): pairs with R4 in SlotReceiver::push_tail().
  const auto tail = tail_line_.watch<std::uint64_t>(kTailAt);
  if (tail > head_ || tail < tail_said_) {
    faulty_ = true;
    return tail_;
  }
  tail_said_ = tail;
  // Slots of the opposite ring may have said more already, by any number of rings.
  if (tail > tail_) advance_tail(tail);
  return tail_;
}

bool SlotSender::settled_again(std::uint64_t taken) {
  if (!awaits()) return false;
  const std::uint64_t before = settled_;
  return refresh_settled(taken) != before || faulty_;
}

bool SlotSender::room_again() {
  if (!wants_room_) return false;
  const std::uint64_t before = tail_;
  static_cast<void>(refresh_tail());
  return faulty_ || tail_ != before;
}

}  // namespace splitnic::fabric
