#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/fetch_to_write.h"
#include "fabric/bridge/bridge.h"
#include "fabric/link/slot_ring.h"
#include "fabric/memory/guarded_copy.h"
#include "fabric/wire/slot.h"

namespace splitnic::fabric {

/// Where to put what a claimed slot carries. Write-only: it may be the peer's memory.
struct SlotClaim {
  std::byte* extension = nullptr;       ///< the extended header, contiguous
  std::span<std::byte> payload{};       ///< the payload's first bytes
  std::span<std::byte> payload_rest{};  ///< the others; empty unless the payload lies in both lines of the slot
  std::array<std::byte*, 2> lines{};    ///< the slot's; the second only if it has two
  SlotLayout layout{};
  std::uint64_t payload_head = 0;  ///< where the payload ring's next payload may begin, once the slot is released
};

/// The sender's end of a slot ring, with its payload ring. Slots are built in place where the peer window is memory,
/// else staged. Nothing here wakes the peer. Thread: the bridge's owner. Source: S2 Figs. 6-9; design, "Slots and a
/// payload ring".
class SlotSender {
 public:
  SlotSender() = default;
  /// seed: of both epochs, the receiver's likewise (epoch_tag()).
  SlotSender(Bridge& bridge, const SlotRingPlace& place, std::uint32_t seed);

  /// Longest payload of a slot: a quarter of the payload ring, so that neither the skipped end of the ring nor what is
  /// under way can keep it out for ever.
  [[nodiscard]] std::size_t max_payload_bytes() const { return payload_lines_ / 4 * kSlotLine; }
  /// Of the ring, without its payloads.
  [[nodiscard]] std::size_t lines() const { return place_.slot_lines; }

  /// Finds room for a slot and says where its bytes go; false when there is none now (wants_room()), or when the peer's
  /// tail is impossible (faulty()). extension_bytes: at most kSlotBodyInFirst; payload_bytes: at most
  /// max_payload_bytes(). A claim holds until the next one: nothing is lost by one that is not released.
  [[nodiscard]] bool claim(std::size_t extension_bytes, std::size_t payload_bytes, SlotClaim& claim);
  /// The claimed slot is the peer's, its bytes with it. Returns the number of lines sent so far, this slot's included:
  /// the slot is settled when settled() has reached it.
  std::uint64_t release(const SlotClaim& claim, const SlotFields& fields);
  /// What claim(), filling and release() do, in one go, for a message that fits the lines of its slot. extension_bytes:
  /// at most kSlotBodyInFirst; put_extension(to) writes the extended header. from: the payload; copied by
  /// guarded_copy(). Returns as release(). 0: nothing was sent, because the message is longer, the window is not
  /// memory, there may be no room, or the payload's memory is gone.
  template <class PutExtension>
  [[nodiscard]] std::uint64_t put(const SlotFields& fields, std::size_t extension_bytes, PutExtension&& put_extension,
                                  const std::byte* from, std::size_t payload_bytes);

  /// put() of a message without a payload, awaited, where look_for_room(1) has found room. word: slot_word() of its
  /// fields and a layout of one line. put_extension(to) writes at most kSlotBodyInFirst bytes. Returns as release().
  template <class PutExtension>
  std::uint64_t put_bare(std::uint64_t word, QpNumber queue_pair, std::uint32_t packet_sequence,
                         PutExtension&& put_extension);

  /// Several messages in a row, as by put(): what they change of the sender is kept here until end(), so that none of
  /// them stores it. The sender is not used meanwhile.
  class Row;

