#include "fabric/adapter/express.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/range.h"
#include "fabric/adapter/local_memory.h"
#include "fabric/memory/guarded_copy.h"
#include "fabric/wire/slot_cell.h"

namespace splitnic::fabric {
namespace {

bool is_plain(const QueuePairAttributes& options) {
  return options.acknowledged && !options.datagram && options.xrc == XrcRole::none;
}

/// Where so many bytes from the segment's first on are, if that is remembered and one piece of the process's memory.
std::byte* known_place(const LocalSegment& segment, std::uint32_t bytes, Right right, const RememberedRegion& region) {
  const auto placement = region.find(segment.tag, segment.as_number(), bytes, right);
  return placement ? placement->memory->piece_at(placement->offset) : nullptr;
}

/// The only cell of the request's message; nullopt: such requests do not go this way.
constexpr std::optional<Opcode> only_cell_of(Operation operation) {
  switch (operation) {
    case Operation::send:
      return Opcode::send_only;
    case Operation::send_with_immediate:
      return Opcode::send_only_immediate;
    case Operation::rdma_write:
      return Opcode::write_only;
    case Operation::rdma_write_with_immediate:
      return Opcode::write_only_immediate;
    default:
      return std::nullopt;
  }
}

SlotFields fields_of(const QueuePair& queue_pair, const WorkRequest& request) {
  SlotFields fields;
  const Opcode opcode = *only_cell_of(request.operation);
  fields.opcode = static_cast<std::uint8_t>(opcode);
  fields.awaited = true;
  fields.solicited = request.solicited && traits(opcode).may_be_solicited();
  fields.direct = is_write(request.operation);
  fields.queue_pair = queue_pair.peer.number;
  fields.packet_sequence = queue_pair.send.next_psn;
  return fields;
}

/// False: the process does not have this memory any more.
bool fill(std::span<std::byte> to, const std::byte* from, NextReader reader) {
  if (to.empty()) return true;
  return reader == NextReader::peer ? guarded_stream(to.data(), from, to.size())
                                    : guarded_copy(to.data(), from, to.size());
}

template <class Header>
std::byte* append(std::byte* to, const Header& header) {
  std::memcpy(to, &header, sizeof header);
  return to + sizeof header;
}

}  // namespace

/// Nothing waits before what is posted, and nothing keeps it from leaving.
bool Express::sends_at_once(const QueuePair& queue_pair) const {
  const SendQueue& send = queue_pair.send;
  return context_.options.faults == nullptr && context_.options.dma == nullptr && is_plain(queue_pair.options) &&
         queue_pair.rules().begin_sends && queue_pair.path->open && send.next == send.posted && send.next_cell == 0 &&
         context_.now >= send.hold_until;
}

[[gnu::flatten]] std::size_t Express::post(QueuePair& queue_pair, std::span<const WorkRequest> requests) {
  if (!sends_at_once(queue_pair)) return 0;
  Path& path = *queue_pair.path;
  SlotLane* slots = path.slots[static_cast<std::size_t>(queue_pair.options.lane)];
  if (slots == nullptr) return 0;
  CompletionQueue& completions = *context_.completion_queue(queue_pair.options.send_completions);
  std::size_t posted = 0;
  while (posted != requests.size() && post(queue_pair, *slots, completions, requests[posted])) ++posted;
  if (posted == 0) return 0;
  context_.counters.cells_sent += posted;
  context_.turns.attend(path);
  return posted;
}

bool Express::post(QueuePair& queue_pair, SlotLane& slots, CompletionQueue& completions, const WorkRequest& request) {
  SendQueue& send = queue_pair.send;
  const bool simple = request.segment_count == 1 && !request.inline_data && request.memory == nullptr &&
                      request.placed_bytes == 0 && !request.fence && only_cell_of(request.operation);
  if (!simple || send.posted - send.done >= send.depth) return false;
  const LocalSegment& segment = request.segments[0];
  const std::byte* from = known_place(segment, segment.bytes, Right::local_read, send.region);
  const bool fits = segment.bytes <= context_.options.max_message_bytes && completions.room() != 0;
  if (from == nullptr || !fits) return false;
  const bool writes = is_write(request.operation);
  const std::uint64_t position =
      writes ? write(queue_pair, slots, request, from) : this->send(queue_pair, slots, request, from);
  if (position == 0) return false;

  static_cast<void>(completions.reserve());
  SendEntry& entry = send.entries[send.posted];
  entry.begin(request, segment.bytes);
  entry.settled_at = position;
  entry.numbered = true;
  entry.direct = writes;
  entry.psn = send.next_psn++;
  send.sent_psn = send.next_psn;
  send.next = send.sent = ++send.posted;
  send.next_offset = 0;
  send.packet_crc = kPacketCrcStart;
  send.room_by = kNever;
  if (writes) ++context_.counters.direct_writes;
  return true;
}

/// Returns the slot's position; 0: nothing has left.
std::uint64_t Express::send(const QueuePair& queue_pair, SlotLane& slots, const WorkRequest& request,
                            const std::byte* from) const {
  const std::uint32_t bytes = request.segments[0].bytes;
  const std::size_t most = std::min<std::size_t>(queue_pair.path->cell_payload_bytes, slots.sender.max_payload_bytes());
  const bool immediate = request.operation == Operation::send_with_immediate;
  SlotClaim claim;
  if (bytes > most || !slots.sender.claim(immediate ? sizeof(ImmediateHeader) : 0, bytes, claim)) return 0;
  const bool filled =
      fill(claim.payload, from, slots.reader) && fill(claim.payload_rest, from + claim.payload.size(), slots.reader);
  if (!filled) return 0;
  if (immediate) append(claim.extension, ImmediateHeader(request.immediate));
  SlotFields fields = fields_of(queue_pair, request);
  return slots.release(fields);
}

/// The same. The bytes go through the peer window, if the peer has granted that, and the slot says so.
std::uint64_t Express::write(const QueuePair& queue_pair, SlotLane& slots, const WorkRequest& request,
                             const std::byte* from) const {
  Path& path = *queue_pair.path;
  const std::uint32_t bytes = request.segments[0].bytes;
  const bool immediate = request.operation == Operation::rdma_write_with_immediate;
  if (bytes == 0 || path.direct == nullptr || !path.direct->bridge.peer_window().is_memory()) return 0;
  const auto at = path.claim_direct(request.remote, bytes);
  SlotClaim claim;
  const std::size_t head = sizeof(RdmaHeader) + (immediate ? sizeof(ImmediateHeader) : 0);
  if (!at || !slots.sender.claim(head, 0, claim)) return 0;
  const std::span<std::byte> to = path.direct->bridge.peer_window().claim(*at, bytes);
  if (!fill(to, from, immediate ? NextReader::peer : NextReader::here)) return 0;
  RdmaHeader rdma;
  rdma.address = request.remote.address;
  rdma.tag = request.remote.tag.value;
  rdma.length = bytes;
  std::byte* const behind = append(claim.extension, rdma);
  if (immediate) append(behind, ImmediateHeader(request.immediate));
  SlotFields fields = fields_of(queue_pair, request);
  return slots.release(fields);
}

/// The queue pair that the slot is for, if it is the whole of the message that comes next, and nothing is unusual; else
/// null.
QueuePair* Express::expects(const Path& path, const ReceivedSlot& slot) const {
  const SlotFields& fields = slot.fields;
  const bool whole = !slot.fault && fields.awaited && fields.cell_sequence == 0 && context_.options.faults == nullptr;
  if (!whole) return nullptr;
  QueuePair* queue_pair = context_.queue_pair(fields.queue_pair);
  if (queue_pair == nullptr || queue_pair->path != &path) return nullptr;
  const bool usual = is_plain(queue_pair->options) && queue_pair->rules().connected && !queue_pair->refusing &&
                     !queue_pair->incoming.active && !queue_pair->acknowledgement.wanted &&
                     fields.packet_sequence == queue_pair->expected_psn;
  return usual ? queue_pair : nullptr;
}

[[gnu::flatten]] Express::Taken Express::take(Path& path, VirtualLane lane) {
  SlotLane* slots = path.slots[static_cast<std::size_t>(lane)];
  if (slots == nullptr) return Taken::left;
  const ReceivedSlot* slot = slots->receiver.front();
  if (slot == nullptr) return Taken::nothing_there;
  QueuePair* queue_pair = expects(path, *slot);
  if (queue_pair == nullptr) return Taken::left;
  const OpcodeTraits& what = traits(slot->fields.opcode);
  const bool only = what.first && what.last && !what.xrc && !what.invalidate &&
                    (!slot->fields.solicited || what.may_be_solicited()) && slot->payload_bytes <= kMaxCellPayload;
  const bool sends = only && what.is(MessageKind::send) && !slot->fields.direct;
  const bool writes = only && what.is(MessageKind::write) && slot->fields.direct;
  if (!sends && !writes) return Taken::left;
  const Taken taken = sends ? take_send(*queue_pair, *slot) : take_write(*queue_pair, *slot);
  if (taken == Taken::left) return taken;
  slots->sender.note_settled(slot->fields.settled);
  slots->receiver.pop();
  ++context_.counters.cells_received;
  return taken;
}

Express::Taken Express::take_send(QueuePair& queue_pair, const ReceivedSlot& slot) {
  ReceiveQueue& receive = queue_pair.receive;
  if (receive.empty()) return Taken::left;
  const ReceiveEntry& entry = receive.entries[receive.taken];
  if (entry.segment_count != 1 || slot.payload_bytes > entry.bytes) return Taken::left;
  std::byte* into = known_place(entry.segments[0], slot.payload_bytes, Right::local_write, receive.region);
  const bool immediate = traits(slot.fields.opcode).immediate;
  std::array<PeerMemory, 2> pieces;
  if (into == nullptr || !slot.payload(immediate ? sizeof(ImmediateHeader) : 0, pieces)) return Taken::left;
  Headers headers;
  if (immediate) {
    ImmediateHeader read;
    slot.copy_extension(std::as_writable_bytes(std::span(&read, 1)));
    headers.immediate = read.value();
  }
  for (const PeerMemory& piece : pieces) {
    if (!piece.copy_by(0, {into, piece.size()}, guarded_copy)) {
      refused_ = as_cell(slot, headers);
      responder_.refuse_gone(queue_pair, entry.segments[0].tag, refused_);
      return Taken::refused;
    }
    into += piece.size();
  }
  finish(queue_pair, slot, headers, slot.payload_bytes);
  return Taken::taken;
}

/// The bytes are there already; what is checked is that they may be.
Express::Taken Express::take_write(QueuePair& queue_pair, const ReceivedSlot& slot) {
  const bool immediate = traits(slot.fields.opcode).immediate;
  if (slot.payload_bytes != 0 || (immediate && queue_pair.receive.empty())) return Taken::left;
  std::array<std::byte, sizeof(RdmaHeader) + sizeof(ImmediateHeader)> bytes;
  slot.copy_extension(std::span(bytes).first(immediate ? bytes.size() : sizeof(RdmaHeader)));
  RdmaHeader rdma;
  std::memcpy(&rdma, bytes.data(), sizeof rdma);
  Headers headers{Stag{rdma.tag.value()}, rdma.address.value(), rdma.length.value(), 0};
  if (immediate) {
    ImmediateHeader read;
    std::memcpy(&read, &bytes[sizeof rdma], sizeof read);
    headers.immediate = read.value();
  }
  if (!may_write(queue_pair, headers, slot.fields.packet_sequence)) {
    refused_ = as_cell(slot, headers);
    return responder_.take(queue_pair, refused_) ? Taken::taken : Taken::refused;
  }
  finish(queue_pair, slot, headers, headers.bytes);
  return Taken::taken;
}

/// Asks the table only if what it granted last says nothing about this write.
bool Express::may_write(QueuePair& queue_pair, const Headers& headers, std::uint32_t psn) const {
  if (headers.bytes == 0 || !queue_pair.options.remote_rights.has(Right::remote_write)) return false;
  RememberedTarget& target = queue_pair.target;
  if (target.holds(headers.tag, {headers.address, headers.bytes})) return true;
  Access access;
  access.tag = headers.tag;
  access.domain = queue_pair.domain;
  access.bytes = headers.bytes;
  access.right = Right::remote_write;
  access.queue_pair = queue_pair.number;
  access.sequence = psn;
  const auto placement = context_.table.check_remote(access, headers.address);
  if (!placement || !placement->entry->placeable) return false;
  if (placement->entry->touch == TouchControl::unlimited) target.remember(headers.tag, headers.address, *placement);
  return true;
}

/// From what was read of the slot, so that nothing is read twice.
ReceivedCell Express::as_cell(const ReceivedSlot& slot, const Headers& headers) const {
  ReceivedCell received;
  static_cast<void>(decode_slot_fields(slot.fields, received.cell));  // an opcode that take() knows
  received.cell.tag = headers.tag;
  received.cell.address = headers.address;
  received.cell.message_bytes = headers.bytes;
  received.cell.immediate = headers.immediate;
  return received;
}

void Express::finish(QueuePair& queue_pair, const ReceivedSlot& slot, const Headers& headers, std::uint32_t bytes) {
  const OpcodeTraits& what = traits(slot.fields.opcode);
  if (what.is(MessageKind::send) || what.immediate) {
    Completion completion;
    completion.operation = what.is(MessageKind::send) ? Operation::send : Operation::rdma_write_with_immediate;
    completion.has_immediate = what.immediate;
    completion.immediate = headers.immediate;
    completion.bytes = bytes;
    completion.solicited = slot.fields.solicited;
    complete_receive(context_, queue_pair, completion);
  }
  queue_pair.silent = false;
  queue_pair.acknowledgement = PendingAcknowledgement{false, Syndrome::ok, queue_pair.expected_psn};
  ++queue_pair.expected_psn;
}

}  // namespace splitnic::fabric
