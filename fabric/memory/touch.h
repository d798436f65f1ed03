#pragma once

#include <cstdint>

namespace splitnic::fabric {

/// How often an entry may be used. One-touch (S3): the last segment of the first write or read response ends the entry;
/// segments of any message are placed until then; read requests do not touch. One-shot (S4): the first segment of the
/// first operation of any kind takes the entry; from then on the entry serves only that operation.
enum class TouchControl : std::uint8_t { unlimited, one_touch, one_shot };

/// Where a tagged segment stands in its stream. Sequence numbers are serial (RFC 1982), in the transport's unit: bytes
/// in S3, packets here.
struct SegmentPosition {
  bool last = false;                ///< the segment ends its message
  std::uint32_t sequence = 0;       ///< of the segment's last unit
  std::uint32_t next_expected = 0;  ///< by the transport, after it has accepted this segment
  std::uint32_t window = 0;         ///< units beyond next_expected that the transport accepts
};

/// S3 Fig. 18B, table D: what to do with a segment that passed all other checks, and with its entry.
enum class TouchAction : std::uint8_t {
  place,
  place_and_invalidate,     ///< in order: the entry ends with this segment
  place_and_remember,       ///< out of order: the entry ends when the stream has caught up with it
  drop,                     ///< outside the transport's window: the peer will send it again
  invalidate_and_terminate  ///< a second message ended in this entry
};
/// touched: a last segment was placed out of order. The transport has dropped duplicates before.
[[nodiscard]] TouchAction table_d(bool one_touch, bool touched, const SegmentPosition& segment);

/// Whether the stream has caught up with a remembered segment.
[[nodiscard]] bool caught_up(std::uint32_t remembered, std::uint32_t next_expected);

}  // namespace splitnic::fabric
