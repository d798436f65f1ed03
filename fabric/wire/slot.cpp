#include "fabric/wire/slot.h"

#include "fabric/wire/cell.h"

namespace splitnic::fabric {

std::optional<SlotFault> slot_fault(const SlotHeader& header, const SlotLayout& layout, std::size_t payload_lines) {
  if ((header.shape.value() & ~slot_shape::kKnown) != 0) return SlotFault::shape;
  if (layout.two_lines && layout.in_payload_ring) return SlotFault::shape;
  if (header.queue_pair.value() > kMaxQueuePairNumber) return SlotFault::queue_pair;
  if (!layout.in_payload_ring) {
    const std::size_t most = layout.two_lines ? kSlotBodyInBoth : kSlotBodyInFirst;
    if (layout.payload_bytes > most) return SlotFault::payload_bytes;
    return layout.payload_at == 0 ? std::nullopt : std::optional(SlotFault::payload_at);
  }
  const std::size_t lines = (std::size_t{layout.payload_bytes} + kSlotLine - 1) / kSlotLine;
  if (lines == 0 || lines > payload_lines) return SlotFault::payload_bytes;
  return layout.payload_at <= payload_lines - lines ? std::nullopt : std::optional(SlotFault::payload_at);
}

const char* to_string(SlotFault fault) {
  switch (fault) {
    case SlotFault::shape:
      return "shape";
    case SlotFault::payload_bytes:
      return "payload_bytes";
    case SlotFault::payload_at:
      return "payload_at";
    case SlotFault::queue_pair:
      return "queue_pair";
    case SlotFault::second_line:
      return "second_line";
  }
  return "unknown";
}

}  // namespace splitnic::fabric
