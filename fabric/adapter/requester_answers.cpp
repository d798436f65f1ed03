#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <tuple>

#include "common/check.h"
#include "common/sequence.h"
#include "fabric/adapter/local_memory.h"
#include "fabric/adapter/requester.h"

namespace splitnic::fabric {
namespace {

constexpr Duration kLongestReceiverNotReadyDelay = std::chrono::seconds(1);
// A path that was never up may take so much longer than an answer: two processes have to make it first.
constexpr int kFirstPathTimes = 4;
// How a request ends whose answer is refused: the peer answered what was not asked, or the memory for it went away.
constexpr CompletionStatus kPeersFault = CompletionStatus::remote_operation_error;
constexpr CompletionStatus kOwnFault = CompletionStatus::local_protection_error;

CompletionStatus failure_of(Syndrome syndrome) {
  return syndrome == Syndrome::remote_access_error ? CompletionStatus::remote_access_error
                                                   : CompletionStatus::remote_operation_error;
}

/// After RFC 5040's and 5041's error types: protection, then untagged buffers (a queue that is none 1, sequence numbers
/// 2 and 3, a message that is longer than its receive 5), then the rest.
CompletionStatus failure_of(TerminateReason reason) {
  const bool untagged = reason.layer == 1 && reason.type == 2;
  if (untagged && (reason.code == 1 || reason.code == 2 || reason.code == 3 || reason.code == 5))
    return CompletionStatus::remote_invalid_request_error;
  if (reason.layer <= 1 && reason.type == 1) {
    return reason.code == 0xff ? CompletionStatus::remote_invalid_request_error : CompletionStatus::remote_access_error;
  }
  return CompletionStatus::remote_operation_error;
}

/// Whether the terminate message refuses a request, rather than an answer or nothing that came.
bool names_request(const CellPayload& refused_head) {
  std::array<std::byte, offsetof(CellHeader, opcode) + 1> start{};
  if (refused_head.size() < start.size()) return false;
  refused_head.copy_out(start);
  const OpcodeTraits& refused = traits(std::to_integer<std::uint8_t>(start.back()));
  return !refused.is(MessageKind::read_response) && !refused.is(MessageKind::atomic_response);
}

/// Whether the peer refuses a read that it has acknowledged already, together with what came after it: the answer got
/// lost, and the memory went before it was asked for again.
bool refuses_answer(const QueuePair& queue_pair, std::uint32_t psn) {
  const SendQueue& send = queue_pair.send;
  if (send.done == send.sent || sequence_distance(psn, send.acknowledged_psn) >= 0) return false;
  const SendEntry& oldest = send.entries[send.done];
  return is_answered(oldest.request.operation) && !oldest.answered && oldest.psn == psn;
}

}  // namespace

/// Ends the oldest messages whose consumption acknowledges them.
void Requester::complete_consumed(QueuePair& queue_pair, CompletionQueue& completions, std::uint64_t refused_to,
                                  std::uint64_t settled) {
  SendQueue& send = queue_pair.send;
  const Ring<SendEntry>::Places entries = send.entries.places();
  const bool reserves = completions.reserves();
  const QpNumber number = queue_pair.number;
  CompletionQueue::Row row(completions);
  std::uint64_t done = send.done;
  std::uint32_t psn = 0;
  for (; done != send.sent && row.has_room(); ++done) {
    const SendEntry& entry = entries[done];
    const bool is_message = entry.request.operation <= Operation::rdma_write_with_immediate;
    if (!is_message || entry.settled_at <= refused_to || entry.settled_at > settled) break;
    psn = entry.psn;
    if (entry.request.signalled) [[likely]] {
      Completion& completion = row.next();
      completion = Completion{};
      completion.id = entry.request.id;
      completion.queue_pair = number;
      completion.operation = entry.request.operation;
      completion.tag = entry.tag;
    } else {
      row.release();
    }
    if (!reserves) send.note_completed(done, entry.request.signalled ? row.pushed() : 0);
  }
  if (done == send.done) return;
  row.end(completions);
  send.done = done;
  if (sequence_distance(psn, send.acknowledged_psn) >= 0) send.acknowledged_psn = psn + 1;
}

/// Ends what is acknowledged, by an answer or by its consumption, oldest first. False: one of them is a read or atomic
/// whose answer has not come.
bool Requester::complete_ready(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  const auto lane = static_cast<std::size_t>(queue_pair.options.lane);
  const std::uint64_t settled = queue_pair.path->settled[lane];
  const std::uint64_t refused_to = queue_pair.path->refused_to[lane];
  CompletionQueue* const completions = queue_pair.send_cq;  // null: an XRC target
  if (completions != nullptr && send.sent - send.done > 1) {
    complete_consumed(queue_pair, *completions, refused_to, settled);
  }
  while (send.done != send.sent) {
    const SendEntry& entry = send.entries[send.done];
    if (goes_over_the_wire(entry.request.operation)) {
      const bool consumed = entry.settled_at > refused_to && entry.settled_at <= settled;
      if (!consumed && sequence_distance(entry.psn, send.acknowledged_psn) >= 0) return true;
      if (is_answered(entry.request.operation) && !entry.answered) return false;
      if (sequence_distance(entry.psn, send.acknowledged_psn) >= 0) send.acknowledged_psn = entry.psn + 1;
    }
    complete_send(context_, *completions, queue_pair, CompletionStatus::success);
  }
  return true;
}

/// Every packet before psn is acknowledged. An answer that should have come before is asked for again.
void Requester::complete_acknowledged(QueuePair& queue_pair, std::uint32_t psn) {
  SendQueue& send = queue_pair.send;
  if (sequence_distance(psn, send.acknowledged_psn) > 0) send.acknowledged_psn = psn;
  const std::uint64_t before = send.done;
  const bool answers_came = complete_ready(queue_pair);
  if (send.done != before) progressed(queue_pair);
  if (!answers_came) answer_missed(queue_pair);
}

/// Requests have ended.
void Requester::progressed(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  send.retries_left = queue_pair.times.retry_count;
  send.receiver_not_ready_left = queue_pair.times.receiver_not_ready_retries;
  send.acknowledge_by = kNever;
  send.loss_noticed = false;
  if (send.next < send.done) send.rewind_to(send.done);
}

std::size_t Requester::take_settled(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  if (!queue_pair.rules().connected || !queue_pair.options.acknowledged) return 0;
  const std::uint64_t before = send.done;
  static_cast<void>(complete_ready(queue_pair));
  if (send.done != before) progressed(queue_pair);
  return send.done - before;
}

/// Its consumption does not acknowledge it. It may have been an older copy that was refused; then the peer acknowledges
/// the newer one when it takes that (Responder::doubt_consumption). What comes after it in the queue can't end before
/// it; so it stays until an answer, or a copy that leaves later, or the timeout decides.
void Requester::take_not_taken(QueuePair& queue_pair, std::uint32_t psn) {
  if (SendEntry* entry = queue_pair.send.find_sent(psn)) entry->settled_at = 0;
}

void Requester::take_acknowledgement(QueuePair& queue_pair, const Cell& cell) {
  SendQueue& send = queue_pair.send;
  if (!queue_pair.rules().connected || !queue_pair.options.acknowledged) return;
  // How many packets this answer acknowledges. Numbers wrap: what lies outside the requests in flight is an answer from
  // before a retry, or invented.
  const bool ok = cell.syndrome == Syndrome::ok;
  const std::uint32_t good = cell.packet_sequence - send.acknowledged_psn + (ok ? 1U : 0U);
  const bool possible =
      ok ? good <= send.sent_psn - send.acknowledged_psn : good < send.next_psn - send.acknowledged_psn;
  if (!possible) {
    const bool refusal =
        cell.syndrome == Syndrome::remote_access_error || cell.syndrome == Syndrome::remote_operation_error;
    if (refusal && refuses_answer(queue_pair, cell.packet_sequence))
      fail_queue_pair(context_, queue_pair, failure_of(cell.syndrome));
    return;
  }
  if (ok && answer_is_lost(queue_pair, cell.packet_sequence)) return;
  if (ok && good == 0) return awaits_turn(queue_pair);
  const bool went_back = send.next == send.done && send.next_cell == 0;
  const std::uint64_t before = send.done;
  complete_acknowledged(queue_pair, send.acknowledged_psn + good);
  if (!queue_pair.rules().connected) return;  // that was one loss too many
  // What it is about has not left since the last such answer: a link may repeat cells.
  const bool is_again = cell.syndrome == Syndrome::sequence_error || cell.syndrome == Syndrome::receiver_not_ready;
  if (is_again && went_back && send.done == before) {
    ++context_.counters.dropped_duplicate;
    return;
  }
  switch (cell.syndrome) {
    case Syndrome::ok:
      return;
    case Syndrome::sequence_error:
      ++context_.counters.sequence_errors_received;
      return mend(queue_pair);
    case Syndrome::receiver_not_ready: {
      ++context_.counters.not_ready_received;
      if (send.receiver_not_ready_left == 0) {
        return fail_queue_pair(context_, queue_pair, CompletionStatus::receiver_not_ready);
      }
      if (send.receiver_not_ready_left != QueuePairSettings::kWithoutEnd) --send.receiver_not_ready_left;
      const Duration asked = std::chrono::microseconds(cell.delay_microseconds);
      send.hold_until = context_.now + std::min(asked, kLongestReceiverNotReadyDelay);
      send.acknowledge_by = kNever;
      queue_pair.answer = AnswerReassembly{};
      return send.rewind_to(send.done);
    }
    case Syndrome::remote_access_error:
    case Syndrome::remote_operation_error:
      return refused(queue_pair, failure_of(cell.syndrome));
  }
}

/// The first packet that is not acknowledged is refused for good. What comes before it was done, but an answer that
/// has not come by now will not.
void Requester::end_before_refusal(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  while (send.done != send.sent) {
    const SendEntry& entry = send.entries[send.done];
    const bool carried_out = !goes_over_the_wire(entry.request.operation);
    if (!carried_out && sequence_distance(entry.psn, send.acknowledged_psn) >= 0) break;
    const bool known = carried_out || !is_answered(entry.request.operation) || entry.answered;
    complete_send(context_, queue_pair, known ? CompletionStatus::success : CompletionStatus::outcome_unknown);
  }
}

void Requester::refused(QueuePair& queue_pair, CompletionStatus status) {
  end_before_refusal(queue_pair);
  fail_queue_pair(context_, queue_pair, status);
}

void Requester::take_terminate(QueuePair& queue_pair, const ReceivedCell& received) {
  const Cell& cell = received.cell;
  SendQueue& send = queue_pair.send;
  if (!queue_pair.rules().connected || !queue_pair.options.acknowledged) return;
  const bool of_a_request = names_request(received.payload);
  const std::uint32_t good = cell.packet_sequence - send.acknowledged_psn;
  const bool of_an_answer = of_a_request && refuses_answer(queue_pair, cell.packet_sequence);
  if (of_a_request && !of_an_answer && good >= send.next_psn - send.acknowledged_psn) return;
  queue_pair.terminate.reason = cell.reason;
  queue_pair.terminated_by_peer = true;
  if (!of_a_request) return void_queue_pair(context_, queue_pair);
  if (of_an_answer) return fail_queue_pair(context_, queue_pair, failure_of(cell.reason));
  complete_acknowledged(queue_pair, cell.packet_sequence);
  refused(queue_pair, failure_of(cell.reason));
}

/// Injected: the answer to the request with this number does not come.
bool Requester::answer_is_lost(const QueuePair& queue_pair, std::uint32_t psn) const {
  if (context_.options.faults == nullptr) return false;
  const SendQueue& send = queue_pair.send;
  for (std::uint64_t position = send.done; position != send.sent; ++position) {
    const SendEntry& entry = send.entries[position];
    if (goes_over_the_wire(entry.request.operation) && entry.psn == psn) return entry.answer_lost;
  }
  return false;
}

/// The peer has acknowledged nothing new. So it says that it has the read or atomic that was sent again, and will
/// answer it when others have had their turn.
void Requester::awaits_turn(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  if (send.done == send.sent || !is_answered(send.entries[send.done].request.operation)) return;
  send.retries_left = queue_pair.times.retry_count;
  send.acknowledge_by = kNever;
  send.awaits_turn = true;
}

SendEntry* Requester::unanswered(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  for (send.answered_to = std::max(send.answered_to, send.done); send.answered_to != send.sent; ++send.answered_to) {
    SendEntry& entry = send.entries[send.answered_to];
    if (is_answered(entry.request.operation) && !entry.answered) return &entry;
  }
  return nullptr;
}

/// The request that the cell can be an answer to: the oldest one that awaits its.
SendEntry* Requester::answered_by(QueuePair& queue_pair, const Cell& cell, bool read) {
  if (!queue_pair.rules().connected) return nullptr;
  if (SendEntry* entry = unanswered(queue_pair)) {
    const std::int32_t ahead = sequence_distance(cell.packet_sequence, entry->psn);
    if (ahead == 0 && read == (entry->request.operation == Operation::rdma_read)) return entry;
    if (ahead > 0 && sequence_distance(cell.packet_sequence, queue_pair.send.sent_psn) < 0) answer_missed(queue_pair);
  }
  ++context_.counters.dropped_duplicate;
  return nullptr;
}

/// An answer, or a part of one, was lost on the way: noticed once, after that it is the timeout's, unless the answer
/// begins again.
void Requester::answer_missed(QueuePair& queue_pair) {
  if (queue_pair.path->lossless) queue_pair.answer = AnswerReassembly{};
  if (queue_pair.send.loss_noticed) return;
  queue_pair.send.loss_noticed = true;
  mend(queue_pair);
}

void Requester::answered(QueuePair& queue_pair, SendEntry& entry) {
  entry.answered = true;
  --queue_pair.send.unanswered;
  queue_pair.answer = AnswerReassembly{};
  // An answer acknowledges its request and all before it.
  complete_acknowledged(queue_pair, entry.psn + 1);
}

void Requester::take_read_response(QueuePair& queue_pair, const ReceivedCell& received) {
  const Cell& cell = received.cell;
  SendEntry* entry = answered_by(queue_pair, cell, true);
  if (entry == nullptr || entry->answer_lost) return;
  const OpcodeTraits& what = traits(cell.opcode);
  AnswerReassembly& answer = queue_pair.answer;
  // An answer that was asked for again goes on where it broke off, as a message does: see Responder::keeps_cells.
  const bool goes_on = !queue_pair.path->lossless && answer.active && !what.last;
  if (what.first && !goes_on) {
    answer = AnswerReassembly{.active = true};
  } else if (!answer.active || cell.cell_sequence != answer.next_cell) {
    const bool copy = answer.active && cell.cell_sequence < answer.next_cell;
    ++(copy ? context_.counters.dropped_duplicate : context_.counters.dropped_out_of_sequence);
    if (copy && what.first) queue_pair.send.loss_noticed = false;
    if (!copy) answer_missed(queue_pair);
    return;
  }
  ++answer.next_cell;
  if (cell.direct) {
    if (!entry->direct_sink)
      return refuse_answer(queue_pair, *entry, received, ProtectionError::invalid_stag, kPeersFault);
    const auto refusal = sink_refusal(queue_pair, *entry, entry->psn);
    if (refusal) {
      return refuse_answer(queue_pair, *entry, received, *refusal, kOwnFault);
    }
    return answered(queue_pair, *entry);
  }
  const std::size_t left = entry->bytes - answer.offset;
  const std::size_t here = received.payload.size();
  const bool fits = what.last ? here == left : here < left;
  if (!fits) return refuse_answer(queue_pair, *entry, received, ProtectionError::base_or_bounds_violation, kPeersFault);
  if (queue_pair.path->corrupts && !packet_is_whole(answer.packet_crc, received)) {
    ++context_.counters.dropped_bad_cell;
    answer = AnswerReassembly{};
    return answer_missed(queue_pair);
  }
  if (const auto refusal = place_answer(queue_pair, *entry, received.payload, what.last)) {
    return refuse_answer(queue_pair, *entry, received, *refusal, kOwnFault);
  }
  queue_pair.send.acknowledge_by = kNever;  // it is coming
  queue_pair.send.retries_left = queue_pair.times.retry_count;
  if (what.last) answered(queue_pair, *entry);
}

void Requester::take_atomic_response(QueuePair& queue_pair, const ReceivedCell& received) {
  const Cell& cell = received.cell;
  SendEntry* entry = answered_by(queue_pair, cell, false);
  if (entry == nullptr || entry->answer_lost) return;
  queue_pair.answer = AnswerReassembly{.active = true};
  std::array<std::byte, kAtomicBytes> result;
  std::memcpy(result.data(), &cell.original, result.size());
  const CellPayload payload(PeerMemory::over(result.data(), result.size()));
  if (const auto refusal = place_answer(queue_pair, *entry, payload, true)) {
    return refuse_answer(queue_pair, *entry, received, *refusal, kOwnFault);
  }
  answered(queue_pair, *entry);
}

/// Why the memory that an answer is for can't take it any more, if so.
std::optional<ProtectionError> Requester::sink_refusal(const QueuePair& queue_pair, const SendEntry& entry,
                                                       std::uint32_t psn) const {
  for (const LocalSegment& segment : std::span(entry.request.segments).first(entry.request.segment_count)) {
    const auto placement = check_sink(context_, queue_pair.consumer(), segment, 0, segment.bytes, psn);
    if (!placement) return placement.error();
  }
  return std::nullopt;
}

/// Into the request's segments.
std::optional<ProtectionError> Requester::place_answer(QueuePair& queue_pair, SendEntry& entry,
                                                       const CellPayload& payload, bool last) {
  AnswerReassembly& answer = queue_pair.answer;
  const auto segments = std::span(entry.request.segments).first(entry.request.segment_count);
  const auto size = static_cast<std::uint32_t>(payload.size());
  std::uint32_t taken = 0;
  std::optional<ProtectionError> refusal;
  const bool placed = for_parts(segments, answer.offset, size,
                                [&](const LocalSegment& segment, std::uint32_t offset, std::uint32_t part) {
                                  const CellPayload here = payload.slice(taken, part);
                                  taken += part;
                                  refusal = place_part(queue_pair, entry, segment, offset, here, last && taken == size);
                                  return !refusal;
                                });
  if (placed) answer.offset += size;
  return refusal;
}

std::optional<ProtectionError> Requester::place_part(QueuePair& queue_pair, const SendEntry& entry,
                                                     const LocalSegment& segment, std::uint32_t offset,
                                                     const CellPayload& payload, bool last) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  const auto placement = check_sink(context_, queue_pair.consumer(), segment, offset, size, entry.psn);
  if (!placement) return placement.error();
  if (placement->entry->touch != TouchControl::unlimited) {
    Access access;
    access.tag = segment.tag;
    access.domain = queue_pair.options.domain;
    access.queue_pair = queue_pair.number;
    access.sequence = entry.psn;
    access.by = AccessBy::answer;
    const TouchAction action = context_.table.touch(access, {last, entry.psn, entry.psn + 1, 1});
    if (action == TouchAction::invalidate_and_terminate) return ProtectionError::touched_twice;
  }
  if (store_placement(*placement, payload)) return std::nullopt;
  report_gone(context_, queue_pair.number, segment.tag);
  return ProtectionError::memory_is_gone;
}

