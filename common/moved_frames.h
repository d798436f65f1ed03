#pragma once

#include <cstddef>
#include <cstdint>

namespace splitnic {

/// Frames that a driver core has moved since the start, and how many of them were long, as those of a stream with
/// offloads are, and jumbo frames are not. Thread: the core's.
struct MovedFrames {
  static constexpr std::size_t kLongBytes = 16384;

  std::uint64_t frames = 0;
  std::uint64_t long_frames = 0;  ///< of frames

  void add(std::size_t frame_bytes) {
    ++frames;
    if (frame_bytes >= kLongBytes) ++long_frames;
  }
  MovedFrames& operator+=(const MovedFrames& other) {
    frames += other.frames;
    long_frames += other.long_frames;
    return *this;
  }
};

}  // namespace splitnic
