#include "fabric/adapter/request_check.h"

#include <span>

#include "fabric/adapter/local_memory.h"
#include "fabric/adapter/placer.h"

namespace splitnic::fabric {
namespace {

bool is_send(Operation operation) {
  return operation == Operation::send || operation == Operation::send_with_immediate ||
         operation == Operation::send_with_invalidate;
}

Status check_local_request(const QueuePair& queue_pair, const WorkRequest& request) {
  if (request.segment_count != 0 || request.placed_bytes != 0 || request.inline_data) return Status::bad_length;
  if (request.operation == Operation::delay) {
    const bool fits = request.delay >= Duration::zero() && request.delay <= kLongestDelay;
    return fits ? Status::ok : Status::bad_argument;
  }
  if (queue_pair.options.datagram) return Status::not_permitted;
  const bool registers = request.operation == Operation::register_memory;
  if (registers && !queue_pair.options.memory_requests) return Status::not_permitted;
  if (request.operation == Operation::local_invalidate) return Status::ok;
  if (request.memory == nullptr) return Status::bad_argument;
  return std::holds_alternative<FastRegister>(*request.memory) == registers ? Status::ok : Status::bad_argument;
}

/// What cannot be, whatever the memory.
Status check_shape(const QueuePair& queue_pair, const WorkRequest& request, std::uint64_t total) {
  if (request.placed_bytes != 0 && (!is_write(request.operation) || request.segment_count != 0)) {
    return Status::bad_length;
  }
  if (is_answered(request.operation)) {
    if (!takes_answers(queue_pair)) return Status::not_permitted;
    if (request.inline_data) return Status::bad_argument;
    const bool atomic = request.operation != Operation::rdma_read;
    if (atomic && (request.segment_count != 1 || total != kAtomicBytes)) return Status::bad_length;
  }
  const std::uint32_t named = request.remote_receives.value;
  if (queue_pair.options.xrc == XrcRole::initiator && (named == 0 || named > kMaxQueuePairNumber)) {
    return Status::bad_argument;
  }
  if (request.inline_data && total > queue_pair.send.inline_bytes) return Status::bad_length;
  if (request.memory != nullptr) {  // combined: registers first
    if (!queue_pair.options.memory_requests) return Status::not_permitted;
    if (!is_send(request.operation) || !std::holds_alternative<FastRegister>(*request.memory)) {
      return Status::bad_argument;
    }
  }
  return Status::ok;
}

/// Whether the segments may name a tag that is registered first, by this request or one that waits before it: they are
/// checked in their turn alone then.
bool made_on_the_way(const QueuePair& queue_pair, const WorkRequest& request) {
  const bool others_wait = queue_pair.send.next != queue_pair.send.posted;
  return request.memory != nullptr || (queue_pair.options.memory_requests && others_wait);
}

/// Whether the path's cells can carry so many bytes, or the bytes go past them. A path that is not open yet says
/// nothing about its cells; then the request fails in its turn.
bool fits_path(const AdapterContext& context, const QueuePair& queue_pair, const WorkRequest& request,
               std::uint32_t bytes) {
  const bool known = queue_pair.path != nullptr && queue_pair.path->open && queue_pair.rules().connected;
  if (!known || fits_packet(bytes, queue_pair)) return true;
  return context.options.placements != nullptr && Placer::may_be_placed(request) && bytes <= Placements::kMostBytes;
}

}  // namespace

Status check_request(const AdapterContext& context, const QueuePair& queue_pair, const WorkRequest& request,
                     std::uint32_t& bytes) {
  bytes = 0;
  if (!goes_over_the_wire(request.operation)) return check_local_request(queue_pair, request);
  const std::uint64_t total = request.placed_bytes + message_bytes(request);
  const auto segments = std::span(request.segments).first(request.segment_count);
  if (total > context.options.max_message_bytes) return Status::bad_length;
  if (const Status shape = check_shape(queue_pair, request, total); shape != Status::ok) return shape;
  if (queue_pair.options.datagram) {
    if (const Status status = check_datagram(context, request, total); status != Status::ok) return status;
  }
  bytes = static_cast<std::uint32_t>(total);
  if (!fits_path(context, queue_pair, request, bytes)) return Status::bad_length;
  const bool in_their_turn = queue_pair.options.verbs_rules || made_on_the_way(queue_pair, request);
  if (request.inline_data || in_their_turn) return Status::ok;
  for (const LocalSegment& segment : segments) {
    const auto placement = is_answered(request.operation)
                               ? check_sink(context, queue_pair.consumer(), segment, 0, segment.bytes, std::nullopt)
                               : check_segment(context, queue_pair.consumer(), segment, 0, segment.bytes,
                                               Right::local_read, queue_pair.send.region);
    if (!placement) return post_status(placement.error());
  }
  return Status::ok;
}

}  // namespace splitnic::fabric
