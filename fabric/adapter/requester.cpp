#include "fabric/adapter/requester.h"

#include <algorithm>
#include <array>
#include <span>

#include "common/check.h"

namespace splitnic::fabric {
namespace {

constexpr Duration kLongestReceiverNotReadyDelay = std::chrono::seconds(1);

using Pieces = std::array<std::span<const std::byte>, kMaxSegments>;

/// The parts of the request's segments that hold its bytes [offset, offset + bytes).
Pieces gather(const WorkRequest& request, std::uint32_t offset, std::uint32_t bytes) {
  Pieces pieces{};
  for (std::size_t i = 0; i < request.segment_count && bytes > 0; ++i) {
    const LocalSegment& segment = request.segments[i];
    if (offset >= segment.bytes) {
      offset -= segment.bytes;
      continue;
    }
    const std::uint32_t part = std::min(bytes, segment.bytes - offset);
    pieces[i] = std::span(segment.address + offset, part);
    bytes -= part;
    offset = 0;
  }
  return pieces;
}

Opcode opcode_for(Operation operation, bool first, bool last) {
  if (operation == Operation::send) {
    if (first) return last ? Opcode::send_only : Opcode::send_first;
    return last ? Opcode::send_last : Opcode::send_middle;
  }
  const bool immediate = operation == Operation::rdma_write_with_immediate;
  if (first && last) return immediate ? Opcode::write_only_immediate : Opcode::write_only;
  if (first) return Opcode::write_first;
  if (!last) return Opcode::write_middle;
  return immediate ? Opcode::write_last_immediate : Opcode::write_last;
}

CompletionStatus failure_of(Syndrome syndrome) {
  return syndrome == Syndrome::remote_access_error ? CompletionStatus::remote_access_error
                                                   : CompletionStatus::remote_operation_error;
}

}  // namespace

bool Requester::check_segments(const QueuePair& queue_pair, const WorkRequest& request) const {
  for (std::size_t i = 0; i < request.segment_count; ++i) {
    const LocalSegment& segment = request.segments[i];
    const Access access{segment.tag, queue_pair.options.domain, segment.bytes, Right::local_read};
    if (!context_.table.check_local(access, segment.address)) return false;
  }
  return true;
}

Status Requester::measure(const QueuePair& queue_pair, const WorkRequest& request, std::uint32_t& bytes) const {
  if (request.segment_count > kMaxSegments) return Status::bad_length;
  const bool placed = request.placed_bytes != 0;
  if (placed && (request.operation == Operation::send || request.segment_count != 0)) return Status::bad_length;
  std::uint64_t total = request.placed_bytes;
  for (std::size_t i = 0; i < request.segment_count; ++i) total += request.segments[i].bytes;
  if (total > context_.options.max_message_bytes) return Status::bad_length;
  bytes = static_cast<std::uint32_t>(total);
  return check_segments(queue_pair, request) ? Status::ok : Status::bad_tag;
}

Status Requester::post(QueuePair& queue_pair, const WorkRequest& request) {
  if (queue_pair.state != QueuePairState::ready) return Status::bad_state;
  SendQueue& send = queue_pair.send;
  if (send.posted - send.done >= send.depth) return Status::queue_full;
  std::uint32_t bytes = 0;
  if (const Status status = measure(queue_pair, request, bytes); status != Status::ok) return status;
  if (!context_.completion_queue(queue_pair.options.send_completions)->reserve()) return Status::queue_full;
  SendEntry& entry = send.entries[send.posted];
  entry.request = request;
  entry.bytes = bytes;
  entry.direct = request.placed_bytes != 0;
  ++send.posted;
  return Status::ok;
}

std::size_t Requester::cell_payload(VirtualLane lane) {
  const std::size_t room = context_.link.sender(lane).max_record_bytes() - kMaxCellOverhead;
  return std::min<std::size_t>(context_.options.cell_payload_bytes, room);
}

/// Moves a write's bytes through the peer window, if its owner granted that.
bool Requester::store_directly(const WorkRequest& request, std::uint32_t bytes) {
  const auto at = context_.peer_grants.claim(context_.link, request.remote.tag, request.remote.address, bytes);
  if (!at) return false;
  std::size_t to = *at;
  for (const auto piece : gather(request, 0, bytes)) {
    context_.link.bridge().peer_window().write(to, piece);
    to += piece.size();
  }
  return true;
}

bool Requester::send_cell(QueuePair& queue_pair, SendEntry& entry) {
  SendQueue& send = queue_pair.send;
  const VirtualLane lane = queue_pair.options.lane;
  const std::uint32_t left = entry.direct ? 0 : entry.bytes - send.next_offset;
  const auto payload = static_cast<std::uint32_t>(std::min<std::size_t>(left, cell_payload(lane)));
  const bool last = payload == left;
  Cell cell;
  cell.opcode = opcode_for(entry.request.operation, send.next_cell == 0, last);
  cell.direct = entry.direct;
  cell.destination = context_.link.peer_port_address();
  cell.source = context_.link.port_address();
  cell.destination_queue_pair = queue_pair.peer;
  cell.source_queue_pair = queue_pair.number;
  cell.packet_sequence = send.psn(send.next);
  cell.cell_sequence = send.next_cell;
  cell.address = entry.request.remote.address;
  cell.tag = entry.request.remote.tag;
  cell.message_bytes = entry.bytes;
  cell.immediate = entry.request.immediate;
  const Pieces pieces = entry.direct ? Pieces{} : gather(entry.request, send.next_offset, payload);
  std::uint32_t packet_crc = send.packet_crc;
  const CellEnvelope envelope(cell, pieces, payload, packet_crc);
  // Direct bytes come before the cell that closes their message: FifoSender::send publishes before it writes the
  // record's head word, and with it everything stored through the same window.
  const bool sent =
      context_.link.sender(lane).send({envelope.head(), pieces[0], pieces[1], pieces[2], pieces[3], envelope.tail()});
  if (!sent) return false;
  ++context_.counters.cells_sent;
  if (send.next < send.sent) ++context_.counters.retransmissions;
  send.packet_crc = packet_crc;
  send.next_offset += payload;
  ++send.next_cell;
  if (last) message_sent(queue_pair);
  return true;
}
static_assert(kMaxSegments == 4, "send_cell hands four pieces to the FIFO");

void Requester::message_sent(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  const SendEntry& entry = send.entries[send.next];
  send.rewind_to(send.next + 1);
  if (send.next <= send.sent) return;
  send.sent = send.next;
  if (entry.request.operation != Operation::send) {
    ++(entry.direct ? context_.counters.direct_writes : context_.counters.segmented_writes);
  }
  if (!queue_pair.options.acknowledged) complete_send(context_, queue_pair, CompletionStatus::success);
}

std::size_t Requester::pump(QueuePair& queue_pair, std::size_t budget) {
  SendQueue& send = queue_pair.send;
  if (queue_pair.state != QueuePairState::ready || context_.now < send.hold_until) return 0;
  std::size_t moved = 0;
  while (moved < budget && send.next != send.posted) {
    SendEntry& entry = send.entries[send.next];
    // Tags are looked at again with each use: the memory may have been deregistered since the post.
    if (!entry.direct && !check_segments(queue_pair, entry.request)) {
      if (send.next != send.done) break;  // those before it end first
      fail_queue_pair(context_, queue_pair, CompletionStatus::local_protection_error);
      break;
    }
    const bool begins_write = send.next_cell == 0 && !entry.direct && entry.request.operation != Operation::send;
    if (begins_write && entry.bytes > 0) entry.direct = store_directly(entry.request, entry.bytes);
    if (!send_cell(queue_pair, entry)) break;
    ++moved;
  }
  return moved;
}

void Requester::take_acknowledgement(QueuePair& queue_pair, const Cell& cell) {
  SendQueue& send = queue_pair.send;
  if (queue_pair.state != QueuePairState::ready || !queue_pair.options.acknowledged) return;
  // How many from the oldest on this answer acknowledges. Numbers wrap: what lies outside the requests in flight is an
  // answer from before a retry, or invented.
  const bool ok = cell.syndrome == Syndrome::ok;
  const std::uint32_t good = cell.packet_sequence - send.psn(send.done) + (ok ? 1U : 0U);
  const bool possible = ok ? good <= send.sent - send.done : good < send.started();
  if (!possible) return;
  if (good > 0) {
    for (std::uint32_t i = 0; i < good; ++i) complete_send(context_, queue_pair, CompletionStatus::success);
    send.retries_left = context_.options.retry_count;
    send.receiver_not_ready_left = context_.options.receiver_not_ready_retries;
    send.acknowledge_by = kNever;
    if (send.next < send.done) send.rewind_to(send.done);
  }
  switch (cell.syndrome) {
    case Syndrome::ok:
      return;
    case Syndrome::sequence_error:
      return retry(queue_pair);
    case Syndrome::receiver_not_ready: {
      if (send.receiver_not_ready_left == 0) {
        return fail_queue_pair(context_, queue_pair, CompletionStatus::receiver_not_ready);
      }
      --send.receiver_not_ready_left;
      const Duration asked = std::chrono::microseconds(cell.delay_microseconds);
      send.hold_until = context_.now + std::min(asked, kLongestReceiverNotReadyDelay);
      send.acknowledge_by = kNever;
      return send.rewind_to(send.done);
    }
    case Syndrome::remote_access_error:
    case Syndrome::remote_operation_error:
      return fail_queue_pair(context_, queue_pair, failure_of(cell.syndrome));
  }
}

/// Goes back to the oldest message that is not acknowledged.
void Requester::retry(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  if (send.retries_left == 0) return fail_queue_pair(context_, queue_pair, CompletionStatus::retry_exceeded);
  --send.retries_left;
  send.acknowledge_by = kNever;
  send.rewind_to(send.done);
}

void Requester::check_time(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  const bool awaiting = queue_pair.state == QueuePairState::ready && send.sent != send.done;
  if (!awaiting || context_.now < send.hold_until) return;
  if (send.acknowledge_by == kNever) {
    // Started by the poll after the cell left, not by the post: `now` of a post may be as old as its caller's sleep.
    send.acknowledge_by = context_.now + context_.options.ack_timeout;
    return;
  }
  if (context_.now < send.acknowledge_by) return;
  if (context_.link.sender(queue_pair.options.lane).drained()) return retry(queue_pair);
  // The peer has not taken all that lies in the lane: nothing is lost, it is slow. That ends too, but copies of what
  // waits there already would not help.
  if (send.retries_left == 0) return fail_queue_pair(context_, queue_pair, CompletionStatus::retry_exceeded);
  --send.retries_left;
  send.acknowledge_by = context_.now + context_.options.ack_timeout;
}

Time Requester::next_deadline(const QueuePair& queue_pair) const {
  const SendQueue& send = queue_pair.send;
  if (queue_pair.state != QueuePairState::ready || send.done == send.posted) return kNever;
  if (context_.now < send.hold_until) return send.hold_until;
  // A full lane is the link's to wake for; what else is left to send waits for a budget.
  if (send.next != send.posted && !context_.link.sender(queue_pair.options.lane).wants_room()) return context_.now;
  if (send.sent == send.done) return kNever;
  return send.acknowledge_by == kNever ? context_.now + context_.options.ack_timeout : send.acknowledge_by;
}

}  // namespace splitnic::fabric
