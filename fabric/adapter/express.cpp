#include "fabric/adapter/express.h"

#include <algorithm>
#include <array>
#include <boost/endian/buffers.hpp>
#include <cstring>

#include "common/range.h"
#include "fabric/adapter/express_parts.h"
#include "fabric/adapter/local_memory.h"
#include "fabric/adapter/placer.h"
#include "fabric/memory/guarded_copy.h"
#include "fabric/wire/slot_cell.h"

namespace splitnic::fabric {
namespace {

using express_parts::append_sent;
using express_parts::fields_of;
using express_parts::fill;
using express_parts::header_at;
using express_parts::is_plain;
using express_parts::kOnlyCells;
using express_parts::note_posted;
using express_parts::note_taken;
using express_parts::only_cell_of;
using express_parts::OnlyCell;
using express_parts::put_extension;
using express_parts::send_slot;

/// Whether such requests may go this way. Their bytes are not looked at yet.
bool may_go(const WorkRequest& request) {
  const bool in_one_piece = request.segment_count == 1 || request.inline_data;
  return in_one_piece && express_parts::is_simple(request) &&
         static_cast<std::size_t>(request.operation) < kOnlyCells.size();
}

bool copy_plainly(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
  keep_copy(static_cast<std::byte*>(to));
  return true;
}

/// A datagram goes to one queue pair.
bool is_one(QpNumber queue_pair) { return queue_pair.value != 0 && queue_pair.value < kMulticastQueuePair.value; }

/// The shape of a message's only slot that may be taken here, by its opcode.
struct UsualShape {
  unsigned either = 0;    ///< bits that are set or not
  unsigned others = ~0U;  ///< the rest, as it has to be: no shape is all ones
};
constexpr std::array<UsualShape, 256> kUsualShapes = [] {
  using namespace slot_shape;
  std::array<UsualShape, 256> shapes;
  shapes.fill(UsualShape{});  // GCC 12 makes zeros of elements of a constant that were initialized by {} alone
  for (std::size_t opcode = 0; opcode < shapes.size(); ++opcode) {
    const OpcodeTraits& what = traits(static_cast<std::uint8_t>(opcode));
    const bool awaited = what.is(MessageKind::send) || what.is(MessageKind::write);
    const bool asks = what.is(MessageKind::read_request);
    const bool kind = awaited || asks || what.is(MessageKind::read_response) || what.is(MessageKind::datagram);
    if (!kind || !what.first || !what.last || what.xrc || what.invalidate) continue;
    shapes[opcode].either = (asks ? 0U : kTwoLines | kInPayloadRing) | (what.is(MessageKind::write) ? kDirect : 0U) |
                            (what.may_be_solicited() ? kSolicited : 0U);
    shapes[opcode].others = awaited ? kAwaited : 0U;
  }
  return shapes;
}();

/// Nothing about the slot is unusual, whichever queue pair it is for.
bool is_usual(const ReceivedSlot& slot) {
  const SlotHeader& header = slot.header();
  const UsualShape& usual = kUsualShapes[header.opcode.value()];
  return (header.shape.value() & ~usual.either) == usual.others && !slot.fault() && header.cell_sequence.value() == 0 &&
         slot.layout().payload_bytes <= kMaxCellPayload;
}

/// Whether Express::take_one() may take the next such message, for the same queue pair.
bool one_takes_such(const QueuePair& queue_pair, const OpcodeTraits& what, bool in_lines) {
  if (what.is(MessageKind::read_response)) return true;
  const bool is_message = what.is(MessageKind::send) || what.is(MessageKind::datagram);
  return is_message && in_lines && !what.immediate && queue_pair.options.shared_receives.value == 0;
}

}  // namespace

/// Nothing waits before what is posted, and nothing keeps it from leaving.
bool Express::sends_at_once(const QueuePair& queue_pair) const {
  const SendQueue& send = queue_pair.send;
  return context_.options.faults == nullptr && context_.options.dma == nullptr && is_plain(queue_pair.options) &&
         queue_pair.rules().begin_sends && queue_pair.path->open && send.next == send.posted && send.next_cell == 0 &&
         context_.now >= send.hold_until;
}

// hot: otherwise GCC takes these functions for rarely used ones and copies by string instructions, which start slowly.
[[gnu::hot, gnu::flatten]] std::size_t Express::post(QueuePair& queue_pair, std::span<const WorkRequest> requests) {
  if (queue_pair.options.datagram) return post_datagrams(queue_pair, requests);
  if (requests.empty() || !sends_at_once(queue_pair)) return 0;
  if (requests.size() == 1) return post_one(queue_pair, requests);
  return may_begin_row(requests.front()) ? post_row(queue_pair, requests) : post_others(queue_pair, requests);
}

/// The same. Nothing waits before them, and no row begins here that has not been tried.
[[gnu::hot, gnu::flatten, gnu::noinline]] std::size_t Express::post_others(QueuePair& queue_pair,
                                                                           std::span<const WorkRequest> requests) {
  std::size_t posted = store_writes(queue_pair, requests);
  if (posted != 0 && posted != requests.size() && may_begin_row(requests[posted])) {
    return posted + post_row(queue_pair, requests.subspan(posted));
  }
  if (posted != requests.size()) posted += post_slots(queue_pair, requests.subspan(posted));
  if (posted == requests.size()) return posted;
  if (requests[posted].placed_bytes != 0) return posted + post_announcements(queue_pair, requests.subspan(posted));
  const bool reads = requests[posted].operation == Operation::rdma_read;
  return reads ? posted + post_reads(queue_pair, requests.subspan(posted)) : posted;
}

/// Writes at the start of the list into memory that the peer has granted, where stores arrive at once and nothing older
/// is under way. They are done as soon as they are stored, and the peer hears nothing of them. Returns how many.
inline std::size_t Express::store_writes(QueuePair& queue_pair, std::span<const WorkRequest> requests) {
  Path& path = *queue_pair.path;
  SendQueue& send = queue_pair.send;
  const bool writes = !requests.empty() && requests.front().operation == Operation::rdma_write;
  if (!writes || send.done != send.posted || path.window == nullptr) return 0;
  const CompletionQueue& completions = *queue_pair.send_cq;
  const std::uint64_t taken_out = completions.taken_out();
  std::size_t stored = 0;
  for (; stored != requests.size(); ++stored) {
    const WorkRequest& request = requests[stored];
    const bool has_place = completions.room() != 0 && send.has_place(send.posted, taken_out);
    if (request.operation != Operation::rdma_write || !has_place || !may_go(request)) break;
    const Source source = source_of(send, request);
    if (source.from == nullptr || source.bytes == 0 || source.bytes > context_.options.max_message_bytes) break;
    const auto at = path.claim_direct({queue_pair.number, queue_pair.peer.number}, request.remote, source.bytes);
    if (!at || !guarded_copy(path.window->claim(*at, source.bytes).data(), source.from, source.bytes)) break;
    ++context_.counters.direct_writes;
    end_at_post(context_, queue_pair, request, 0);
  }
  context_.done_at_post += stored;
  return stored;
}

/// What is one slot each. Returns how many.
inline std::size_t Express::post_slots(QueuePair& queue_pair, std::span<const WorkRequest> requests) {
  Path& path = *queue_pair.path;
  SlotLane* slots = path.slots[static_cast<std::size_t>(queue_pair.options.lane)];
  if (slots == nullptr || requests.empty()) return 0;
  const std::size_t most_payload = std::min<std::size_t>(
      {path.cell_payload_bytes, slots->sender.max_payload_bytes(), context_.options.max_message_bytes});
  SendQueue& send = queue_pair.send;
  CompletionQueue& completions = *queue_pair.send_cq;
  const std::uint64_t before = send.posted;
  const std::uint64_t most = std::min<std::uint64_t>(requests.size(), completions.room());
  std::uint64_t last_position = 0;
  std::uint64_t bytes_in_cells = 0;
  for (const WorkRequest& request : requests.first(send.places(most, completions.taken_out()))) {
    if (!may_go(request)) [[unlikely]]
      break;
    const Source source = source_of(send, request);
    if (source.from == nullptr) [[unlikely]]
      break;
    const bool writes = is_write(request.operation);
    const Put put = writes ? put_write(queue_pair, *slots, request, source, most_payload)
                           : put_cell(queue_pair, *slots, request, source, most_payload);
    if (put.position == 0) [[unlikely]]
      break;
    last_position = put.position;
    if (writes) ++(put.direct ? context_.counters.direct_writes : context_.counters.segmented_writes);
    if (!put.direct) bytes_in_cells += source.bytes;

    append_sent(send, request, source.bytes, put.position, put.direct ? kSentDirectly : kSentInCells);
    if (!put.direct) send.cells_to = send.posted;
  }
  const std::uint64_t posted = send.posted - before;
  if (posted == 0) return 0;
  path.awaited[static_cast<std::size_t>(queue_pair.options.lane)].note(last_position, queue_pair.number);
  context_.counters.bytes_sent += bytes_in_cells;
  note_posted(context_, queue_pair, completions, posted);
  return posted;
}

/// Of a request that may_go(). The queue keeps inline data for a message that has to be sent again.
inline Express::Source Express::source_of(SendQueue& send, const WorkRequest& request) {
  if (request.inline_data) return inline_source_of(send, request);
  const LocalSegment& segment = request.segments[0];
  return {send.region.place(segment.tag, segment.as_number(), segment.bytes, Right::local_read), segment.bytes};
}

[[gnu::noinline]] Express::Source Express::inline_source_of(SendQueue& send, const WorkRequest& request) {
  if (request.segment_count > kMaxSegments) return {};
  const std::uint64_t bytes = message_bytes(request);
  const std::span<std::byte> kept = send.inline_at(send.posted);
  if (bytes > kept.size() || !copy_inline(request, kept)) return {};
  return {kept.data(), static_cast<std::uint32_t>(bytes)};
}

/// The message with its bytes in one slot.
inline Express::Put Express::put_cell(const QueuePair& queue_pair, SlotLane& slots, const WorkRequest& request,
                                      const Source& source, std::size_t most_payload) {
  const OnlyCell& cell = only_cell_of(request.operation);
  SlotFields fields = fields_of(queue_pair, request, cell, /*direct=*/false);
  const auto put_headers = [&](std::byte* to) { put_extension(to, request, cell, source.bytes); };
  if (source.bytes > most_payload) [[unlikely]]
    return {};
  return {send_slot(slots, fields, cell.extension_bytes, put_headers, source.from, source.bytes), false};
}

/// Through the peer window, if the peer has granted that and nothing older may land after it; else in the slot.
[[gnu::hot, gnu::flatten, gnu::noinline]] Express::Put Express::put_write(const QueuePair& queue_pair, SlotLane& slots,
                                                                          const WorkRequest& request,
                                                                          const Source& source,
                                                                          std::size_t most_payload) {
  Path& path = *queue_pair.path;
  const bool staged = path.direct != nullptr && path.window == nullptr;
  if (source.bytes == 0 || source.bytes > context_.options.max_message_bytes || staged) return {};
  const WindowPlace at = granted_place(queue_pair, request, source.bytes);
  if (!at) {
    // The requester lets it wait.
    const bool waits = is_worth_waiting(context_, queue_pair, request, source.bytes);
    return waits ? Put{} : put_cell(queue_pair, slots, request, source, most_payload);
  }
  if (!slots.sender.look_for_room(1)) return {};
  const OnlyCell& cell = only_cell_of(request.operation);
  const std::span<std::byte> to = path.window->claim(*at, source.bytes);
  // With an immediate, the peer reads the bytes next.
  const bool stored =
      cell.immediate ? fill(to, source.from, path.direct->announced) : guarded_copy(to.data(), source.from, to.size());
  if (!stored) return {};
  SlotFields fields = fields_of(queue_pair, request, cell, /*direct=*/true);
  const auto put_headers = [&](std::byte* headers) { put_extension(headers, request, cell, source.bytes); };
  return {slots.put(fields, cell.extension_bytes, put_headers, nullptr, 0), true};
}

/// Where the write's bytes may be stored now, in the peer window.
inline WindowPlace Express::granted_place(const QueuePair& queue_pair, const WorkRequest& request,
                                          std::uint32_t bytes) {
  if (!queue_pair.send.cells_are_done() || request.inline_data) return {};  // inline data goes in the cell
  return queue_pair.path->claim_direct({queue_pair.number, queue_pair.peer.number}, request.remote, bytes);
}

/// As post(). A datagram ends as soon as it has left.
[[gnu::hot, gnu::flatten, gnu::noinline]] std::size_t Express::post_datagrams(QueuePair& queue_pair,
                                                                              std::span<const WorkRequest> requests) {
  SendQueue& send = queue_pair.send;
  const bool at_once = context_.options.faults == nullptr && queue_pair.rules().begin_sends &&
                       send.done == send.posted && context_.now >= send.hold_until;
  if (!at_once) return 0;
  CompletionQueue& completions = *queue_pair.send_cq;
  const std::uint64_t taken_out = completions.taken_out();
  Route route;
  std::size_t posted = 0;
  std::size_t bytes = 0;
  for (; posted != requests.size(); ++posted) {
    const WorkRequest& request = requests[posted];
    const DatagramTarget& to = request.datagram;
    const bool has_place = completions.room() != 0 && send.has_place(send.posted, taken_out);
    if (!has_place || !may_go(request) || is_write(request.operation) || !is_one(to.queue_pair)) [[unlikely]]
      break;
    if ((route.path == nullptr || route.handle != to.handle) && !find_route(queue_pair, to.handle, route)) break;
    const Source source = source_of(send, request);
    if (source.from == nullptr || source.bytes > route.most_bytes) [[unlikely]]
      break;
    if (!put_datagram(queue_pair, route, request, source)) [[unlikely]]
      break;
    bytes += sizeof(DatagramBytes) + source.bytes;
    ++send.next_psn;
    send.note_completed(send.posted, 0);
    send.done = ++send.posted;
    if (!request.signalled) continue;
    completions.reserve(1);
    context_.push_completion(completions, [&](Completion& completion) {
      completion.id = request.id;
      completion.queue_pair = queue_pair.number;
      completion.operation = request.operation;
    });
    send.note_completed(send.posted - 1, completions.pushed());
  }
  if (posted == 0) return 0;
  send.rewind_to(send.posted);
  send.sent = send.posted;
  send.sent_psn = send.next_psn;
  context_.counters.cells_sent += posted;
  context_.counters.datagrams_sent += posted;
  context_.counters.bytes_sent += bytes;
  return posted;
}

/// False: no datagram leaves so at once.
bool Express::find_route(const QueuePair& queue_pair, AddressHandleNumber handle, Route& route) const {
  const AddressHandle* to = context_.datagrams.find(handle);
  Path* path = to == nullptr || to->to_group() ? nullptr : context_.path(to->options.path);
  SlotLane* slots = path == nullptr ? nullptr : path->slots[static_cast<std::size_t>(queue_pair.options.lane)];
  if (slots == nullptr || !path->is_current()) return false;
  const std::size_t payload = std::min<std::size_t>(
      {path->cell_payload_bytes, context_.options.cell_payload_bytes, slots->sender.max_payload_bytes()});
  if (payload < sizeof(DatagramBytes)) return false;
  DatagramHeader header;
  header.source_queue_pair = queue_pair.number;
  header.flow_label = to->options.flow_label;
  header.traffic_class = to->options.traffic_class;
  header.hop_limit = to->options.hop_limit;
  const std::size_t most = std::min<std::size_t>(
      {payload - sizeof(DatagramBytes), context_.options.max_message_bytes, context_.options.max_datagram_bytes});
  route = {handle, path, slots, static_cast<std::uint32_t>(most), DatagramWords(header)};
  context_.turns.attend(*path);
  return true;
}

/// False: there is no room.
inline bool Express::put_datagram(const QueuePair& queue_pair, Route& route, const WorkRequest& request,
                                  const Source& source) {
  static_assert(sizeof(ImmediateHeader) + sizeof(DatagramBytes) <= kSlotBodyInFirst);
  SlotClaim claim;
  const std::size_t payload_bytes = sizeof(DatagramBytes) + source.bytes;
  const OnlyCell& cell = only_cell_of(request.operation);
  if (!route.slots->sender.claim(cell.extension_bytes, payload_bytes, claim)) return false;
  const std::span<std::byte> first = claim.payload.subspan(sizeof(DatagramBytes));
  const std::span<std::byte> rest = claim.payload_rest;
  const bool filled = rest.empty()
                          ? fill(first, source.from, route.slots->stores)
                          : guarded_copy_parts(first.data(), source.from, first.size(), rest.data(), rest.size());
  if (!filled) return false;
  route.header.put(claim.payload.data(), queue_key_of(queue_pair.options, request.datagram));
  put_extension(claim.extension, request, cell, source.bytes);
  SlotFields fields;
  fields.opcode = static_cast<std::uint8_t>(cell.immediate ? Opcode::datagram_immediate : Opcode::datagram);
  fields.solicited = request.solicited;
  fields.queue_pair = request.datagram.queue_pair;
  fields.packet_sequence = queue_pair.send.next_psn;
  route.slots->release(claim, fields);
  route.path->takes_no_datagrams = false;
  return true;
}

[[gnu::hot, gnu::flatten]] Express::Burst Express::take(Path& path, VirtualLane lane, std::size_t most) {
  SlotLane* slots = path.slots[static_cast<std::size_t>(lane)];
  if (slots == nullptr || context_.options.faults != nullptr) return {0, End::left};
  Burst burst;
  QueuePair* queue_pair = nullptr;
  CompletionQueue* completions = nullptr;  // of its receives
  while (burst.end == End::enough && burst.taken != most) {
    ReceivedSlot* slot = slots->receiver.head();
    if (slot == nullptr) [[unlikely]] {
      burst.end = End::empty;
      break;
    }
    burst.end = End::left;
    if (!is_usual(*slot)) [[unlikely]]
      break;
    const SlotHeader& header = slot->header();
    const OpcodeTraits& what = traits(header.opcode.value());
    Verdict verdict = Verdict::left;
    if (what.is(MessageKind::datagram)) {
      verdict = take_datagram(path, slots->receiver, *slot, what);
    } else {
      const QpNumber number{header.queue_pair.value()};
      if (queue_pair == nullptr || queue_pair->number != number) [[unlikely]] {
        queue_pair = receiver(path, number);
        if (queue_pair == nullptr) break;
        completions = queue_pair->receive_cq;
      }
      const bool answer = what.is(MessageKind::read_response);
      if (header.packet_sequence.value() != queue_pair->expected_psn && !answer) [[unlikely]]
        break;
      if (what.is(MessageKind::send)) {
        verdict = take_send(*queue_pair, *completions, slots->receiver, *slot, what);
      } else {
        slots->receiver.load_body();
        if (what.is(MessageKind::write)) {
          verdict = take_write(*queue_pair, *completions, *slot, what);
        } else {
          verdict = answer ? take_answer(*queue_pair, *slot) : take_read(path, *queue_pair, *slot);
        }
      }
    }
    if (verdict == Verdict::left) [[unlikely]]
      break;
    if (verdict == Verdict::taken) {
      burst.end = End::enough;
      ++burst.taken;
    } else {
      burst.end = verdict == Verdict::refused ? End::refused : End::answered;
      burst.reader = queue_pair;
    }
    slots->sender.note_settled(header.settled.value());
    slots->receiver.pop();
    ++context_.counters.cells_received;
    const bool in_lines = !slot->layout().in_payload_ring;
    const bool sent_in_lines = in_lines && what.is(MessageKind::send);
    // A datagram's has just been looked up; of other messages, the row may have looked up another one since.
    const QueuePair& taker = what.is(MessageKind::datagram) ? *path.receiver : *queue_pair;
    path.last_kind[static_cast<std::size_t>(lane)] =
        one_takes_such(taker, what, in_lines) ? what.kind : MessageKind::none;
    const bool in_row = sent_in_lines || (what.is(MessageKind::write) && slot->layout().payload_bytes == 0);
    if (!in_row || verdict != Verdict::taken || burst.taken == most) continue;
    if (!slots->receiver.waiting()) {
      burst.end = End::empty;
      break;
    }
    const Burst row = take_row(path, *slots, most - burst.taken);
    burst.taken += row.taken;
    burst.end = row.end;
  }
  return burst;
}

/// The answer to the oldest read that awaits its, if that is the lane's oldest slot.
[[gnu::hot, gnu::flatten, gnu::noinline]] Express::End Express::take_one_answer(Path& path, SlotLane& slots) {
  ReceivedSlot* const slot = slots.receiver.head();
  if (slot == nullptr) return End::empty;
  const SlotHeader& header = slot->header();
  if (!is_usual(*slot) || !traits(header.opcode.value()).is(MessageKind::read_response)) return End::left;
  QueuePair* const queue_pair = receiver(path, QpNumber{header.queue_pair.value()});
  // What waits for the answer goes on in the same turn.
  if (queue_pair == nullptr || queue_pair->has_to_send() || queue_pair->draining) return End::left;
  slots.receiver.load_body();
  if (take_answer(*queue_pair, *slot) == Verdict::left) return End::left;
  slots.sender.note_settled(header.settled.value());
  slots.receiver.pop();
  ++context_.counters.cells_received;
  return End::answered;
}

inline Express::Verdict Express::take_send(QueuePair& queue_pair, CompletionQueue& completions, SlotReceiver& from,
                                           ReceivedSlot& slot, const OpcodeTraits& what) {
  ReceiveQueue& receive = queue_pair.receive;
  if (receive.empty() && !responder_.has_receive(queue_pair)) [[unlikely]]
    return Verdict::left;
  const ReceiveEntry& entry = receive.entries[receive.taken];
  const std::uint32_t bytes = slot.layout().payload_bytes;
  if (entry.segment_count != 1 || bytes > entry.bytes) [[unlikely]]
    return Verdict::left;
  const LocalSegment& segment = entry.segments[0];
  std::byte* into = receive.region.place(segment.tag, segment.as_number(), bytes, Right::local_write);
  if (into == nullptr) [[unlikely]]
    return Verdict::left;
  const std::size_t extension_bytes = what.immediate ? sizeof(ImmediateHeader) : 0;
  if (what.immediate && !slot.fits(extension_bytes)) [[unlikely]]
    return Verdict::left;
  Headers headers;
  headers.bytes = bytes;
  if (what.immediate) {
    from.load_body();
    headers.immediate = header_at<ImmediateHeader>(slot.extension(extension_bytes), 0).value();
  }
  const bool there = from.copy_payload(extension_bytes, 0, {into, bytes}, guarded_copy);
  if (!there) [[unlikely]] {
    headers.bytes = 0;
    refused_ = as_received(slot, headers);
    responder_.refuse_gone(queue_pair, segment.tag, refused_);
    return Verdict::refused;
  }
  context_.counters.bytes_received += bytes;
  complete(queue_pair, completions, slot, what, headers, /*stands=*/false);
  return Verdict::taken;
}

/// The bytes are in the slot, or went through the peer window: then what is checked is that they may have. The
/// responder places what is not for one piece of the process's memory, and refuses.
[[gnu::hot, gnu::flatten, gnu::noinline]] Express::Verdict Express::take_write(QueuePair& queue_pair,
                                                                               CompletionQueue& completions,
                                                                               ReceivedSlot& slot,
                                                                               const OpcodeTraits& what) {
  const bool direct = (slot.header().shape.value() & slot_shape::kDirect) != 0;
  const auto extension = slot.extension(sizeof(RdmaHeader) + sizeof(ImmediateHeader));
  const auto rdma = header_at<RdmaHeader>(extension, 0);
  Headers headers{Stag{rdma.tag.value()}, rdma.address.value(), rdma.length.value(), 0};
  if (what.immediate) headers.immediate = header_at<ImmediateHeader>(extension, sizeof rdma).value();
  if (slot.layout().payload_bytes != (direct ? 0 : headers.bytes)) return Verdict::left;
  const ProtectionEntry* entry = target_of(queue_pair, headers, slot.header().packet_sequence.value());
  if (entry == nullptr || (direct && !entry->placeable)) return Verdict::left;
  std::byte* into = nullptr;
  std::optional<PeerMemory> payload;
  if (!direct) {
    into = queue_pair.target.place(headers.address);
    payload = slot.payload(sizeof rdma + (what.immediate ? sizeof(ImmediateHeader) : 0));
    if (into == nullptr || !payload) return Verdict::left;
  }
  const bool stands = what.immediate && queue_pair.options.standing_receive;
  if (stands && completions.room() == 0) return Verdict::left;
  if (what.immediate && !stands && queue_pair.receive.empty() && !responder_.has_receive(queue_pair)) {
    return Verdict::left;
  }
  if (!direct) {
    if (!payload->copy_by(0, {into, headers.bytes}, guarded_copy)) [[unlikely]] {
      refused_ = as_received(slot, headers, CellPayload(*payload));
      responder_.refuse_gone_target(queue_pair, headers.tag, refused_);
      return Verdict::refused;
    }
    context_.counters.bytes_received += headers.bytes;
  }
  if (stands) completions.reserve(1);
  complete(queue_pair, completions, slot, what, headers, stands);
  return Verdict::taken;
}

/// What the queue pair does not want is counted, and taken all the same.
[[gnu::hot, gnu::flatten, gnu::noinline]] Express::Verdict Express::take_datagram(Path& path, SlotReceiver& from,
                                                                                  ReceivedSlot& slot,
                                                                                  const OpcodeTraits& what) {
  QueuePair* queue_pair = find_receiver(path, QpNumber{slot.header().queue_pair.value()});
  const std::uint32_t payload_bytes = slot.layout().payload_bytes;
  const bool usual = queue_pair != nullptr && queue_pair->options.datagram && queue_pair->rules().connected &&
                     !queue_pair->receive.empty() && payload_bytes >= sizeof(DatagramBytes);
  if (!usual) return Verdict::left;
  const ReceiveEntry& entry = queue_pair->receive.entries[queue_pair->receive.taken];
  const LocalSegment& segment = entry.segments[0];
  const auto message_bytes = static_cast<std::uint32_t>(payload_bytes - sizeof(DatagramBytes));
  const std::uint32_t needed = kRouteHeaderBytes + message_bytes;
  if (entry.segment_count != 1 || needed > entry.bytes) return Verdict::left;
  std::byte* into = queue_pair->receive.region.place(segment.tag, segment.as_number(), needed, Right::local_write);
  const std::size_t extension_bytes = what.immediate ? sizeof(ImmediateHeader) : 0;
  if (into == nullptr || (what.immediate && !slot.fits(extension_bytes))) return Verdict::left;
  if (what.immediate) from.load_body();
  AdapterCounters& counters = context_.counters;
  counters.bytes_received += payload_bytes;
  DatagramBytes head;
  static_cast<void>(from.copy_payload(extension_bytes, 0, std::as_writable_bytes(std::span(&head, 1)), copy_plainly));
  DatagramHeader header;
  if (head.group.is_group() || !decode_datagram(head, header)) {
    ++counters.dropped_bad_cell;
    return Verdict::taken;
  }
  if (header.queue_key != queue_pair->options.queue_key) {
    ++counters.dropped_wrong_queue_key;
    return Verdict::taken;
  }
  const auto route = route_fields(header, message_bytes);
  const bool there =
      guarded_copy(into, &route, sizeof route) && guarded_copy(into + sizeof route, &path.route, sizeof path.route) &&
      from.copy_payload(extension_bytes, sizeof head, {into + kRouteHeaderBytes, message_bytes}, guarded_copy);
  if (!there) {
    report_gone(context_, queue_pair->number, segment.tag);
    ++counters.dropped_unacknowledged;
    return Verdict::taken;
  }
  const bool solicited = (slot.header().shape.value() & slot_shape::kSolicited) != 0;
  const std::uint32_t immediate =
      what.immediate ? header_at<ImmediateHeader>(slot.extension(extension_bytes), 0).value() : 0;
  complete_datagram(context_, *queue_pair,
                    {header.source_queue_pair, path.number, needed, solicited, what.immediate, immediate});
  return Verdict::taken;
}

/// What grants the write. Null: the responder finds out why, or the entry counts how often it is touched.
const ProtectionEntry* Express::target_of(QueuePair& queue_pair, const Headers& headers, std::uint32_t psn) const {
  if (headers.bytes == 0) return nullptr;
  return granted(queue_pair, queue_pair.target, Right::remote_write, {headers.address, headers.tag}, headers.bytes,
                 psn);
}

/// What grants the peer this access. Asks the table only if what it granted last says nothing about this one.
const ProtectionEntry* Express::granted(const QueuePair& queue_pair, RememberedTarget& last, Right right,
                                        const RemoteAddress& at, std::uint32_t bytes, std::uint32_t psn) const {
  if (!queue_pair.options.remote_rights.has(right)) return nullptr;
  if (const ProtectionEntry* known = last.find(at.tag, {at.address, bytes})) return known;
  const auto placement = context_.table.check_remote(access_of(queue_pair, at.tag, bytes, right, psn), at.address);
  if (!placement || placement->entry->touch != TouchControl::unlimited) return nullptr;
  last.remember(at.tag, at.address, *placement);
  return placement->entry;
}

/// For the responder.
ReceivedCell Express::as_received(const ReceivedSlot& slot, const Headers& headers, const CellPayload& payload) {
  ReceivedCell received;
  Cell& cell = received.cell;
  static_cast<void>(decode_slot_fields(slot_fields(slot.header()), cell));  // an opcode that take() knows
  cell.tag = headers.tag;
  cell.address = headers.address;
  cell.message_bytes = headers.bytes;
  cell.immediate = headers.immediate;
  received.payload = payload;
  return received;
}

/// stands: the receive that is used, which stays.
inline void Express::complete(QueuePair& queue_pair, CompletionQueue& completions, const ReceivedSlot& slot,
                              const OpcodeTraits& what, const Headers& headers, bool stands) {
  const bool is_send = what.is(MessageKind::send);
  if (is_send || what.immediate) {
    const auto say = [&](Completion& completion) {
      completion.operation = is_send ? Operation::send : Operation::rdma_write_with_immediate;
      completion.has_immediate = what.immediate;
      completion.immediate = headers.immediate;
      completion.bytes = headers.bytes;
      completion.solicited = (slot.header().shape.value() & slot_shape::kSolicited) != 0;
    };
    if (stands) {
      complete_standing_receive(context_, completions, queue_pair, say);
    } else {
      complete_receive(context_, completions, queue_pair, say);
    }
  }
  note_taken(queue_pair, 1);
}

}  // namespace splitnic::fabric
