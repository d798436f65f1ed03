#include "iounit/shared_policy.h"

namespace splitnic::iounit {

/// The units share one copy of each version.
SharedPolicy::Copy SharedPolicy::copy(Time now, Age age) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  if (copy_.version != version && (age == Age::now || now >= copy_.next)) {
    copy_ = {version, std::make_shared<const Policy>(policy_), now + kBetweenCopies};
    ++copies_;
  }
  return copy_;
}

}  // namespace splitnic::iounit
