#pragma once

#include <algorithm>
#include <cstdint>

#include "common/time.h"

namespace splitnic::iounit {

/// Limits a rate: amounts may be taken as long as their sum stays below the rate times the time that has passed, plus a
/// burst. An amount larger than the burst may be taken from a full bucket; the rest is owed, and nothing can be taken
/// until it is paid. Full at first. The arithmetic is exact. Thread: the owner's.
class TokenBucket {
 public:
  /// The highest rate: 80 Gbit/s in bytes.
  static constexpr std::uint64_t kMaxRate = 10'000'000'000;

  /// No limit.
  TokenBucket() = default;
  /// per_second: 0: no limit; at most kMaxRate. burst: the most that may be taken at once without a debt, at most
  /// kMaxRate.
  TokenBucket(std::uint64_t per_second, std::uint64_t burst) { set_limits(per_second, burst); }

  /// Limits as above. The bucket stays as full as it was, as a part of its burst, so that a change of limits gives no
  /// burst away. What is owed stays owed. This holds also if it has no limit for a time. The first limits find it full.
  void set_limits(std::uint64_t per_second, std::uint64_t burst) {
    per_second_ = per_second;
    if (per_second == 0) return;
    const std::uint64_t full = burst * kUnits;
    __extension__ using Wide = unsigned __int128;  // nothing wraps here
    tokens_ = full_ == 0 ? full : static_cast<std::uint64_t>(Wide{tokens_} * full / full_);
    full_ = full;
  }

  /// False, and nothing is taken: the limit is reached. amount: at most kMaxRate. now never goes back.
  [[nodiscard]] bool take(std::uint64_t amount, Time now) {
    if (per_second_ == 0) return true;
    refill(now);
    const std::uint64_t wanted = amount * kUnits;
    if (owed_ != 0 || tokens_ < std::min(wanted, full_)) return false;
    spend(wanted);
    return true;
  }
  /// Takes an amount, at most kMaxRate, that nobody can refuse any more: what the bucket has not is owed.
  void owe(std::uint64_t amount, Time now) {
    if (per_second_ == 0) return;
    refill(now);
    spend(amount * kUnits);
  }

 private:
  void refill(Time now) {
    const auto passed = static_cast<std::uint64_t>(std::max(now - refilled_, Duration::zero()).count());
    refilled_ = now;
    const std::uint64_t missing = full_ - tokens_ + owed_;
    const std::uint64_t earned = passed > missing / per_second_ ? missing : passed * per_second_;
    const std::uint64_t paid = std::min(earned, owed_);
    owed_ -= paid;
    tokens_ += earned - paid;
  }
  void spend(std::uint64_t units) {
    const std::uint64_t from_bucket = std::min(units, tokens_);
    tokens_ -= from_bucket;
    owed_ = std::min(owed_ + (units - from_bucket), kMostOwed);
  }

  static constexpr std::uint64_t kUnits = 1'000'000'000;  // tokens are counted in parts that refill per nanosecond

  // A bound, so that nothing wraps: full_ + kMostOwed + what one call takes fits.
  static constexpr std::uint64_t kMostOwed = kMaxRate / 4 * kUnits;

  std::uint64_t per_second_ = 0;
  std::uint64_t full_ = 0;
  std::uint64_t tokens_ = 0;
  std::uint64_t owed_ = 0;  // tokens_ is 0 then
  Time refilled_{};
};

}  // namespace splitnic::iounit
