#include "fabric/bridge/prefault_queue.h"

#include <algorithm>

namespace splitnic::fabric {

void PrefaultQueue::poll(Time now) {
  for (; !waiting_.empty(); waiting_.pop_front()) {
    Waiting& first = waiting_.front();
    const auto memory = first.memory.lock();
    if (!memory) continue;
    if (now < first.due) return;
    memory->prefault(first.done, kSliceBytes);
    first.done += kSliceBytes;
    if (first.done >= std::min(first.bytes, memory->mapped_bytes())) waiting_.pop_front();
    return;
  }
}

Time PrefaultQueue::next_deadline() const {
  const auto next = std::ranges::find_if(waiting_, [](const Waiting& it) { return !it.memory.expired(); });
  return next == waiting_.end() ? kNever : next->due;
}

}  // namespace splitnic::fabric