  /// Loads the tail and returns it. An impossible value leaves what was known and sets faulty().
  std::uint64_t refresh_tail();
  /// Loads settled, then answers. taken: lines of the opposite ring that were consumed, and whose contents were acted
  /// on. Impossible values leave what was known and set faulty(). Returns settled().
  std::uint64_t refresh_settled(std::uint64_t taken);
  /// settled as a slot of the opposite ring says it (SlotFields::settled, low 32 bits), whose turn has come: everything
  /// sent before it has been acted on. Older than what is known is nothing.
  void note_settled(std::uint32_t settled);
  /// As far as the peer said last.
  [[nodiscard]] std::uint64_t tail() const { return tail_; }
  /// How far the peer has dealt with what was sent, as far as it can be believed.
  [[nodiscard]] std::uint64_t settled() const { return settled_; }
  /// A slot was sent with SlotFields::awaited and is not settled yet.
  [[nodiscard]] bool awaits() const { return settled_ < awaited_to_; }
  /// awaits(), and the peer has said something about settling that is not believed yet. Changes nothing.
  [[nodiscard]] bool has_news() const {
    return awaits() && (settled_said_ > settled_ || tail_line_.watch<std::uint64_t>(kTailSettledAt) != settled_said_);
  }
  /// awaits(), and the peer has settled more since the last refresh_settled().
  [[nodiscard]] bool settled_again(std::uint64_t taken);
  /// Lines sent.
  [[nodiscard]] std::uint64_t head() const { return head_; }
  [[nodiscard]] bool drained() { return head_ == tail_ || refresh_tail() == head_; }
  /// There is room for put() of a message of so many lines.
  [[nodiscard]] bool can_put(std::uint64_t lines) const {
    return lines_ != nullptr && head_ + lines - tail_ <= place_.slot_lines && !wants_room_ && !faulty_;
  }
  /// can_put(), if need be after another look at the peer's tail.
  [[nodiscard]] bool look_for_room(std::uint64_t lines) {
    return can_put(lines) || (find_room(lines, payload_head_) && can_put(lines));
  }
  /// Has the next slot's lines fetched, to be written: the peer, who looks at the first one all the time, has them.
  void fetch_next() const {
    if (lines_ == nullptr) return;
    fetch_to_write(lines_ + line_at(head_));
    fetch_to_write(lines_ + line_at(head_ + 1));
  }
  /// A claim() has found no room, and since then none as long has succeeded: a shorter one may pass one that waits.
  [[nodiscard]] bool wants_room() const { return wants_room_; }
  /// wants_room(), and the peer has consumed something since the last refresh.
  [[nodiscard]] bool room_again();
  [[nodiscard]] bool faulty() const { return faulty_; }

 private:
  [[nodiscard]] bool room_for(std::uint64_t lines, std::uint64_t payload) const {
    return head_ + lines - tail_ <= place_.slot_lines && payload - payload_tail_ <= payload_lines_;
  }
  /// to: the line, where the window is memory.
  void store_sequence(std::byte* to, std::uint64_t line) const {
    // R2 (release): the rest of the slot before the word that releases it, which P1 is elsewhere; pairs with A2.
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(to), sequences_.of(line), __ATOMIC_RELEASE);
  }
  [[nodiscard]] bool find_room(std::uint64_t lines, std::uint64_t payload);
  /// Of a payload in its ring.
  struct PayloadPlace {
    std::uint64_t from = 0;   // lines, as payload_head_
    std::uint64_t after = 0;  // what payload_head_ will be
  };
  [[nodiscard]] PayloadPlace place_payload(std::size_t bytes) const;
  /// Has the lines of the next payload fetched, to be written: the peer has read what lay in them, so its core holds
  /// them. bytes: of the last payload; most likely the next one is as long.
  void fetch_payload(std::size_t bytes) const;
  void advance_tail(std::uint64_t lines);
  void advance_settled(std::uint64_t lines);
  void write_staged(SlotLayout layout, std::span<const std::byte> payload);
  [[nodiscard]] std::size_t line_at(std::uint64_t line) const {
    return static_cast<std::size_t>(line & (place_.slot_lines - 1)) * kSlotLine;
  }
  [[nodiscard]] std::size_t line_offset(std::uint64_t line) const { return place_.slots_offset + line_at(line); }

  Bridge* bridge_ = nullptr;
  PeerWindow* window_ = nullptr;
  PeerMemory tail_line_;
  SlotRingPlace place_{};
  LineSequences sequences_{};
  std::byte* lines_ = nullptr;     // the slots, where the window is memory
  std::byte* payloads_ = nullptr;  // likewise
  std::size_t payload_lines_ = 0;
  std::uint64_t head_ = 0;          // lines, only grows
  std::uint64_t tail_ = 0;          // likewise, as the peer said last
  std::uint64_t tail_said_ = 0;     // likewise, in the tail line
  std::uint64_t settled_ = 0;       // lines, only grows: what is believed
  std::uint64_t settled_said_ = 0;  // in the tail line; believed when answers_ lines were taken
  std::uint64_t answers_ = 0;
  std::uint64_t awaited_to_ = 0;    // head_ after the last slot whose settling is awaited
  std::uint64_t payload_head_ = 0;  // lines of the payload ring, skipped ends included
  std::uint64_t payload_tail_ = 0;
  std::vector<std::uint64_t> payload_after_;  // by line of the ring: payload_head_ after the slot that ends there
  alignas(kSlotLine) std::array<std::byte, 2 * kSlotLine> staged_{};
  std::size_t refused_bytes_ = 0;  // while wants_room_: the longest claim
  bool wants_room_ = false;
  bool faulty_ = false;
};

// What each message passes through is inline.

