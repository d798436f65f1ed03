#include <algorithm>

#include "fabric/adapter/express.h"
#include "fabric/adapter/express_parts.h"

/// Writes whose bytes the caller has stored already (WorkRequest::placed_bytes): what leaves is the slot that says so.
namespace splitnic::fabric {
namespace {

using express_parts::append_sent;
using express_parts::fields_of;
using express_parts::note_posted;
using express_parts::only_cell_of;
using express_parts::OnlyCell;
using express_parts::put_extension;

bool is_announcement(const WorkRequest& request) {
  return request.placed_bytes != 0 && request.segment_count == 0 && is_write(request.operation) && !request.fence &&
         !request.inline_data && request.memory == nullptr;
}

}  // namespace

/// Those at the start of the list. Returns how many.
[[gnu::hot, gnu::flatten, gnu::noinline]] std::size_t Express::post_announcements(
    QueuePair& queue_pair, std::span<const WorkRequest> requests) {
  Path& path = *queue_pair.path;
  const auto lane = static_cast<std::size_t>(queue_pair.options.lane);
  SlotLane* slots = path.slots[lane];
  if (slots == nullptr || path.window == nullptr) return 0;
  SendQueue& send = queue_pair.send;
  CompletionQueue& completions = *queue_pair.send_cq;
  const std::uint64_t most = std::min<std::uint64_t>(requests.size(), completions.room());
  std::uint64_t posted = 0;
  for (const WorkRequest& request : requests.first(send.places(most, completions.taken_out()))) {
    const std::uint32_t bytes = request.placed_bytes;
    const bool may_go = is_announcement(request) && bytes <= context_.options.max_message_bytes;
    if (!may_go || !slots->sender.look_for_room(1)) break;
    const OnlyCell& cell = only_cell_of(request.operation);
    SlotFields fields = fields_of(queue_pair, request, cell, /*direct=*/true);
    const auto put_headers = [&](std::byte* headers) { put_extension(headers, request, cell, bytes); };
    const std::uint64_t position = slots->put(fields, cell.extension_bytes, put_headers, nullptr, 0);
    append_sent(send, request, bytes, position, kSentDirectly);
    path.awaited[lane].note(position, queue_pair.number);
    ++posted;
  }
  if (posted == 0) return 0;
  context_.counters.direct_writes += posted;
  note_posted(context_, queue_pair, completions, posted);
  return posted;
}

}  // namespace splitnic::fabric
