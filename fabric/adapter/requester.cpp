#include "fabric/adapter/requester.h"

#include <algorithm>
#include <span>

#include "common/check.h"
#include "fabric/adapter/local_memory.h"
#include "fabric/adapter/request_check.h"
#include "fabric/adapter/transport_faults.h"

namespace splitnic::fabric {
namespace {

std::span<const LocalSegment> segments_of(const WorkRequest& request) {
  return std::span(request.segments).first(request.segment_count);
}

/// As the C verbs have it, a binding names a window of type 2 by its index alone: several may be posted before the
/// first one is carried out, and one that fails leaves the window's tag as it was.
void name_by_index(const ProtectionTable& table, Bind& bind) {
  const std::uint32_t index = bind.window.index();
  const ProtectionEntry* const window = table.at(index);
  const bool type_2 = window != nullptr && window->kind == EntryKind::window_type_2;
  if (type_2) bind.window = Stag::from(index, window->instance);
}

Opcode send_opcode(Operation operation, bool first, bool last) {
  if (!last) return first ? Opcode::send_first : Opcode::send_middle;
  if (operation == Operation::send_with_immediate) {
    return first ? Opcode::send_only_immediate : Opcode::send_last_immediate;
  }
  if (operation == Operation::send_with_invalidate)
    return first ? Opcode::send_only_invalidate : Opcode::send_last_invalidate;
  return first ? Opcode::send_only : Opcode::send_last;
}

Opcode write_opcode(bool immediate, bool first, bool last) {
  if (!last) return first ? Opcode::write_first : Opcode::write_middle;
  if (immediate) return first ? Opcode::write_only_immediate : Opcode::write_last_immediate;
  return first ? Opcode::write_only : Opcode::write_last;
}

Opcode opcode_for(Operation operation, bool first, bool last) {
  switch (operation) {
    case Operation::rdma_write:
    case Operation::rdma_write_with_immediate:
      return write_opcode(operation == Operation::rdma_write_with_immediate, first, last);
    case Operation::rdma_read:
      return Opcode::read_request;
    case Operation::compare_swap:
      return Opcode::compare_swap;
    case Operation::fetch_add:
      return Opcode::fetch_add;
    default:
      return send_opcode(operation, first, last);
  }
}

/// Of the queue pair's next cell: an XRC initiator's requests name the receives that they want, in their first cell.
Opcode opcode_from(const QueuePair& queue_pair, const WorkRequest& request, bool first, bool last) {
  const Opcode opcode = opcode_for(request.operation, first, last);
  return first && queue_pair.options.xrc == XrcRole::initiator ? xrc_of(opcode) : opcode;
}

SendingRequest sending(const AdapterContext& context, const QueuePair& queue_pair, const SendEntry& entry) {
  PathNumber path = queue_pair.path != nullptr ? queue_pair.path->number : PathNumber{};
  if (queue_pair.options.datagram) {
    const AddressHandle* to = context.datagrams.find_posted(entry.request.datagram.handle);
    if (to != nullptr) path = to->options.path;
  }
  return {queue_pair.number,          path, queue_pair.send.next, entry.request.id, entry.request.operation,
          queue_pair.options.datagram};
}

}  // namespace

Status Requester::check(const QueuePair& queue_pair, const WorkRequest& request, std::uint32_t& bytes) const {
  const bool flushes = queue_pair.flushes_sends();
  if (!queue_pair.rules().post_send && !flushes) return Status::bad_state;
  if (request.segment_count > kMaxSegments) return Status::bad_length;
  if (queue_pair.options.xrc == XrcRole::target) return Status::not_permitted;
  // What will not be carried out is not looked at.
  return flushes ? Status::ok : check_request(context_, queue_pair, request, bytes);
}

Status Requester::post(QueuePair& queue_pair, const WorkRequest& request) {
  SendQueue& send = queue_pair.send;
  CompletionQueue* completions = queue_pair.send_cq;
  if (completions == nullptr) return Status::not_permitted;  // an XRC target
  if (!send.has_place(send.posted, completions->taken_out())) return Status::queue_full;
  std::uint32_t bytes = 0;
  const Status status = check(queue_pair, request, bytes);
  if (status != Status::ok) return status;
  const bool flushes = queue_pair.flushes_sends();
  if (request.inline_data && !flushes && !copy_inline(request, send.inline_at(send.posted)))
    return Status::bad_argument;
  if (!completions->reserve()) return Status::queue_full;
  send.entries[send.posted].begin(request, bytes);
  if (request.memory != nullptr) send.memory_at(send.posted) = *request.memory;
  ++send.posted;
  if (flushes) flush_posted_sends(context_, queue_pair);
  return Status::ok;
}

std::size_t Requester::pump(QueuePair& queue_pair, std::size_t budget) {
  SendQueue& send = queue_pair.send;
  if (context_.now < send.hold_until || waits_for_path(queue_pair)) return 0;
  std::size_t moved = 0;
  while (moved < budget && send.next != send.posted) {
    if (!queue_pair.sends_on()) break;
    SendEntry& entry = send.entries[send.next];
    if (!may_begin(queue_pair, entry)) break;
    const Step step = advance(queue_pair, entry);
    if (step == Step::stop) break;
    moved += step == Step::cell ? 1 : 0;
  }
  return moved;
}

std::optional<std::size_t> Requester::next_payload(const QueuePair& queue_pair) const {
  const SendQueue& send = queue_pair.send;
  if (send.next == send.posted || queue_pair.options.datagram) return std::nullopt;
  const SendEntry& entry = send.entries[send.next];
  const Operation operation = entry.request.operation;
  if (!goes_over_the_wire(operation) || entry.failure != CompletionStatus::success) return std::nullopt;
  // At its turn, a request may register memory, and its bytes may go past the lane.
  const bool goes_past = is_write(operation) || context_.options.placements != nullptr ||
                         (operation == Operation::rdma_read && context_.transfers.pulls());
  if (send.next_cell == 0 && (goes_past || entry.request.memory != nullptr)) return std::nullopt;
  if (is_answered(operation) || entry.direct) return 0;
  const std::size_t left = entry.bytes - send.next_offset;
  return std::min(left, queue_pair.path->cell_payload(queue_pair.options.lane));
}

/// The order among requests, beyond that of their cells.
bool Requester::may_begin(const QueuePair& queue_pair, const SendEntry& entry) const {
  const SendQueue& send = queue_pair.send;
  if (entry.numbered || send.next < send.sent) return true;
  if (entry.request.fence && send.unanswered != 0) return false;
  if (is_answered(entry.request.operation) && send.unanswered >= send.max_unanswered) return false;
  // An invalidation would take memory from under a retry of what was sent before.
  const bool invalidates = entry.request.operation == Operation::local_invalidate;
  return !invalidates || send.done == send.next;
}

Requester::Step Requester::advance(QueuePair& queue_pair, SendEntry& entry) {
  SendQueue& send = queue_pair.send;
  if (entry.failure != CompletionStatus::success) return fail_at_turn(queue_pair, entry, entry.failure);
  if (context_.options.faults != nullptr) [[unlikely]] {
    if (const auto step = meet_faults(queue_pair, entry)) return *step;
  }
  const Operation operation = entry.request.operation;
  if (!goes_over_the_wire(operation)) {
    if (send.next == send.sent) return carry_out(queue_pair, entry);
    send.rewind_to(send.next + 1);  // carried out already: a retry passes it by
    return Step::carried_out;
  }
  if (entry.request.memory != nullptr && !entry.memory_done) {
    const CompletionStatus status = run_memory_request(queue_pair, entry);
    if (status != CompletionStatus::success) return fail_at_turn(queue_pair, entry, status);
    entry.memory_done = true;
  }
  if (queue_pair.options.datagram) return send_datagram(queue_pair, entry);
  if (context_.options.placements != nullptr) {
    const Placer::Turn turn = placer_.turn(queue_pair, entry);
    send.awaits_earlier = turn == Placer::Turn::wait;
    if (turn != Placer::Turn::general) return turn == Placer::Turn::wait ? Step::stop : Step::cell;
  }
  if (is_answered(operation)) {
    const auto step = may_pull(queue_pair, entry) ? pull(queue_pair, entry) : std::nullopt;
    return step ? *step : send_request_cell(queue_pair, entry);
  }
  const bool may_be_direct = is_write(operation) && !entry.direct && !entry.request.inline_data && entry.bytes > 0;
  if (may_be_direct && send.next_cell == 0) {
    const Step step = move_directly(queue_pair, entry);
    if (step == Step::stop) return step;
  }
  return send_message_cell(queue_pair, entry);
}

/// Injected faults that the request meets at its turn. nullopt: it goes on.
std::optional<Requester::Step> Requester::meet_faults(QueuePair& queue_pair, SendEntry& entry) {
  if (entry.numbered) return std::nullopt;
  const RequestTurn turn = context_.options.faults->turn(sending(context_, queue_pair, entry));
  switch (turn.what) {
    case RequestTurn::What::go:
      return std::nullopt;
    case RequestTurn::What::hold:
      queue_pair.send.hold_until = turn.until;
      return Step::stop;
    case RequestTurn::What::fail:
      return fail_at_turn(queue_pair, entry, turn.status);
  }
  return std::nullopt;
}

/// The cell that is about to leave meets an injected loss.
bool Requester::is_lost(const QueuePair& queue_pair, const SendEntry& entry) const {
  return context_.options.faults->loses(sending(context_, queue_pair, entry), queue_pair.send.next_cell);
}

/// The answer to the request, which has just left whole, meets an injected loss. So does its acknowledgement by
/// consumption.
void Requester::lose_answer(const QueuePair& queue_pair, SendEntry& entry) const {
  entry.answer_lost =
      queue_pair.options.acknowledged && context_.options.faults->loses_answer(sending(context_, queue_pair, entry));
  if (entry.answer_lost) entry.settled_at = 0;
}

/// The cell that has just left meets an injected duplication: it leaves once more, if there is room. head: what comes
/// before the request's own bytes. bytes: with it.
void Requester::send_twice(QueuePair& queue_pair, SendEntry& entry, Path& path, Cell cell, std::size_t bytes,
                           std::span<const std::byte> head, std::uint32_t packet_crc) {
  if (!context_.options.faults->duplicates(sending(context_, queue_pair, entry), queue_pair.send.next_cell)) return;
  const VirtualLane lane = queue_pair.options.lane;
  cell.awaited = false;  // the first one's consumption acknowledges the message
  ClaimedPayload payload;
  if (!path.claim(lane, cell, bytes, payload)) return;
  payload.put(head);
  if (!is_answered(entry.request.operation) && !load(queue_pair, entry, payload)) return;
  static_cast<void>(release_cell(context_, path, lane, cell, bytes, packet_crc));
}

Requester::Step Requester::carry_out(QueuePair& queue_pair, SendEntry& entry) {
  SendQueue& send = queue_pair.send;
  if (entry.request.operation == Operation::delay) {
    // Started by the next poll, as the acknowledgement's timeout is: a post's `now` may be old.
    if (send.delay_until == kNever || context_.now < send.delay_until) return Step::stop;
    send.delay_until = kNever;
  } else {
    const CompletionStatus status = run_memory_request(queue_pair, entry);
    if (status != CompletionStatus::success) return fail_at_turn(queue_pair, entry, status);
  }
  send.rewind_to(send.next + 1);
  send.sent = send.next;
  if (queue_pair.options.datagram) {  // has no path, and what comes before has ended as it left
    complete_send(context_, queue_pair, CompletionStatus::success);
  } else {
    static_cast<void>(complete_ready(queue_pair));
  }
  return Step::carried_out;
}

CompletionStatus Requester::run_memory_request(QueuePair& queue_pair, SendEntry& entry) {
  const Consumer consumer = queue_pair.consumer();
  if (entry.request.operation == Operation::local_invalidate) {
    const bool good = context_.table.invalidate_local(entry.request.invalidate, consumer).has_value();
    return good ? CompletionStatus::success : CompletionStatus::memory_request_error;
  }
  std::optional<MemoryRequest>& asked = queue_pair.send.memory_at(queue_pair.send.next);
  Bind* const bind = std::get_if<Bind>(&*asked);
  if (bind != nullptr && queue_pair.options.verbs_rules) name_by_index(context_.table, *bind);
  const auto answer = bind != nullptr ? context_.table.bind(*bind, consumer)
                                      : context_.table.fast_register(std::get<FastRegister>(*asked), consumer);
  if (!answer) return CompletionStatus::memory_request_error;
  entry.tag = *answer;
  return CompletionStatus::success;
}

/// Has a write's bytes moved through the peer window, if its owner granted that and nothing older may land after them;
/// goes on without where not.
Requester::Step Requester::move_directly(QueuePair& queue_pair, SendEntry& entry) {
  if (entry.dma == DmaState::moving) return Step::stop;
  const RemoteAddress& remote = entry.request.remote;
  if (!cells_have_landed(queue_pair)) return Step::carried_out;
  const auto at = queue_pair.path->claim_direct({queue_pair.number, queue_pair.peer.number}, remote, entry.bytes);
  if (!at) return Step::carried_out;
  DmaTransfer transfer;
  transfer.window = &queue_pair.path->direct->bridge.peer_window();
  transfer.to = *at;
  if (entry.request.operation == Operation::rdma_write_with_immediate) {
    transfer.stores = &queue_pair.path->direct->announced;
  }
  for (const LocalSegment& segment : segments_of(entry.request)) {
    const auto placement = check_segment(context_, queue_pair.consumer(), segment, 0, segment.bytes, Right::local_read,
                                         queue_pair.send.region);
    if (!placement) return fail_at_turn(queue_pair, entry, CompletionStatus::local_protection_error);
    transfer.pieces[transfer.piece_count++] = {*placement->memory, placement->offset, segment.bytes};
  }
  switch (
      context_.transfers.start(transfer, {queue_pair.number, TransferOwner::send, queue_pair.send.next, remote.tag})) {
    case DmaStart::moved:
      entry.direct = true;
      return Step::carried_out;
    case DmaStart::started:
      entry.dma = DmaState::moving;
      return Step::stop;
    case DmaStart::busy:
      return Step::stop;
    case DmaStart::failed:
      break;
  }
  report_unmoved(queue_pair, entry);
  return fail_at_turn(queue_pair, entry, CompletionStatus::local_protection_error);
}

/// A provider says that it failed, and not why. Reports the first segment that the process can't read either. Nothing
/// where it can read them all: then the engine has failed, and no memory is gone.
void Requester::report_unmoved(QueuePair& queue_pair, const SendEntry& entry) {
  for (const LocalSegment& segment : segments_of(entry.request)) {
    const auto placement = check_segment(context_, queue_pair.consumer(), segment, 0, segment.bytes, Right::local_read,
                                         queue_pair.send.region);
    if (placement && !still_there(*placement, segment.bytes)) {
      return report_gone(context_, queue_pair.number, segment.tag);
    }
  }
}

/// Whether the read's bytes may be pulled out of the peer window, as far as the queue shows. It waits for nobody: while
/// requests before it are under way, which it has to see the effects of, or whose answers would land after its bytes,
/// the owner answers it in its turn.
bool Requester::may_pull(const QueuePair& queue_pair, const SendEntry& entry) const {
  const SendQueue& send = queue_pair.send;
  const bool fits = entry.request.operation == Operation::rdma_read && entry.bytes != 0 && !entry.numbered;
  return fits && context_.transfers.pulls() && context_.options.faults == nullptr && send.done == send.next;
}

/// Such a read has no packet number, and ends when its bytes are in place. nullopt: its request goes to the owner, who
/// says what is wrong, if something is.
std::optional<Requester::Step> Requester::pull(QueuePair& queue_pair, SendEntry& entry) {
  if (entry.dma == DmaState::moving) return Step::stop;
  if (entry.dma == DmaState::failed) return std::nullopt;
  if (entry.dma == DmaState::none) {
    switch (start_pull(queue_pair, entry)) {
      case DmaStart::moved:
        ++context_.done_at_post;  // or in a poll, which only says so twice
        break;
      case DmaStart::started:
        entry.dma = DmaState::moving;
        return Step::stop;
      case DmaStart::busy:
        return std::nullopt;
      case DmaStart::failed:
        entry.dma = DmaState::failed;
        return std::nullopt;
    }
  }
  // Only now it is sure that the owner permitted the read for as long as it took, and was there: else the bytes may be
  // somebody else's.
  SendQueue& send = queue_pair.send;
  const MptWriter reader{queue_pair.number, queue_pair.peer.number};
  if (!queue_pair.path->confirm_readable(reader, entry.request.remote, entry.bytes, send.pulled_by)) {
    entry.dma = DmaState::failed;
    return std::nullopt;
  }
  ++context_.counters.pulled_reads;
  send.rewind_to(send.next + 1);
  send.sent = send.next;
  complete_send(context_, queue_pair, CompletionStatus::success);
  return Step::cell;
}

/// busy: nothing has moved, and the owner answers; also where the owner grants nothing, or the sink is not fit for it.
DmaStart Requester::start_pull(QueuePair& queue_pair, const SendEntry& entry) {
  const WorkRequest& request = entry.request;
  const MptWriter reader{queue_pair.number, queue_pair.peer.number};
  const ReadGrant found = queue_pair.path->find_readable(reader, request.remote, entry.bytes);
  DmaTransfer transfer;
  if (!found || !find_sinks(queue_pair, request, transfer)) return DmaStart::busy;
  queue_pair.send.pulled_by = found;
  transfer.window = &queue_pair.path->direct->bridge.peer_window();
  transfer.to = *found.place;
  const TransferFor what{queue_pair.number, TransferOwner::send, queue_pair.send.next, request.remote.tag};
  return context_.transfers.pull(transfer, what, segments_of(request));
}

/// Where the bytes of the read go, if the table lets answers there without a further look at each of their cells.
bool Requester::find_sinks(const QueuePair& queue_pair, const WorkRequest& request, DmaTransfer& transfer) const {
  for (const LocalSegment& segment : segments_of(request)) {
    const auto sink = check_sink(context_, queue_pair.consumer(), segment, 0, segment.bytes, queue_pair.send.next_psn);
    if (!sink || sink->entry->strict || sink->entry->touch != TouchControl::unlimited) return false;
    transfer.pieces[transfer.piece_count++] = {*sink->memory, sink->offset, segment.bytes};
  }
  return true;
}

void Requester::transfer_ended(QueuePair& queue_pair, std::uint64_t position, bool moved) {
  SendQueue& send = queue_pair.send;
  if (position < send.done || position >= send.posted) return;
  SendEntry& entry = send.entries[position];
  if (entry.dma != DmaState::moving) return;
  entry.dma = moved ? DmaState::moved : DmaState::failed;
  if (entry.request.operation == Operation::rdma_read) return;
  entry.direct = moved;
  if (moved) return;
  entry.failure = CompletionStatus::local_protection_error;
  report_unmoved(queue_pair, entry);
}

/// The next bytes of the request's message.
bool Requester::load(QueuePair& queue_pair, SendEntry& entry, ClaimedPayload to) {
  SendQueue& send = queue_pair.send;
  const auto bytes = static_cast<std::uint32_t>(to.size());
  if (entry.request.inline_data) {
    to.put(send.inline_at(send.next).subspan(send.next_offset, bytes));
    return true;
  }
  return for_parts(segments_of(entry.request), send.next_offset, bytes,
                   [&](const LocalSegment& segment, std::uint32_t offset, std::uint32_t part) {
                     const auto placement = check_segment(context_, queue_pair.consumer(), segment, offset, part,
                                                          Right::local_read, send.region);
                     if (!placement) return false;
                     const bool there = load_placement(*placement, to, part);
                     if (!there) report_gone(context_, queue_pair.number, segment.tag);
                     return there;
                   });
}

Requester::Step Requester::send_message_cell(QueuePair& queue_pair, SendEntry& entry) {
  SendQueue& send = queue_pair.send;
  const VirtualLane lane = queue_pair.options.lane;
  const std::uint32_t left = entry.direct ? 0 : entry.bytes - send.next_offset;
  const auto bytes = static_cast<std::uint32_t>(std::min<std::size_t>(left, queue_pair.path->cell_payload(lane)));
  if (!fits_packet(entry.bytes, queue_pair))
    return fail_at_turn(queue_pair, entry, CompletionStatus::local_length_error);
  const bool last = bytes == left;
  const Opcode opcode = opcode_from(queue_pair, entry.request, send.next_cell == 0, last);
  Cell cell = addressed_cell(queue_pair, opcode, entry.numbered ? entry.psn : send.next_psn);
  cell.direct = entry.direct;
  cell.solicited = entry.request.solicited && traits(opcode).may_be_solicited();
  cell.cell_sequence = send.next_cell;
  cell.address = entry.request.remote.address;
  cell.tag = entry.request.remote.tag;
  cell.message_bytes = entry.bytes;
  cell.immediate = entry.request.immediate;
  cell.invalidate = entry.request.invalidate;
  cell.shared_receives = entry.request.remote_receives;
  cell.awaited = last && queue_pair.options.acknowledged && queue_pair.path->reports_settled;
  ClaimedPayload payload;
  if (!queue_pair.path->claim(lane, cell, bytes, payload)) return Step::stop;
  if (!load(queue_pair, entry, payload)) {
    return fail_at_turn(queue_pair, entry, CompletionStatus::local_protection_error);
  }
  // Direct bytes come before the cell that closes their message: release() publishes them with the cell.
  // A cell that is lost stays a claim that is never released; its consumption can't acknowledge it.
  const bool lost = context_.options.faults != nullptr && is_lost(queue_pair, entry);
  const std::uint32_t crc_before = send.packet_crc;
  const std::uint64_t position =
      lost ? 0 : release_cell(context_, *queue_pair.path, lane, cell, bytes, send.packet_crc);
  if (cell.awaited) {
    entry.settled_at = position;
    AwaitedPositions& awaited = queue_pair.path->awaited[static_cast<std::size_t>(lane)];
    if (position != 0 && awaited.kept()) awaited.note(position, queue_pair.number);
  }
  if (context_.options.faults != nullptr && !lost) [[unlikely]] {
    if (last) lose_answer(queue_pair, entry);
    send_twice(queue_pair, entry, *queue_pair.path, cell, bytes, {}, crc_before);
  }
  number(queue_pair, entry);
  send.next_offset += bytes;
  ++send.next_cell;
  send.room_by = kNever;
  if (last) message_sent(queue_pair);
  return Step::cell;
}

Requester::Step Requester::send_request_cell(QueuePair& queue_pair, SendEntry& entry) {
  SendQueue& send = queue_pair.send;
  if (entry.answered) {  // a retry of what came after it
    send.rewind_to(send.next + 1);
    return Step::carried_out;
  }
  const WorkRequest& request = entry.request;
  const std::uint32_t psn = entry.numbered ? entry.psn : send.next_psn;
  if (sink_refusal(queue_pair, entry, psn)) {
    return fail_at_turn(queue_pair, entry, CompletionStatus::local_protection_error);
  }
  Cell cell = addressed_cell(queue_pair, opcode_from(queue_pair, request, true, true), psn);
  cell.shared_receives = request.remote_receives;
  cell.address = request.remote.address;
  cell.tag = request.remote.tag;
  cell.message_bytes = entry.bytes;
  cell.message_sequence = entry.numbered ? entry.message_sequence : send.message_sequence + 1;
  cell.swap_or_add = request.swap_or_add;
  cell.compare = request.operation == Operation::compare_swap ? request.compare : 0;
  if (request.operation == Operation::rdma_read && request.segment_count == 1) {
    // Where the owner may store the answer itself: memory that was granted to it.
    const ProtectionEntry* sink = context_.table.find(request.segments[0].tag);
    if (sink != nullptr && sink->placeable && sink->rights.has(Right::remote_write)) {
      entry.direct_sink = true;
      cell.sink_tag = request.segments[0].tag;
      cell.sink_address = peers_address(context_, request.segments[0]);
    }
  }
  const bool lost = context_.options.faults != nullptr && is_lost(queue_pair, entry);
  if (!lost) {
    const VirtualLane lane = queue_pair.options.lane;
    ClaimedPayload none;
    if (!queue_pair.path->claim(lane, cell, 0, none)) return Step::stop;
    std::uint32_t packet_crc = kPacketCrcStart;
    queue_pair.send.asked_at = release_cell(context_, *queue_pair.path, lane, cell, 0, packet_crc);
  }
  if (context_.options.faults != nullptr && !lost) [[unlikely]] {
    lose_answer(queue_pair, entry);
    send_twice(queue_pair, entry, *queue_pair.path, cell, 0, {}, kPacketCrcStart);
  }
  number(queue_pair, entry);
  message_sent(queue_pair);
  return Step::cell;
}

/// A cell of the request has left: it has its place among the packets.
void Requester::number(QueuePair& queue_pair, SendEntry& entry) {
  SendQueue& send = queue_pair.send;
  if (send.next < send.sent) {
    ++context_.counters.retransmissions;
    ++send.repeated;
  }
  if (entry.numbered) return;
  entry.numbered = true;
  entry.psn = send.next_psn++;
  if (!is_answered(entry.request.operation)) return;
  entry.message_sequence = ++send.message_sequence;
  ++send.unanswered;
}

void Requester::message_sent(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  const SendEntry& entry = send.entries[send.next];
  send.rewind_to(send.next + 1);
  if (send.next <= send.sent) return;
  send.sent = send.next;
  send.sent_psn = entry.psn + 1;
  if (!entry.direct && entry.request.operation != Operation::rdma_read) send.cells_to = send.sent;
  if (is_write(entry.request.operation)) {
    ++(entry.direct ? context_.counters.direct_writes : context_.counters.segmented_writes);
  }
  if (!queue_pair.options.acknowledged) complete_send(context_, queue_pair, CompletionStatus::success);
}

Requester::Step Requester::fail_at_turn(QueuePair& queue_pair, SendEntry& entry, CompletionStatus status) {
  entry.failure = status;
  const bool others_first = queue_pair.send.done != queue_pair.send.next;
  if (others_first) return Step::stop;
  const bool memory_request = status == CompletionStatus::memory_request_error;
  const bool resumable = memory_request
                             ? queue_pair.options.on_memory_request_failure == MemoryRequestFailure::fail_sends
                             : !queue_pair.options.acknowledged;
  if (resumable) {
    fail_sends(context_, queue_pair, status);
  } else {
    end_stream(context_, queue_pair, TerminateReason{}, status);  // "local catastrophic error"
  }
  return Step::stop;
}

void end_stream(AdapterContext& context, QueuePair& queue_pair, TerminateReason reason, CompletionStatus first,
                const ReceivedCell* answer) {
  PendingTerminate& terminate = queue_pair.terminate;
  terminate.wanted = queue_pair.options.acknowledged;
  terminate.reason = reason;
  terminate.psn = queue_pair.expected_psn;
  terminate.head_bytes = 0;
  if (answer != nullptr) terminate.name(answer->cell, answer->payload.size());
  queue_pair.acknowledgement = {false, Syndrome::remote_operation_error, queue_pair.expected_psn};
  fail_queue_pair(context, queue_pair, first);
}

}  // namespace splitnic::fabric
