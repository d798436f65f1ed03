#pragma once

#include <chrono>

namespace splitnic {

/// Cores never read a clock; their callers pass `now`. Production passes monotonic_now(); tests and the simulation pass
/// their own time.
using Duration = std::chrono::nanoseconds;
using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;

inline Time monotonic_now() { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }

/// "No deadline": later than every other time.
inline constexpr Time kNever = Time::max();

}  // namespace splitnic
