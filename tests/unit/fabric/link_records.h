#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fabric/link/cell_link.h"

namespace splitnic::fabric::test {

/// Sends the bytes as the payload of one cell; false: the lane is full.
inline bool send_record(CellLink& link, VirtualLane lane, std::span<const std::byte> bytes) {
  Cell cell;
  cell.opcode = Opcode::send_only;
  cell.destination_queue_pair = cell.source_queue_pair = QpNumber{1};
  ClaimedPayload to;
  if (!link.claim(lane, cell, bytes.size(), to)) return false;
  to.put(bytes);
  std::uint32_t packet_crc = kPacketCrcStart;
  link.release(lane, cell, packet_crc);
  return true;
}

/// Takes the payload of the oldest cell, and leaves its room to return_room(); nullopt: there is none.
inline std::optional<std::vector<std::byte>> take_record(CellLink& link, VirtualLane lane) {
  const ReceivedCell* cell = link.front(lane);
  if (cell == nullptr) return std::nullopt;
  std::vector<std::byte> bytes(cell->payload.size());
  cell->payload.copy_out(bytes);
  link.pop(lane);
  return bytes;
}

}  // namespace splitnic::fabric::test
