#include "fabric/adapter/responder.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/range.h"
#include "common/sequence.h"
#include "fabric/adapter/local_memory.h"
#include "fabric/adapter/transport_faults.h"

namespace splitnic::fabric {
namespace {

/// Answers are one cumulative state: the newer replaces the older, but "ok up to the packet before" does not take back
/// that the packet itself was refused, which says the same and more.
void schedule_acknowledgement(QueuePair& queue_pair, Syndrome syndrome, std::uint32_t psn) {
  PendingAcknowledgement& pending = queue_pair.acknowledgement;
  const bool says_more =
      pending.wanted && pending.syndrome != Syndrome::ok && syndrome == Syndrome::ok && pending.psn == psn + 1;
  if (!says_more) pending = PendingAcknowledgement{true, syndrome, psn};
}

bool is_refusal(Syndrome syndrome) {
  return syndrome == Syndrome::remote_access_error || syndrome == Syndrome::remote_operation_error;
}

TerminateReason reason_of(ProtectionError error, ProtectedUse use) {
  const TerminateCode code = terminate_code(error, use);
  return {code.layer, code.type, code.code};
}

/// What the queue pair lets no peer do through it, if this is such a message.
std::optional<ProtectedUse> forbidden_use(const QueuePair& queue_pair, MessageKind kind) {
  const Rights rights = queue_pair.options.remote_rights;
  if (kind == MessageKind::write && !rights.has(Right::remote_write)) return ProtectedUse::write;
  if (kind == MessageKind::read_request && !rights.has(Right::remote_read)) return ProtectedUse::read_request;
  if (kind == MessageKind::atomic && !rights.has(Right::remote_atomic)) return ProtectedUse::atomic;
  return std::nullopt;
}

}  // namespace

bool names_memory(const QueuePair& queue_pair, std::uint32_t bytes) {
  return bytes != 0 || !queue_pair.options.verbs_rules;
}

/// Checks a receive's scatter list and takes it over, as the next of the queue.
inline Status Responder::fill(ReceiveQueue& receive, const Consumer& user, const ReceiveRequest& request,
                              bool verbs_rules) const {
  ReceiveEntry& entry = receive.entries[receive.posted];
  entry.id = request.id;
  entry.bytes = request.segment.bytes;
  entry.segment_count = 1;
  // Field by field, as the caller may just have stored it: see docs/performance.md, "Loads that wait for stores".
  entry.segments[0].address = request.segment.address;
  entry.segments[0].bytes = request.segment.bytes;
  entry.segments[0].tag = request.segment.tag;
  const bool alone = request.more.empty();
  const bool known = verbs_rules || request.segment.bytes == 0 ||
                     receive.region.place(request.segment.tag, request.segment.as_number(), request.segment.bytes,
                                          Right::local_write) != nullptr;
  return alone && known ? Status::ok : fill_checked(receive, entry, user, request, verbs_rules);
}

/// The rest of fill().
Status Responder::fill_checked(ReceiveQueue& receive, ReceiveEntry& entry, const Consumer& user,
                               const ReceiveRequest& request, bool verbs_rules) const {
  if (request.more.size() >= kMaxSegments) return Status::bad_length;
  std::ranges::copy(request.more, entry.segments.begin() + 1);
  entry.segment_count = static_cast<std::uint32_t>(1 + request.more.size());
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < entry.segment_count; ++i) {
    const LocalSegment& segment = entry.segments[i];
    total += segment.bytes;
    // A receive for writes with immediate alone needs no memory: no bytes, no tag.
    if (segment.bytes == 0 || verbs_rules) continue;
    const auto placement = check_segment(context_, user, segment, 0, segment.bytes, Right::local_write, receive.region);
    if (!placement) return post_status(placement.error());
  }
  if (total > std::numeric_limits<std::uint32_t>::max()) return Status::bad_length;
  entry.bytes = static_cast<std::uint32_t>(total);
  return Status::ok;
}

