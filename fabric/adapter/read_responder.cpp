#include <algorithm>
#include <span>

#include "fabric/adapter/local_memory.h"
#include "fabric/adapter/responder.h"
#include "fabric/memory/read_admission.h"

/// The responder's reads and atomics. Source: S3 Fig. 18A (a queue indexed by message sequence number), S2 Fig. 10
/// (here the owner's DMA provider stores an answer as it stores a write; S2's reader pulls: DmaPuller), the verbs'
/// atomics.
namespace splitnic::fabric {
namespace {

Access read_access(const QueuePair& queue_pair, const ResponseRecord& record, std::uint64_t bytes) {
  Access access;
  access.tag = record.tag;
  access.domain = record.domain;
  access.bytes = bytes;
  access.right = Right::remote_read;
  access.queue_pair = queue_pair.number;
  access.sequence = record.psn;
  return access;
}

ProtectedUse use_of(MessageKind kind) {
  return kind == MessageKind::atomic ? ProtectedUse::atomic : ProtectedUse::read_request;
}

Opcode response_opcode(bool first, bool last) {
  if (first) return last ? Opcode::read_response_only : Opcode::read_response_first;
  return last ? Opcode::read_response_last : Opcode::read_response_middle;
}

}  // namespace

/// A new request, in order.
Responder::Verdict Responder::take_request(QueuePair& queue_pair, const Cell& cell) {
  ResponseQueue& responses = queue_pair.responses;
  const MessageKind kind = traits(cell.opcode).kind;
  const std::size_t depth = queue_pair.answers_reads ? responses.depth : 0;
  const auto refusal = read_refusal(cell.message_sequence, responses.taken, responses.answered, depth);
  if (refusal) return refused(*refusal, use_of(kind));
  ResponseRecord record;
  record.kind = kind;
  record.psn = cell.packet_sequence;
  record.message_sequence = cell.message_sequence;
  record.domain = queue_pair.domain;
  record.shared_receives = cell.shared_receives;
  record.tag = cell.tag;
  record.address = cell.address;
  record.bytes = cell.message_bytes;
  if (kind == MessageKind::atomic) {
    if (const Verdict verdict = carry_out_atomic(queue_pair, cell, record.original); verdict != Verdict::good) {
      return verdict;
    }
  } else {
    const Access access = read_access(queue_pair, record, record.bytes);
    const auto placement = context_.table.check_remote(access, record.address);
    const bool named = names_memory(queue_pair, record.bytes);
    if (named && !placement) return refused(placement.error(), ProtectedUse::read_request);
    const bool fits = record.bytes <= context_.options.max_message_bytes && fits_packet(record.bytes, queue_pair);
    if (!fits) return Verdict::nonsense;
    record.one_shot = named && placement->entry->touch == TouchControl::one_shot;
    if (record.one_shot) {
      static_cast<void>(context_.table.touch(access, {false, record.psn, record.psn + 1, 1}));
    }
    record.sink_tag = cell.sink_tag;
    record.sink_address = cell.sink_address;
  }
  // The peer keeps at most `depth` requests open: with this request it has the answer whose record is replaced here.
  if (responses.taken >= responses.depth) {
    end_one_shot(context_, queue_pair, responses.records[responses.taken - responses.depth]);
  }
  responses.records[responses.taken++] = record;
  if (responses.next < responses.oldest_kept()) responses.restart_at(responses.oldest_kept());
  return Verdict::good;
}

Responder::Verdict Responder::carry_out_atomic(QueuePair& queue_pair, const Cell& cell, std::uint64_t& original) {
  Access access;
  access.tag = cell.tag;
  access.domain = queue_pair.domain;
  access.bytes = kAtomicBytes;
  access.right = Right::remote_atomic;
  access.queue_pair = queue_pair.number;
  access.sequence = cell.packet_sequence;
  const auto placement = context_.table.check_remote(access, cell.address);
  if (!placement) return refused(placement.error(), ProtectedUse::atomic);
  if (placement->entry->touch != TouchControl::unlimited) {
    const SegmentPosition position{true, cell.packet_sequence, cell.packet_sequence + 1, 1};
    if (context_.table.touch(access, position) == TouchAction::invalidate_and_terminate) {
      return refused(ProtectionError::touched_twice, ProtectedUse::atomic);
    }
  }
  const RegionMemory& memory = *placement->memory;
  const bool there = without_xrc(cell.opcode) == Opcode::compare_swap
                         ? memory.compare_swap(placement->offset, cell.compare, cell.swap_or_add, original)
                         : memory.fetch_add(placement->offset, cell.swap_or_add, original);
  if (!there) {
    report_gone(context_, queue_pair.number, cell.tag);
    return refused(ProtectionError::memory_is_gone, ProtectedUse::atomic);
  }
  ++context_.counters.atomics;
  return Verdict::good;
}

/// A request that was taken before, and whose answer may have been lost: a read reads the memory again, an atomic
/// returns its first result again.
void Responder::answer_again(QueuePair& queue_pair, const Cell& cell) {
  ResponseQueue& responses = queue_pair.responses;
  for (std::uint64_t position = responses.oldest_kept(); position != responses.taken; ++position) {
    ResponseRecord& record = responses.records[position];
    if (record.psn != cell.packet_sequence) continue;
    if (position <= responses.next) responses.restart_at(position);
    responses.asked_again = true;
    return;
  }
}

void Responder::reassure(QueuePair& queue_pair) {
  ResponseQueue& responses = queue_pair.responses;
  if (!responses.asked_again) return;
  responses.asked_again = false;
  // A refusal is kept there for a peer that goes on.
  if (responses.idle() || queue_pair.acknowledgement.wanted || queue_pair.taking == Taking::refusing) return;
  queue_pair.acknowledgement = {true, Syndrome::ok, responses.records[responses.next].psn - 1};
  static_cast<void>(push_acknowledgement(queue_pair));
}

std::size_t Responder::push_responses(QueuePair& queue_pair, std::size_t budget) {
  ResponseQueue& responses = queue_pair.responses;
  std::size_t moved = 0;
  while (moved < budget && !responses.idle() && push_response(queue_pair)) ++moved;
  if (queue_pair.taking == Taking::refusing && responses.idle()) {
    fail_queue_pair(context_, queue_pair, CompletionStatus::flushed);
  }
  return moved;
}

std::optional<std::size_t> Responder::next_payload(const QueuePair& queue_pair) const {
  const ResponseQueue& responses = queue_pair.responses;
  if (responses.idle()) return std::nullopt;
  const ResponseRecord& record = responses.records[responses.next];
  if (record.kind != MessageKind::read_request) return 0;
  if (record.sink_tag != Stag{} || record.dma != DmaState::none) return std::nullopt;
  const std::size_t left = record.bytes - responses.offset;
  return std::min(left, queue_pair.path->cell_payload(queue_pair.options.lane));
}

/// One cell of the answer whose turn it is; false: the lane is full, a copy is under way, or the queue pair has failed.
bool Responder::push_response(QueuePair& queue_pair) {
  ResponseQueue& responses = queue_pair.responses;
  ResponseRecord& record = responses.records[responses.next];
  if (record.kind == MessageKind::read_request) return push_read_cell(queue_pair, record);
  Cell cell = addressed_cell(queue_pair, Opcode::atomic_acknowledge, record.psn);
  cell.original = record.original;
  if (!send_cell(context_, *queue_pair.path, queue_pair.options.lane, cell)) return false;
  responses.in_cells = true;
  responses.restart_at(responses.next + 1);
  return true;
}

bool Responder::push_read_cell(QueuePair& queue_pair, ResponseRecord& record) {
  ResponseQueue& responses = queue_pair.responses;
  if (responses.cell == 0 && record.bytes > 0 && !store_directly(queue_pair, record)) return false;
  const bool direct = record.dma == DmaState::moved;
  const std::uint32_t left = direct ? 0 : record.bytes - responses.offset;
  const VirtualLane lane = queue_pair.options.lane;
  const auto bytes = static_cast<std::uint32_t>(std::min<std::size_t>(left, queue_pair.path->cell_payload(lane)));
  const bool last = bytes == left;
  Cell cell = addressed_cell(queue_pair, response_opcode(responses.cell == 0, last), record.psn);
  cell.direct = direct;
  cell.cell_sequence = responses.cell;
  ClaimedPayload payload;
  if (!queue_pair.path->claim(lane, cell, bytes, payload)) return false;
  if (!direct && names_memory(queue_pair, record.bytes)) {  // checks the table again for every cell
    const Access access = read_access(queue_pair, record, bytes);
    const auto placement = context_.table.check_remote(access, record.address + responses.offset);
    if (!placement) {
      response_failed(queue_pair, record, placement.error());
      return false;
    }
    if (!load_placement(*placement, payload, bytes)) {
      report_gone(context_, queue_pair.number, record.tag);
      response_failed(queue_pair, record, ProtectionError::memory_is_gone);
      return false;
    }
  }
  // What was stored directly is published before this cell, which announces it.
  static_cast<void>(release_cell(context_, *queue_pair.path, lane, cell, bytes, responses.packet_crc));
  responses.offset += bytes;
  responses.in_cells = responses.in_cells || bytes != 0;
  ++responses.cell;
  if (!last) return true;
  ++(direct ? context_.counters.direct_reads : context_.counters.segmented_reads);
  record.dma = DmaState::none;  // asked again, it is stored again
  responses.restart_at(responses.next + 1);
  return true;
}

/// Has the answer stored where the peer wants it, if the peer granted that, and no older answer may land after it.
/// False: not now; the answer waits. An answer whose transfer has failed goes in cells: these find out whether its
/// memory is gone, or may not be read any more, or the engine alone has failed.
bool Responder::store_directly(QueuePair& queue_pair, ResponseRecord& record) {
  if (record.dma == DmaState::moving) return false;
  if (record.dma != DmaState::none || record.sink_tag == Stag{}) return true;
  ResponseQueue& responses = queue_pair.responses;
  if (responses.in_cells && queue_pair.path->link.drained(queue_pair.options.lane)) responses.in_cells = false;
  if (responses.in_cells) return true;
  const auto at = queue_pair.path->claim_direct({queue_pair.number, queue_pair.peer.number},
                                                {record.sink_address, record.sink_tag}, record.bytes);
  if (!at) return true;
  const auto placement = context_.table.check_remote(read_access(queue_pair, record, record.bytes), record.address);
  if (!placement) {
    response_failed(queue_pair, record, placement.error());
    return false;
  }
  DmaTransfer transfer;
  transfer.window = &queue_pair.path->direct->bridge.peer_window();
  transfer.to = *at;
  transfer.pieces[0] = {*placement->memory, placement->offset, record.bytes};
  transfer.piece_count = 1;
  const TransferFor what{queue_pair.number, TransferOwner::response, responses.next, record.sink_tag};
  switch (context_.transfers.start(transfer, what)) {
    case DmaStart::moved:
      record.dma = DmaState::moved;
      return true;
    case DmaStart::started:
      record.dma = DmaState::moving;
      return false;
    case DmaStart::busy:
      return false;
    case DmaStart::failed:
      break;
  }
  record.dma = DmaState::failed;
  return true;
}

void Responder::transfer_ended(QueuePair& queue_pair, std::uint64_t position, bool moved) {
  ResponseQueue& responses = queue_pair.responses;
  if (position < responses.oldest_kept() || position >= responses.taken) return;
  ResponseRecord& record = responses.records[position];
  if (record.dma != DmaState::moving) return;
  record.dma = moved ? DmaState::moved : DmaState::failed;
}

/// An answer that can't be given any more ends the stream, at its request. One that was given before is only refused:
/// a network's late copy of the request must not end the stream of a peer that has its answer.
void Responder::response_failed(QueuePair& queue_pair, const ResponseRecord& record, ProtectionError error) {
  ++context_.counters.access_refused;
  const TerminateCode code = terminate_code(error, ProtectedUse::read_request);
  const Syndrome syndrome = refused_as(error, ProtectedUse::read_request) == RefusedAs::remote_access_error
                                ? Syndrome::remote_access_error
                                : Syndrome::remote_operation_error;
  ResponseQueue& responses = queue_pair.responses;
  // It was answered whole before, and the request may be an old copy: the peer ends its request if it still waits.
  if (responses.next < responses.answered && responses.records[responses.next].psn == record.psn) {
    queue_pair.acknowledgement = {true, syndrome, record.psn};
    return responses.restart_at(responses.next + 1);
  }
  // The request's head, as it came.
  const bool xrc = queue_pair.options.xrc == XrcRole::target;
  Cell request = addressed_cell(queue_pair, xrc ? Opcode::xrc_read_request : Opcode::read_request, record.psn);
  request.shared_receives = record.shared_receives;
  std::swap(request.destination_queue_pair, request.source_queue_pair);
  request.tag = record.tag;
  request.address = record.address;
  request.message_bytes = record.bytes;
  request.sink_tag = record.sink_tag;
  request.sink_address = record.sink_address;
  request.message_sequence = record.message_sequence;
  request.destination = queue_pair.path->link.port_address();
  request.source = queue_pair.path->link.peer_port_address();
  responses.restart_at(responses.taken);
  refuse_for_good(queue_pair, syndrome, {code.layer, code.type, code.code}, request, 0);
}

void end_one_shot(AdapterContext& context, const QueuePair& queue_pair, const ResponseRecord& record) {
  if (!record.one_shot) return;
  const Access access = read_access(queue_pair, record, record.bytes);
  const auto placement = context.table.check_remote(access, record.address);
  // Not touched: the tag names another binding than the one that the read took.
  if (!placement || placement->entry->touch != TouchControl::one_shot || !placement->entry->touched) return;
  static_cast<void>(context.table.touch(access, {true, record.psn, record.psn + 1, 1}));
}

}  // namespace splitnic::fabric
