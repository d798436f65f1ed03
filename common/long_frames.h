#pragma once

#include <cstdint>

#include "common/moved_frames.h"

namespace splitnic {

/// Remembers how many of the last frames were long, as those of a stream with offloads are. Thread: the core's.
class LongFrames {
 public:
  /// Whether one frame in four was long of late. moved: all frames so far.
  [[nodiscard]] bool prevail(const MovedFrames& moved) {
    of_late_.frames += moved.frames - moved_.frames;
    of_late_.long_frames += moved.long_frames - moved_.long_frames;
    moved_ = moved;
    while (of_late_.frames > kFramesOfLate) of_late_.frames /= 2, of_late_.long_frames /= 2;
    return of_late_.long_frames > 0 && of_late_.long_frames * kManyLong >= of_late_.frames;
  }

 private:
  static constexpr std::uint64_t kManyLong = 4;       // one frame in so many
  static constexpr std::uint64_t kFramesOfLate = 64;  // at most; those before count for less and less

  MovedFrames moved_{};  // when it was asked last
  MovedFrames of_late_{};
};

}  // namespace splitnic
