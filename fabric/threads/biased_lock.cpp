#include "fabric/threads/biased_lock.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

namespace splitnic::fabric {
namespace {

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0U, 0) == 0; }

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
  static_assert(sizeof word == sizeof value && std::atomic<std::uint32_t>::is_always_lock_free);
  ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

/// The kernel wants to be told that a process uses its fence; with several threads that takes it milliseconds. Two
/// threads may both tell it. None waits for the other: a forked child would wait for a thread that it does not have.
bool fence_registered() {
  enum class Fence { untold, registered, refused };
  static constinit std::atomic<Fence> fence{Fence::untold};
  if (fence.load() == Fence::untold) {
    const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    fence.store(registered ? Fence::registered : Fence::refused);
  }
  return fence.load() == Fence::registered;
}

/// For a process that has forbidden itself the fence meanwhile, by a filter of system calls. A store leaves its
/// processor within microseconds, and at the latest when the kernel takes the processor from the thread.
void outlast_all_stores() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

}  // namespace

BiasedLock::BiasedLock(bool single_threaded, const BiasPolicy& policy)
    : lock_(single_threaded),
      policy_(policy),
      has_fence_(!single_threaded && fence_registered()),
      row_for_bias_(policy.first_row),
      all_(has_fence_ ? policy.most_threads : 0) {}

void BiasedLock::wake_revoker(Biased& biased) { futex(biased.inside, FUTEX_WAKE_PRIVATE, 1); }

void BiasedLock::bias_to(pthread_t thread) {
  row_ = 0;
  Biased* const biased = entry_of(thread);
  if (biased == nullptr) return;
  ++biases_;
  bias_.store(biased, std::memory_order_release);
}

/// Under lock_, so that it becomes biased to nobody else meanwhile.
void BiasedLock::revoke() {
  Biased& biased = *bias_.load(std::memory_order_relaxed);
  bias_.store(nullptr, std::memory_order_relaxed);
  if (!membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
    has_fence_ = false;  // and so no bias again
    outlast_all_stores();
  }
  while (biased.inside.load(std::memory_order_acquire) != 0) futex(biased.inside, FUTEX_WAIT_PRIVATE, 1);
  ++revocations_;
  const bool paid = biased.uses >= policy_.uses_that_pay;
  row_for_bias_ =
      paid ? std::max(row_for_bias_ / 2, policy_.first_row) : std::min(row_for_bias_ * 2, policy_.longest_row);
  biased.uses = 0;
}

/// Null: there were too many threads.
BiasedLock::Biased* BiasedLock::entry_of(pthread_t thread) {
  const auto used = std::span(all_).first(entries_);
  const auto found = std::ranges::find(used, thread, &Biased::thread);
  if (found != used.end()) return &*found;
  if (entries_ == all_.size()) return nullptr;
  all_[entries_].thread = thread;
  return &all_[entries_++];
}

}  // namespace splitnic::fabric