Status Responder::post(QueuePair& queue_pair, std::span<const ReceiveRequest> requests, std::size_t& posted) {
  const bool flushes = queue_pair.flushes_receives();
  if (!queue_pair.rules().post_receive && !flushes) return Status::bad_state;
  const bool has_own = queue_pair.options.shared_receives.value == 0 && queue_pair.options.xrc == XrcRole::none;
  if (!has_own) return Status::not_permitted;
  ReceiveQueue& receive = queue_pair.receive;
  CompletionQueue& completions = *queue_pair.receive_cq;
  const Consumer user = queue_pair.consumer();
  const bool verbs_rules = queue_pair.options.verbs_rules;
  for (const ReceiveRequest& request : requests) {
    if (receive.posted - receive.taken >= receive.depth) return Status::queue_full;
    const Status status = fill(receive, user, request, verbs_rules);
    if (status != Status::ok) return status;
    if (!completions.reserve()) return Status::queue_full;
    ++receive.posted;
    ++posted;
    if (flushes) [[unlikely]]
      flush_posted_receives(context_, queue_pair);
  }
  return Status::ok;
}

Status Responder::post(SharedReceiveQueue& shared, const ReceiveRequest& request) {
  ReceiveQueue& receive = shared.queue;
  if (receive.posted - receive.taken >= receive.depth) return Status::queue_full;
  const Status status = fill(receive, {shared.domain, {}}, request, shared.verbs_rules);
  if (status == Status::ok) ++receive.posted;
  return status;
}

/// Makes sure that the present message has a receive; with a shared queue, takes one out of it.
Responder::Verdict Responder::have_receive(QueuePair& queue_pair) {
  ReceiveQueue& receive = queue_pair.receive;
  if (!receive.empty()) return Verdict::good;
  SharedReceiveQueue* shared = context_.shared_receive_queue(queue_pair.shared_receives);
  if (shared == nullptr || shared->queue.empty()) return Verdict::not_ready;
  if (!queue_pair.receive_cq->reserve()) return Verdict::overrun;
  receive.entries[receive.posted++].take(shared->queue.entries[shared->queue.taken++]);
  if (shared->limit != 0 && shared->queue.posted - shared->queue.taken < shared->limit) {
    shared->limit = 0;  // one event each time that the user arms the limit
    AsyncEvent event;
    event.kind = AsyncEventKind::shared_receive_limit;
    event.shared_receives = queue_pair.shared_receives;
    context_.report(event);
  }
  return Verdict::good;
}

/// The same for a message of this kind: a write with immediate may have one that stands.
Responder::Verdict Responder::have_receive(QueuePair& queue_pair, const OpcodeTraits& what) {
  if (!uses_standing_receive(queue_pair, what)) return have_receive(queue_pair);
  const bool has_place = queue_pair.receive_cq->room() != 0;
  return has_place ? Verdict::good : Verdict::not_ready;
}

/// The shared receive queue that a message names, which every request to an XRC target does, and no other.
Responder::Verdict Responder::name_receives(QueuePair& queue_pair, const Cell& cell) {
  const XrcRole role = queue_pair.options.xrc;
  if (role == XrcRole::initiator || traits(cell.opcode).xrc != (role == XrcRole::target)) return Verdict::nonsense;
  if (role == XrcRole::none) return Verdict::good;
  const SharedReceiveQueue* named = context_.shared_receive_queue(cell.shared_receives);
  if (named == nullptr || named->xrc.domain != queue_pair.options.xrc_domain) return Verdict::unknown_receives;
  if (queue_pair.shared_receives == cell.shared_receives) return Verdict::good;
  // A message that is sent again names the same queue: the receive that it took is still here.
  if (!queue_pair.receive.empty()) return Verdict::nonsense;
  queue_pair.domain = named->domain;
  queue_pair.shared_receives = cell.shared_receives;
  queue_pair.receive_completions = named->xrc.completions;
  queue_pair.receive_cq = context_.completion_queue(named->xrc.completions);
  queue_pair.receive.region = RememberedRegion{};
  return Verdict::good;
}

