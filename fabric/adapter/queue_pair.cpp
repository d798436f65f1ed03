#include "fabric/adapter/queue_pair.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "common/check.h"
#include "fabric/adapter/context.h"
#include "fabric/adapter/placer.h"

namespace splitnic::fabric {
namespace {

/// The stream will not catch up with what was placed early: the entries end now.
void end_early_writes(AdapterContext& context, QueuePair& queue_pair) {
  for (std::uint32_t i = 1; i < EarlyWrites::kWindow; ++i) {
    const std::uint32_t psn = queue_pair.expected_psn + i;
    context.table.catch_up(std::exchange(queue_pair.early.at(psn), Stag{}), psn + 1);
  }
}

void flush_receives(AdapterContext& context, QueuePair& queue_pair) {
  end_early_writes(context, queue_pair);
  queue_pair.incoming = Reassembly{};
  while (!queue_pair.receive.empty()) {
    complete_receive(context, queue_pair,
                     [](Completion& completion) { completion.status = CompletionStatus::flushed; });
  }
}

void flush_sends(AdapterContext& context, QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  context.transfers.stop_pulls(queue_pair.number);
  while (send.done != send.posted) complete_send(context, queue_pair, CompletionStatus::flushed);
  send.rewind_to(send.done);
  send.sent = send.answered_to = send.drain_to = send.done;
  send.acknowledged_psn = send.sent_psn = send.next_psn;
  send.unanswered = 0;
  send.asked_at = 0;
  send.loss_noticed = send.awaits_turn = false;
  send.acknowledge_by = send.delay_until = send.room_by = send.drop_at = kNever;
  send.hold_until = Time::min();
  queue_pair.answer = AnswerReassembly{};
}

/// One-shot entries end with the queue pair whose operation has taken them: a read that was answered, a write or an
/// answer that is partly in. A later stream could repeat the packet's number, and would pass for that operation.
void end_taken_entries(AdapterContext& context, QueuePair& queue_pair) {
  const auto end = [&](Stag tag) { context.table.end_taken(tag, queue_pair.number); };
  ResponseQueue& responses = queue_pair.responses;
  for (std::uint64_t kept = responses.oldest_kept(); kept != responses.taken; ++kept) end(responses.records[kept].tag);
  end(std::exchange(queue_pair.taken, Stag{}));
  const SendQueue& send = queue_pair.send;
  for (std::uint64_t position = send.done; position < send.sent; ++position) {
    const WorkRequest& request = send.entries[position].request;
    if (!is_answered(request.operation)) continue;
    for (const LocalSegment& sink : std::span(request.segments).first(request.segment_count)) end(sink.tag);
  }
}

/// What the peer still waits for is not answered. Before the sends are flushed.
void drop_responses(AdapterContext& context, QueuePair& queue_pair) {
  end_taken_entries(context, queue_pair);
  queue_pair.responses.restart_at(queue_pair.responses.taken);
  queue_pair.responses.asked_again = false;
  queue_pair.taking = Taking::usual;
  queue_pair.draining = false;
}

void enter_error(AdapterContext& context, QueuePair& queue_pair) {
  const bool was_connected = queue_pair.rules().connected;
  queue_pair.state = queue_pair_move(queue_pair.state, QueuePairEvent::fail).to;
  publish_connection(context, queue_pair);
  drop_responses(context, queue_pair);
  if (!was_connected) return;
  AsyncEvent event;
  event.kind = AsyncEventKind::queue_pair_fatal;
  event.queue_pair = queue_pair.number;
  event.reason = queue_pair.terminate.reason;
  event.from_peer = queue_pair.terminated_by_peer;
  context.report(event);
}

/// The completions of a queue pair that wait there are dropped. The other send queues keep no more places than they
/// had.
void forget_completions(AdapterContext& context, CqNumber number, QpNumber queue_pair) {
  CompletionQueue* queue = context.completion_queue(number);
  if (queue == nullptr) return;
  const std::vector<std::uint64_t> dropped = queue->forget(queue_pair);
  if (dropped.empty() || queue->reserves()) return;
  for (const auto& other : context.queue_pair_slots) {
    if (other != nullptr && other->options.send_completions == number) other->send.follow_completions(dropped);
  }
}

void fail_and_flush_sends(AdapterContext& context, QueuePair& queue_pair, CompletionStatus first) {
  const bool failed = first != CompletionStatus::flushed && queue_pair.send.done != queue_pair.send.posted;
  if (failed) complete_send(context, queue_pair, first);
  flush_sends(context, queue_pair);
}

}  // namespace

bool ReceiveQueue::resize(std::size_t requests) {
  if (posted - taken > requests) return false;
  Ring<ReceiveEntry> larger(requests);
  for (std::uint64_t position = taken; position != posted; ++position) larger[position].take(entries[position]);
  entries = std::move(larger);
  depth = requests;
  return true;
}

void AdapterContext::lose_completion(CompletionQueue& queue) {
  ++counters.dropped_completions;
  if (!queue.fail()) return;
  overrun = true;
  AsyncEvent event;
  event.kind = AsyncEventKind::completion_queue_overrun;
  event.completions = queue.number();
  report(event);
}

Path* AdapterContext::only_path() {
  const auto attached = [](const auto& path) { return path != nullptr; };
  const auto only = std::find_if(paths.begin(), paths.end(), attached);
  if (only == paths.end() || std::any_of(only + 1, paths.end(), attached)) return nullptr;
  return only->get();
}

void join_path(QueuePair& queue_pair, Path& path, const QueuePairPeer& peer) {
  leave_path(queue_pair);
  queue_pair.peer = peer;
  queue_pair.path = &path;
  path.by_peer.emplace(peer.number.value, &queue_pair);
}

void leave_path(QueuePair& queue_pair) {
  if (queue_pair.path != nullptr) {
    auto& by_peer = queue_pair.path->by_peer;
    const auto [first, last] = by_peer.equal_range(queue_pair.peer.number.value);
    by_peer.erase(std::find_if(first, last, [&](const auto& each) { return each.second == &queue_pair; }));
  }
  queue_pair.peer = QueuePairPeer{};
  queue_pair.path = nullptr;
}

bool fits_packet(std::uint32_t bytes, const QueuePair& queue_pair) {
  constexpr std::uint64_t kCellsPerPacket = std::numeric_limits<std::uint16_t>::max();
  return bytes <= kCellsPerPacket * queue_pair.path->cell_payload(queue_pair.options.lane);
}

bool cells_have_landed(QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  if (queue_pair.options.acknowledged) return send.cells_are_done();
  if (send.cells_to != 0 && queue_pair.path->link.drained(queue_pair.options.lane)) send.cells_to = 0;
  return send.cells_to == 0;
}

Cell addressed_cell(const QueuePair& queue_pair, Opcode opcode, std::uint32_t psn) {
  Cell cell;
  cell.opcode = opcode;
  cell.destination_queue_pair = queue_pair.peer.number;
  cell.source_queue_pair = queue_pair.number;
  cell.packet_sequence = psn;
  return cell;
}

std::uint64_t release_cell(AdapterContext& context, Path& path, VirtualLane lane, const Cell& cell,
                           std::size_t payload_bytes, std::uint32_t& packet_crc) {
  ++context.counters.cells_sent;
  context.counters.bytes_sent += payload_bytes;
  context.turns.attend(path);
  return path.released[static_cast<std::size_t>(lane)] = path.link.release(lane, cell, packet_crc);
}

bool send_cell(AdapterContext& context, Path& path, VirtualLane lane, const Cell& cell,
               std::span<const std::byte> payload) {
  ClaimedPayload to;
  if (!path.claim(lane, cell, payload.size(), to)) return false;
  to.put(payload);
  std::uint32_t packet_crc = kPacketCrcStart;
  static_cast<void>(release_cell(context, path, lane, cell, payload.size(), packet_crc));
  return true;
}

void fail_queue_pair(AdapterContext& context, QueuePair& queue_pair, CompletionStatus first) {
  if (first == CompletionStatus::retry_exceeded) ++context.counters.retries_exceeded;
  if (first == CompletionStatus::receiver_not_ready) ++context.counters.not_ready_exceeded;
  enter_error(context, queue_pair);
  fail_and_flush_sends(context, queue_pair, first);
  flush_receives(context, queue_pair);
}

void flush_posted_sends(AdapterContext& context, QueuePair& queue_pair) { flush_sends(context, queue_pair); }

void flush_posted_receives(AdapterContext& context, QueuePair& queue_pair) { flush_receives(context, queue_pair); }

void flush_queue_pair(AdapterContext& context, QueuePair& queue_pair) {
  queue_pair.state = queue_pair_move(queue_pair.state, QueuePairEvent::fail).to;
  publish_connection(context, queue_pair);
  context.transfers.disown(queue_pair.number);
  drop_responses(context, queue_pair);
  flush_sends(context, queue_pair);
  flush_receives(context, queue_pair);
}

void fail_sends(AdapterContext& context, QueuePair& queue_pair, CompletionStatus first) {
  const QueuePairMove& move = queue_pair_move(queue_pair.state, QueuePairEvent::fail_sends);
  SPLITNIC_CHECK(move.legal);
  queue_pair.state = move.to;
  queue_pair.draining = false;
  fail_and_flush_sends(context, queue_pair, first);
}

void void_queue_pair(AdapterContext& context, QueuePair& queue_pair) {
  enter_error(context, queue_pair);
  for (std::uint64_t unknown = queue_pair.send.started(); unknown > 0; --unknown) {
    complete_send(context, queue_pair, CompletionStatus::outcome_unknown);
  }
  flush_sends(context, queue_pair);
  flush_receives(context, queue_pair);
  queue_pair.acknowledgement = PendingAcknowledgement{};
  queue_pair.terminate.wanted = false;
}

void leave_receives(QueuePair& queue_pair) {
  ReceiveQueue& receive = queue_pair.receive;
  for (; !receive.empty(); ++receive.taken) queue_pair.receive_cq->release();
  receive.region = RememberedRegion{};
  queue_pair.incoming = Reassembly{};
  queue_pair.shared_receives = SrqNumber{};
  queue_pair.receive_completions = CqNumber{};
  queue_pair.receive_cq = nullptr;
}

void reset_queue_pair(AdapterContext& context, QueuePair& queue_pair) {
  SendQueue& send = queue_pair.send;
  context.transfers.disown(queue_pair.number);
  drop_responses(context, queue_pair);
  for (; send.done != send.posted; ++send.done) {
    queue_pair.send_cq->release();
  }
  ReceiveQueue& receive = queue_pair.receive;
  for (; !receive.empty(); ++receive.taken) {
    queue_pair.receive_cq->release();
  }
  flush_sends(context, queue_pair);
  if (queue_pair.options.verbs_rules) {
    for (const CqNumber number : {queue_pair.options.send_completions, queue_pair.receive_completions}) {
      forget_completions(context, number, queue_pair.number);
    }
    std::ranges::fill(send.completed, 0);
  }
  queue_pair.responses.taken = queue_pair.responses.next = queue_pair.responses.answered = 0;
  send.message_sequence = 0;
  queue_pair.state = QueuePairState::reset;
  publish_connection(context, queue_pair);
  leave_path(queue_pair);
  queue_pair.incoming = Reassembly{};
  end_early_writes(context, queue_pair);
  queue_pair.silent = false;
  queue_pair.acknowledgement = PendingAcknowledgement{};
  queue_pair.terminate = PendingTerminate{};
  queue_pair.terminated_by_peer = false;
}

}  // namespace splitnic::fabric
