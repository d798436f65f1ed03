#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "common/frame/frame_offload.h"

namespace splitnic::iounit {

/// A frame that one I/O unit hands to another.
struct HandedFrame {
  std::span<const std::byte> bytes;
  /// What its sender left to the NIC; nullopt: the LAN's engine knows nothing about that.
  std::optional<frame::FrameOffload> offload;
  bool from_lan = false;   ///< it came from the LAN; otherwise from a host of the other unit, which has judged it
  bool addressed = false;  ///< no other unit and not the LAN gets it as its destination
};

/// Frames on their way from one thread to another: a ring of bytes with records of any length. A frame that does not
/// fit is refused; nobody waits. Publishing and settling are apart from adding and taking, so that a batch costs one
/// store each. Thread: one adds and publishes, one takes and settles.
class FrameRing {
 public:
  /// bytes: a power of two, at least twice kLargestRecord.
  explicit FrameRing(std::size_t bytes);
  FrameRing(const FrameRing&) = delete;
  FrameRing& operator=(const FrameRing&) = delete;

  // ---- The thread that adds.
  /// Copies the frame. False: there is no room.
  [[nodiscard]] bool add(const HandedFrame& frame);
  /// Lets the other thread see what was added. False: nothing was.
  [[nodiscard]] bool publish();

  // ---- The thread that takes.
  /// The next frame, whose bytes stay until settle(); nullopt: none is published.
  [[nodiscard]] std::optional<HandedFrame> take();
  /// Gives back the room of what was taken.
  void settle();
  /// Whether nothing is published that was not taken.
  [[nodiscard]] bool empty() const;

  /// With the largest frame.
  static constexpr std::size_t kLargestRecord = std::size_t{66} << 10U;

 private:
  struct Record {
    std::uint32_t frame_bytes;  ///< kWrap: the next record is at the beginning
    bool knows_offload;
    bool from_lan;
    bool addressed;
    frame::FrameOffload offload;
  };
  static constexpr std::uint32_t kWrap = 0xffffffff;
  static constexpr std::size_t kAlignment = 16;
  static constexpr std::size_t kRecordBytes = (sizeof(Record) + kAlignment - 1) / kAlignment * kAlignment;
  static constexpr std::size_t kLine = 64;
  [[nodiscard]] static constexpr std::size_t room_of(std::size_t frame_bytes) {
    return kRecordBytes + (frame_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  [[nodiscard]] std::byte* at(std::uint64_t position) const { return memory_.get() + (position & (bytes_ - 1)); }

  std::size_t bytes_;
  std::unique_ptr<std::byte[]> memory_;  // not touched before it is used
  // Positions only grow. Each end has a line of its own: what it publishes, and what only it reads.
  alignas(kLine) std::atomic<std::uint64_t> published_{0};
  std::uint64_t added_ = 0;
  std::uint64_t room_seen_ = 0;  // settled_ as the thread that adds last read it
  alignas(kLine) std::atomic<std::uint64_t> settled_{0};
  std::uint64_t taken_ = 0;
  std::uint64_t seen_ = 0;  // published_ as the thread that takes last read it
};

}  // namespace splitnic::iounit