inline bool SlotSender::claim(std::size_t extension_bytes, std::size_t payload_bytes, SlotClaim& claim) {
  SPLITNIC_CHECK_OP(payload_bytes, <=, max_payload_bytes());
  const SlotLayout layout = slot_layout(extension_bytes, payload_bytes);
  const PayloadPlace place = layout.in_payload_ring ? place_payload(payload_bytes) : PayloadPlace{0, payload_head_};
  const std::uint64_t payload = place.after;
  const std::uint64_t lines = layout.two_lines ? 2 : 1;
  const bool has_room = room_for(lines, payload) && !faulty_;
  const std::size_t bytes = extension_bytes + payload_bytes;
  if (!has_room && !find_room(lines, payload)) [[unlikely]] {
    refused_bytes_ = wants_room_ ? std::max(refused_bytes_, bytes) : bytes;
    wants_room_ = true;
    return false;
  }
  if (wants_room_) [[unlikely]]
    wants_room_ = bytes < refused_bytes_;
  // One by one: a load of them all would wait until the stores before it have left, which are those of the last slots.
  claim.layout.two_lines = layout.two_lines;
  claim.layout.in_payload_ring = layout.in_payload_ring;
  claim.layout.payload_bytes = layout.payload_bytes;
  claim.layout.payload_at = static_cast<std::uint32_t>(place.from & (payload_lines_ - 1));
  claim.payload_head = payload;

  std::byte* const first = lines_ != nullptr ? lines_ + line_at(head_) : staged_.data();
  claim.lines[0] = first;
  std::byte* const body = first + kSlotBodyAt;
  claim.extension = body;
  claim.payload_rest = {};
  if (layout.in_payload_ring) {
    const std::size_t at = claim.layout.payload_at * kSlotLine;
    claim.payload = payloads_ != nullptr ? std::span(payloads_ + at, payload_bytes)
                                         : window_->claim(place_.payload_offset + at, payload_bytes);
    return true;
  }
  const std::size_t in_first = std::min(payload_bytes, kSlotBodyInFirst - extension_bytes);
  claim.payload = {body + extension_bytes, in_first};
  if (layout.two_lines) {
    std::byte* const second = lines_ != nullptr ? lines_ + line_at(head_ + 1) : staged_.data() + kSlotLine;
    claim.lines[1] = second;
    claim.payload_rest = {second + kSlotSequenceBytes, payload_bytes - in_first};
  }
  return true;
}

inline std::uint64_t SlotSender::release(const SlotClaim& claim, const SlotFields& fields) {
  if (lines_ != nullptr) {
    if (claim.layout.two_lines) store_sequence(claim.lines[1], head_ + 1);
    encode_slot(fields, claim.layout, claim.lines[0] + kSlotSequenceBytes);
    store_sequence(claim.lines[0], head_);
  } else {
    encode_slot(fields, claim.layout, staged_.data() + kSlotSequenceBytes);
    write_staged(claim.layout, claim.payload);
    window_->write_word(line_offset(head_), sequences_.of(head_));
  }
  head_ += claim.layout.two_lines ? 2 : 1;
  if (fields.awaited) awaited_to_ = head_;
  payload_head_ = claim.payload_head;
  payload_after_[static_cast<std::size_t>((head_ - 1) & (place_.slot_lines - 1))] = payload_head_;
  if (claim.layout.in_payload_ring) fetch_payload(claim.layout.payload_bytes);
  return head_;
}

class SlotSender::Row {
 public:
  explicit Row(SlotSender& sender)
      : lines_(sender.lines_),
        mask_(sender.place_.slot_lines - 1),
        sequences_(sender.sequences_),
        head_(sender.head_),
        end_(sender.can_put(1) ? sender.tail_ + sender.place_.slot_lines : sender.head_),
        payload_after_(sender.payload_after_.data()),
        payload_head_(sender.payload_head_) {}

  /// As SlotSender::put() of a message with these fields. word: slot_word() of its fields and a layout of one line.
  template <class PutExtension>
  [[nodiscard]] std::uint64_t put(std::uint64_t word, QpNumber queue_pair, std::uint32_t packet_sequence,
                                  std::size_t extension_bytes, PutExtension&& put_extension, const std::byte* from,
                                  std::size_t payload_bytes) {
    const std::size_t in_first = std::min(payload_bytes, kSlotBodyInFirst - extension_bytes);
    const std::size_t in_second = payload_bytes - in_first;
    if (in_second > kSlotLine - kSlotSequenceBytes) [[unlikely]]
      return 0;
    const bool two_lines = in_second != 0;
    const std::uint64_t next = head_ + (two_lines ? 2 : 1);
    if (next > end_) [[unlikely]]
      return 0;
    std::byte* const first = line(head_);
    // The peer looks at the first line all the time: it is written last, so that it is fetched from the peer only once.
    std::byte* const body = first + kSlotBodyAt;
    if (two_lines) {
      std::byte* const second = line(next - 1);
      const bool there =
          guarded_copy_parts(body + extension_bytes, from, in_first, second + kSlotSequenceBytes, in_second);
      if (!there) [[unlikely]]
        return 0;
      store(second, next - 1);
      word |= kTwoLines;
    } else if (in_first != 0 && !guarded_copy(body + extension_bytes, from, in_first)) [[unlikely]] {
      return 0;
    }
    put_extension(body);
    encode_slot_at_once(static_cast<std::uint32_t>(payload_bytes), word, queue_pair, packet_sequence,
                        first + kSlotSequenceBytes);
    store(first, head_);
    payload_after_[(next - 1) & mask_] = payload_head_;
    head_ = next;
    return head_;
  }
  [[nodiscard]] bool has_room() const { return head_ != end_; }
  /// As SlotSender::head().
  [[nodiscard]] std::uint64_t head() const { return head_; }
  /// The sender goes on from here. awaited: of the last message, SlotFields::awaited.
  void end(SlotSender& sender, bool awaited) const {
    sender.head_ = head_;
    if (awaited) sender.awaited_to_ = head_;
  }

