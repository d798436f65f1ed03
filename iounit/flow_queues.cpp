#include "iounit/flow_queues.h"

#include <algorithm>

#include "common/check.h"

namespace splitnic::iounit {

FlowQueues::FlowQueues() : sets_(kSets) {}

void FlowQueues::set_up(std::size_t queue, bool up) {
  up_[queue] = up;
  note_empty(queue);
}

/// The flow's entry, perhaps a new one. Null: every entry of its set has frames under way.
FlowQueues::Flow* FlowQueues::find(std::uint64_t flow) {
  current_ = nullptr;
  Set& set = set_of(flow);
  const auto known = std::ranges::find_if(set.flows, [&](const Flow& it) { return it.used && it.number == flow; });
  if (known != set.flows.end()) return &*known;
  auto place = std::ranges::find_if(set.flows, [](const Flow& it) { return !it.used; });
  if (place == set.flows.end()) {
    // Not always the first one: the number decides where the search begins.
    const auto first = set.flows.begin() + static_cast<std::ptrdiff_t>(flow / kSets % kWays);
    const auto free = [this](const Flow& it) { return settled(it); };
    place = std::find_if(first, set.flows.end(), free);
    if (place == set.flows.end()) place = std::find_if(set.flows.begin(), first, free);
    if (place == first && !free(*first)) {
      set.crowded = true;
      return nullptr;
    }
  }
  const auto queue = static_cast<std::uint8_t>(by_number(flow));
  // In a crowded set, frames of this flow may be under way in this queue.
  *place = {.number = flow, .mark = set.crowded ? sent_[queue] : 0, .queue = queue, .wanted = queue, .used = true};
  return &*place;
}

/// By the flow's number, one of the queues that are up.
std::size_t FlowQueues::by_number(std::uint64_t flow) const {
  const auto count = static_cast<std::uint64_t>(std::ranges::count(up_, true));
  if (count == 0) return 0;
  std::uint64_t skip = (flow >> 32U) * count >> 32U;
  std::size_t queue = 0;
  while (!up_[queue] || skip-- != 0) ++queue;
  return queue;
}

void FlowQueues::change(Flow& flow) const {
  if (!settled(flow)) return;
  if (up_[flow.wanted]) {
    flow.queue = flow.wanted;
  } else if (!up_[flow.queue]) {
    flow.queue = flow.wanted = static_cast<std::uint8_t>(by_number(flow.number));
  }
  flow.mark = 0;
}

void FlowQueues::heard(std::uint64_t flow, std::size_t queue) {
  if (Flow* const found = find(flow)) found->wanted = static_cast<std::uint8_t>(queue);
}

void FlowQueues::sent() {
  ++sent_[current_queue_];
  if (current_ != nullptr) current_->mark = sent_[current_queue_];
}

}  // namespace splitnic::iounit
