#include "iounit/frame_ring.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "common/check.h"

namespace splitnic::iounit {

static_assert(std::is_trivially_copyable_v<frame::FrameOffload>);

FrameRing::FrameRing(std::size_t bytes) : bytes_(bytes), memory_(new std::byte[bytes]) {
  SPLITNIC_CHECK(std::has_single_bit(bytes));
  SPLITNIC_CHECK_OP(bytes, >=, 2 * kLargestRecord);
}

bool FrameRing::add(const HandedFrame& frame) {
  const std::size_t needed = room_of(frame.bytes.size());
  SPLITNIC_CHECK_OP(needed, <=, kLargestRecord);
  // A record lies in one piece. What is left at the end of the memory goes with it.
  const std::size_t to_end = bytes_ - (added_ & (bytes_ - 1));
  const std::size_t skipped = to_end < needed ? to_end : 0;
  if (added_ + skipped + needed - room_seen_ > bytes_) {
    // F2 (acquire): pairs with F2 in settle(). Without it the new bytes could be stored before the old ones were read.
    room_seen_ = settled_.load(std::memory_order_acquire);
    if (added_ + skipped + needed - room_seen_ > bytes_) return false;
  }
  Record record{.frame_bytes = kWrap, .knows_offload = false, .from_lan = false, .addressed = false, .offload = {}};
  if (skipped != 0) {
    std::memcpy(at(added_), &record.frame_bytes, sizeof record.frame_bytes);
    added_ += skipped;
  }
  record.frame_bytes = static_cast<std::uint32_t>(frame.bytes.size());
  record.knows_offload = frame.offload.has_value();
  record.from_lan = frame.from_lan;
  record.addressed = frame.addressed;
  record.offload = frame.offload.value_or(frame::FrameOffload{});
  std::memcpy(at(added_), &record, sizeof record);
  std::memcpy(at(added_) + kRecordBytes, frame.bytes.data(), frame.bytes.size());
  added_ += needed;
  return true;
}

bool FrameRing::publish() {
  if (published_.load(std::memory_order_relaxed) == added_) return false;
  // F1 (release): the records before their number; pairs with F1 in take(). Without it the other thread may read
  // records that are not there yet.
  published_.store(added_, std::memory_order_release);
  return true;
}

std::optional<HandedFrame> FrameRing::take() {
  if (taken_ == seen_) seen_ = published_.load(std::memory_order_acquire);  // F1
  if (taken_ == seen_) return std::nullopt;
  std::uint32_t frame_bytes = 0;
  std::memcpy(&frame_bytes, at(taken_), sizeof frame_bytes);
  if (frame_bytes == kWrap) taken_ += bytes_ - (taken_ & (bytes_ - 1));
  Record record;
  std::memcpy(&record, at(taken_), sizeof record);
  const HandedFrame frame{.bytes = {at(taken_) + kRecordBytes, record.frame_bytes},
                          .offload = record.knows_offload ? std::optional(record.offload) : std::nullopt,
                          .from_lan = record.from_lan,
                          .addressed = record.addressed};
  taken_ += room_of(record.frame_bytes);
  return frame;
}

void FrameRing::settle() {
  // F2 (release): the bytes have been read before their room is given back.
  settled_.store(taken_, std::memory_order_release);
}

bool FrameRing::empty() const { return published_.load(std::memory_order_acquire) == taken_; }

}  // namespace splitnic::iounit
