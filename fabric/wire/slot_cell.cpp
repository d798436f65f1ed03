#include "fabric/wire/slot_cell.h"

#include <boost/endian/buffers.hpp>
#include <cstring>
#include <type_traits>

#include "fabric/wire/cell_parts.h"

namespace splitnic::fabric {
namespace {

struct SlotAtomic {
  boost::endian::little_uint64_buf_t address;
  boost::endian::little_uint32_buf_t tag;
  boost::endian::little_uint32_buf_t message_sequence;
  boost::endian::little_uint64_buf_t swap_or_add;
  boost::endian::little_uint64_buf_t compare;
};
static_assert(sizeof(SlotAtomic) == 32 && std::is_trivially_copyable_v<SlotAtomic>);
static_assert(sizeof(XrcHeader) + sizeof(SlotAtomic) <= kSlotBodyInFirst);
static_assert(sizeof(XrcHeader) + sizeof(RdmaHeader) + sizeof(ReadHeader) <= kSlotBodyInFirst);

}  // namespace

std::size_t slot_extension_bytes(Opcode opcode) {
  const OpcodeTraits& what = traits(opcode);
  if (what.is(MessageKind::atomic)) return sizeof(SlotAtomic) + (what.xrc ? sizeof(XrcHeader) : 0);
  return cell_head_bytes(opcode) - sizeof(CellHeader);
}

void encode_slot_extension(const Cell& cell, std::byte* to) {
  if (!traits(cell.opcode).is(MessageKind::atomic)) {
    cell_parts::put_extensions(cell, to);
    return;
  }
  SlotAtomic atomic;
  atomic.address = cell.address;
  atomic.tag = cell.tag.value;
  atomic.message_sequence = cell.message_sequence;
  atomic.swap_or_add = cell.swap_or_add;
  atomic.compare = cell.compare;
  std::memcpy(to + cell_parts::put_xrc(cell, to), &atomic, sizeof atomic);
}

SlotFields slot_fields(const Cell& cell) {
  SlotFields fields;
  fields.opcode = static_cast<std::uint8_t>(cell.opcode);
  fields.awaited = cell.awaited;
  fields.solicited = cell.solicited;
  fields.direct = cell.direct;
  fields.cell_sequence = cell.cell_sequence;
  fields.queue_pair = cell.destination_queue_pair;
  fields.packet_sequence = cell.packet_sequence;
  return fields;
}

std::optional<CellFault> decode_slot_fields(const SlotFields& fields, Cell& cell) {
  const OpcodeTraits& what = traits(fields.opcode);
  cell.destination_queue_pair = fields.queue_pair;
  cell.packet_sequence = fields.packet_sequence;
  cell.cell_sequence = fields.cell_sequence;
  cell.awaited = fields.awaited;
  if (what.kind == MessageKind::none) return CellFault::opcode;
  cell.opcode = static_cast<Opcode>(fields.opcode);
  cell.direct = fields.direct;
  cell.solicited = fields.solicited;
  if (!cell_parts::flags_fit(what, fields.direct, fields.solicited)) return CellFault::flags;
  return std::nullopt;
}

std::optional<CellFault> decode_slot_extension(std::span<const std::byte> bytes, std::size_t payload_bytes,
                                               Cell& cell) {
  if (payload_bytes > kMaxCellPayload) return CellFault::payload_bytes;
  if (!traits(cell.opcode).is(MessageKind::atomic)) {
    if (const auto error = cell_parts::read_extensions(cell, bytes)) return error;
  } else {
    if (!cell_parts::read_xrc(cell, bytes)) return CellFault::reserved;
    SlotAtomic atomic;
    std::memcpy(&atomic, bytes.last(sizeof atomic).data(), sizeof atomic);
    cell.address = atomic.address.value();
    cell.tag = Stag{atomic.tag.value()};
    cell.message_bytes = kAtomicBytes;
    cell.message_sequence = atomic.message_sequence.value();
    cell.swap_or_add = atomic.swap_or_add.value();
    cell.compare = atomic.compare.value();
  }
  return cell_parts::check_fields(cell, payload_bytes, false);
}

}  // namespace splitnic::fabric
