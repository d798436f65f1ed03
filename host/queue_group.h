#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/os/unique_fd.h"
#include "host/host_counters.h"
#include "host/virtual_nic.h"
#include "messaging/session_counters.h"

namespace splitnic::host {

/// What the threads of a host with several queues tell each other: the first queue's, which has the session and all
/// settings, and those of the further queues. Any thread.
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
  /// Terms::generation, for a cheap look in each poll.
  [[nodiscard]] std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  /// Readable after each wake(), until heard(). queue: 0 for the first further queue.
  [[nodiscard]] int descriptor(std::size_t queue) const { return members_[queue]->bell.get(); }
  void wake(std::size_t queue);
  /// That queue's thread. Cheap while nobody has called wake().
  void heard(std::size_t queue);

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
    os::UniqueFd bell;
    std::atomic<bool> rung{false};
    Report last;
  };
  mutable std::mutex mutex_;  // guards terms_ and each Member::last
  Terms terms_;
  // G1 (release): stored after terms_; pairs with the acquire in generation(). A thread that sees the number finds the
  // terms by the mutex anyway; without G1 it could look for them one poll too early and then not again.
  std::atomic<std::uint64_t> generation_{0};
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace splitnic::host