/// An answer can't be taken: ends the request with `status`, and sends the peer one terminate message.
void Requester::refuse_answer(QueuePair& queue_pair, const SendEntry& entry, const ReceivedCell& received,
                              ProtectionError error, CompletionStatus status) {
  // Those before it may not have ended, but the peer has answered them all.
  complete_acknowledged(queue_pair, entry.psn);
  if (!queue_pair.rules().connected) return;
  end_before_refusal(queue_pair);
  const TerminateCode code = terminate_code(error, ProtectedUse::read_response);
  end_stream(context_, queue_pair, {code.layer, code.type, code.code}, status, &received);
}

/// Goes back to the oldest message that is not acknowledged.
void Requester::retry(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  if (send.retries_left == 0) return fail_queue_pair(context_, queue_pair, CompletionStatus::retry_exceeded);
  --send.retries_left;
  send.acknowledge_by = kNever;
  if (queue_pair.path->lossless) queue_pair.answer = AnswerReassembly{};
  send.rewind_to(send.done);
}

/// The peer says that a cell is missing, or a part of its answer is. Where a link loses cells, a long message is mended
/// many times within milliseconds, and its peer is well. There an attempt is a time: each ack_timeout in which no
/// request ends is one, however often this end goes back (check_time).
void Requester::mend(QueuePair& queue_pair) {
  if (queue_pair.path->lossless) return retry(queue_pair);
  SendQueue& send = queue_pair.send;
  if (send.acknowledge_by == kNever) send.acknowledge_by = context_.now + queue_pair.times.ack_timeout;
  send.rewind_to(send.done);
}

