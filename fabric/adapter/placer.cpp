#include "fabric/adapter/placer.h"

#include <algorithm>

#include "fabric/adapter/local_memory.h"
#include "fabric/adapter/request_check.h"

namespace splitnic::fabric {
namespace {

// A shorter request that would have to wait for others goes in cells at once.
constexpr std::uint64_t kWorthWaiting = 4096;

bool is_connected_channel(const QueuePairAttributes& options) {
  return !options.datagram && options.xrc == XrcRole::none;
}

PlacementTarget target_of(const QueuePair& queue_pair, const WorkRequest& request, std::uint64_t bytes) {
  return {queue_pair.path->number, queue_pair.number, queue_pair.peer.number, request.remote, bytes};
}

}  // namespace

bool Placer::serves(const QueuePair& queue_pair) const {
  return context_.options.faults == nullptr && is_connected_channel(queue_pair.options) &&
         queue_pair.rules().begin_sends && queue_pair.path->open;
}

std::size_t Placer::post_all(QueuePair& queue_pair, std::span<const WorkRequest> requests) {
  SendQueue& send = queue_pair.send;
  if (send.done != send.posted || !serves(queue_pair)) return 0;
  if (!cells_have_landed(queue_pair)) return 0;
  CompletionQueue& completions = *queue_pair.send_cq;
  std::size_t posted = 0;
  for (; posted != requests.size(); ++posted) {
    const WorkRequest& request = requests[posted];
    Pieces pieces;
    if (!may_be_placed(request)) break;
    if (is_answered(request.operation) && !takes_answers(queue_pair)) break;
    if (!find_piece(queue_pair, request, pieces) && !find_pieces(queue_pair, request, pieces)) break;
    if (completions.room() == 0 || !send.has_place(send.posted, completions.taken_out())) break;
    if (pieces.bytes > context_.to_place || !move(queue_pair, request, pieces)) break;
    count(request.operation);
    end_at_post(context_, queue_pair, request, is_answered(request.operation) ? pieces.bytes : 0);
  }
  return posted;
}

/// Of a request that may be placed: it will be, but is longer than what this turn may still place.
bool Placer::exceeds_turn(const QueuePair& queue_pair, const WorkRequest& request) const {
  const std::uint64_t bytes = message_bytes(request);
  return bytes > context_.to_place && bytes <= Placements::kMostBytes && serves(queue_pair) &&
         context_.options.placements->offers(target_of(queue_pair, request, bytes));
}

Placer::Turn Placer::turn(QueuePair& queue_pair, SendEntry& entry) {
  const Turn turn = take_turn(queue_pair, entry);
  // A request whose parts can't be placed any more begins again: the peer then says what is wrong with it.
  SendQueue& send = queue_pair.send;
  if (turn == Turn::general && send.next_cell == 0) send.next_offset = 0;
  return turn;
}

Placer::Turn Placer::take_turn(QueuePair& queue_pair, SendEntry& entry) {
  SendQueue& send = queue_pair.send;
  const WorkRequest& request = entry.request;
  if (entry.numbered || entry.direct || send.next_cell != 0 || send.next < send.sent) return Turn::general;
  if (entry.dma != DmaState::none) return Turn::general;  // an engine has begun
  if (!may_be_placed(request) || !serves(queue_pair)) return Turn::general;
  if (send.done != send.next) {
    return is_worth_waiting(context_, queue_pair, request, entry.bytes) ? Turn::wait : Turn::general;
  }
  if (!cells_have_landed(queue_pair)) return Turn::general;  // without acknowledgements nothing tells when they have
  Pieces pieces;
  if (request.inline_data) {
    pieces.parts[0] = {send.inline_at(send.next).data(), entry.bytes};
    pieces.count = 1;
    pieces.bytes = entry.bytes;
  } else if (!find_pieces(queue_pair, request, pieces)) {
    return Turn::general;
  }
  const std::uint32_t offset = send.next_offset;
  const std::uint64_t left = pieces.bytes - offset;
  if (left > context_.to_place) {
    // The whole must be allowed before a part of it is moved.
    const bool will_be = context_.options.placements->offers(target_of(queue_pair, request, pieces.bytes));
    if (!will_be) return Turn::general;
    if (context_.to_place == 0) return Turn::wait;
    pieces.keep(offset, context_.to_place);
    if (!move(queue_pair, request, pieces, offset)) return Turn::general;
    send.next_offset += static_cast<std::uint32_t>(pieces.bytes);
    return Turn::part;
  }
  pieces.keep(offset, left);
  if (!move(queue_pair, request, pieces, offset)) return Turn::general;
  count(request.operation);
  send.rewind_to(send.next + 1);
  send.sent = send.next;
  complete_send(context_, queue_pair, CompletionStatus::success);
  return Turn::done;
}

/// What most requests have: one segment, of the region that was used last. False: ask find_pieces().
inline bool Placer::find_piece(const QueuePair& queue_pair, const WorkRequest& request, Pieces& pieces) const {
  const LocalSegment& segment = request.segments[0];
  const bool short_enough =
      segment.bytes <= std::min<std::uint64_t>(Placements::kMostBytes, context_.options.max_message_bytes);
  if (request.segment_count != 1 || request.inline_data || segment.bytes == 0 || !short_enough) return false;
  const Right right = request.operation == Operation::rdma_read ? Right::local_write : Right::local_read;
  std::byte* from = queue_pair.send.region.place(segment.tag, segment.as_number(), segment.bytes, right);
  pieces.parts[0] = {from, segment.bytes};
  pieces.count = 1;
  pieces.bytes = segment.bytes;
  return from != nullptr;
}

/// False: the general way says what is wrong with the segments.
bool Placer::find_pieces(const QueuePair& queue_pair, const WorkRequest& request, Pieces& pieces) const {
  if (request.inline_data && request.operation != Operation::rdma_write) return false;
  const Right right = request.operation == Operation::rdma_read ? Right::local_write : Right::local_read;
  pieces.count = 0;
  pieces.bytes = 0;
  if (request.segment_count > kMaxSegments) return false;
  for (const LocalSegment& segment : std::span(request.segments).first(request.segment_count)) {
    std::byte* from = segment.address;
    if (!request.inline_data) {
      const auto placement =
          check_segment(context_, queue_pair.consumer(), segment, 0, segment.bytes, right, queue_pair.send.region);
      from = placement ? placement->memory->piece_at(placement->offset) : nullptr;
    }
    if (from == nullptr) return false;
    pieces.parts[pieces.count++] = {from, segment.bytes};
    pieces.bytes += segment.bytes;
  }
  const bool inline_fits = !request.inline_data || pieces.bytes <= queue_pair.options.max_inline_bytes;
  return pieces.bytes != 0 && pieces.bytes <= Placements::kMostBytes && inline_fits &&
         pieces.bytes <= context_.options.max_message_bytes;
}

/// Leaves so many bytes from `offset` on.
void Placer::Pieces::keep(std::uint64_t offset, std::uint64_t most) {
  std::size_t kept = 0;
  bytes = 0;
  for (const iovec& part : std::span(parts).first(count)) {
    const std::uint64_t skipped = std::min<std::uint64_t>(offset, part.iov_len);
    const std::uint64_t length = std::min(part.iov_len - skipped, most - bytes);
    offset -= skipped;
    if (length == 0) continue;
    parts[kept++] = {static_cast<std::byte*>(part.iov_base) + skipped, length};
    bytes += length;
  }
  count = kept;
}

/// pieces: of the request's bytes from `offset` on.
bool Placer::move(const QueuePair& queue_pair, const WorkRequest& request, const Pieces& pieces, std::uint32_t offset) {
  PlacementTarget target = target_of(queue_pair, request, pieces.bytes);
  target.remote.address += offset;
  const std::span parts = std::span(pieces.parts).first(pieces.count);
  Placements& placements = *context_.options.placements;
  const bool moved =
      request.operation == Operation::rdma_read ? placements.read(target, parts) : placements.write(target, parts);
  if (moved) context_.to_place -= std::min(context_.to_place, pieces.bytes);
  return moved;
}

void Placer::count(Operation operation) {
  ++(operation == Operation::rdma_read ? context_.counters.placed_reads : context_.counters.placed_writes);
}

void end_at_post(AdapterContext& context, QueuePair& queue_pair, const WorkRequest& request, std::uint64_t bytes) {
  SendQueue& send = queue_pair.send;
  send.note_completed(send.posted, 0);
  if (request.signalled) {
    CompletionQueue& completions = *queue_pair.send_cq;
    completions.reserve(1);
    context.push_completion(completions, [&](Completion& completion) {
      completion.id = request.id;
      completion.queue_pair = queue_pair.number;
      completion.operation = request.operation;
      completion.bytes = static_cast<std::uint32_t>(bytes);
    });
    send.note_completed(send.posted, completions.pushed());
  }
  send.rewind_to(++send.posted);
  send.sent = send.done = send.posted;
}

bool is_worth_waiting(const AdapterContext& context, const QueuePair& queue_pair, const WorkRequest& request,
                      std::uint64_t bytes) {
  const bool worth_it = context.options.placements != nullptr && Placer::may_be_placed(request) &&
                        bytes >= kWorthWaiting && bytes <= Placements::kMostBytes;
  return worth_it && context.options.placements->offers(target_of(queue_pair, request, bytes));
}

void publish_admission(AdapterContext& context, const QueuePair& queue_pair) {
  Path* path = queue_pair.path;
  if (!is_connected_channel(queue_pair.options) || path == nullptr || path->direct == nullptr || !path->is_current())
    return;
  if (queue_pair.rules().connected && queue_pair.options.remote_rights.has(Right::remote_write)) {
    const bool reads = queue_pair.options.remote_rights.has(Right::remote_read) && queue_pair.answers_reads &&
                       queue_pair.responses.depth != 0;
    // No place is no loss: the peer's writes through the queue pair come segmented.
    static_cast<void>(
        path->grants.admit(*path->direct, {queue_pair.number, queue_pair.peer.number, queue_pair.domain, reads}));
  } else if (path->grants.dismiss(*path->direct, queue_pair.number)) {
    path->drains.begin(queue_pair.number);
    context.turns.attend(*path);
  }
}

void publish_connection(AdapterContext& context, const QueuePair& queue_pair) {
  publish_admission(context, queue_pair);
  if (context.options.placements == nullptr || !is_connected_channel(queue_pair.options)) return;
  if (!queue_pair.rules().connected || queue_pair.path == nullptr) {
    return context.options.placements->dismiss(queue_pair.number);
  }
  Rights rights = queue_pair.options.remote_rights;
  if (!queue_pair.answers_reads) rights = rights.without(Right::remote_read).without(Right::remote_atomic);
  context.options.placements->admit(
      {queue_pair.number, queue_pair.peer.number, queue_pair.path->number, queue_pair.domain, rights});
}

}  // namespace splitnic::fabric
