#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "fabric/wire/cell.h"
#include "fabric/wire/slot.h"

namespace splitnic::fabric {

/// A cell in a slot. The slot's header has opcode, flags, destination queue pair, packet and cell sequence. The body
/// begins with the extended headers of a cell (cell.h), and the payload follows. A slot has no port addresses, no
/// source queue pair and no CRCs. Only atomics have a form of their own, so that they fit the first line:
///
///      0 address 64
///      8 tag 32 | message sequence number 32
///     16 swap or add 64
///     24 compare 64                     of fetch_add: 0

/// Bytes of the extended headers of such a cell in a slot, at most kSlotBodyInFirst.
[[nodiscard]] std::size_t slot_extension_bytes(Opcode opcode);
/// to: slot_extension_bytes(); written once, in any order. Ignores cell.payload.
void encode_slot_extension(const Cell& cell, std::byte* to);
/// The cell's part of the slot's header.
[[nodiscard]] SlotFields slot_fields(const Cell& cell);

/// Reads opcode, flags and numbers of a slot's header into a new `cell`; returns the first field with an impossible
/// value.
[[nodiscard]] std::optional<CellFault> decode_slot_fields(const SlotFields& fields, Cell& cell);
/// Then reads the extended headers from a private copy of slot_extension_bytes() bytes, and checks everything that a
/// cell alone can show.
[[nodiscard]] std::optional<CellFault> decode_slot_extension(std::span<const std::byte> bytes,
                                                             std::size_t payload_bytes, Cell& cell);

}  // namespace splitnic::fabric
