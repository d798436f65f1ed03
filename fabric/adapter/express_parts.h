#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "fabric/adapter/context.h"
#include "fabric/adapter/queue_pair.h"
#include "fabric/link/slot_lane.h"
#include "fabric/memory/store_habit.h"

/// What the sources of Express share.
namespace splitnic::fabric::express_parts {

[[nodiscard]] inline bool is_plain(const QueuePairAttributes& options) {
  return options.acknowledged && !options.datagram && options.xrc == XrcRole::none;
}

/// Nothing but its operation and its segments decides how the request goes.
[[nodiscard]] inline bool is_simple(const WorkRequest& request) {
  return !request.fence && request.memory == nullptr && request.placed_bytes == 0;
}

/// The same, and its bytes lie in one piece of memory that the queue need not keep.
[[nodiscard]] inline bool is_in_one_piece(const WorkRequest& request) {
  return request.segment_count == 1 && !request.inline_data && is_simple(request);
}

/// False: the process does not have this memory any more.
[[nodiscard]] inline bool fill(std::span<std::byte> to, const std::byte* from, StoreHabit& stores) {
  return to.empty() || stores.store(to.data(), from, to.size());
}

template <class Header>
std::byte* append(std::byte* to, const Header& header) {
  std::memcpy(to, &header, sizeof header);
  return to + sizeof header;
}

/// bytes: of the message.
inline std::byte* append_rdma(std::byte* to, const RemoteAddress& remote, std::uint32_t bytes) {
  RdmaHeader rdma;
  rdma.address = remote.address;
  rdma.tag = remote.tag.value;
  rdma.length = bytes;
  return append(to, rdma);
}

/// What the only cell of a request's message is. The requests that go this way are the first operations.
struct OnlyCell {
  Opcode opcode{};
  std::uint8_t extension_bytes = 0;
  bool write = false;
  bool immediate = false;
  bool may_be_solicited = false;
};
[[nodiscard]] constexpr OnlyCell only_cell(Opcode opcode) {
  const OpcodeTraits& what = traits(opcode);
  const std::size_t extension =
      (what.rdma_header ? sizeof(RdmaHeader) : 0) + (what.immediate ? sizeof(ImmediateHeader) : 0);
  return {opcode, static_cast<std::uint8_t>(extension), what.is(MessageKind::write), what.immediate,
          what.may_be_solicited()};
}
inline constexpr std::array kOnlyCells{only_cell(Opcode::send_only), only_cell(Opcode::send_only_immediate),
                                       only_cell(Opcode::write_only), only_cell(Opcode::write_only_immediate)};
static_assert(Operation::send == Operation{0} && Operation::send_with_immediate == Operation{1} &&
              Operation::rdma_write == Operation{2} && Operation::rdma_write_with_immediate == Operation{3});
/// operation: one of these.
[[nodiscard]] inline const OnlyCell& only_cell_of(Operation operation) {
  return kOnlyCells[static_cast<std::size_t>(operation)];
}

/// SlotWords::what from the shape on, without the bits of kEither, which may be either.
inline constexpr std::uint64_t kEither = slot_shape::kTwoLines | slot_shape::kSolicited;
[[nodiscard]] constexpr std::uint64_t what_of(Opcode opcode, unsigned shape) {
  return shape | std::uint64_t{static_cast<std::uint8_t>(opcode)} << 8U;
}
/// Of sends whose bytes lie in the lines of their slots.
inline constexpr std::uint64_t kSends = what_of(Opcode::send_only, slot_shape::kAwaited);

/// Of the message that is posted now, in one slot.
[[nodiscard]] inline SlotFields fields_of(const QueuePair& queue_pair, const WorkRequest& request, const OnlyCell& cell,
                                          bool direct) {
  SlotFields fields;
  fields.opcode = static_cast<std::uint8_t>(cell.opcode);
  fields.awaited = true;
  fields.solicited = request.solicited && cell.may_be_solicited;
  fields.direct = direct;
  fields.queue_pair = queue_pair.peer.number;
  fields.packet_sequence = queue_pair.send.next_psn;
  return fields;
}

/// Writes the cell's extended headers. bytes: of the message.
inline void put_extension(std::byte* to, const WorkRequest& request, const OnlyCell& cell, std::uint32_t bytes) {
  if (cell.write) to = append_rdma(to, request.remote, bytes);
  if (cell.immediate) append(to, ImmediateHeader(request.immediate));
}

/// The extended headers of a message that has none.
inline void put_nothing(std::byte*) {}

/// The request that is posted now has left whole, in one slot. position: which settles it; 0: an answer does. Returns
/// its entry, for what else is to be noted.
inline SendEntry& append_sent(SendQueue& send, const WorkRequest& request, std::uint32_t bytes, std::uint64_t position,
                              const SendMarks& marks) {
  SendEntry& entry = send.entries[send.posted];
  entry.begin_sent(request, bytes, send.next_psn++, position, marks);
  send.next = ++send.posted;
  return entry;
}

/// The last requests have left whole, one cell each.
inline void note_posted(AdapterContext& context, QueuePair& queue_pair, CompletionQueue& completions,
                        std::uint64_t posted) {
  SendQueue& send = queue_pair.send;
  completions.reserve(posted);
  send.sent_psn = send.next_psn;
  send.sent = send.posted;
  send.rewind_to(send.posted);
  send.room_by = kNever;
  context.counters.cells_sent += posted;
}

/// The next packets have come, so many, and been taken.
inline void note_taken(QueuePair& queue_pair, std::uint32_t packets) {
  queue_pair.silent = false;
  queue_pair.expected_psn += packets;
  queue_pair.acknowledgement = PendingAcknowledgement{false, Syndrome::ok, queue_pair.expected_psn - 1};
}

template <class Header>
[[nodiscard]] Header header_at(std::span<const std::byte> extension, std::size_t offset) {
  Header header;
  std::memcpy(&header, extension.subspan(offset, sizeof header).data(), sizeof header);
  return header;
}

/// A message of one slot; put_extension(to) writes its extended header. Returns its position. 0: there is no room, or
/// the process does not have this memory any more.
template <class PutExtension>
[[nodiscard]] std::uint64_t send_slot(SlotLane& slots, SlotFields& fields, std::size_t extension_bytes,
                                      PutExtension&& put_extension, const std::byte* from, std::size_t bytes) {
  const std::uint64_t position = slots.put(fields, extension_bytes, put_extension, from, bytes);
  if (position != 0) return position;
  SlotClaim claim;
  if (!slots.sender.claim(extension_bytes, bytes, claim)) return 0;
  // The peer looks at the first line all the time: it is written last, so that it is fetched from the peer only once.
  const bool filled =
      fill(claim.payload_rest, from + claim.payload.size(), slots.stores) && fill(claim.payload, from, slots.stores);
  if (!filled) return 0;
  put_extension(claim.extension);
  return slots.release(claim, fields);
}

}  // namespace splitnic::fabric::express_parts