bool Responder::take(QueuePair& queue_pair, const ReceivedCell& received) {
  const Cell& cell = received.cell;
  if (!queue_pair.rules().connected || queue_pair.taking == Taking::refusing) {
    ++context_.counters.dropped_unknown_queue_pair;
    // The terminate that ended the queue pair may have been lost: a peer that goes on is refused again.
    PendingAcknowledgement& last = queue_pair.acknowledgement;
    if (queue_pair.state == QueuePairState::error && is_refusal(last.syndrome)) last.wanted = true;
    return false;
  }
  const bool in_order = queue_pair.options.acknowledged ? in_order_acknowledged(queue_pair, received)
                                                        : in_order_unacknowledged(queue_pair, cell);
  if (!in_order) return false;
  const Verdict verdict = accept(queue_pair, received);
  if (verdict != Verdict::good) {
    refuse(queue_pair, verdict, received);
    return false;
  }
  if (traits(cell.opcode).last) finish(queue_pair, cell);
  // A queue pair that never acknowledges does not by consumption either.
  return queue_pair.options.acknowledged;
}

void Responder::refuse_gone(QueuePair& queue_pair, Stag tag, const ReceivedCell& received) {
  report_gone(context_, queue_pair.number, tag);
  refuse(queue_pair, Verdict::receive_is_void, received);
}

void Responder::refuse_gone_target(QueuePair& queue_pair, Stag tag, const ReceivedCell& received) {
  report_gone(context_, queue_pair.number, tag);
  refuse(queue_pair, refused(ProtectionError::memory_is_gone, ProtectedUse::write), received);
}

bool Responder::in_order_acknowledged(QueuePair& queue_pair, const ReceivedCell& received) {
  const Cell& cell = received.cell;
  const OpcodeTraits& what = traits(cell.opcode);
  const Reassembly& incoming = queue_pair.incoming;
  const std::int32_t ahead = sequence_distance(cell.packet_sequence, queue_pair.expected_psn);
  if (ahead < 0) {  // done before; its acknowledgement may have been lost
    ++context_.counters.dropped_duplicate;
    if (what.is(MessageKind::read_request) || what.is(MessageKind::atomic)) {
      answer_again(queue_pair, cell);
    } else if (what.last) {
      schedule_acknowledgement(queue_pair, Syndrome::ok, queue_pair.expected_psn - 1);
    }
    return false;
  }
  if (ahead == 0 && what.first) {  // perhaps once more, after a refusal or a loss
    queue_pair.silent = false;
    if (!keeps_cells(queue_pair, what)) return true;
  }
  if (ahead == 0 && incoming.active && cell.cell_sequence == incoming.next_cell) return true;
  if (ahead == 0 && incoming.active && cell.cell_sequence < incoming.next_cell) {
    ++context_.counters.dropped_duplicate;
    return false;
  }
  if (ahead < 0 || !place_early(queue_pair, received)) ++context_.counters.dropped_out_of_sequence;
  if (queue_pair.path->lossless) queue_pair.incoming = Reassembly{};
  if (!queue_pair.silent) {
    schedule_acknowledgement(queue_pair, Syndrome::sequence_error, queue_pair.expected_psn);
    queue_pair.silent = true;
  }
  return false;
}

/// The message begins again, and the cells that came before the lost one are here: it goes on where it broke off. So a
/// long message needs one more copy for each lost cell, and not one copy without a loss, which might never come. What
/// the peer changed between two copies shows in the packet CRC, and then the message starts anew. Memory with touch
/// control is written once, in order: there it starts anew always.
bool Responder::keeps_cells(const QueuePair& queue_pair, const OpcodeTraits& what) {
  const Reassembly& incoming = queue_pair.incoming;
  if (queue_pair.path->lossless || !incoming.active || what.last || what.kind != incoming.kind) return false;
  return what.kind == MessageKind::send || incoming.remembered.current() != nullptr;
}

