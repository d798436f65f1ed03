#include "fabric/link/record_ring.h"

#include <cstring>

#include "common/check.h"

namespace splitnic::fabric {
namespace {

/// In front of each run.
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kSkip = ~std::uint64_t{0};

constexpr std::size_t rounded(std::size_t bytes) { return (bytes + kLengthBytes - 1) / kLengthBytes * kLengthBytes; }

}  // namespace

// A run with its length takes less than twice its own bytes, and the end that it leaves unused is shorter than it.
RecordRing::RecordRing(std::size_t bytes, std::size_t longest)
    : capacity_(2 * rounded(bytes) + 2 * (rounded(longest) + kLengthBytes)),
      longest_(longest),
      storage_(std::make_unique<std::byte[]>(capacity_)) {}

std::span<std::byte> RecordRing::claim(std::size_t bytes) {
  SPLITNIC_CHECK(bytes >= kShortest && bytes <= longest_);
  const std::size_t needed = kLengthBytes + rounded(bytes);
  std::uint64_t at = head_;
  const std::size_t to_end = capacity_ - at % capacity_;
  if (needed > to_end) at += to_end;
  if (at + needed - tail_ > capacity_) return {};
  if (at != head_) std::memcpy(&storage_[head_ % capacity_], &kSkip, kLengthBytes);
  claimed_at_ = at;
  claimed_ = bytes;
  return {&storage_[at % capacity_ + kLengthBytes], bytes};
}

void RecordRing::put() {
  SPLITNIC_CHECK(claimed_ > 0);
  const std::uint64_t length = claimed_;
  std::memcpy(&storage_[claimed_at_ % capacity_], &length, kLengthBytes);
  head_ = claimed_at_ + kLengthBytes + rounded(claimed_);
  bytes_ += claimed_;
  claimed_ = 0;
}

void RecordRing::skip_end() {
  std::uint64_t length = 0;
  std::memcpy(&length, &storage_[tail_ % capacity_], kLengthBytes);
  if (length == kSkip) tail_ += capacity_ - tail_ % capacity_;
}

std::span<std::byte> RecordRing::front() {
  if (empty()) return {};
  skip_end();
  std::uint64_t length = 0;
  std::memcpy(&length, &storage_[tail_ % capacity_], kLengthBytes);
  return {&storage_[tail_ % capacity_ + kLengthBytes], static_cast<std::size_t>(length)};
}

void RecordRing::pop() {
  const std::size_t bytes = front().size();
  SPLITNIC_CHECK(bytes > 0);
  tail_ += kLengthBytes + rounded(bytes);
  bytes_ -= bytes;
}

void RecordRing::clear() {
  head_ = tail_ = claimed_at_ = 0;
  claimed_ = bytes_ = 0;
}

}  // namespace splitnic::fabric