/// The timeout of the oldest request runs. A message that is mended may never have been on the wire whole.
bool Requester::is_timed(const QueuePair& queue_pair) {
  const SendQueue& send = queue_pair.send;
  if (send.sent != send.done) return true;
  return send.acknowledge_by != kNever && send.done != send.posted && send.entries[send.done].numbered;
}

/// A peer that has said that it will answer is asked for the oldest answer alone: nothing else can be missing there.
/// Not while the answer comes in: the peer would start it anew.
void Requester::ask_again(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  send.awaits_turn = false;
  const std::tuple before(send.next, send.next_offset, send.next_cell, send.packet_crc);
  send.rewind_to(send.done);
  static_cast<void>(send_request_cell(queue_pair, send.entries[send.done]));
  if (!queue_pair.rules().connected) return;
  std::tie(send.next, send.next_offset, send.next_cell, send.packet_crc) = before;
}

/// A request waits for room, to begin or to go on, and none before it waits for an answer.
bool Requester::lacks_room(const QueuePair& queue_pair) const {
  const SendQueue& send = queue_pair.send;
  const Path* path = queue_pair.path;  // of a datagram queue pair: null
  if (send.next == send.posted || send.sent != send.done || path == nullptr || !path->open) return false;
  if (!path->link.wants_room(queue_pair.options.lane)) return false;
  if (send.next_cell != 0) return true;
  const bool may_begin = context_.now >= send.hold_until && queue_pair.sends_on();
  const SendEntry& entry = send.entries[send.next];
  return may_begin && goes_over_the_wire(entry.request.operation) && entry.dma != DmaState::moving;
}

