#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

namespace splitnic::fabric {

/// A lock for verbs of several threads. Taking it and giving it back are one atomic operation each while nobody
/// contends. Verbs are short: a thread that finds it held tries again for a moment, and then sleeps. Thread: any.
class VerbLock {
 public:
  /// single_threaded: there is nothing to lock.
  explicit VerbLock(bool single_threaded) : off_(single_threaded) {}

  void lock() {
    if (!off_ && !mutex_.try_lock()) lock_contended();
  }
  /// False: a thread has it. That may be this one: the mutex is one of POSIX.
  [[nodiscard]] bool try_lock() { return off_ || mutex_.try_lock(); }
  void unlock() {
    if (!off_) mutex_.unlock();
  }
  /// Yields the processor if another thread waits for the lock. A thread that polls in a loop calls it before each
  /// turn, without the lock.
  void let_others_in() const {
    if (waiting_.load(std::memory_order_relaxed) != 0) std::this_thread::yield();
  }
  /// How often it was found held.
  [[nodiscard]] std::uint64_t contended() const { return contended_.load(std::memory_order_relaxed); }

 private:
  void lock_contended() {
    contended_.fetch_add(1, std::memory_order_relaxed);
    waiting_.fetch_add(1, std::memory_order_relaxed);
    for (int tries = 0; tries < kTries; ++tries) {
      for (int pause = 0; pause < kPauses; ++pause) relax();
      if (mutex_.try_lock()) {
        waiting_.fetch_sub(1, std::memory_order_relaxed);
        return;
      }
    }
    mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  static void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  static constexpr int kTries = 20;
  static constexpr int kPauses = 10;

  const bool off_;
  std::mutex mutex_;
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<std::uint64_t> contended_{0};
};

}  // namespace splitnic::fabric
