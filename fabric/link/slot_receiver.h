#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/check.h"
#include "fabric/bridge/bridge.h"
#include "fabric/link/slot_ring.h"
#include "fabric/memory/guarded_copy.h"
#include "fabric/wire/slot.h"

namespace splitnic::fabric {

/// A received slot, copied out of the ring: its header, and its body from SlotReceiver::load_body() on. Only a payload
/// in the payload ring stays where the peer can write it: read that once.
class ReceivedSlot {
 public:
  [[nodiscard]] const SlotHeader& header() const { return lines_.header; }
  /// Set: the slot carries nothing that can be used; refuse it by its queue pair.
  [[nodiscard]] const std::optional<SlotFault>& fault() const { return fault_; }
  /// If fault() is set, only two_lines is valid and all else is zero.
  [[nodiscard]] const SlotLayout& layout() const { return layout_; }

  /// The extended header begins with the body. bytes: at most kSlotBodyInFirst.
  [[nodiscard]] std::span<const std::byte> extension(std::size_t bytes) const {
    return std::span(lines_.body).first(bytes);
  }
  /// An extended header of so many bytes and the payload fit the slot's shape.
  [[nodiscard]] bool fits(std::size_t extension_bytes) const;
  /// The payload, which begins behind an extended header of so many bytes. nullopt: such a header and such a payload
  /// don't fit the slot's shape.
  [[nodiscard]] std::optional<PeerMemory> payload(std::size_t extension_bytes);

 private:
  friend class SlotReceiver;
  /// The first line, and the second without its sequence.
  struct Lines {
    boost::endian::little_uint32_buf_t sequence;
    SlotHeader header;
    std::array<std::byte, kSlotBodyInBoth> body;
  };
  static_assert(offsetof(Lines, body) == kSlotBodyAt);

  alignas(16) Lines lines_{};
  SlotLayout layout_{};
  std::optional<SlotFault> fault_{};
  PeerMemory in_ring_;  // the payload, if it is in the payload ring
};

/// The receiver's end. Thread: the bridge's owner.
class SlotReceiver {
 public:
  SlotReceiver() = default;
  SlotReceiver(Bridge& bridge, const SlotRingPlace& place, std::uint32_t seed);

  /// The oldest slot, copied and checked once; null: there is none. Good until pop().
  [[nodiscard]] ReceivedSlot* front() {
    ReceivedSlot* slot = head();
    if (slot != nullptr) load_body();
    return slot;
  }
  /// The same, and of the slot nothing but its header and layout.
  [[nodiscard]] ReceivedSlot* head() { return waiting() ? read_head() : nullptr; }
  /// Copies the body of head(), if it was not yet.
  void load_body();
  /// Copies bytes of the payload of head() to their place: from the ring, if load_body() has not copied them already,
  /// so each byte once. extension_bytes: of the extended header, which ReceivedSlot::fits(). skipped: payload before
  /// them. into: no longer than the rest. What PeerMemory::copy_by() answers.
  template <class Copy>
  [[nodiscard]] bool copy_payload(std::size_t extension_bytes, std::size_t skipped, std::span<std::byte> into,
                                  Copy&& copy);
  /// Looks at slots in a row, and consumes those that it takes. Only where nobody has looked_at() the first.
  class Row;

  /// There is a slot.
  [[nodiscard]] bool waiting() const {
    if (front_lines_ != 0) return true;
    // If the slot has a second line, that comes beside the first, not after it.
    slots_.prefetch(tail_ + 1);
    // A2 (acquire, in watch): pairs with R2 and P1 in SlotSender.
    return slots_.watch<std::uint32_t>(tail_) == sequences_.of(tail_);
  }
  /// Somebody has looked at the oldest slot, which is as it was.
  [[nodiscard]] bool looked_at() const { return front_lines_ != 0; }
  /// Consumes front(): its lines and its payload are the sender's as soon as the tail is pushed.
  void pop();
  /// Lines consumed since the epoch began.
  [[nodiscard]] std::uint64_t consumed() const { return tail_; }
  /// Everything consumed has been dealt with: taken, or its refusal sent in the opposite ring.
  void settle() { settled_ = tail_; }
  [[nodiscard]] std::uint64_t settled() const { return settled_; }
  /// A slot of the opposite ring was released that said settled().
  void reported_by_slot();
  /// The sum of the two positions that were reported to the sender, in lines. It changes with each report.
  [[nodiscard]] std::uint64_t reported() const { return reported_tail_ + reported_settled_; }
  /// A position was not yet reported to the sender.
  [[nodiscard]] bool unreported() const { return reported_tail_ != tail_ || reported_settled_ != settled_; }
  /// A position is not in the tail line, though a slot may have reported it. The sender refreshes from the line even if
  /// it does not receive, so an end pushes the line before it sleeps.
  [[nodiscard]] bool line_behind() const { return pushed_tail_ != tail_ || unreported(); }
  /// A quarter of the ring, or of the payload ring, has been consumed since the last report to the sender.
  [[nodiscard]] bool much_consumed() const;
  /// Reports to the sender how far this end has consumed and settled. answers: lines sent in the opposite ring.
  void push_tail(std::uint64_t answers);

