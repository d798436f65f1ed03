#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "fabric/wire/cell.h"

/// The parts that both encodings of a cell share: sealed (cell.h) and in a slot (slot_cell.h).
namespace splitnic::fabric::cell_parts {

/// Writes the XRC header, if the cell has one; returns how many bytes.
std::size_t put_xrc(const Cell& cell, std::byte* to);
/// Reads it; bytes: the extended headers. False: its reserved bits are not zero.
[[nodiscard]] bool read_xrc(Cell& cell, std::span<const std::byte> bytes);
/// Writes the extended headers of the cell one after the other; returns how many bytes.
std::size_t put_extensions(const Cell& cell, std::byte* to);
/// Reads the extended headers that cell.opcode calls for; bytes: exactly them.
[[nodiscard]] std::optional<CellFault> read_extensions(Cell& cell, std::span<const std::byte> bytes);
/// Whether the flags fit the opcode.
[[nodiscard]] bool flags_fit(const OpcodeTraits& what, bool direct, bool solicited);
/// Whether the fields of a cell with a payload of payload_bytes fit together. Does not check a source queue pair that
/// the encoding does not carry.
[[nodiscard]] std::optional<CellFault> check_fields(const Cell& cell, std::size_t payload_bytes, bool carries_source);

}  // namespace splitnic::fabric::cell_parts
