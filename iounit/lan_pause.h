#pragma once

#include <chrono>
#include <cstddef>

#include "common/long_frames.h"
#include "common/moved_frames.h"
#include "common/time.h"

namespace splitnic::iounit {

/// When an engine looks for frames of its interface. Where they come fast, each look finds several. Those that follow
/// then gather for a moment: one look, one doorbell and one wake-up of a host serve more of them, and more of them are
/// merged. On a small machine the hosts get the time that many looks for few frames would take. Where few come at a
/// time, as in a conversation, there are no pauses. A stream of long frames has none either: each of them carries many
/// segments. Thread: the engine's.
class LanPause {
 public:
  static constexpr Duration kPause = std::chrono::microseconds(50);
  /// A look that finds fewer frames is not followed by a pause.
  static constexpr std::size_t kSeveral = 4;

  [[nodiscard]] bool is_over(Time now) const { return now >= until_; }
  /// Of the last pause.
  [[nodiscard]] Time until() const { return until_; }
  /// A look has found so many frames. emptied: and left none. moved: all frames of the interface so far, both ways.
  void looked(std::size_t frames, bool emptied, const MovedFrames& moved, Time now) {
    const bool pauses = frames >= kSeveral && emptied;
    const bool long_ones = frames != 0 && long_frames_.prevail(moved);
    if (pauses && !long_ones) until_ = now + kPause;
  }

 private:
  Time until_{};
  LongFrames long_frames_;
};

}  // namespace splitnic::iounit
