#include "queue_link.h"

#include <algorithm>

namespace splitnic::sim {

namespace {

constexpr Duration kRetry = std::chrono::milliseconds(10);

}  // namespace

QueueLink::QueueLink(const fabric::SimBridgeOptions& options, RandomSource& random) : pair_(options, random) {}

std::shared_ptr<fabric::Bridge> QueueLink::hold(std::size_t end) {
  held_[end] = true;
  return {&pair_.end(end), [this, end](fabric::Bridge*) {
            held_[end] = false;
            hang_up();
          }};
}

std::shared_ptr<fabric::Bridge> QueueLink::connect(Time now) {
  now_ = now;
  if (!may_connect(now)) return nullptr;
  retry_at_ = now + kRetry;
  pair_.restore();
  offered_ = true;
  return hold(0);
}

Time QueueLink::retry_at() const {
  if (held_[0]) return kNever;
  return held_[1] ? std::max(retry_at_, now_ + kRetry) : retry_at_;
}

std::shared_ptr<fabric::Bridge> QueueLink::accept() {
  if (!offered_) return nullptr;
  offered_ = false;
  return hold(1);
}

void QueueLink::hang_up() {
  offered_ = false;
  if (!pair_.is_cut()) pair_.cut();
}

}  // namespace splitnic::sim
