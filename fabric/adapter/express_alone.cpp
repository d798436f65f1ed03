#include <span>

#include "fabric/adapter/express.h"
#include "fabric/adapter/express_parts.h"

/// What is posted by itself and leaves in one slot, and what is taken by itself. The loops for several messages keep in
/// registers what the next one needs; here nothing comes next. So each step looks up anew what it needs, because
/// whatever is kept while bytes are copied costs a store and a load. What is not so simple is left to
/// Express::post_others() and take().
namespace splitnic::fabric {
namespace {

using express_parts::append_sent;
using express_parts::fields_of;
using express_parts::fill;
using express_parts::is_in_one_piece;
using express_parts::kEither;
using express_parts::kSends;
using express_parts::note_posted;
using express_parts::note_taken;
using express_parts::only_cell;
using express_parts::OnlyCell;
using express_parts::put_extension;
using express_parts::put_nothing;
using express_parts::what_of;

constexpr OnlyCell kSend = only_cell(Opcode::send_only);
constexpr OnlyCell kAnnouncement = only_cell(Opcode::write_only_immediate);
static_assert(kAnnouncement.extension_bytes <= kSlotBodyInFirst);
constexpr std::uint64_t kDatagrams = what_of(Opcode::datagram, 0);
static_assert(sizeof(DatagramBytes) <= kSlotBodyInFirst);

bool has_two_lines(const SlotWords& words) { return (words.what >> kSlotShapeBit & slot_shape::kTwoLines) != 0; }
bool is_solicited(const SlotWords& words) { return (words.what >> kSlotShapeBit & slot_shape::kSolicited) != 0; }

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

/// Where the queue pair's oldest receive takes so many bytes. Null: nowhere, or the slot is not whole, or says that it
/// has more bytes than its lines.
[[gnu::always_inline]] inline std::byte* Express::place_of_one(const QueuePair& queue_pair,
                                                               const SlotReceiver::Row& row, std::uint32_t bytes) {
  const ReceiveQueue& receive = queue_pair.receive;
  const bool two_lines = has_two_lines(row.words());
  const std::size_t fit = two_lines ? kSlotBodyInBoth : kSlotBodyInFirst;
  if (receive.empty() || row.words().place > fit || (two_lines && !row.has_second())) return nullptr;
  const ReceiveEntry& entry = receive.entries[receive.taken];
  if (entry.segment_count != 1 || bytes > entry.bytes) return nullptr;
  const LocalSegment& segment = entry.segments[0];
  return receive.region.place(segment.tag, segment.as_number(), bytes, Right::local_write);
}

/// The row has the lane's oldest slot, which is of this kind.
[[gnu::always_inline]] inline bool Express::finds_one(const SlotLane& slots, SlotReceiver::Row& row,
                                                      std::uint64_t kind) {
  return !slots.receiver.looked_at() && row.look() && (row.words().what >> kSlotShapeBit & ~kEither) == kind;
}

[[gnu::always_inline]] inline void Express::consume_one(SlotLane& slots, SlotReceiver::Row& row) {
  slots.sender.note_settled(static_cast<std::uint32_t>(row.words().what));
  context_.counters.bytes_received += static_cast<std::uint32_t>(row.words().place);
  ++context_.counters.cells_received;
  row.pop(has_two_lines(row.words()));
  row.end();
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

[[gnu::hot, gnu::flatten, gnu::noinline]] Express::End Express::take_one_send(Path& path, SlotLane& slots) {
  SlotReceiver::Row row(slots.receiver);
  if (!finds_one(slots, row, kSends)) return End::empty;
  const SlotWords& words = row.words();
  QueuePair* const queue_pair = receiver(path, QpNumber{static_cast<std::uint32_t>(words.receiver)});
  if (queue_pair == nullptr || words.receiver >> 32U != queue_pair->expected_psn) return End::left;
  const auto bytes = static_cast<std::uint32_t>(words.place);
  std::byte* const into = place_of_one(*queue_pair, row, bytes);
  if (into == nullptr || !row.copy(into, bytes)) return End::left;
  complete_receive(context_, *queue_pair->receive_cq, *queue_pair, [&](Completion& completion) {
    completion.bytes = bytes;
    completion.solicited = is_solicited(words);
  });
  note_taken(*queue_pair, 1);
  consume_one(slots, row);
  return End::enough;
}

/// The same of a datagram, which is for one queue pair, and wanted.
[[gnu::hot, gnu::flatten, gnu::noinline]] Express::End Express::take_one_datagram(Path& path, SlotLane& slots) {
  SlotReceiver::Row row(slots.receiver);
  if (!finds_one(slots, row, kDatagrams)) return End::empty;
  const SlotWords& words = row.words();
  QueuePair* const queue_pair = find_receiver(path, QpNumber{static_cast<std::uint32_t>(words.receiver)});
  const bool takes = queue_pair != nullptr && queue_pair->options.datagram && queue_pair->rules().connected;
  if (!takes || words.place < sizeof(DatagramBytes)) return End::left;
  const auto bytes = static_cast<std::uint32_t>(words.place - sizeof(DatagramBytes));
  const std::uint32_t needed = kRouteHeaderBytes + bytes;
  std::byte* const into = place_of_one(*queue_pair, row, needed);
  DatagramHeader header;
  const bool wanted = into != nullptr && decode_datagram(row.header<DatagramBytes>(0), header) &&
                      !header.group.is_group() && header.queue_key == queue_pair->options.queue_key;
  if (!wanted) return End::left;
  const auto route = route_fields(header, bytes);
  const bool there = guarded_copy(into, &route, sizeof route) &&
                     guarded_copy(into + sizeof route, &path.route, sizeof path.route) &&
                     row.copy(into + kRouteHeaderBytes, bytes, sizeof(DatagramBytes));
  if (!there) return End::left;
  complete_datagram(context_, *queue_pair,
                    {header.source_queue_pair, path.number, needed, is_solicited(words), false, 0});
  consume_one(slots, row);
  return End::enough;
}

}  // namespace splitnic::fabric
