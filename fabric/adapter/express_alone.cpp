#include <span>

#include "fabric/adapter/express.h"
#include "fabric/adapter/express_parts.h"

/// What is posted by itself and leaves in one slot. The loops for several requests keep in registers what the next one
/// needs; here nothing comes next. So each step looks up anew what it needs, because whatever is kept while bytes are
/// copied costs a store and a load. What is not so simple is left to Express::post_others().
namespace splitnic::fabric {
namespace {

using express_parts::append_sent;
using express_parts::fields_of;
using express_parts::fill;
using express_parts::is_in_one_piece;
using express_parts::note_posted;
using express_parts::only_cell;
using express_parts::OnlyCell;
using express_parts::put_extension;
using express_parts::put_nothing;

constexpr OnlyCell kSend = only_cell(Opcode::send_only);
constexpr OnlyCell kAnnouncement = only_cell(Opcode::write_only_immediate);
static_assert(kAnnouncement.extension_bytes <= kSlotBodyInFirst);

/// Where the request's bytes lie. Null: they are not where the last request's were, and the general way looks for them.
const std::byte* local_bytes(const SendQueue& send, const LocalSegment& segment) {
  return send.region.place(segment.tag, segment.as_number(), segment.bytes, Right::local_read);
}

}  // namespace

/// The lane that the request may take; null: none, or its queues are full.
[[gnu::always_inline]] inline SlotLane* Express::lane_of_one(const QueuePair& queue_pair,
                                                             const WorkRequest& request) const {
  SlotLane* const slots = queue_pair.path->slots[static_cast<std::size_t>(queue_pair.options.lane)];
  const SendQueue& send = queue_pair.send;
  const CompletionQueue& completions = *queue_pair.send_cq;
  const bool fits = slots != nullptr && completions.room() != 0 && send.has_place(send.posted, completions.taken_out());
  const bool may_go = is_in_one_piece(request) && request.segments[0].bytes <= context_.options.max_message_bytes;
  return fits && may_go ? slots : nullptr;
}

/// It has left, and ends at this position. marks: of how.
[[gnu::always_inline]] inline void Express::note_one(QueuePair& queue_pair, const WorkRequest& request,
                                                     std::uint64_t position, const SendMarks& marks) {
  append_sent(queue_pair.send, request, request.segments[0].bytes, position, marks);
  queue_pair.path->awaited[static_cast<std::size_t>(queue_pair.options.lane)].note(position, queue_pair.number);
  note_posted(context_, queue_pair, *queue_pair.send_cq, 1);
}

/// in_lines: its bytes fit the lines of a slot; else they go into the payload ring.
[[gnu::always_inline]] inline bool Express::put_send(QueuePair& queue_pair, const WorkRequest& request, bool in_lines) {
  SlotLane* const slots = lane_of_one(queue_pair, request);
  if (slots == nullptr) return false;
  const std::uint32_t bytes = request.segments[0].bytes;
  if (bytes > queue_pair.path->cell_payload_bytes) return false;
  SendQueue& send = queue_pair.send;
  std::uint64_t position = 0;
  if (in_lines) {
    if (!slots->sender.look_for_room(2)) return false;
    const std::byte* const from = local_bytes(send, request.segments[0]);
    if (from == nullptr) return false;
    SlotFields fields = fields_of(queue_pair, request, kSend, /*direct=*/false);
    position = slots->put(fields, 0, put_nothing, from, bytes);
    if (position == 0) return false;
  } else {
    if (bytes > slots->sender.max_payload_bytes()) return false;
    const std::byte* const from = local_bytes(send, request.segments[0]);
    SlotClaim claim;
    if (from == nullptr || !slots->sender.claim(0, bytes, claim)) return false;
    if (!fill(claim.payload, from, slots->stores)) return false;
    SlotFields fields = fields_of(queue_pair, request, kSend, /*direct=*/false);
    position = slots->release(claim, fields);
  }
  note_one(queue_pair, request, position, kSentInCells);
  send.cells_to = send.posted;
  context_.counters.bytes_sent += bytes;
  return true;
}

/// A direct write with immediate.
[[gnu::always_inline]] inline bool Express::put_immediate(QueuePair& queue_pair, const WorkRequest& request) {
  SlotLane* const slots = lane_of_one(queue_pair, request);
  if (slots == nullptr) return false;
  Path& path = *queue_pair.path;
  SendQueue& send = queue_pair.send;
  const std::uint32_t bytes = request.segments[0].bytes;
  const bool direct = path.window != nullptr && send.cells_are_done() && bytes != 0;
  if (!direct || !slots->sender.look_for_room(1)) return false;
  const std::byte* const from = local_bytes(send, request.segments[0]);
  if (from == nullptr) return false;
  const WindowPlace at = path.claim_direct({queue_pair.number, queue_pair.peer.number}, request.remote, bytes);
  if (!at || !fill(path.window->claim(*at, bytes), from, path.direct->announced)) return false;

  SlotFields fields = fields_of(queue_pair, request, kAnnouncement, /*direct=*/true);
  fields.settled = static_cast<std::uint32_t>(slots->receiver.settled());
  const auto put_headers = [&](std::byte* to) { put_extension(to, request, kAnnouncement, bytes); };
  const std::uint64_t position =
      slots->sender.put_bare(slot_word(fields, SlotLayout{}), fields.queue_pair, fields.packet_sequence, put_headers);
  slots->receiver.reported_by_slot();
  note_one(queue_pair, request, position, kSentDirectly);
  ++context_.counters.direct_writes;
  return true;
}

[[gnu::hot, gnu::flatten, gnu::noinline]] std::size_t Express::post_one_send(QueuePair& queue_pair,
                                                                             std::span<const WorkRequest> requests) {
  return put_send(queue_pair, requests.front(), /*in_lines=*/true) ? 1 : post_others(queue_pair, requests);
}

[[gnu::hot, gnu::flatten, gnu::noinline]] std::size_t Express::post_one_long_send(
    QueuePair& queue_pair, std::span<const WorkRequest> requests) {
  return put_send(queue_pair, requests.front(), /*in_lines=*/false) ? 1 : post_others(queue_pair, requests);
}

[[gnu::hot, gnu::flatten, gnu::noinline]] std::size_t Express::post_one_immediate(
    QueuePair& queue_pair, std::span<const WorkRequest> requests) {
  return put_immediate(queue_pair, requests.front()) ? 1 : post_others(queue_pair, requests);
}

}  // namespace splitnic::fabric
