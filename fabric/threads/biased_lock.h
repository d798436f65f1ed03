#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fabric/threads/verb_lock.h"

namespace splitnic::fabric {

/// When a lock is biased to a thread. Rows and uses count how often it was taken.
struct BiasPolicy {
  std::uint32_t first_row = 64;  ///< one thread in a row, before the first bias
  std::uint32_t longest_row = std::uint32_t{1} << 24U;
  /// A bias that was used so often before it was revoked has paid, and the row for the next is half as long. After any
  /// other it is twice as long.
  std::uint64_t uses_that_pay = std::uint64_t{1} << 16U;
  /// To so many threads, one after the other; to those after them the lock is never biased. Each takes 24 bytes.
  std::size_t most_threads = 32;
};

/// A VerbLock that is biased to the thread which takes it again and again: that thread takes it and gives it back by
/// plain loads and stores. An atomic operation would wait until all earlier stores have left the processor, those to
/// the peer's memory among them.
///
/// Another thread that wants the lock revokes the bias: it says so, has the kernel execute a fence on every processor
/// that runs this process (membarrier(2)), and waits until the biased thread is outside. That one says that it is
/// inside, and then looks whether the bias still stands; so one of the two sees the other. From then on the lock is a
/// VerbLock, until a thread has taken it often enough in a row. A revocation takes microseconds, so rows become longer
/// where biases don't last.
///
/// Where the kernel has no such fence, or a filter of system calls refuses it, there is no bias. Thread: any. After a
/// fork only the parent uses it. tests/models/bias.pml searches the interleavings.
class BiasedLock {
 public:
  /// single_threaded: there is nothing to lock.
  explicit BiasedLock(bool single_threaded, const BiasPolicy& policy = {});
  BiasedLock(const BiasedLock&) = delete;
  BiasedLock& operator=(const BiasedLock&) = delete;

  void lock() {
    const pthread_t self = ::pthread_self();
    Biased* const biased = bias_.load(std::memory_order_acquire);
    if (biased != nullptr && biased->thread == self) {
      biased->inside.store(1, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // for the compiler; the processor's is the revoker's
      if (bias_.load(std::memory_order_relaxed) == biased) {
        ++biased->uses;
        holder_ = biased;
        return;
      }
      leave(*biased);
    }
    take_unbiased();
    if (!has_fence_) return;
    row_ = last_ == self ? row_ + 1 : 1;
    last_ = self;
    if (row_ >= row_for_bias_) bias_to(self);
  }
  /// False: a thread has it, this one or another, or it is biased to another one.
  [[nodiscard]] bool try_lock() {
    const Biased* const biased = bias_.load(std::memory_order_acquire);
    if (biased != nullptr) {
      if (biased->thread != ::pthread_self() || biased->inside.load(std::memory_order_relaxed) != 0) return false;
      lock();
      return true;
    }
    if (!lock_.try_lock()) return false;
    if (bias_.load(std::memory_order_relaxed) != nullptr) {
      lock_.unlock();
      return false;
    }
    holder_ = nullptr;
    return true;
  }
  void unlock() {
    if (holder_ != nullptr) {
      leave(*holder_);
    } else {
      lock_.unlock();
    }
  }
  /// lock() of a thread in the background: the lock never becomes biased to it.
  void lock_in_background() { take_unbiased(); }
  /// As VerbLock::let_others_in().
  void let_others_in() const { lock_.let_others_in(); }
  /// How often it was found held, except by the thread it was biased to.
  [[nodiscard]] std::uint64_t contended() const { return lock_.contended(); }
  /// How often it has become biased, and how often that was revoked. Under the lock.
  [[nodiscard]] std::uint64_t biases() const { return biases_; }
  [[nodiscard]] std::uint64_t revocations() const { return revocations_; }

 private:
  /// A thread that the lock was ever biased to. Each has one of its own, because it may still be about to say that it
  /// is inside while the lock is biased to another.
  struct Biased {
    pthread_t thread{};                    // set once, before bias_ says so
    std::atomic<std::uint32_t> inside{0};  // 1: it has the lock, or is about to see that it has not
    std::uint64_t uses = 0;                // since the bias
  };
  void leave(Biased& biased) {
    biased.inside.store(0, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (bias_.load(std::memory_order_relaxed) != &biased) wake_revoker(biased);
  }
  static void wake_revoker(Biased& biased);
  void take_unbiased() {
    lock_.lock();
    if (bias_.load(std::memory_order_relaxed) != nullptr) revoke();
    holder_ = nullptr;
  }
  void revoke();
  void bias_to(pthread_t thread);
  [[nodiscard]] Biased* entry_of(pthread_t thread);

  std::atomic<Biased*> bias_{nullptr};  // changed under lock_
  VerbLock lock_;
  const BiasPolicy policy_;

  // Of who has the lock.
  bool has_fence_;
  Biased* holder_ = nullptr;  // null: lock_ is held
  pthread_t last_{};          // took lock_ last,
  std::uint32_t row_ = 0;     // and so often in a row
  std::uint32_t row_for_bias_;
  std::uint64_t biases_ = 0;
  std::uint64_t revocations_ = 0;
  std::size_t entries_ = 0;
  std::vector<Biased> all_;  // as many as ever
};

}  // namespace splitnic::fabric
