#include "fabric/bridge/message_fifo.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace splitnic::fabric {
namespace {

constexpr std::uint16_t kPadding = 0x8000;

struct HeadWord {
  std::uint16_t lines_field;
  std::uint16_t sequence;
  std::uint32_t epoch_tag;

  [[nodiscard]] std::uint64_t packed() const {
    return std::uint64_t{lines_field} | std::uint64_t{sequence} << 16U | std::uint64_t{epoch_tag} << 32U;
  }
  static HeadWord unpacked(std::uint64_t word) {
    return {static_cast<std::uint16_t>(word & 0xffffU), static_cast<std::uint16_t>(word >> 16U & 0xffffU),
            static_cast<std::uint32_t>(word >> 32U)};
  }
};
// Words go to memory as they lie in a register; a big-endian build would swap them in PeerMemory and PeerWindow.
static_assert(std::endian::native == std::endian::little);

std::size_t lines_of(std::size_t record_bytes) { return (kFifoHeadBytes + record_bytes + kFifoLine - 1) / kFifoLine; }

std::size_t checked_lines(const FifoPlace& place) {
  const std::size_t lines = place.ring_bytes / kFifoLine;
  CHECK(place.ring_offset % kFifoLine == 0 && place.tail_offset % kFifoLine == 0);
  CHECK(place.ring_bytes % kFifoLine == 0 && std::has_single_bit(lines) && lines >= 2 && lines <= kMaxFifoLines);
  return lines;
}

}  // namespace

FifoSender::FifoSender(Bridge& bridge, const FifoPlace& place, std::uint32_t epoch_tag)
    : bridge_(&bridge),
      window_(&bridge.peer_window()),
      local_(bridge.local_memory()),
      place_(place),
      ring_lines_(checked_lines(place)),
      epoch_tag_(epoch_tag) {
  CHECK(window_->contains(place.ring_offset, place.ring_bytes));
  CHECK(local_.contains(place.tail_offset, sizeof(std::uint64_t)));
}

std::size_t FifoSender::max_record_bytes() const {
  // One line stays free for the zeroed next head word; bit 15 of the length is the padding's.
  const std::size_t lines = std::min<std::size_t>(ring_lines_ - 1, kPadding - 1);
  return lines * kFifoLine - kFifoHeadBytes;
}

void FifoSender::read_tail() {
  const auto tail = local_.watch<std::uint64_t>(place_.tail_offset);
  if (tail < tail_ || tail > head_) {
    faulty_ = true;
    return;
  }
  tail_ = tail;
}

bool FifoSender::room_for(std::size_t lines) {
  const auto fits = [&] { return head_ - tail_ + lines <= ring_lines_ - 1; };
  if (fits()) return !faulty_;
  read_tail();
  return !faulty_ && fits();
}

bool FifoSender::drained() {
  read_tail();
  return head_ == tail_;
}

bool FifoSender::room_again() {
  if (!wants_room_) return false;
  const std::uint64_t before = tail_;
  read_tail();
  return faulty_ || tail_ != before;
}

void FifoSender::append(std::size_t lines, std::uint16_t lines_field,
                        std::initializer_list<std::span<const std::byte>> pieces) {
  const std::size_t at = place_.ring_offset + position() * kFifoLine;
  std::size_t to = at + kFifoHeadBytes;
  for (const auto piece : pieces) {
    window_->write(to, piece);
    to += piece.size();
  }
  const std::size_t next = place_.ring_offset + ((head_ + lines) & (ring_lines_ - 1)) * kFifoLine;
  window_->write_word<std::uint64_t>(next, 0);
  // F1 (publish): payload and the zeroed next head before this head; pairs with A1 in FifoReceiver::refresh_front().
  // Without it the receiver could take payload that has not arrived, or an old lap's bytes behind this record for the
  // next one.
  bridge_->publish();
  const HeadWord head{lines_field, static_cast<std::uint16_t>(sequence_), epoch_tag_};
  window_->write_word(at, head.packed());
  head_ += lines;
  ++sequence_;
}

bool FifoSender::prepare(std::size_t bytes) {
  CHECK(bytes > 0 && bytes <= max_record_bytes());
  const std::size_t lines = lines_of(bytes);
  wants_room_ = true;
  if (const std::size_t to_end = ring_lines_ - position(); lines > to_end) {
    // A record does not wrap. Where padding and record can stand together they are written together; a record longer
    // than half the ring may have to wait until its padding has been consumed.
    const bool together = to_end + lines <= ring_lines_ - 1;
    if (!room_for(together ? to_end + lines : to_end)) return false;
    append(to_end, static_cast<std::uint16_t>(kPadding | to_end), {});
  }
  if (!room_for(lines)) return false;
  wants_room_ = false;
  return true;
}

bool FifoSender::send(std::initializer_list<std::span<const std::byte>> pieces) {
  std::size_t bytes = 0;
  for (const auto piece : pieces) bytes += piece.size();
  if (!prepare(bytes)) return false;
  const std::size_t lines = lines_of(bytes);
  append(lines, static_cast<std::uint16_t>(lines), pieces);
  ++records_;
  return true;
}

FifoReceiver::FifoReceiver(Bridge& bridge, const FifoPlace& place, std::uint32_t epoch_tag)
    : ring_(bridge.local_memory().slice(place.ring_offset, place.ring_bytes)),
      window_(&bridge.peer_window()),
      place_(place),
      ring_lines_(checked_lines(place)),
      epoch_tag_(epoch_tag) {
  CHECK(window_->contains(place.tail_offset, sizeof(std::uint64_t)));
}

/// Looks for a record (or a padding) at the tail; on success its lines are in front_lines_.
bool FifoReceiver::refresh_front() {
  const std::size_t at = position();
  PeerMemory::next_message();
  // A1 (acquire, in load): pairs with F1 in FifoSender::append().
  const HeadWord head = HeadWord::unpacked(ring_.load<std::uint64_t>(at * kFifoLine));
  if (head.epoch_tag != epoch_tag_ || head.sequence != static_cast<std::uint16_t>(sequence_)) return false;
  const bool padding = (head.lines_field & kPadding) != 0;
  const std::size_t lines = head.lines_field & ~kPadding;
  const std::size_t to_end = ring_lines_ - at;
  const bool possible = padding ? lines == to_end && at != 0 : lines > 0 && lines <= to_end && lines < ring_lines_;
  if (!possible) {
    faulty_ = true;
    return false;
  }
  if (padding) {
    tail_ += lines;
    ++sequence_;
    return refresh_front();  // at most once: a padding leads to the ring's start, where there can be none
  }
  front_lines_ = lines;
  return true;
}

std::optional<PeerMemory> FifoReceiver::front() {
  if (front_lines_ == 0 && (faulty_ || !refresh_front())) return std::nullopt;
  return ring_.slice(position() * kFifoLine + kFifoHeadBytes, front_lines_ * kFifoLine - kFifoHeadBytes);
}

void FifoReceiver::pop() {
  CHECK(front_lines_ > 0);
  tail_ += front_lines_;
  front_lines_ = 0;
  ++sequence_;
}

void FifoReceiver::push_tail(bool now_or_never) {
  const std::uint64_t moved = tail_ - pushed_tail_;
  if (moved == 0 || (!now_or_never && moved < ring_lines_ / 4)) return;
  // R1 (release, in write_word): the record's bytes were read before the sender may overwrite them; pairs with the
  // acquire in FifoSender::read_tail().
  window_->write_word(place_.tail_offset, tail_);
  pushed_tail_ = tail_;
}

}  // namespace splitnic::fabric
