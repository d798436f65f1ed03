#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "iounit/policy.h"

namespace splitnic::iounit {

/// The one policy of several I/O units. Names and addresses are given and changed under a lock, so two units never give
/// the same one. For frames each unit has a copy that nobody changes, and takes a newer one when version() says so.
/// Copies have a least distance, so that a host that changes its address all the time costs the units no more than one
/// that does so now and then. Meanwhile the units judge frames by SharedPlaces, too, which knows the addresses in use
/// at once. Any thread.
class SharedPolicy {
 public:
  /// The least time between two copies, for all threads together.
  static constexpr Duration kBetweenCopies = std::chrono::milliseconds(10);

  /// seed: unpredictable to hosts and LAN.
  SharedPolicy(PolicyRules rules, std::uint64_t seed) : policy_(std::move(rules), seed) {}

  /// Calls change(policy) and returns what it returns. Nobody else reads or changes the policy meanwhile.
  template <class Change>
  auto change(Change&& change) {
    const std::lock_guard lock(mutex_);
    const NewVersion at_the_end{*this, policy_.changes()};
    return change(policy_);
  }
  /// The same without a change.
  template <class Read>
  auto read(Read&& read) const {
    const std::lock_guard lock(mutex_);
    return read(policy_);
  }
  /// Grows with each change(), unless the policy stays as it was: a refused hello makes nobody copy it.
  [[nodiscard]] std::uint64_t version() const { return version_.load(std::memory_order_acquire); }  // V1

  /// For one unit's frames. Nobody changes the policy in it.
  struct Copy {
    std::uint64_t version = 0;
    std::shared_ptr<const Policy> policy{};
    Time next{};  ///< ask for a newer one then, if version() says so
  };
  enum class Age : std::uint8_t { recent, now };
  /// recent: the policy as it was kBetweenCopies ago, or later. now: as it is. Takes the lock.
  [[nodiscard]] Copy copy(Time now, Age age = Age::recent);
  /// Copies that were made.
  [[nodiscard]] std::uint64_t copies() const {
    const std::lock_guard lock(mutex_);
    return copies_;
  }

 private:
  /// While the lock is held.
  struct NewVersion {
    ~NewVersion() {
      // V1 (release): pairs with V1 in version(). Who sees the number finds this change, or a later one, under the
      // lock.
      if (shared.policy_.changes() != before) shared.version_.fetch_add(1, std::memory_order_release);
    }
    SharedPolicy& shared;
    std::uint64_t before;
  };

  mutable std::mutex mutex_;
  std::atomic<std::uint64_t> version_{1};
  Policy policy_;
  Copy copy_;  ///< the last one that somebody asked for
  std::uint64_t copies_ = 0;
};

}  // namespace splitnic::iounit
