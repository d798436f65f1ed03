#include "fabric/threads/companions.h"

namespace splitnic::fabric {

void Companions::add(Companion& one) {
  const std::lock_guard guard(mutex_);
  all_.push_back(&one);
  count_.store(all_.size(), std::memory_order_relaxed);
}

void Companions::remove(Companion& one) {
  const std::lock_guard guard(mutex_);
  std::erase(all_, &one);
  count_.store(all_.size(), std::memory_order_relaxed);
}

void Companions::serve_others(const Companion& than) {
  if (count_.load(std::memory_order_relaxed) < 2) return;
  const std::unique_lock guard(mutex_, std::try_to_lock);
  if (!guard) return;
  for (Companion* one : all_) {
    if (one != &than) one->serve_while_another_waits();
  }
}

}  // namespace splitnic::fabric
