#include "fabric/wire/slot.h"

#include "common/check.h"
#include "fabric/wire/cell.h"

namespace splitnic::fabric {

SlotLayout slot_layout(std::size_t extension_bytes, std::size_t payload_bytes) {
  SPLITNIC_CHECK_OP(extension_bytes, <=, kSlotBodyInFirst);
  SlotLayout layout;
  layout.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  const std::size_t body = extension_bytes + payload_bytes;
  layout.in_payload_ring = body > kSlotBodyInBoth;
  layout.two_lines = !layout.in_payload_ring && body > kSlotBodyInFirst;
  return layout;
}

SlotHeader encode_slot(const SlotFields& fields, const SlotLayout& layout) {
  using namespace slot_shape;
  SlotHeader header;
  header.payload_bytes = layout.payload_bytes;
  header.payload_at = layout.payload_at;
  header.settled = fields.settled;
  header.shape = static_cast<std::uint8_t>(
      (layout.two_lines ? kTwoLines : 0U) | (layout.in_payload_ring ? kInPayloadRing : 0U) |
      (fields.awaited ? kAwaited : 0U) | (fields.solicited ? kSolicited : 0U) | (fields.direct ? kDirect : 0U));
  header.opcode = fields.opcode;
  header.cell_sequence = fields.cell_sequence;
  header.queue_pair = fields.queue_pair.value;
  header.packet_sequence = fields.packet_sequence;
  return header;
}

namespace {

std::optional<SlotFault> fault_of(const SlotHeader& header, const SlotLayout& layout, std::size_t payload_lines) {
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

}  // namespace

DecodedSlot decode_slot(const SlotHeader& header, std::size_t payload_lines) {
  using namespace slot_shape;
  const std::uint8_t shape = header.shape.value();
  DecodedSlot slot;
  slot.fields.opcode = header.opcode.value();
  slot.fields.awaited = (shape & kAwaited) != 0;
  slot.fields.solicited = (shape & kSolicited) != 0;
  slot.fields.direct = (shape & kDirect) != 0;
  slot.fields.cell_sequence = header.cell_sequence.value();
  slot.fields.queue_pair = QpNumber{header.queue_pair.value()};
  slot.fields.packet_sequence = header.packet_sequence.value();
  slot.fields.settled = header.settled.value();
  slot.layout.two_lines = (shape & kTwoLines) != 0;
  slot.layout.in_payload_ring = (shape & kInPayloadRing) != 0;
  slot.layout.payload_bytes = header.payload_bytes.value();
  slot.layout.payload_at = header.payload_at.value();
  slot.fault = fault_of(header, slot.layout, payload_lines);
  if (slot.fault) slot.layout = SlotLayout{.two_lines = slot.layout.two_lines};
  return slot;
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
