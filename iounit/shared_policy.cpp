#include "iounit/shared_policy.h"

namespace splitnic::iounit {

/// The units share one copy of each version.
SharedPolicy::Copy SharedPolicy::copy() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  if (copy_.version != version) copy_ = {version, std::make_shared<const Policy>(policy_)};
  return copy_;
}

}  // namespace splitnic::iounit
