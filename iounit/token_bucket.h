#pragma once

#include <algorithm>
#include <cstdint>

#include "common/time.h"

namespace splitnic::iounit {

/// Limits a rate: amounts may be taken as long as their sum stays below the rate times the time that has passed, plus a
/// burst. Full at first. The arithmetic is exact. Thread: the owner's.
class TokenBucket {
 public:
  /// The highest rate: 80 Gbit/s in bytes.
  static constexpr std::uint64_t kMaxRate = 10'000'000'000;

  /// No limit.
  TokenBucket() = default;
  /// per_second: 0: no limit; at most kMaxRate. burst: the most that may be taken at once, at most kMaxRate.
  TokenBucket(std::uint64_t per_second, std::uint64_t burst) { set_limits(per_second, burst); }

  /// Limits as above. The bucket stays as full as it was, as a part of its burst, so that a change of limits gives no
  /// burst away. This holds also if it has no limit for a time. The first limits find it full.
  void set_limits(std::uint64_t per_second, std::uint64_t burst) {
    per_second_ = per_second;
    if (per_second == 0) return;
    const std::uint64_t full = burst * kUnits;
    __extension__ using Wide = unsigned __int128;  // nothing wraps here
    tokens_ = full_ == 0 ? full : static_cast<std::uint64_t>(Wide{tokens_} * full / full_);
    full_ = full;
  }

  /// False, and nothing is taken: the limit is reached. now never goes back.
  [[nodiscard]] bool take(std::uint64_t amount, Time now) {
    if (per_second_ == 0) return true;
    const auto passed = static_cast<std::uint64_t>(std::max(now - refilled_, Duration::zero()).count());
    refilled_ = now;
    const std::uint64_t missing = full_ - tokens_;
    tokens_ = passed > missing / per_second_ ? full_ : tokens_ + passed * per_second_;
    if (tokens_ < amount * kUnits) return false;
    tokens_ -= amount * kUnits;
    return true;
  }

 private:
  static constexpr std::uint64_t kUnits = 1'000'000'000;  // tokens are counted in parts that refill per nanosecond

  std::uint64_t per_second_ = 0;
  std::uint64_t full_ = 0;
  std::uint64_t tokens_ = 0;
  Time refilled_{};
};

}  // namespace splitnic::iounit
