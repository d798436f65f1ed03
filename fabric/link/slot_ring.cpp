#include "fabric/link/slot_ring.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/check.h"

namespace splitnic::fabric {
namespace {

// Words go to memory as they lie in a register; a big-endian build would swap them in PeerMemory and PeerWindow.
static_assert(std::endian::native == std::endian::little);

const SlotRingPlace& checked(const SlotRingPlace& place) {
  SPLITNIC_CHECK(place.slots_offset % kSlotLine == 0 && place.payload_offset % kSlotLine == 0);
  SPLITNIC_CHECK(place.tail_offset % kSlotLine == 0);
  SPLITNIC_CHECK(std::has_single_bit(place.slot_lines) && std::has_single_bit(place.payload_lines));
  SPLITNIC_CHECK(place.slot_lines >= kMinRingLines && place.slot_lines <= kMaxSlotLines);
  SPLITNIC_CHECK(place.payload_lines >= kMinRingLines && place.payload_lines <= kMaxPayloadLines);
  return place;
}

std::uint64_t lines_of(std::size_t bytes) { return (bytes + kSlotLine - 1) / kSlotLine; }

}  // namespace

SlotSender::SlotSender(Bridge& bridge, const SlotRingPlace& place, std::uint32_t seed)
    : bridge_(&bridge),
      window_(&bridge.peer_window()),
      local_(bridge.local_memory()),
      place_(checked(place)),
      seed_(seed),
      in_place_(window_->is_memory()),
      payload_lines_(place.payload_lines),
      payload_after_(place.slot_lines) {
  SPLITNIC_CHECK(window_->contains(place.slots_offset, place.slot_lines * kSlotLine));
  SPLITNIC_CHECK(window_->contains(place.payload_offset, place.payload_lines * kSlotLine));
  SPLITNIC_CHECK(local_.contains(place.tail_offset, kSlotLine));
}

bool SlotSender::room_for(std::uint64_t lines, std::uint64_t payload) const {
  return head_ + lines - tail_ <= place_.slot_lines && payload - payload_tail_ <= payload_lines_;
}

bool SlotSender::claim(std::size_t extension_bytes, std::size_t payload_bytes, SlotClaim& claim) {
  SPLITNIC_CHECK_OP(payload_bytes, <=, max_payload_bytes());
  SlotLayout layout = slot_layout(extension_bytes, payload_bytes);
  std::uint64_t payload = payload_head_;
  if (layout.in_payload_ring) {
    // A payload does not wrap: the end of the ring that is too short for it is skipped, and freed with it.
    const std::uint64_t at = payload & (payload_lines_ - 1);
    const std::uint64_t lines = lines_of(payload_bytes);
    if (lines > payload_lines_ - at) payload += payload_lines_ - at;
    layout.payload_at = static_cast<std::uint32_t>(payload & (payload_lines_ - 1));
    payload += lines;
  }
  const std::uint64_t lines = layout.two_lines ? 2 : 1;
  if (!room_for(lines, payload)) {
    static_cast<void>(refresh_tail());
    if (faulty_ || !room_for(lines, payload)) {
      wants_room_ = true;
      return false;
    }
  }
  if (faulty_) return false;
  wants_room_ = false;
  claimed_ = layout;
  claimed_payload_ = payload;

  std::byte* const first = in_place_ ? window_->claim(line_offset(head_), kSlotLine).data() : staged_.data();
  std::byte* const body = first + kSlotBodyAt;
  claim.extension = body;
  claim.payload_bytes = payload_bytes;
  claim.payload_rest = {};
  if (layout.in_payload_ring) {
    const std::size_t at = place_.payload_offset + layout.payload_at * kSlotLine;
    staged_payload_ = window_->claim(at, payload_bytes);
    claim.payload = staged_payload_;
    return true;
  }
  const std::size_t in_first = std::min(payload_bytes, kSlotBodyInFirst - extension_bytes);
  claim.payload = {body + extension_bytes, in_first};
  if (layout.two_lines) {
    std::byte* const second =
        in_place_ ? window_->claim(line_offset(head_ + 1), kSlotLine).data() : staged_.data() + kSlotLine;
    claim.payload_rest = {second + kSlotSequenceBytes, payload_bytes - in_first};
  }
  return true;
}

/// Everything of the slot but the word that releases it.
void SlotSender::store_lines(const SlotHeader& header) {
  const std::uint32_t second_sequence = line_sequence(seed_, head_ + 1);
  if (in_place_) {
    std::byte* const first = window_->claim(line_offset(head_), kSlotLine).data();
    std::memcpy(first + kSlotSequenceBytes, &header, sizeof header);
    if (claimed_.two_lines) window_->write_word(line_offset(head_ + 1), second_sequence);
    return;
  }
  if (claimed_.in_payload_ring) {
    window_->commit(place_.payload_offset + claimed_.payload_at * kSlotLine, staged_payload_);
  }
  std::memcpy(staged_.data() + kSlotSequenceBytes, &header, sizeof header);
  std::memcpy(staged_.data() + kSlotLine, &second_sequence, sizeof second_sequence);
  const std::span<const std::byte> staged(staged_);
  if (claimed_.two_lines) window_->write(line_offset(head_ + 1), staged.subspan(kSlotLine));
  window_->write(line_offset(head_) + kSlotSequenceBytes,
                 staged.subspan(kSlotSequenceBytes, kSlotLine - kSlotSequenceBytes));
  // P1 (publish): the payload and the rest of the slot before the word that releases it; pairs with A2 in
  // SlotReceiver::front(). Without it the receiver could take bytes that have not arrived.
  bridge_->publish();
}

std::uint64_t SlotSender::release(const SlotFields& fields) {
  store_lines(encode_slot(fields, claimed_));
  // R2 (release, in write_word): where the window is memory, what P1 is elsewhere; pairs with A2.
  window_->write_word(line_offset(head_), line_sequence(seed_, head_));
  head_ += claimed_.two_lines ? 2 : 1;
  if (fields.awaited) awaited_to_ = head_;
  payload_head_ = claimed_payload_;
  payload_after_[static_cast<std::size_t>((head_ - 1) & (place_.slot_lines - 1))] = payload_head_;
  return head_;
}

void SlotSender::advance_tail(std::uint64_t lines) {
  if (lines == tail_) return;
  tail_ = lines;
  payload_tail_ = payload_after_[static_cast<std::size_t>((lines - 1) & (place_.slot_lines - 1))];
}

std::uint64_t SlotSender::refresh_tail() {
  // A4 (acquire, in watch): pairs with R4 in SlotReceiver::push_tail().
  const auto tail = local_.watch<std::uint64_t>(place_.tail_offset + kTailAt);
  if (tail > head_ || tail < tail_said_) {
    faulty_ = true;
    return tail_;
  }
  tail_said_ = tail;
  // Slots of the opposite ring may have said more already, by any number of rings.
  if (tail > tail_) advance_tail(tail);
  return tail_;
}

std::uint64_t SlotSender::refresh_settled(std::uint64_t taken) {
  // What was said first is believed first: if it gave way to something newer, whose answers are always a little
  // ahead, a sender that receives without a pause would never believe anything.
  if (settled_said_ > settled_) {
    if (answers_ > taken) return settled_;
    advance_settled(settled_said_);
  }
  // A3 (acquire, in watch): settled before answers, and before what they announce; pairs with R3 in
  // SlotReceiver::push_tail(). Without it a message that was refused could be taken for done.
  const auto settled = local_.watch<std::uint64_t>(place_.tail_offset + kTailSettledAt);
  const auto answers = local_.watch<std::uint64_t>(place_.tail_offset + kTailAnswersAt);
  if (settled > head_ || settled < settled_said_ || answers < answers_) {
    faulty_ = true;
    return settled_;
  }
  settled_said_ = settled;
  answers_ = answers;
  if (answers_ <= taken && settled_said_ > settled_) advance_settled(settled_said_);
  return settled_;
}

bool SlotSender::settled_again(std::uint64_t taken) {
  if (!awaits()) return false;
  const std::uint64_t before = settled_;
  return refresh_settled(taken) != before || faulty_;
}

void SlotSender::advance_settled(std::uint64_t lines) {
  settled_ = lines;
  if (lines > tail_) advance_tail(lines);
}

bool SlotSender::room_again() {
  if (!wants_room_) return false;
  const std::uint64_t before = tail_;
  static_cast<void>(refresh_tail());
  return faulty_ || tail_ != before;
}

void SlotSender::note_settled(std::uint32_t settled) {
  const std::uint32_t more = settled - static_cast<std::uint32_t>(settled_);
  if (more <= head_ - settled_) return advance_settled(settled_ + more);
  // A count behind is old: while the slot waited in its ring, the tail line may have moved on by many rings. Only a
  // count ahead of the head is impossible.
  const bool older = static_cast<std::int32_t>(more) < 0;
  if (!older) faulty_ = true;
}

bool ReceivedSlot::payload(std::size_t extension_bytes, std::array<PeerMemory, 2>& pieces) const {
  pieces = {};
  if (fault || extension_bytes > kSlotBodyInFirst) return false;
  if (in_payload_ring_) {
    pieces[0] = second_;
    return true;
  }
  if (payload_bytes > first_.size() + second_.size() - extension_bytes) return false;
  const std::size_t in_first = std::min<std::size_t>(payload_bytes, first_.size() - extension_bytes);
  pieces[0] = first_.slice(extension_bytes, in_first);
  if (payload_bytes > in_first) pieces[1] = second_.slice(0, payload_bytes - in_first);
  return true;
}

SlotReceiver::SlotReceiver(Bridge& bridge, const SlotRingPlace& place, std::uint32_t seed)
    : bridge_(&bridge),
      window_(&bridge.peer_window()),
      slots_(bridge.local_memory().slice(place.slots_offset, place.slot_lines * kSlotLine)),
      payload_(bridge.local_memory().slice(place.payload_offset, place.payload_lines * kSlotLine)),
      place_(checked(place)),
      seed_(seed) {
  SPLITNIC_CHECK(window_->contains(place.tail_offset, kSlotLine));
}

const ReceivedSlot* SlotReceiver::front() {
  if (front_lines_ != 0) return &front_;
  const std::size_t first = line_offset(tail_);
  slots_.next_message(first, kSlotLine);
  // A2 (acquire, in load): pairs with R2 and P1 in SlotSender.
  if (slots_.load<std::uint32_t>(first) != line_sequence(seed_, tail_)) return nullptr;
  SlotHeader header;
  slots_.copy_out(first + kSlotSequenceBytes, std::as_writable_bytes(std::span(&header, 1)));
  const DecodedSlot slot = decode_slot(header, place_.payload_lines);
  front_.fields = slot.fields;
  front_.fault = slot.fault;
  front_.payload_bytes = slot.layout.payload_bytes;
  front_.in_payload_ring_ = slot.layout.in_payload_ring;
  front_.first_ = slots_.slice(first + kSlotBodyAt, kSlotBodyInFirst);
  front_.second_ = PeerMemory{};
  front_lines_ = 1;
  if (slot.layout.in_payload_ring) {
    front_.second_ = payload_.slice(slot.layout.payload_at * kSlotLine, slot.layout.payload_bytes);
    front_.second_.next_message();
  } else if (slot.layout.two_lines) {
    front_lines_ = 2;
    const std::size_t second = line_offset(tail_ + 1);
    slots_.next_message(second, kSlotLine);
    if (slots_.load<std::uint32_t>(second) != line_sequence(seed_, tail_ + 1)) front_.fault = SlotFault::second_line;
    front_.second_ = slots_.slice(second + kSlotSequenceBytes, kSlotLine - kSlotSequenceBytes);
  }
  return &front_;
}

void SlotReceiver::pop() {
  SPLITNIC_CHECK(front_lines_ > 0);
  tail_ += front_lines_;
  front_lines_ = 0;
  if (front_.in_payload_ring_) payload_unreported_ += lines_of(front_.payload_bytes);
}

void SlotReceiver::reported_by_slot() {
  reported_settled_ = settled_;
  reported_tail_ = std::max(reported_tail_, settled_);
  if (reported_tail_ == tail_) payload_unreported_ = 0;
}

bool SlotReceiver::much_consumed() const {
  return tail_ - reported_tail_ >= place_.slot_lines / 4 || payload_unreported_ >= place_.payload_lines / 4;
}

void SlotReceiver::push_tail(std::uint64_t answers) {
  window_->write_word(place_.tail_offset + kTailAnswersAt, answers);
  if (!window_->is_memory()) bridge_->publish();
  // R3 (release, in write_word; published elsewhere): what was placed, the refusals and their count before settled,
  // which lets the sender complete. Pairs with A3 in SlotSender::refresh_settled().
  window_->write_word(place_.tail_offset + kTailSettledAt, settled_);
  // R4 (release, in write_word): the slots' bytes were read before the sender may overwrite them. Pairs with A4 in
  // SlotSender::refresh_tail().
  window_->write_word(place_.tail_offset + kTailAt, tail_);
  pushed_tail_ = reported_tail_ = tail_;
  reported_settled_ = settled_;
  payload_unreported_ = 0;
}

}  // namespace splitnic::fabric
