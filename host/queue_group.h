#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/os/event_bell.h"
#include "host/host_counters.h"
#include "host/virtual_nic.h"
#include "messaging/session_counters.h"

namespace splitnic::host {

/// The state that the threads of a host with several queues share. The first queue's thread sets the terms of the
/// session; the threads of the further queues follow them and report their counts. Any thread.
class QueueGroup {
 public:
  /// further: the number of further queues, at least 1. Throws StartupError if the process has no descriptor left.
  explicit QueueGroup(std::size_t further);
  QueueGroup(const QueueGroup&) = delete;
  QueueGroup& operator=(const QueueGroup&) = delete;

  /// The session as it is now.
  struct Terms {
    std::uint64_t generation = 0;  ///< grows with each change
    std::uint64_t cookie = 0;      ///< of the session's bridge; 0: no further queue can be up
    NicOffloads offloads{};        ///< agreed
  };
  /// First queue: further queues may join the session with this cookie from now on. 0: they end.
  void set_terms(std::uint64_t cookie, const NicOffloads& offloads);
  [[nodiscard]] Terms terms() const;
  /// Terms::generation, without the mutex: for each poll.
  [[nodiscard]] std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  /// Readable after each wake(), until heard(). queue: 0 for the first further queue.
  [[nodiscard]] int descriptor(std::size_t queue) const { return members_[queue]->bell.descriptor(); }
  void wake(std::size_t queue) { members_[queue]->bell.ring(); }
  /// Makes the descriptor unreadable again. Thread: that queue's. Costs one load while nobody has called wake().
  void heard(std::size_t queue) { members_[queue]->bell.heard(); }

  /// What one further queue has counted since its start.
  struct Report {
    bool up = false;
    messaging::SessionTotals totals{};
    HostCounters counters{};
    std::uint64_t oversized = 0;
    std::uint64_t unfinished = 0;
  };
  void report(std::size_t queue, const Report& report);
  /// The sum of the last reports.
  struct Sum {
    std::size_t queues_up = 0;
    messaging::SessionTotals totals{};
    HostCounters counters{};
    std::uint64_t oversized = 0;
    std::uint64_t unfinished = 0;
  };
  [[nodiscard]] Sum sum() const;
  [[nodiscard]] std::size_t further() const { return members_.size(); }

 private:
  struct Member {
    os::EventBell bell;
    Report last;
  };
  mutable std::mutex mutex_;  // guards terms_ and each Member::last
  Terms terms_;
  // G1 (release): stored after terms_, under the mutex; pairs with the acquire in generation(). A thread that sees the
  // number reads terms() next, and finds the terms of this number or of a later one.
  std::atomic<std::uint64_t> generation_{0};
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace splitnic::host
