#include <algorithm>
#include <array>

#include "fabric/adapter/express.h"
#include "fabric/adapter/express_parts.h"
#include "fabric/adapter/local_memory.h"
#include "fabric/adapter/placer.h"
#include "fabric/memory/guarded_copy.h"
#include "fabric/memory/read_admission.h"

/// Reads whose answer is one slot: asked for as they are posted, answered as the request is taken. Source: S3 Fig. 18A.
namespace splitnic::fabric {
namespace {

using express_parts::append;
using express_parts::append_rdma;
using express_parts::append_sent;
using express_parts::header_at;
using express_parts::note_posted;
using express_parts::send_slot;

constexpr std::size_t kExtensionBytes = sizeof(RdmaHeader) + sizeof(ReadHeader);
static_assert(kExtensionBytes <= kSlotBodyInFirst);

void put_extension(std::byte* to, const WorkRequest& request, std::uint32_t bytes, std::uint32_t message_sequence) {
  ReadHeader read;
  read.message_sequence = message_sequence;
  read.sink_tag = 0;
  read.sink_address = 0;
  append(append_rdma(to, request.remote, bytes), read);
}

bool read_may_go(const WorkRequest& request) {
  return request.operation == Operation::rdma_read && request.segment_count == 1 && !request.inline_data &&
         express_parts::is_simple(request) && request.segments[0].bytes != 0;
}

constexpr auto kPutNothing = [](std::byte*) {};

}  // namespace

/// Those at the start of the list, into memory that the peer can't store into itself. Returns how many.
[[gnu::hot, gnu::flatten, gnu::noinline]] std::size_t Express::post_reads(QueuePair& queue_pair,
                                                                          std::span<const WorkRequest> requests) {
  SlotLane* slots = queue_pair.path->slots[static_cast<std::size_t>(queue_pair.options.lane)];
  if (slots == nullptr) return 0;
  SendQueue& send = queue_pair.send;
  CompletionQueue& completions = *queue_pair.send_cq;
  const std::uint64_t before = send.posted;
  const auto most = std::min<std::uint64_t>(
      {requests.size(), completions.room(), send.max_unanswered - std::min(send.max_unanswered, send.unanswered)});
  for (const WorkRequest& request : requests.first(send.places(most, completions.taken_out()))) {
    if (!read_may_go(request)) break;
    const std::uint32_t bytes = request.segments[0].bytes;
    const bool fits =
        bytes <= context_.options.max_message_bytes && sink_of(queue_pair, request.segments[0]) != nullptr;
    if (!fits || is_worth_waiting(context_, queue_pair, request, bytes)) break;
    SlotFields fields;
    fields.opcode = static_cast<std::uint8_t>(Opcode::read_request);
    fields.queue_pair = queue_pair.peer.number;
    fields.packet_sequence = send.next_psn;
    const auto put_headers = [&](std::byte* to) { put_extension(to, request, bytes, send.message_sequence + 1); };
    const std::uint64_t position = slots->put(fields, kExtensionBytes, put_headers, nullptr, 0);
    if (position == 0) break;
    send.asked_at = position;
    ++send.message_sequence;

    append_sent(send, request, bytes, 0, kSentInCells).message_sequence = send.message_sequence;
    ++send.unanswered;
  }
  const std::uint64_t posted = send.posted - before;
  if (posted != 0) note_posted(context_, queue_pair, completions, posted);
  return posted;
}

/// Where the answer to an own read goes, if that is one piece of the process's memory that takes it as any local access
/// does. Null: the requester finds out.
inline std::byte* Express::sink_of(const QueuePair& queue_pair, const LocalSegment& segment) const {
  RememberedRegion& region = queue_pair.send.region;
  std::byte* into = region.place(segment.tag, segment.as_number(), segment.bytes, Right::local_write);
  if (into == nullptr) {
    static_cast<void>(
        check_segment(context_, queue_pair.consumer(), segment, 0, segment.bytes, Right::local_write, region));
    into = region.place(segment.tag, segment.as_number(), segment.bytes, Right::local_write);
  }
  return into != nullptr && region.takes_answers() ? into : nullptr;
}

/// A request of the peer's, which comes in order. It is answered at once if no answer waits before it, and is recorded
/// as answered, so that it can be answered again.
[[gnu::hot, gnu::flatten, gnu::noinline]] Express::Verdict Express::take_read(const Path& path, QueuePair& queue_pair,
                                                                              const ReceivedSlot& slot) {
  ResponseQueue& responses = queue_pair.responses;
  SlotLane* slots = path.slots[static_cast<std::size_t>(queue_pair.options.lane)];
  const bool at_once = queue_pair.path == &path && slots != nullptr && !slots->sender.wants_room() &&
                       responses.idle() && queue_pair.answers_reads && slot.layout().payload_bytes == 0;
  if (!at_once) return Verdict::left;
  const auto extension = slot.extension(kExtensionBytes);
  const auto rdma = header_at<RdmaHeader>(extension, 0);
  const auto read = header_at<ReadHeader>(extension, sizeof rdma);
  const std::uint32_t bytes = rdma.length.value();
  const std::size_t most = std::min<std::size_t>(
      {path.cell_payload_bytes, slots->sender.max_payload_bytes(), context_.options.max_message_bytes});
  const bool refused =
      read_refusal(read.message_sequence.value(), responses.taken, responses.answered, responses.depth).has_value();
  if (refused || bytes == 0 || bytes > most || read.sink_tag.value() != 0) return Verdict::left;

  const std::uint32_t psn = slot.header().packet_sequence.value();
  const RemoteAddress at{rdma.address.value(), Stag{rdma.tag.value()}};
  const bool may_read = granted(queue_pair, queue_pair.source, Right::remote_read, at, bytes, psn) != nullptr;
  const std::byte* from = may_read ? queue_pair.source.place(at.address) : nullptr;
  if (from == nullptr) return Verdict::left;
  SlotFields fields;
  fields.opcode = static_cast<std::uint8_t>(Opcode::read_response_only);
  fields.queue_pair = queue_pair.peer.number;
  fields.packet_sequence = psn;
  if (send_slot(*slots, fields, 0, kPutNothing, from, bytes) == 0) return Verdict::left;

  if (responses.taken >= responses.depth) {  // as Responder::take_request()
    end_one_shot(context_, queue_pair, responses.records[responses.taken - responses.depth]);
  }
  responses.records[responses.taken++].begin_read(queue_pair.domain, psn, read.message_sequence.value(), at, bytes);
  responses.restart_at(responses.taken);
  responses.in_cells = true;
  queue_pair.silent = false;
  ++queue_pair.expected_psn;
  AdapterCounters& counters = context_.counters;
  ++counters.segmented_reads;
  ++counters.cells_sent;
  counters.bytes_sent += bytes;
  return Verdict::taken;
}

/// The answer to the oldest read that awaits its.
[[gnu::hot, gnu::flatten, gnu::noinline]] Express::Verdict Express::take_answer(QueuePair& queue_pair,
                                                                                ReceivedSlot& slot) {
  SendEntry* entry = Requester::unanswered(queue_pair);
  const std::uint32_t bytes = slot.layout().payload_bytes;
  const bool awaited = entry != nullptr && entry->request.operation == Operation::rdma_read &&
                       entry->psn == slot.header().packet_sequence.value() && entry->bytes == bytes && bytes != 0 &&
                       entry->request.segment_count == 1;
  if (!awaited) return Verdict::left;
  std::byte* into = sink_of(queue_pair, entry->request.segments[0]);
  const auto payload = slot.payload(0);
  const bool there = into != nullptr && payload && payload->copy_by(0, {into, bytes}, guarded_copy);
  if (!there) return Verdict::left;
  context_.counters.bytes_received += bytes;
  requester_.answered(queue_pair, *entry);
  return Verdict::answered;
}

}  // namespace splitnic::fabric
