#pragma once

#include <atomic>
#include <boost/lockfree/spsc_queue.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/os/unique_fd.h"

namespace splitnic::host {

/// A bounded ring of frames from one producer thread to one consumer thread, with a descriptor for the consumer to
/// sleep on. The threads copy frames in and out. The ring allocates nothing after construction.
class FrameRing {
 public:
  /// frames, frame_bytes > 0. Throws StartupError if the process has no descriptor left.
  FrameRing(std::size_t frames, std::size_t frame_bytes);
  FrameRing(const FrameRing&) = delete;
  FrameRing& operator=(const FrameRing&) = delete;

  /// Producer. Returns memory for one frame of at most frame_bytes(); empty when the ring is full. A second call before
  /// commit() returns the same memory.
  std::span<std::byte> claim();
  /// Producer. Adds the first `bytes` of the claimed memory as a frame; wakes a sleeping consumer.
  void commit(std::size_t bytes);

  /// Consumer. Returns the oldest frame, valid until pop(). Empty when there is none; the descriptor then becomes
  /// readable with the next frame.
  std::span<const std::byte> front();
  void pop();

  [[nodiscard]] std::size_t frame_bytes() const { return frame_bytes_; }
  /// Consumer. Readable when a frame has arrived after front() found none.
  [[nodiscard]] int descriptor() const { return wake_.get(); }

 private:
  struct Frame {
    std::uint32_t place;
    std::uint32_t bytes;
  };
  [[nodiscard]] std::byte* at(std::uint32_t place) const { return storage_.get() + place * frame_bytes_; }

  std::size_t frame_bytes_;
  std::unique_ptr<std::byte[]> storage_;
  boost::lockfree::spsc_queue<Frame> filled_;
  boost::lockfree::spsc_queue<std::uint32_t> free_;
  os::UniqueFd wake_;
  std::atomic<bool> armed_{false};  ///< the consumer sleeps or is about to sleep
};

}  // namespace splitnic::host
