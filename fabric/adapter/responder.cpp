#include "fabric/adapter/responder.h"

#include <algorithm>
#include <limits>

namespace splitnic::fabric {
namespace {

/// How far `psn` is beyond `expected`; negative: it came before. Numbers wrap.
std::int32_t distance(std::uint32_t psn, std::uint32_t expected) { return static_cast<std::int32_t>(psn - expected); }

/// Answers are one cumulative state: the newer replaces the older, but "ok up to the packet before" does not take back
/// that the packet itself was refused, which says the same and more.
void owe(QueuePair& queue_pair, Syndrome syndrome, std::uint32_t psn) {
  PendingAcknowledgement& pending = queue_pair.acknowledgement;
  const bool says_more =
      pending.wanted && pending.syndrome != Syndrome::ok && syndrome == Syndrome::ok && pending.psn == psn + 1;
  if (!says_more) pending = PendingAcknowledgement{true, syndrome, psn};
}

bool refused_for_good(Syndrome syndrome) {
  return syndrome == Syndrome::remote_access_error || syndrome == Syndrome::remote_operation_error;
}

}  // namespace

Status Responder::post(QueuePair& queue_pair, const ReceiveRequest& request) {
  if (queue_pair.state == QueuePairState::error) return Status::bad_state;
  ReceiveQueue& receive = queue_pair.receive;
  if (receive.posted - receive.taken >= receive.depth) return Status::queue_full;
  const LocalSegment& segment = request.segment;
  // A receive for writes with immediate alone needs no memory: no bytes, no tag.
  if (segment.bytes != 0) {
    const Access access{segment.tag, queue_pair.options.domain, segment.bytes, Right::local_write};
    if (!context_.table.check_local(access, segment.address)) return Status::bad_tag;
  }
  if (!context_.completion_queue(queue_pair.options.receive_completions)->reserve()) return Status::queue_full;
  receive.entries[receive.posted++] = request;
  return Status::ok;
}

void Responder::take(QueuePair& queue_pair, const Cell& cell, std::span<const std::byte> bytes) {
  if (queue_pair.state != QueuePairState::ready) {
    ++context_.counters.dropped_unknown_queue_pair;
    // The refusal that ended the queue pair may have been lost: a peer that goes on is told again.
    PendingAcknowledgement& last = queue_pair.acknowledgement;
    if (queue_pair.state == QueuePairState::error && refused_for_good(last.syndrome)) last.wanted = true;
    return;
  }
  const bool in_order = queue_pair.options.acknowledged ? in_order_acknowledged(queue_pair, cell)
                                                        : in_order_unacknowledged(queue_pair, cell);
  if (!in_order) return;
  const Verdict verdict = accept(queue_pair, cell, bytes);
  if (verdict != Verdict::good) return refuse(queue_pair, verdict);
  if (traits(cell.opcode).last) finish(queue_pair, cell);
}

bool Responder::in_order_acknowledged(QueuePair& queue_pair, const Cell& cell) {
  const OpcodeTraits& what = traits(cell.opcode);
  const Reassembly& incoming = queue_pair.incoming;
  const std::int32_t ahead = distance(cell.packet_sequence, queue_pair.expected_psn);
  if (ahead < 0) {  // done before; its acknowledgement may have been lost
    ++context_.counters.dropped_duplicate;
    if (what.last) owe(queue_pair, Syndrome::ok, queue_pair.expected_psn - 1);
    return false;
  }
  if (ahead == 0 && what.first) {  // perhaps once more, after a refusal or a loss: from the start
    queue_pair.silent = false;
    return true;
  }
  if (ahead == 0 && incoming.active && cell.cell_sequence == incoming.next_cell) return true;
  if (ahead == 0 && incoming.active && cell.cell_sequence < incoming.next_cell) {
    ++context_.counters.dropped_duplicate;
    return false;
  }
  ++context_.counters.dropped_out_of_sequence;
  queue_pair.incoming = Reassembly{};
  if (!queue_pair.silent) {
    owe(queue_pair, Syndrome::sequence_error, queue_pair.expected_psn);
    queue_pair.silent = true;
  }
  return false;
}

bool Responder::in_order_unacknowledged(QueuePair& queue_pair, const Cell& cell) {
  Reassembly& incoming = queue_pair.incoming;
  const std::int32_t ahead = distance(cell.packet_sequence, queue_pair.expected_psn);
  if (ahead == 0 && incoming.active && !traits(cell.opcode).first && cell.cell_sequence == incoming.next_cell) {
    return true;
  }
  if (ahead < 0) {
    // The rest of a message that was refused has been counted with it; anything else is a copy.
    if (ahead != -1 || !queue_pair.silent) ++context_.counters.dropped_duplicate;
    return false;
  }
  if (ahead > 0 || !traits(cell.opcode).first) ++context_.counters.dropped_out_of_sequence;
  if (incoming.active) {  // its end was lost
    incoming = Reassembly{};
    ++context_.counters.dropped_unacknowledged;
  }
  if (!traits(cell.opcode).first) return false;
  queue_pair.expected_psn = cell.packet_sequence;
  queue_pair.silent = false;
  return true;
}

Responder::Verdict Responder::accept(QueuePair& queue_pair, const Cell& cell, std::span<const std::byte> bytes) {
  const OpcodeTraits& what = traits(cell.opcode);
  Reassembly& incoming = queue_pair.incoming;
  if (what.first) {
    if (const Verdict verdict = begin(queue_pair, cell); verdict != Verdict::good) return verdict;
  } else if (what.kind != incoming.kind || incoming.next_cell == std::numeric_limits<std::uint16_t>::max()) {
    return Verdict::nonsense;
  }
  ++incoming.next_cell;
  if (!cell.direct) {
    incoming.packet_crc = extend_packet_crc(incoming.packet_crc, cell, bytes);
    if (what.last && incoming.packet_crc != cell.packet_crc) return Verdict::damaged;
  }
  if (what.immediate && queue_pair.receive.empty()) return Verdict::not_ready;
  return cell.direct ? Verdict::good : place(queue_pair, cell);
}

/// First and Only cells: everything that decides about the whole message, before a byte of it is placed.
Responder::Verdict Responder::begin(QueuePair& queue_pair, const Cell& cell) {
  Reassembly& incoming = queue_pair.incoming;
  incoming = Reassembly{};
  incoming.kind = traits(cell.opcode).kind;
  if (incoming.kind == MessageKind::send) {
    if (queue_pair.receive.empty()) return Verdict::not_ready;
  } else {
    const Access access{cell.tag, queue_pair.options.domain, cell.message_bytes, Right::remote_write};
    const auto placement = context_.table.check_remote(access, cell.address);
    if (!placement) return Verdict::access_refused;
    if (cell.direct && !placement->entry->placeable) return Verdict::access_refused;
    incoming.tag = cell.tag;
    incoming.address = cell.address;
    incoming.message_bytes = cell.message_bytes;
  }
  incoming.active = true;
  return Verdict::good;
}

Responder::Verdict Responder::place(QueuePair& queue_pair, const Cell& cell) {
  Reassembly& incoming = queue_pair.incoming;
  const Verdict verdict =
      incoming.kind == MessageKind::send ? place_send(queue_pair, cell) : place_write(queue_pair, cell);
  if (verdict == Verdict::good) incoming.offset += static_cast<std::uint32_t>(cell.payload.size());
  return verdict;
}

// The table is asked again with every cell: between two of them the memory may have been deregistered.
Responder::Verdict Responder::place_send(QueuePair& queue_pair, const Cell& cell) {
  const ReceiveQueue& receive = queue_pair.receive;
  const Reassembly& incoming = queue_pair.incoming;
  if (receive.empty()) return Verdict::not_ready;
  const LocalSegment& segment = receive.entries[receive.taken].segment;
  if (incoming.offset > segment.bytes || cell.payload.size() > segment.bytes - incoming.offset) {
    return Verdict::too_long;
  }
  if (cell.payload.empty()) return Verdict::good;
  const Access access{segment.tag, queue_pair.options.domain, cell.payload.size(), Right::local_write};
  const auto placement = context_.table.check_local(access, segment.address + incoming.offset);
  if (!placement) return Verdict::receive_is_void;
  placement->entry->memory.store(placement->offset, cell.payload);
  return Verdict::good;
}

Responder::Verdict Responder::place_write(QueuePair& queue_pair, const Cell& cell) {
  const Reassembly& incoming = queue_pair.incoming;
  const std::size_t left = incoming.message_bytes - incoming.offset;
  const bool fits = traits(cell.opcode).last ? cell.payload.size() == left : cell.payload.size() < left;
  if (!fits) return Verdict::nonsense;
  const Access access{incoming.tag, queue_pair.options.domain, cell.payload.size(), Right::remote_write};
  const auto placement = context_.table.check_remote(access, incoming.address + incoming.offset);
  if (!placement) return Verdict::access_refused;
  placement->entry->memory.store(placement->offset, cell.payload);
  return Verdict::good;
}

void Responder::finish(QueuePair& queue_pair, const Cell& cell) {
  const Reassembly& incoming = queue_pair.incoming;
  const OpcodeTraits& what = traits(cell.opcode);
  if (incoming.kind == MessageKind::send || what.immediate) {
    Completion completion;
    completion.has_immediate = what.immediate;
    completion.immediate = what.immediate ? cell.immediate : 0;
    completion.bytes = incoming.kind == MessageKind::send ? incoming.offset : incoming.message_bytes;
    complete_receive(context_, queue_pair, completion);
  }
  queue_pair.incoming = Reassembly{};
  if (queue_pair.options.acknowledged) owe(queue_pair, Syndrome::ok, queue_pair.expected_psn);
  ++queue_pair.expected_psn;
}

void Responder::refuse(QueuePair& queue_pair, Verdict why) {
  queue_pair.incoming = Reassembly{};
  if (why == Verdict::access_refused) ++context_.counters.access_refused;
  if (why == Verdict::damaged) ++context_.counters.dropped_bad_cell;
  if (!queue_pair.options.acknowledged) return refuse_unacknowledged(queue_pair, why);
  switch (why) {
    case Verdict::good:
      return;
    case Verdict::not_ready:
    case Verdict::damaged:
      owe(queue_pair, why == Verdict::damaged ? Syndrome::sequence_error : Syndrome::receiver_not_ready,
          queue_pair.expected_psn);
      queue_pair.silent = true;
      return;
    case Verdict::access_refused:
      return refuse_for_good(queue_pair, Syndrome::remote_access_error);
    case Verdict::nonsense:
      return refuse_for_good(queue_pair, Syndrome::remote_operation_error);
    case Verdict::too_long:
    case Verdict::receive_is_void: {
      Completion completion;
      completion.status =
          why == Verdict::too_long ? CompletionStatus::local_length_error : CompletionStatus::local_protection_error;
      complete_receive(context_, queue_pair, completion);
      return refuse_for_good(queue_pair, Syndrome::remote_operation_error);
    }
  }
}

/// The message is dropped; the posted receive stays for the next.
void Responder::refuse_unacknowledged(QueuePair& queue_pair, Verdict why) {
  ++(why == Verdict::not_ready ? context_.counters.dropped_no_receive : context_.counters.dropped_unacknowledged);
  ++queue_pair.expected_psn;
  queue_pair.silent = true;
}

void Responder::refuse_for_good(QueuePair& queue_pair, Syndrome syndrome) {
  owe(queue_pair, syndrome, queue_pair.expected_psn);
  fail_queue_pair(context_, queue_pair, CompletionStatus::flushed);
}

bool Responder::push_acknowledgement(QueuePair& queue_pair) {
  PendingAcknowledgement& owed = queue_pair.acknowledgement;
  if (!owed.wanted) return false;
  Cell cell;
  cell.opcode = Opcode::acknowledge;
  cell.destination = context_.link.peer_port_address();
  cell.source = context_.link.port_address();
  cell.destination_queue_pair = queue_pair.peer;
  cell.source_queue_pair = queue_pair.number;
  cell.packet_sequence = owed.psn;
  cell.syndrome = owed.syndrome;
  if (owed.syndrome == Syndrome::receiver_not_ready) {
    const auto delay = std::chrono::ceil<std::chrono::microseconds>(context_.options.receiver_not_ready_delay).count();
    constexpr long long kLongest = std::numeric_limits<std::uint32_t>::max();
    cell.delay_microseconds = static_cast<std::uint32_t>(std::clamp<long long>(delay, 0, kLongest));
  }
  std::uint32_t packet_crc = kPacketCrcStart;
  const CellEnvelope envelope(cell, {}, 0, packet_crc);
  if (!context_.link.sender(queue_pair.options.lane).send({envelope.head(), envelope.tail()})) return false;
  owed.wanted = false;
  ++context_.counters.cells_sent;
  ++context_.counters.acknowledgements_sent;
  return true;
}

}  // namespace splitnic::fabric
