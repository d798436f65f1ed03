#pragma once

#include <chrono>

namespace splitnic {

/// Cores never read a clock; their callers pass `now`. Production passes monotonic_now(); tests and the simulation pass
/// their own time.
using Duration = std::chrono::nanoseconds;
using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;

inline Time monotonic_now() { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }

/// The monotonic clock for a loop that polls without sleeping: a reading costs about as much as a short message, so
/// only every sixteenth call reads it. Its time never goes back, and no two calls give the same.
class PollingClock {
 public:
  Time now() {
    if (calls_++ % kCallsPerReading == 0) return read();
    return time_ += Duration(1);
  }
  /// Reads the clock. Call it after a sleep: now() does not notice how long one took.
  Time read() {
    const Time reading = monotonic_now();
    time_ = reading > time_ ? reading : time_ + Duration(1);
    return time_;
  }

 private:
  static constexpr unsigned kCallsPerReading = 16;

  Time time_{};
  unsigned calls_ = 0;
};

/// "No deadline": later than every other time.
inline constexpr Time kNever = Time::max();

}  // namespace splitnic
