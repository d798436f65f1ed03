#include "fabric/memory/touch.h"

#include "common/sequence.h"

namespace splitnic::fabric {

TouchAction table_d(bool one_touch, bool touched, const SegmentPosition& segment) {
  if (!segment.last || !one_touch) return TouchAction::place;
  if (touched) return TouchAction::invalidate_and_terminate;
  if (segment.sequence == segment.next_expected - 1) return TouchAction::place_and_invalidate;
  const std::uint32_t beyond = segment.sequence - segment.next_expected;
  return beyond < segment.window ? TouchAction::place_and_remember : TouchAction::drop;
}

bool caught_up(std::uint32_t remembered, std::uint32_t next_expected) {
  return sequence_distance(next_expected, remembered) > 0;
}

}  // namespace splitnic::fabric
