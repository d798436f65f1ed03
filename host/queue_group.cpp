#include "host/queue_group.h"

namespace splitnic::host {

QueueGroup::QueueGroup(std::size_t further) {
  for (std::size_t queue = 0; queue < further; ++queue) members_.push_back(std::make_unique<Member>());
}

void QueueGroup::set_terms(std::uint64_t cookie, const NicOffloads& offloads) {
  {
    const std::lock_guard lock(mutex_);
    terms_ = {.generation = terms_.generation + 1, .cookie = cookie, .offloads = offloads};
    generation_.store(terms_.generation, std::memory_order_release);  // G1
  }
  for (std::size_t queue = 0; queue < members_.size(); ++queue) wake(queue);
}

QueueGroup::Terms QueueGroup::terms() const {
  const std::lock_guard lock(mutex_);
  return terms_;
}

void QueueGroup::report(std::size_t queue, const Report& report) {
  const std::lock_guard lock(mutex_);
  members_[queue]->last = report;
}

QueueGroup::Sum QueueGroup::sum() const {
  const std::lock_guard lock(mutex_);
  Sum sum;
  for (const auto& member : members_) {
    const Report& last = member->last;
    sum.queues_up += last.up ? 1 : 0;
    sum.totals += last.totals;
    sum.counters += last.counters;
    sum.oversized += last.oversized;
    sum.unfinished += last.unfinished;
  }
  return sum;
}

}  // namespace splitnic::host
