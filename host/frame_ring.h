#pragma once

#include <atomic>
#include <boost/lockfree/spsc_queue.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/os/unique_fd.h"

namespace splitnic::host {

/// A bounded ring of frames between two threads, one producing, one consuming, with a descriptor for the consumer to
/// sleep on. Frames are copied in and out; nothing is allocated after construction.
class FrameRing {
 public:
  /// frames, frame_bytes > 0. Throws StartupError where the process has no descriptor left.
  FrameRing(std::size_t frames, std::size_t frame_bytes);
  FrameRing(const FrameRing&) = delete;
  FrameRing& operator=(const FrameRing&) = delete;

  /// Producer. A place to write one frame of at most frame_bytes() to; empty when the ring is full. Repeating it before
  /// commit() gives the same place.
  std::span<std::byte> claim();
  /// Producer. What lies in the claimed place is a frame of `bytes`; wakes a sleeping consumer.
  void commit(std::size_t bytes);

  /// Consumer. Empty when there is none; the descriptor becomes readable with the next one. Valid until pop().
  std::span<const std::byte> front();
  void pop();

  [[nodiscard]] std::size_t frame_bytes() const { return frame_bytes_; }
  /// Consumer. Readable when a frame has come after front() found none.
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
  std::atomic<bool> armed_{false};  ///< the consumer is about to sleep or sleeps
};

}  // namespace splitnic::host
