#include <algorithm>

#include "fabric/adapter/express.h"
#include "fabric/adapter/express_parts.h"
#include "fabric/adapter/placer.h"

/// The most frequent of the messages that go the short way, as many as there are in a row: loops so short that what
/// they count stays in registers, and a message costs few stores. A sender's stores leave in their order, and wait
/// behind those into the peer's lines. What is not so simple is left to Express::post_slots() and take().
namespace splitnic::fabric {
namespace {

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

constexpr std::uint64_t kAnnouncements =
    what_of(Opcode::write_only_immediate, slot_shape::kAwaited | slot_shape::kDirect);
constexpr OnlyCell kAnnouncement = only_cell(Opcode::write_only_immediate);
static_assert(kAnnouncement.extension_bytes <= kSlotBodyInFirst);

}  // namespace

namespace express_rows {

/// What a row of requests has in common, and how many have left.
struct Posting {
  SendQueue& send;
  Ring<SendEntry>::Places entries;
  SlotSender::Row row;
  QpNumber to;
  std::uint64_t word;  ///< slot_word() of them all
  std::uint32_t psn_at_zero;
  std::uint64_t at;
  std::uint64_t bytes = 0;  ///< of all that have left
};

/// Puts each request's slot by put(request, segment, from, word, psn), which answers whether it could.
template <Operation operation, class Put>
[[gnu::always_inline]] inline void post_each(Posting& posting, std::span<const WorkRequest> requests,
                                             std::size_t most_bytes, const SendMarks& marks, Put&& put) {
  for (const WorkRequest& request : requests) {
    const bool may_go = request.operation == operation && is_in_one_piece(request);
    const LocalSegment& segment = request.segments[0];
    const std::uint32_t bytes = segment.bytes;
    if (!may_go || bytes > most_bytes) [[unlikely]]
      break;
    const std::byte* const from = posting.send.region.place(segment.tag, segment.as_number(), bytes, Right::local_read);
    if (from == nullptr) [[unlikely]]
      break;
    const std::uint64_t solicited = std::uint64_t{request.solicited ? slot_shape::kSolicited : 0U} << kSlotShapeBit;
    const std::uint32_t psn = posting.psn_at_zero + static_cast<std::uint32_t>(posting.at);
    if (!put(request, from, posting.word | solicited, psn)) [[unlikely]]
      break;
    posting.bytes += bytes;
    posting.entries[posting.at].begin_sent(request, bytes, psn, posting.row.head(), marks);
    ++posting.at;
  }
}

}  // namespace express_rows

/// Sends whose bytes lie in the lines of their slots, or direct writes with immediate, at the start of the list.
/// Returns how many.
template <Operation operation>
[[gnu::always_inline]] inline std::size_t Express::post_row_of(QueuePair& queue_pair,
                                                               std::span<const WorkRequest> requests) {
  constexpr bool sends = operation == Operation::send;
  Path& path = *queue_pair.path;
  const auto lane = static_cast<std::size_t>(queue_pair.options.lane);
  SlotLane* slots = path.slots[lane];
  SendQueue& send = queue_pair.send;
  const bool may_go = sends || (path.window != nullptr && send.cells_are_done());
  if (slots == nullptr || !may_go) return 0;
  CompletionQueue& completions = *queue_pair.send_cq;
  const std::uint64_t places =
      send.places(std::min<std::uint64_t>(requests.size(), completions.room()), completions.taken_out());
  if (places == 0) return 0;
  static_cast<void>(slots->sender.look_for_room(std::min<std::uint64_t>(2 * places, slots->sender.lines())));
  SlotFields fields;
  fields.opcode = static_cast<std::uint8_t>(sends ? Opcode::send_only : Opcode::write_only_immediate);
  fields.awaited = true;
  fields.direct = !sends;
  fields.settled = static_cast<std::uint32_t>(slots->receiver.settled());
  express_rows::Posting posting{send,
                                send.entries.places(),
                                SlotSender::Row(slots->sender),
                                queue_pair.peer.number,
                                slot_word(fields, SlotLayout{}),
                                send.next_psn - static_cast<std::uint32_t>(send.posted),
                                send.posted};
  const auto wanted = requests.first(places);
  if constexpr (sends) {
    const std::size_t most = std::min<std::size_t>(path.cell_payload_bytes, context_.options.max_message_bytes);
    const auto put = [&](const WorkRequest& request, const std::byte* from, std::uint64_t word, std::uint32_t psn) {
      return posting.row.put(word, posting.to, psn, 0, put_nothing, from, request.segments[0].bytes) != 0;
    };
    express_rows::post_each<operation>(posting, wanted, most, kSentInCells, put);
  } else {
    const MptWriter writer{queue_pair.number, queue_pair.peer.number};
    StoreHabit& stores = path.direct->announced;  // with an immediate, the peer reads the bytes next
    const auto put = [&](const WorkRequest& request, const std::byte* from, std::uint64_t word, std::uint32_t psn) {
      const std::uint32_t bytes = request.segments[0].bytes;
      if (bytes == 0 || !posting.row.has_room()) return false;
      const WindowPlace at = path.claim_direct(writer, request.remote, bytes);
      if (!at || !fill(path.window->claim(*at, bytes), from, stores)) return false;
      const auto put_headers = [&](std::byte* to) { put_extension(to, request, kAnnouncement, bytes); };
      return posting.row.put(word, posting.to, psn, kAnnouncement.extension_bytes, put_headers, nullptr, 0) != 0;
    };
    express_rows::post_each<operation>(posting, wanted, context_.options.max_message_bytes, kSentDirectly, put);
  }
  const std::uint64_t posted = posting.at - send.posted;
  if (posted == 0) return 0;
  posting.row.end(slots->sender, true);
  slots->receiver.reported_by_slot();
  send.next = send.posted = posting.at;
  if (sends) send.cells_to = posting.at;
  send.next_psn += static_cast<std::uint32_t>(posted);
  path.awaited[lane].note(posting.row.head(), queue_pair.number);
  (sends ? context_.counters.bytes_sent : context_.counters.direct_writes) += sends ? posting.bytes : posted;
  note_posted(context_, queue_pair, completions, posted);
  return posted;
}

[[gnu::hot, gnu::flatten, gnu::noinline]] std::size_t Express::post_send_row(QueuePair& queue_pair,
                                                                             std::span<const WorkRequest> requests) {
  const std::size_t posted = post_row_of<Operation::send>(queue_pair, requests);
  return posted == requests.size() ? posted : posted + post_others(queue_pair, requests.subspan(posted));
}

[[gnu::hot, gnu::flatten, gnu::noinline]] std::size_t Express::post_immediate_row(
    QueuePair& queue_pair, std::span<const WorkRequest> requests) {
  const std::size_t posted = post_row_of<Operation::rdma_write_with_immediate>(queue_pair, requests);
  return posted == requests.size() ? posted : posted + post_others(queue_pair, requests.subspan(posted));
}

/// Takes the lane's oldest slots, as long as they are sends whose bytes lie in their lines, or announce direct writes,
/// for one queue pair. Nobody has looked at the first. The end is `empty`, or `enough` as if nothing else were there.
[[gnu::hot, gnu::flatten, gnu::noinline]] Express::Burst Express::take_row(Path& path, SlotLane& slots,
                                                                           std::size_t most) {
  SlotReceiver::Row row(slots.receiver);
  if (!row.look()) return {0, End::empty};
  const std::uint64_t kind = row.words().what >> kSlotShapeBit & ~kEither;
  QueuePair* const queue_pair = kind == kSends || kind == kAnnouncements
                                    ? receiver(path, QpNumber{static_cast<std::uint32_t>(row.words().receiver)})
                                    : nullptr;
  if (queue_pair == nullptr) return {};
  ReceiveQueue& receive = queue_pair->receive;
  CompletionQueue& completions = *queue_pair->receive_cq;
  const Ring<ReceiveEntry>::Places entries = receive.entries.places();
  const QpNumber number = queue_pair->number;
  const bool stands = kind == kAnnouncements && queue_pair->options.standing_receive.has_value();
  const std::size_t limit = stands ? most : std::min<std::size_t>(most, receive.posted - receive.taken);
  CompletionQueue::Row made(completions);
  std::uint64_t bytes_in_all = 0;
  auto settled = static_cast<std::uint32_t>(slots.sender.settled());
  Burst burst{0, End::enough};
  std::size_t taken = 0;
  for (;;) {
    const std::uint64_t what = row.words().what >> kSlotShapeBit;
    const std::uint32_t psn = queue_pair->expected_psn + static_cast<std::uint32_t>(taken);
    const bool usual = (what & ~kEither) == kind && static_cast<std::uint32_t>(row.words().receiver) == number.value &&
                       row.words().receiver >> 32U == psn && taken != limit &&
                       (stands ? made.has_free_place() : made.has_room());
    if (!usual) [[unlikely]]
      break;
    const ReceiveEntry& entry = entries[receive.taken + taken];  // of one that stands, none
    const bool two_lines = (what & slot_shape::kTwoLines) != 0;
    std::uint32_t bytes = 0;
    std::uint32_t immediate = 0;
    if (kind == kSends) {
      bytes = static_cast<std::uint32_t>(row.words().place);
      const std::size_t fit = two_lines ? kSlotBodyInBoth : kSlotBodyInFirst;
      const LocalSegment& segment = entry.segments[0];
      if (row.words().place > fit || entry.segment_count != 1 || bytes > entry.bytes ||
          (two_lines && !row.has_second())) [[unlikely]]
        break;
      std::byte* const into = receive.region.place(segment.tag, segment.as_number(), bytes, Right::local_write);
      if (into == nullptr || !row.copy(into, bytes)) [[unlikely]]
        break;
      bytes_in_all += bytes;
    } else {
      if (two_lines || row.words().place != 0) [[unlikely]]
        break;
      const auto rdma = row.header<RdmaHeader>(0);
      const Headers headers{Stag{rdma.tag.value()}, rdma.address.value(), rdma.length.value(),
                            row.header<ImmediateHeader>(sizeof rdma).value()};
      const ProtectionEntry* target = target_of(*queue_pair, headers, psn);
      if (target == nullptr || !target->placeable) [[unlikely]]
        break;
      bytes = headers.bytes;
      immediate = headers.immediate;
    }
    Completion& completion = stands ? made.next_free() : made.next();
    completion = Completion{};  // not a copy of a usual one, whose fields GCC would store again for each
    completion.id = stands ? *queue_pair->options.standing_receive : entry.id;
    completion.queue_pair = number;
    completion.receive = true;
    completion.bytes = bytes;
    completion.solicited = (what & slot_shape::kSolicited) != 0;
    if (kind == kAnnouncements) {
      completion.operation = Operation::rdma_write_with_immediate;
      completion.has_immediate = true;
      completion.immediate = immediate;
    }
    const auto settled_now = static_cast<std::uint32_t>(row.words().what);
    if (settled_now != settled) {
      slots.sender.note_settled(settled_now);
      settled = settled_now;
    }
    row.pop(two_lines);
    ++taken;
    if (row.look()) continue;
    burst.end = End::empty;
    break;
  }
  row.end();
  burst.taken = taken;
  if (taken == 0) return burst;
  made.end(completions);
  if (!stands) receive.taken += taken;
  context_.counters.bytes_received += bytes_in_all;
  context_.counters.cells_received += burst.taken;
  note_taken(*queue_pair, static_cast<std::uint32_t>(burst.taken));
  return burst;
}

}  // namespace splitnic::fabric