/// The path to the peer is not up yet, and requests wait for it.
bool Requester::waits_for_path(const QueuePair& queue_pair) {
  return queue_pair.path != nullptr && !queue_pair.path->open && queue_pair.send.next != queue_pair.send.posted;
}

/// lacks_room() has held, and the peer has given no room in the lane, also to others, for as long as a request waits
/// for its answer in all; or the path has not come up for so long.
bool Requester::lacked_room_for_long(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  if (!waits_for_path(queue_pair) && !lacks_room(queue_pair)) {
    send.room_by = kNever;
    return false;
  }
  Path& path = *queue_pair.path;
  const VirtualLane lane = queue_pair.options.lane;
  if (send.room_by == kNever || send.room_from != path.room_given(lane)) await_room(queue_pair);
  if (context_.now < send.room_by) return false;
  // This end may not have polled for long, and so not have seen what the peer has given.
  if (path.open) static_cast<void>(path.link.drained(lane));
  if (send.room_from != path.room_given(lane)) await_room(queue_pair);
  return context_.now >= send.room_by;
}

/// Begins the time in which the peer is to give room, or the path to come up.
void Requester::await_room(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  const Duration once = std::max(queue_pair.times.ack_timeout, Duration(1));
  const bool first = waits_for_path(queue_pair) && queue_pair.path->incarnation == 0;
  const Duration::rep attempts = (Duration::rep{queue_pair.times.retry_count} + 1) * (first ? kFirstPathTimes : 1);
  const auto times = std::min<Duration::rep>(attempts, (kNever - context_.now) / once);
  send.room_by = context_.now + once * times;
  send.room_from = queue_pair.path->room_given(queue_pair.options.lane);
}

