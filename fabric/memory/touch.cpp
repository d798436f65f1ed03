#include "fabric/memory/touch.h"

namespace splitnic::fabric {
namespace {

/// How far `sequence` is beyond `from`; negative: before it. Numbers wrap.
std::int32_t distance(std::uint32_t sequence, std::uint32_t from) { return static_cast<std::int32_t>(sequence - from); }

}  // namespace

TouchAction table_d(bool one_touch, bool touched, const SegmentPosition& segment) {
  if (!segment.last || !one_touch) return TouchAction::place;
  if (touched) return TouchAction::invalidate_and_terminate;
  if (segment.sequence == segment.next_expected - 1) return TouchAction::place_and_invalidate;
  const std::uint32_t beyond = segment.sequence - segment.next_expected;
  return beyond < segment.window ? TouchAction::place_and_remember : TouchAction::drop;
}

bool caught_up(std::uint32_t remembered, std::uint32_t next_expected) {
  return distance(next_expected, remembered) > 0;
}

}  // namespace splitnic::fabric