 private:
  [[nodiscard]] ReceivedSlot* read_head();
  /// The tail line, where the window is not memory.
  void post_tail(std::uint64_t answers);

  Bridge* bridge_ = nullptr;
  PeerWindow* window_ = nullptr;
  std::byte* tail_line_ = nullptr;  // where the window is memory
  PeerLines slots_;
  PeerMemory payload_;
  SlotRingPlace place_{};
  LineSequences sequences_{};
  std::uint64_t tail_ = 0;
  std::uint64_t settled_ = 0;
  std::uint64_t pushed_tail_ = 0;    // in the tail line
  std::uint64_t reported_tail_ = 0;  // there, or by a slot
  std::uint64_t reported_settled_ = 0;
  std::uint64_t payload_unreported_ = 0;  // lines of payload consumed and not yet reported
  std::size_t front_lines_ = 0;           // 0: head() has found nothing yet
  bool body_loaded_ = false;              // of front_
  ReceivedSlot front_{};
};

// What each message passes through is inline.

inline bool ReceivedSlot::fits(std::size_t extension_bytes) const {
  if (fault_ || extension_bytes > kSlotBodyInFirst) return false;
  const std::size_t body = layout_.two_lines ? kSlotBodyInBoth : kSlotBodyInFirst;
  return layout_.in_payload_ring || layout_.payload_bytes <= body - extension_bytes;
}

inline std::optional<PeerMemory> ReceivedSlot::payload(std::size_t extension_bytes) {
  if (!fits(extension_bytes)) return std::nullopt;
  if (layout_.in_payload_ring) return in_ring_;
  return PeerMemory::over(lines_.body.data() + extension_bytes, layout_.payload_bytes);
}

/// The first line is there: waiting() has seen its sequence word.
inline ReceivedSlot* SlotReceiver::read_head() {
  if (front_lines_ != 0) return &front_;
  slots_.next_message(tail_);
  slots_.copy_out(tail_, 0, std::as_writable_bytes(std::span(&front_.lines_, 1)).first(kSlotBodyAt));
  front_.layout_ = slot_layout(front_.header());
  front_.fault_ = slot_fault(front_.header(), front_.layout_, place_.payload_lines);
  const bool two_lines = front_.layout_.two_lines;
  front_lines_ = two_lines ? 2 : 1;
  body_loaded_ = false;
  if (two_lines) {
    const std::uint64_t second = tail_ + 1;
    slots_.next_message(second);
    const auto sequence = slots_.load<std::uint32_t>(second);
    if (!front_.fault_ && sequence != sequences_.of(second)) front_.fault_ = SlotFault::second_line;
  }
  if (front_.fault_) [[unlikely]] {
    front_.layout_ = SlotLayout{.two_lines = two_lines};
  } else if (front_.layout_.in_payload_ring) {
    front_.in_ring_ = payload_.slice(front_.layout_.payload_at * kSlotLine, front_.layout_.payload_bytes);
    front_.in_ring_.next_message();
  }
  return &front_;
}

class SlotReceiver::Row {
 public:
  explicit Row(SlotReceiver& receiver) : receiver_(receiver), slots_(receiver.slots_), tail_(receiver.tail_) {}

