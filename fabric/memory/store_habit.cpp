#include "fabric/memory/store_habit.h"

#include <chrono>

namespace splitnic::fabric {

std::chrono::nanoseconds StoreHabit::longest_fast(std::size_t bytes) {
  constexpr std::uint64_t kBytesPerMicrosecond = kFastBytesPerSecond / 1'000'000;
  return kWaitOfCopy + std::chrono::nanoseconds(bytes * 1000 / kBytesPerMicrosecond);
}

bool StoreHabit::store_long(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (plain_) {
    if (++untimed_ < kTimedOneIn) return guarded_copy(to, from, bytes);
    untimed_ = 0;
    return store_timed(to, from, bytes);
  }
  if (try_after_ <= bytes) return store_timed(to, from, bytes);
  try_after_ -= bytes;
  return guarded_stream(to, from, bytes);
}

/// Plainly.
bool StoreHabit::store_timed(std::byte* to, const std::byte* from, std::size_t bytes) {
  const Time begin = clock_();
  if (!guarded_copy(to, from, bytes)) return false;
  const bool fast = clock_() - begin <= longest_fast(bytes);
  if (fast == plain_) {
    agreeing_ = 0;
    if (!plain_) try_after_ = kTryAgainAfter;
  } else if (++agreeing_ == kAgreeing) {
    agreeing_ = 0;
    plain_ = fast;
    try_after_ = kTryAgainAfter;
  }
  return true;
}

}  // namespace splitnic::fabric
