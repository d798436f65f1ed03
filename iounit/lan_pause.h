#pragma once

#include <chrono>
#include <cstddef>

#include "common/long_frames.h"
#include "common/moved_frames.h"
#include "common/time.h"

namespace splitnic::iounit {

/// When a unit looks at its LAN. Where frames come fast, each look finds several; the next ones then gather for a
/// moment, so that one look, one doorbell and one wake-up of a host serve more of them, and more of them are merged. On
/// a small machine the hosts get the time that many looks for few frames would take. A conversation, whose frames come
/// one by one, has no pauses, nor has a stream of long frames, each of which was many. Thread: the unit's.
class LanPause {
 public:
  static constexpr Duration kPause = std::chrono::microseconds(50);
  /// A look that finds fewer frames is not followed by a pause.
  static constexpr std::size_t kSeveral = 4;

  [[nodiscard]] bool is_over(Time now) const { return now >= until_; }
  /// Of the last pause.
  [[nodiscard]] Time until() const { return until_; }
  /// A look has found so many frames. emptied: and left none. moved: all frames so far.
  void looked(std::size_t frames, bool emptied, const MovedFrames& moved, Time now) {
    const bool pauses = frames >= kSeveral && emptied;
    if (pauses && !long_frames_.prevail(moved)) until_ = now + kPause;
  }

 private:
  Time until_{};
  LongFrames long_frames_;
};

}  // namespace splitnic::iounit