/// Whether the oldest request, or its answer, may have got lost. Not while the peer has not taken all that lies in the
/// lane, and not while an answer comes in over a link that loses nothing.
bool Requester::may_be_lost(const QueuePair& queue_pair) {
  const SendQueue& send = queue_pair.send;
  Path& path = *queue_pair.path;
  if (path.lossless && queue_pair.answer.active) return false;
  const VirtualLane lane = queue_pair.options.lane;
  if (path.link.drained(lane)) return true;
  // Others keep the lane filled, but the peer has taken this request.
  const bool asks = is_answered(send.entries[send.done].request.operation);
  return asks && send.asked_at != 0 && path.reports_settled && path.link.settled(lane) >= send.asked_at;
}

void Requester::check_time(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  if (!queue_pair.rules().connected) return;
  if (lacked_room_for_long(queue_pair)) {
    return fail_queue_pair(context_, queue_pair, CompletionStatus::retry_exceeded);
  }
  if (send.next != send.posted && send.next == send.sent && send.delay_until == kNever) {
    const SendEntry& entry = send.entries[send.next];
    const bool begins = entry.request.operation == Operation::delay && may_begin(queue_pair, entry);
    if (begins) send.delay_until = context_.now + entry.request.delay;
  }
  if (!is_timed(queue_pair) || context_.now < send.hold_until) return;
  if (send.acknowledge_by == kNever) {
    // Started by the poll after the cell left, not by the post: `now` of a post may be as old as its caller's sleep.
    send.acknowledge_by = context_.now + queue_pair.times.ack_timeout;
    return;
  }
  if (context_.now < send.acknowledge_by) return;
  ++context_.counters.timeouts;
  const bool asks_once = send.awaits_turn && !queue_pair.answer.active && queue_pair.path->lossless &&
                         context_.options.faults == nullptr && is_answered(send.entries[send.done].request.operation);
  // Where it is long, the copy that is just leaving may be what the peer lacks.
  const bool leaves = !queue_pair.path->lossless && send.next == send.done && send.next_cell != 0;
  if (may_be_lost(queue_pair) && !asks_once && !leaves) return retry(queue_pair);
  // The peer is slow. That ends too, but copies of what it has already would not help.
  if (send.retries_left == 0) return fail_queue_pair(context_, queue_pair, CompletionStatus::retry_exceeded);
  --send.retries_left;
  if (asks_once) ask_again(queue_pair);
  send.acknowledge_by = context_.now + queue_pair.times.ack_timeout;
}