 private:
  static constexpr std::uint64_t kTwoLines = std::uint64_t{slot_shape::kTwoLines} << kSlotShapeBit;
  [[nodiscard]] std::byte* line(std::uint64_t number) const { return lines_ + (number & mask_) * kSlotLine; }
  /// As SlotSender::store_sequence().
  void store(std::byte* to, std::uint64_t number) const {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(to), sequences_.of(number), __ATOMIC_RELEASE);
  }

  std::byte* lines_;
  std::uint64_t mask_;
  LineSequences sequences_;
  std::uint64_t head_;
  std::uint64_t end_;  // what head_ can't pass
  std::uint64_t* payload_after_;
  std::uint64_t payload_head_;
};

template <class PutExtension>
std::uint64_t SlotSender::put(const SlotFields& fields, std::size_t extension_bytes, PutExtension&& put_extension,
                              const std::byte* from, std::size_t payload_bytes) {
  Row row(*this);
  const std::uint64_t position = row.put(slot_word(fields, SlotLayout{}), fields.queue_pair, fields.packet_sequence,
                                         extension_bytes, put_extension, from, payload_bytes);
  if (position != 0) [[likely]]
    row.end(*this, fields.awaited);
  return position;
}

template <class PutExtension>
std::uint64_t SlotSender::put_bare(std::uint64_t word, QpNumber queue_pair, std::uint32_t packet_sequence,
                                   PutExtension&& put_extension) {
  std::byte* const first = lines_ + line_at(head_);
  put_extension(first + kSlotBodyAt);
  encode_slot_at_once(0, word, queue_pair, packet_sequence, first + kSlotSequenceBytes);
  store_sequence(first, head_);
  payload_after_[static_cast<std::size_t>(head_ & (place_.slot_lines - 1))] = payload_head_;
  awaited_to_ = ++head_;
  return head_;
}

inline void SlotSender::advance_tail(std::uint64_t lines) {
  if (lines == tail_) return;
  tail_ = lines;
  payload_tail_ = payload_after_[static_cast<std::size_t>((lines - 1) & (place_.slot_lines - 1))];
}

inline void SlotSender::advance_settled(std::uint64_t lines) {
  settled_ = lines;
  if (lines > tail_) advance_tail(lines);
}

inline void SlotSender::note_settled(std::uint32_t settled) {
  const std::uint32_t more = settled - static_cast<std::uint32_t>(settled_);
  if (more <= head_ - settled_) return advance_settled(settled_ + more);
  // A count behind is old: while the slot waited in its ring, the tail line may have moved on by many rings. Only a
  // count ahead of the head is impossible.
  const bool older = static_cast<std::int32_t>(more) < 0;
  if (!older) faulty_ = true;
}

inline std::uint64_t SlotSender::refresh_settled(std::uint64_t taken) {
  // What was said first is believed first: if it gave way to something newer, whose answers are always a little
  // ahead, a sender that receives without a pause would never believe anything.
  if (settled_said_ > settled_) {
    if (answers_ > taken) return settled_;
    advance_settled(settled_said_);
  }
  // A3 (acquire, in watch): settled before answers, and before what they announce; pairs with R3 in
  // SlotReceiver::push_tail(). Without it a message that was refused could be taken for done.
  const auto settled = tail_line_.watch<std::uint64_t>(kTailSettledAt);
  if (settled == settled_said_) return settled_;
  const auto answers = tail_line_.watch<std::uint64_t>(kTailAnswersAt);
  if (settled > head_ || settled < settled_said_ || answers < answers_) {
    faulty_ = true;
    return settled_;
  }
  settled_said_ = settled;
  answers_ = answers;
  if (answers_ <= taken && settled_said_ > settled_) advance_settled(settled_said_);
  return settled_;
}

}  // namespace splitnic::fabric