  /// There is another slot, whose header is loaded: words().
  [[nodiscard]] bool look() {
    slots_.prefetch(tail_ + 1);
    // A2 (acquire, in watch), as SlotReceiver::waiting().
    if (slots_.watch<std::uint32_t>(tail_) != receiver_.sequences_.of(tail_)) return false;
    slots_.next_message(tail_);
    words_.place = slots_.load_any<std::uint64_t>(tail_, kSlotSequenceBytes);
    words_.what = slots_.load_any<std::uint64_t>(tail_, kSlotSequenceBytes + sizeof(std::uint64_t));
    words_.receiver = slots_.load_any<std::uint64_t>(tail_, kSlotSequenceBytes + 2 * sizeof(std::uint64_t));
    return true;
  }
  [[nodiscard]] const SlotWords& words() const { return words_; }
  /// Of a slot of two lines: the second one is there.
  [[nodiscard]] bool has_second() const {
    slots_.next_message(tail_ + 1);
    return slots_.load<std::uint32_t>(tail_ + 1) == receiver_.sequences_.of(tail_ + 1);
  }
  /// Copies so many bytes of the body, which are in its lines, from `at` on. at: at most kSlotBodyInFirst. What
  /// PeerLines::copy_by() answers.
  [[nodiscard]] bool copy(std::byte* into, std::uint32_t bytes, std::uint32_t at = 0) const {
    const std::uint32_t in_first = std::min<std::uint32_t>(bytes, kSlotBodyInFirst - at);
    const std::span first(into, in_first);
    const std::span second(into + in_first, bytes - in_first);
    return slots_.copy_by(tail_, kSlotBodyAt + at, first, guarded_copy) &&
           slots_.copy_by(tail_ + 1, kSlotSequenceBytes, second, guarded_copy);
  }
  /// Consumes it.
  void pop(bool two_lines) { tail_ += two_lines ? 2 : 1; }
  /// What lies in the body of its first line, so many bytes behind the beginning.
  template <class Header>
  [[nodiscard]] Header header(std::size_t at) const {
    Header header;
    slots_.copy_out(tail_, kSlotBodyAt + at, std::as_writable_bytes(std::span(&header, 1)));
    return header;
  }
  /// The receiver goes on from here. A slot that look() has found and nobody consumed is as it was: head() reads all of
  /// it anew, and nothing that was seen here decides about it.
  void end() const { receiver_.tail_ = tail_; }

 private:
  SlotReceiver& receiver_;
  const PeerLines slots_;
  std::uint64_t tail_;
  SlotWords words_{};
};

inline void SlotReceiver::load_body() {
  if (body_loaded_) return;
  body_loaded_ = true;
  const std::span body(front_.lines_.body);
  slots_.copy_out(tail_, kSlotBodyAt, body.first<kSlotBodyInFirst>());
  if (front_lines_ == 2) slots_.copy_out(tail_ + 1, kSlotSequenceBytes, body.subspan<kSlotBodyInFirst>());
}

template <class Copy>
bool SlotReceiver::copy_payload(std::size_t extension_bytes, std::size_t skipped, std::span<std::byte> into,
                                Copy&& copy) {
  if (front_.layout_.in_payload_ring) return front_.in_ring_.copy_by(skipped, into, copy);
  const std::size_t from = extension_bytes + skipped;  // in the body
  if (body_loaded_) return into.empty() || copy(into.data(), front_.lines_.body.data() + from, into.size());
  // Not by way of a private copy: loads that span its stores would wait until these have left.
  const std::size_t left_in_first = kSlotBodyInFirst - std::min(from, kSlotBodyInFirst);
  const std::size_t in_first = std::min(into.size(), left_in_first);
  if (!slots_.copy_by(tail_, kSlotLine - left_in_first, into.first(in_first), copy)) return false;
  if (in_first == into.size()) return true;
  const std::size_t at = from + in_first - kSlotBodyInFirst;
  return slots_.copy_by(tail_ + 1, kSlotSequenceBytes + at, into.subspan(in_first), copy);
}

inline void SlotReceiver::pop() {
  SPLITNIC_CHECK(front_lines_ > 0);
  tail_ += front_lines_;
  front_lines_ = 0;
  if (front_.layout_.in_payload_ring) payload_unreported_ += lines_of(front_.layout_.payload_bytes);
}

inline void SlotReceiver::reported_by_slot() {
  if (reported_settled_ == settled_) return;
  reported_settled_ = settled_;
  reported_tail_ = std::max(reported_tail_, settled_);
  if (reported_tail_ == tail_) payload_unreported_ = 0;
}

inline bool SlotReceiver::much_consumed() const {
  return tail_ - reported_tail_ >= place_.slot_lines / 4 || payload_unreported_ >= place_.payload_lines / 4;
}

inline void SlotReceiver::push_tail(std::uint64_t answers) {
  if (tail_line_ != nullptr) [[likely]] {
    const auto store = [this](std::size_t at, std::uint64_t value) {
      __atomic_store_n(reinterpret_cast<std::uint64_t*>(tail_line_ + at), value, __ATOMIC_RELEASE);
    };
    store(kTailAnswersAt, answers);
    // R3 (release; published elsewhere): what was placed, the refusals and their count before settled, which lets the
    // sender complete. Pairs with A3 in SlotSender::refresh_settled().
    store(kTailSettledAt, settled_);
    // R4 (release): the slots' bytes were read before the sender may overwrite them. Pairs with A4 in
    // SlotSender::refresh_tail().
    store(kTailAt, tail_);
  } else {
    post_tail(answers);
  }
  pushed_tail_ = reported_tail_ = tail_;
  reported_settled_ = settled_;
  payload_unreported_ = 0;
}

}  // namespace splitnic::fabric