Time Requester::next_deadline(const QueuePair& queue_pair) const {
  const SendQueue& send = queue_pair.send;
  if (!queue_pair.rules().connected || send.done == send.posted) return kNever;
  if (context_.now < send.hold_until) return send.hold_until;
  const auto from_now = [&](Time by) { return by == kNever ? context_.now + queue_pair.times.ack_timeout : by; };
  Time deadline = kNever;
  if (is_timed(queue_pair)) deadline = from_now(send.acknowledge_by);
  if (waits_for_path(queue_pair) || lacks_room(queue_pair)) deadline = std::min(deadline, from_now(send.room_by));
  if (waits_for_path(queue_pair)) return deadline;
  if (send.next == send.posted || !queue_pair.sends_on()) return deadline;
  const SendEntry& entry = send.entries[send.next];
  if (entry.request.operation == Operation::delay && send.delay_until != kNever) {
    return std::min(deadline, std::max(send.delay_until, context_.now));
  }
  // A full lane is the link's to wake for; what else is left waits for a budget.
  const bool waits = queue_pair.path->link.wants_room(queue_pair.options.lane) || waits_for_others(queue_pair);
  return waits ? deadline : context_.now;
}

/// The request at `next` waits for answers to those before it.
bool Requester::waits_for_others(const QueuePair& queue_pair) const {
  const SendQueue& send = queue_pair.send;
  const SendEntry& entry = send.entries[send.next];
  if (!may_begin(queue_pair, entry)) return true;
  return (entry.failure != CompletionStatus::success || send.awaits_earlier) && send.done != send.next;
}

Time Requester::waits_until(const QueuePair& queue_pair) const {
  const SendQueue& send = queue_pair.send;
  const Path* path = queue_pair.path;
  if (queue_pair.options.datagram || path == nullptr || !path->open || !queue_pair.rules().connected ||
      queue_pair.owes_answers()) {
    return QueuePairTurn::kStays;
  }
  // What the peer settles must find the queue pair.
  const VirtualLane lane = queue_pair.options.lane;
  if (path->reports_settled && !path->awaited[static_cast<std::size_t>(lane)].kept()) return QueuePairTurn::kStays;
  if (send.done == send.posted) return kNever;  // but the peer's message, which is partly in
  if (context_.now < send.hold_until) return send.hold_until;
  const bool timer_runs = send.sent == send.done || send.acknowledge_by != kNever;
  if (send.next == send.posted) return timer_runs ? send.acknowledge_by : QueuePairTurn::kStays;
  const bool waits = send.delay_until != kNever || (!path->link.wants_room(lane) && waits_for_others(queue_pair));
  if (!timer_runs || (queue_pair.sends_on() && !waits)) return QueuePairTurn::kStays;
  return next_deadline(queue_pair);
}

}  // namespace splitnic::fabric
