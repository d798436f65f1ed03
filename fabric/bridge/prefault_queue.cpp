#include "fabric/bridge/prefault_queue.h"

#include <algorithm>

namespace splitnic::fabric {

void PrefaultQueue::poll(Time now) {
  while (!waiting_.empty() && waiting_.front().memory.expired()) waiting_.pop_front();
  if (waiting_.empty() || now < waiting_.front().due) return;
  Waiting& first = waiting_.front();
  const auto memory = first.memory.lock();
  if (!memory) return;  // it has just ended, on another thread
  memory->prefault(first.done, kSliceBytes);
  first.done += kSliceBytes;
  if (first.done >= memory->mapped_bytes()) waiting_.pop_front();
}

Time PrefaultQueue::next_deadline() const {
  const auto next = std::ranges::find_if(waiting_, [](const Waiting& it) { return !it.memory.expired(); });
  return next == waiting_.end() ? kNever : next->due;
}

}  // namespace splitnic::fabric
