#include "in_flight.h"

#include <algorithm>

namespace splitnic::sim {

namespace {

/// The owner carries out what comes over one queue in its order, and what is stored directly waits for what goes in
/// cells; but reads are answered in the owner's own time.
bool in_order(const Request& earlier, const Request& later) {
  return earlier.from == later.from && earlier.queue == later.queue && !earlier.reads();
}

bool memory_conflict(const Request& earlier, const Request& later, bool overtakes) {
  for (const Use& before : earlier.uses) {
    for (const Use& after : later.uses) {
      const bool ordered = before.remote && after.remote && !overtakes && in_order(earlier, later);
      if (!ordered && (before.writes || after.writes) && overlap(before.piece, after.piece)) return true;
    }
  }
  return false;
}

bool tag_conflict(const Request& earlier, const Request& later) {
  // An invalidation waits for all that its queue has before it.
  const bool waits = later.work.operation == fabric::Operation::local_invalidate && earlier.from == later.from &&
                     earlier.queue == later.queue;
  if (waits && !earlier.fails() && !later.fails()) return false;
  for (const TagUse& before : earlier.tags) {
    for (const TagUse& after : later.tags) {
      if (before.site != after.site || (!before.changes && !after.changes)) continue;
      // What a refusal depends on is more than the one tag.
      if (earlier.fails() || later.fails()) return true;
      // The owner's order, or that of the queue's own registrations and binds and their use behind them.
      const bool same_side = before.remote ? after.remote : earlier.changes_own_table() && !after.remote;
      const bool ordered = same_side && in_order(earlier, later);
      if (!ordered && before.index == after.index) return true;
    }
  }
  return false;
}

}  // namespace

bool conflict(const Request& earlier, const Request& later, bool overtakes) {
  const bool fenced = later.work.fence && earlier.answered() && earlier.from == later.from &&
                      earlier.queue == later.queue && !later.work.inline_data && !later.changes_own_table();
  // What is looked at when the request is posted waits for no fence.
  if (fenced && later.post_expected == fabric::Status::ok && !later.fails()) return false;
  return memory_conflict(earlier, later, overtakes) || tag_conflict(earlier, later);
}

bool uses_tag(const Request& request, std::size_t site, std::uint32_t index) {
  return std::any_of(request.tags.begin(), request.tags.end(),
                     [&](const TagUse& use) { return use.site == site && (use.index == index || request.fails()); });
}

}  // namespace splitnic::sim
