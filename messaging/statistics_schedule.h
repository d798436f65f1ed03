#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "common/time.h"

namespace splitnic::messaging {

/// When an end asks its peer for statistics: every 5 s while frames pass, else every 60 s, because each question wakes
/// up both ends. Thread: the session's.
class StatisticsSchedule {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(5);
  static constexpr Duration kQuietInterval = std::chrono::seconds(60);
  /// While quiet, how often it looks at the frames.
  static constexpr Duration kLookInterval = std::chrono::seconds(1);

  /// The session is up: the first question is due at once.
  void start() { look_at_ = ask_anyway_at_ = Time{}; }
  /// The session is down: none is due.
  void stop() { look_at_ = ask_anyway_at_ = kNever; }
  /// Whether to ask now; the caller then does. count_frames: returns the frames so far, in both directions; called only
  /// when it may matter.
  template <class CountFrames>
  [[nodiscard]] bool due(Time now, CountFrames&& count_frames) {
    if (now < look_at_) return false;
    const std::uint64_t frames = count_frames();
    if (frames == frames_ && now < ask_anyway_at_) {
      look_at_ = std::min(now + kLookInterval, ask_anyway_at_);
      return false;
    }
    frames_ = frames;
    look_at_ = now + kInterval;
    ask_anyway_at_ = now + kQuietInterval;
    return true;
  }
  /// When due() is true although no frame passes.
  [[nodiscard]] Time next_deadline() const { return ask_anyway_at_; }

 private:
  std::uint64_t frames_ = 0;  // when the peer was last asked
  Time look_at_ = kNever;
  Time ask_anyway_at_ = kNever;
};

}  // namespace splitnic::messaging