/// A link that reorders may deliver a write before an earlier packet. A write that ends a one-touch entry is placed at
/// once: its owner learns of it by a later message, and no second write may come. All other packets wait until the peer
/// sends them again. Only a write of one cell says where it goes. False: not placed.
bool Responder::place_early(QueuePair& queue_pair, const ReceivedCell& received) {
  const Cell& cell = received.cell;
  const OpcodeTraits& what = traits(cell.opcode);
  const bool is_whole = what.is(MessageKind::write) && what.first && what.last && !what.immediate && !cell.direct &&
                        cell.message_bytes != 0 && received.payload.size() == cell.message_bytes;
  const bool may_overtake = !queue_pair.path->link.properties().lossless && queue_pair.options.xrc == XrcRole::none &&
                            context_.options.faults == nullptr;
  const std::int32_t ahead = sequence_distance(cell.packet_sequence, queue_pair.expected_psn);
  const bool is_near = ahead > 0 && ahead < static_cast<std::int32_t>(EarlyWrites::kWindow);
  if (!is_whole || !may_overtake || !is_near || forbidden_use(queue_pair, what.kind)) return false;
  Stag& placed = queue_pair.early.at(cell.packet_sequence);
  if (placed.value != 0) {
    ++context_.counters.dropped_duplicate;
    return true;
  }
  std::uint32_t packet_crc = kPacketCrcStart;
  if (queue_pair.path->corrupts && !packet_is_whole(packet_crc, received)) return false;
  const Access access = access_of(queue_pair, cell.tag, cell.message_bytes, Right::remote_write, cell.packet_sequence);
  const auto placement = context_.table.check_remote(access, cell.address);
  if (!placement || placement->entry->touch != TouchControl::one_touch || placement->entry->touched) return false;
  if (!store_placement(*placement, received.payload)) return false;
  const SegmentPosition position{true, cell.packet_sequence, queue_pair.expected_psn, EarlyWrites::kWindow};
  SPLITNIC_CHECK(context_.table.touch(access, position) == TouchAction::place_and_remember);
  placed = cell.tag;
  ++context_.counters.placed_early;
  return true;
}

/// The expected packets that were placed early are done: the stream has caught up with them.
void Responder::pass_early(QueuePair& queue_pair) {
  while (queue_pair.early.at(queue_pair.expected_psn).value != 0) {
    const Stag tag = std::exchange(queue_pair.early.at(queue_pair.expected_psn), Stag{});
    schedule_acknowledgement(queue_pair, Syndrome::ok, queue_pair.expected_psn);
    ++queue_pair.expected_psn;
    context_.table.catch_up(tag, queue_pair.expected_psn);
  }
}

