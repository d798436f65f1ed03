#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "messaging/received_frame.h"

namespace splitnic::iounit {

class AttachedHost;

/// So many bytes of a long frame are copied before the unit decides about it. They hold all headers of nearly every
/// frame (frame::holds_all_headers).
inline constexpr std::size_t kHeadBytes = 256;
/// A frame that is not longer is copied whole: reading its payload from where it lies saves less than it costs.
inline constexpr std::size_t kLongFrameBytes = 16 << 10;

/// A frame that the unit forwards. All of it is in private memory; or only its head is, with all headers, and the
/// payload behind it is elsewhere until its only receiver reads it.
struct FrameInHand {
  FrameInHand(std::span<const std::byte> whole)  // NOLINT(google-explicit-constructor): a frame like any other
      : bytes(whole), head_bytes(whole.size()) {}
  FrameInHand(std::span<const std::byte> frame, std::size_t head) : bytes(frame), head_bytes(head) {}

  /// Private memory as long as the frame. What stands there behind the head is not the frame's.
  std::span<const std::byte> bytes;
  std::size_t head_bytes;
  /// A payload in elements that the sending host can still write: read it once, decide nothing by it.
  messaging::ReceivedFrame payload{};
  /// The host whose claimed memory has the payload already (AttachedHost::place); null: none.
  const AttachedHost* placed_in = nullptr;

  [[nodiscard]] std::span<const std::byte> head() const { return bytes.first(head_bytes); }
  [[nodiscard]] bool is_whole() const { return head_bytes == bytes.size(); }
};

}  // namespace splitnic::iounit