bool Responder::in_order_unacknowledged(QueuePair& queue_pair, const Cell& cell) {
  Reassembly& incoming = queue_pair.incoming;
  const std::int32_t ahead = sequence_distance(cell.packet_sequence, queue_pair.expected_psn);
  if (ahead == 0 && incoming.active && !traits(cell.opcode).first && cell.cell_sequence == incoming.next_cell) {
    return true;
  }
  // A link that loses cells may repeat them, too. Where a fault is injected it is as with hardware: only a cell that
  // comes next goes on with a message.
  const bool may_repeat = !queue_pair.path->lossless;
  if (may_repeat && ahead == 0 && incoming.active && cell.cell_sequence < incoming.next_cell) {
    ++context_.counters.dropped_duplicate;
    return false;
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

Responder::Verdict Responder::accept(QueuePair& queue_pair, const ReceivedCell& received) {
  const Cell& cell = received.cell;
  const OpcodeTraits& what = traits(cell.opcode);
  Reassembly& incoming = queue_pair.incoming;
  if (what.first) {
    if (const Verdict verdict = begin(queue_pair, cell); verdict != Verdict::good) return verdict;
  } else if (what.kind != incoming.kind || incoming.next_cell == std::numeric_limits<std::uint16_t>::max()) {
    return Verdict::nonsense;
  }
  ++incoming.next_cell;
  if (queue_pair.path->corrupts && !cell.direct && !packet_is_whole(incoming.packet_crc, received)) {
    return Verdict::damaged;
  }
  if (context_.options.faults != nullptr) [[unlikely]] {
    if (const Verdict verdict = meet_faults(queue_pair, cell); verdict != Verdict::good) return verdict;
  }
  if (what.is(MessageKind::read_request) || what.is(MessageKind::atomic)) return take_request(queue_pair, cell);
  if (what.immediate) {
    if (const Verdict verdict = have_receive(queue_pair, what); verdict != Verdict::good) return verdict;
  }
  if (cell.direct) return Verdict::good;
  const Verdict verdict = place(queue_pair, received);
  if (verdict != Verdict::good || !what.invalidate) return verdict;
  const auto ended = context_.table.invalidate_remote(cell.invalidate, queue_pair.consumer());
  return ended ? Verdict::good : refused(ended.error(), ProtectedUse::invalidate);
}

/// Injected faults that a message meets: damage with its first cell, and a receiver that is not ready at the cell that
/// takes a receive.
Responder::Verdict Responder::meet_faults(QueuePair& queue_pair, const Cell& cell) {
  const OpcodeTraits& what = traits(cell.opcode);
  TransportFaults& faults = *context_.options.faults;
  const ArrivingMessage message{queue_pair.number, cell.packet_sequence, what.kind};
  if (what.first && faults.damages(message)) return Verdict::damaged;
  const bool takes_receive = what.kind == MessageKind::send ? what.first : what.immediate;
  if (!takes_receive || !queue_pair.options.acknowledged) return Verdict::good;
  if (const Verdict verdict = have_receive(queue_pair, what); verdict != Verdict::good) return verdict;
  const std::uint64_t receive = uses_standing_receive(queue_pair, what)
                                    ? *queue_pair.options.standing_receive
                                    : queue_pair.receive.entries[queue_pair.receive.taken].id;
  return faults.not_ready(message, receive) ? Verdict::not_ready : Verdict::good;
}

/// First and Only cells: everything that decides about the whole message, before a byte of it is placed.
Responder::Verdict Responder::begin(QueuePair& queue_pair, const Cell& cell) {
  Reassembly& incoming = queue_pair.incoming;
  incoming = Reassembly{};
  incoming.kind = traits(cell.opcode).kind;
  if (const Verdict verdict = name_receives(queue_pair, cell); verdict != Verdict::good) return verdict;
  if (const auto use = forbidden_use(queue_pair, incoming.kind)) {
    return refused(ProtectionError::access_rights_violation, *use);
  }
  if (incoming.kind == MessageKind::send) {
    if (const Verdict verdict = have_receive(queue_pair); verdict != Verdict::good) return verdict;
  } else if (incoming.kind == MessageKind::write) {
    const Access access =
        access_of(queue_pair, cell.tag, cell.message_bytes, Right::remote_write, cell.packet_sequence);
    const auto placement = context_.table.check_remote(access, cell.address);
    const bool named = names_memory(queue_pair, cell.message_bytes) || cell.direct;
    if (!placement && named) return refused(placement.error(), ProtectedUse::write);
    if (cell.direct && !placement->entry->placeable) return refused(ProtectionError::wrong_kind, ProtectedUse::write);
    incoming.tag = cell.tag;
    incoming.address = cell.address;
    incoming.message_bytes = cell.message_bytes;
    // An entry with touch control decides anew about each cell.
    if (placement && placement->entry->touch == TouchControl::unlimited) {
      incoming.remembered = RememberedEntry(*placement->entry);
      incoming.memory = placement->memory;
      incoming.memory_offset = placement->offset;
    }
  } else if (!queue_pair.options.acknowledged) {
    return Verdict::nonsense;  // there is no answering on such a channel
  }
  incoming.active = true;
  return Verdict::good;
}

Responder::Verdict Responder::refused(ProtectionError error, ProtectedUse use) {
  error_ = error;
  use_ = use;
  return Verdict::refused;
}

Responder::Verdict Responder::place(QueuePair& queue_pair, const ReceivedCell& received) {
  Reassembly& incoming = queue_pair.incoming;
  const Verdict verdict =
      incoming.kind == MessageKind::send ? place_send(queue_pair, received.payload) : place_write(queue_pair, received);
  if (verdict == Verdict::good) incoming.offset += static_cast<std::uint32_t>(received.payload.size());
  return verdict;
}

// Checks the table again for every cell: the owner may have deregistered the memory between two of them.
Responder::Verdict Responder::place_send(QueuePair& queue_pair, const CellPayload& payload) {
  const ReceiveQueue& receive = queue_pair.receive;
  const Reassembly& incoming = queue_pair.incoming;
  if (receive.empty()) return Verdict::not_ready;
  const ReceiveEntry& entry = receive.entries[receive.taken];
  if (!within(entry.bytes, {incoming.offset, payload.size()})) return Verdict::too_long;
  return scatter(queue_pair, incoming.offset, payload) ? Verdict::good : Verdict::receive_is_void;
}

/// Into the oldest receive, which is long enough. False: its memory is not there any more.
bool Responder::scatter(QueuePair& queue_pair, std::uint32_t at, const CellPayload& payload) {
  const ReceiveEntry& entry = queue_pair.receive.entries[queue_pair.receive.taken];
  std::uint32_t taken = 0;
  return for_parts(std::span(entry.segments).first(entry.segment_count), at, static_cast<std::uint32_t>(payload.size()),
                   [&](const LocalSegment& segment, std::uint32_t offset, std::uint32_t part) {
                     const auto placement = check_segment(context_, queue_pair.consumer(), segment, offset, part,
                                                          Right::local_write, queue_pair.receive.region);
                     if (!placement) return false;
                     const bool there = store_placement(*placement, payload.slice(taken, part));
                     if (!there) report_gone(context_, queue_pair.number, segment.tag);
                     taken += part;
                     return there;
                   });
}

Responder::Verdict Responder::place_write(QueuePair& queue_pair, const ReceivedCell& received) {
  const Cell& cell = received.cell;
  const std::size_t bytes = received.payload.size();
  const Reassembly& incoming = queue_pair.incoming;
  const bool last = traits(cell.opcode).last;
  const std::size_t left = incoming.message_bytes - incoming.offset;
  const bool fits = last ? bytes == left : bytes < left;
  if (!fits) return Verdict::nonsense;
  if (!names_memory(queue_pair, incoming.message_bytes)) return Verdict::good;
  const Access access = access_of(queue_pair, incoming.tag, bytes, Right::remote_write, cell.packet_sequence);
  const ProtectionEntry* same = incoming.remembered.current();
  const auto placement = same != nullptr ? Placement{same, incoming.memory, incoming.memory_offset + incoming.offset}
                                         : context_.table.check_remote(access, incoming.address + incoming.offset);
  if (!placement) return refused(placement.error(), ProtectedUse::write);
  if (placement->entry->touch != TouchControl::unlimited) {
    const SegmentPosition position{last, cell.packet_sequence, cell.packet_sequence + 1, 1};
    if (placement->entry->touch == TouchControl::one_shot) {
      const Stag before = std::exchange(queue_pair.taken, last ? Stag{} : incoming.tag);
      if (before != incoming.tag) context_.table.end_taken(before, queue_pair.number);  // that write is lost
    }
    if (context_.table.touch(access, position) == TouchAction::invalidate_and_terminate) {
      return refused(ProtectionError::touched_twice, ProtectedUse::write);
    }
  }
  if (store_placement(*placement, received.payload)) return Verdict::good;
  report_gone(context_, queue_pair.number, incoming.tag);
  return refused(ProtectionError::memory_is_gone, ProtectedUse::write);
}

/// The requester applies a refusal to the newest copy of the message, which may lie behind the refused one in the lane,
/// and be taken.
void Responder::doubt_consumption(QueuePair& queue_pair, std::optional<std::uint32_t> psn) {
  if (!queue_pair.options.acknowledged || queue_pair.taking == Taking::refusing) return;
  const bool connected = queue_pair.rules().connected;
  const std::uint32_t last = psn.value_or(queue_pair.expected_psn + 2 * kPacketsUnderWay);
  const std::int32_t ahead = sequence_distance(last, queue_pair.expected_psn);
  if (psn && ahead >= kPacketsUnderWay) return;   // the peer can't mean any of its requests
  if (!connected && (!psn || ahead < 0)) return;  // nothing was taken yet
  const bool beyond = queue_pair.taking == Taking::usual || sequence_distance(last, queue_pair.doubted_to) > 0;
  if (beyond) queue_pair.doubted_to = last;
  queue_pair.taking = Taking::doubted;
  if (connected && (ahead < 0 || !psn)) schedule_acknowledgement(queue_pair, Syndrome::ok, queue_pair.expected_psn - 1);
}

void Responder::finish(QueuePair& queue_pair, const Cell& cell) {
  const Reassembly& incoming = queue_pair.incoming;
  const OpcodeTraits& what = traits(cell.opcode);
  if (incoming.kind == MessageKind::send || what.immediate) {
    const auto say = [&](Completion& completion) {
      const bool is_send = incoming.kind == MessageKind::send;
      completion.operation = is_send ? Operation::send : Operation::rdma_write_with_immediate;
      completion.has_immediate = what.immediate;
      completion.immediate = what.immediate ? cell.immediate : 0;
      completion.bytes = is_send ? incoming.offset : incoming.message_bytes;
      completion.solicited = cell.solicited;
      completion.has_invalidated = what.invalidate;
      completion.tag = what.invalidate ? cell.invalidate : Stag{};
    };
    if (uses_standing_receive(queue_pair, what)) {
      CompletionQueue& completions = *queue_pair.receive_cq;
      completions.reserve(1);
      complete_standing_receive(context_, completions, queue_pair, say);
    } else {
      complete_receive(context_, queue_pair, say);
    }
  }
  queue_pair.incoming = Reassembly{};
  queue_pair.silent = false;  // the lost cell may have come late, without a First cell before it
  // An answer acknowledges its request: reads and atomics are owed nothing else.
  const bool answered = what.is(MessageKind::read_request) || what.is(MessageKind::atomic);
  if (queue_pair.options.acknowledged && !answered) {
    schedule_acknowledgement(queue_pair, Syndrome::ok, queue_pair.expected_psn);
    // Where the consumption of this cell acknowledges the message, no answer is sent: neither this one, nor one that
    // was still to be sent and asked the peer to send this packet again.
    if (cell.awaited && queue_pair.taking == Taking::usual) queue_pair.acknowledgement.wanted = false;
  }
  ++queue_pair.expected_psn;
  pass_early(queue_pair);
}

void Responder::refuse(QueuePair& queue_pair, Verdict why, const ReceivedCell& received) {
  queue_pair.incoming = Reassembly{};
  if (why == Verdict::refused) ++context_.counters.access_refused;
  if (why == Verdict::refused && error_ == ProtectionError::touched_twice) ++context_.counters.touched_twice;
  if (why == Verdict::damaged) ++context_.counters.dropped_bad_cell;
  if (!queue_pair.options.acknowledged) return refuse_unacknowledged(queue_pair, why);
  const auto for_good = [&](Syndrome syndrome, TerminateReason reason) {
    refuse_for_good(queue_pair, syndrome, reason, received.cell, received.payload.size());
  };
  switch (why) {
    case Verdict::good:
      return;
    case Verdict::not_ready:
    case Verdict::damaged:
      schedule_acknowledgement(queue_pair,
                               why == Verdict::damaged ? Syndrome::sequence_error : Syndrome::receiver_not_ready,
                               queue_pair.expected_psn);
      queue_pair.silent = true;
      return;
    case Verdict::refused:
      return for_good(refused_as(error_, use_) == RefusedAs::remote_access_error ? Syndrome::remote_access_error
                                                                                 : Syndrome::remote_operation_error,
                      reason_of(error_, use_));
    case Verdict::nonsense:
      return for_good(Syndrome::remote_operation_error, kUnspecifiedOperationError);
    case Verdict::unknown_receives:
      return for_good(Syndrome::remote_operation_error, kInvalidQueueNumber);
    case Verdict::too_long:
    case Verdict::receive_is_void: {
      const bool too_long = why == Verdict::too_long;
      complete_receive(context_, queue_pair, [&](Completion& completion) {
        completion.status = too_long ? CompletionStatus::local_length_error : CompletionStatus::local_protection_error;
      });
      return for_good(Syndrome::remote_operation_error, too_long ? kMessageTooLong : kLocalCatastrophe);
    }
    case Verdict::overrun: {
      AsyncEvent event;
      event.kind = AsyncEventKind::completion_queue_overrun;
      event.queue_pair = queue_pair.number;
      event.completions = queue_pair.receive_completions;
      context_.report(event);
      return for_good(Syndrome::remote_operation_error, kLocalCatastrophe);
    }
  }
}

/// The message is dropped; the posted receive stays for the next.
void Responder::refuse_unacknowledged(QueuePair& queue_pair, Verdict why) {
  ++(why == Verdict::not_ready ? context_.counters.dropped_no_receive : context_.counters.dropped_unacknowledged);
  ++queue_pair.expected_psn;
  queue_pair.silent = true;
}

/// Sends the peer one terminate message, and an acknowledgement's syndrome for each message that it still sends. First
/// it answers the peer's earlier requests.
void Responder::refuse_for_good(QueuePair& queue_pair, Syndrome syndrome, TerminateReason reason, const Cell& request,
                                std::size_t payload_bytes) {
  PendingTerminate& terminate = queue_pair.terminate;
  terminate.wanted = true;
  terminate.reason = reason;
  terminate.psn = request.packet_sequence;
  terminate.name(request, payload_bytes);
  queue_pair.acknowledgement = PendingAcknowledgement{false, syndrome, request.packet_sequence};
  if (queue_pair.responses.idle()) {
    fail_queue_pair(context_, queue_pair, CompletionStatus::flushed);
  } else {
    queue_pair.taking = Taking::refusing;
  }
}

bool Responder::push_terminate(QueuePair& queue_pair) {
  PendingTerminate& terminate = queue_pair.terminate;
  Cell cell = addressed_cell(queue_pair, Opcode::terminate, terminate.psn);
  cell.reason = terminate.reason;
  const auto head = std::span(terminate.head).first(terminate.head_bytes);
  if (!send_cell(context_, *queue_pair.path, queue_pair.options.lane, cell, head)) return false;
  terminate.wanted = false;
  ++context_.counters.terminates_sent;
  return true;
}

bool Responder::push_acknowledgement(QueuePair& queue_pair) {
  PendingAcknowledgement& owed = queue_pair.acknowledgement;
  const bool terminates = queue_pair.terminate.wanted && queue_pair.taking != Taking::refusing;
  if ((!terminates && !owed.wanted) || !queue_pair.path->open) return false;
  if (terminates) return push_terminate(queue_pair);
  const ResponseQueue& responses = queue_pair.responses;
  // An acknowledgement of what came after a read would say that its answer was lost.
  const bool would_overtake =
      !responses.idle() && sequence_distance(owed.psn, responses.records[responses.next].psn) >= 0;
  if (would_overtake) return false;
  Cell cell = addressed_cell(queue_pair, Opcode::acknowledge, owed.psn);
  cell.syndrome = owed.syndrome;
  if (owed.syndrome == Syndrome::receiver_not_ready) {
    const auto delay = std::chrono::ceil<std::chrono::microseconds>(queue_pair.times.receiver_not_ready_delay).count();
    constexpr long long kLongest = std::numeric_limits<std::uint32_t>::max();
    cell.delay_microseconds = static_cast<std::uint32_t>(std::clamp<long long>(delay, 0, kLongest));
  }
  if (!send_cell(context_, *queue_pair.path, queue_pair.options.lane, cell)) return false;
  owed.wanted = false;
  const bool covers_doubt = owed.syndrome == Syndrome::ok && sequence_distance(owed.psn, queue_pair.doubted_to) >= 0;
  if (queue_pair.taking == Taking::doubted && covers_doubt) queue_pair.taking = Taking::usual;
  ++context_.counters.acknowledgements_sent;
  if (owed.syndrome == Syndrome::receiver_not_ready) ++context_.counters.not_ready_sent;
  if (owed.syndrome == Syndrome::sequence_error) ++context_.counters.sequence_errors_sent;
  return true;
}

}  // namespace splitnic::fabric
