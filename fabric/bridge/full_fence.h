#pragma once

#include <atomic>

namespace splitnic::fabric {

/// Loads after it see memory as it is once the stores before it are visible to all processors: the store-to-load order
/// that release and acquire do not give, and that "arm, then look again" stands on. Thread: any.
inline void full_fence() {
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer does not understand fences (g++ refuses them). A locked exchange is a full fence of the processors
  // it runs on; on a private word it lends the sanitizer no edge between threads that production would not have.
  std::atomic<unsigned> word{0};
  static_cast<void>(word.exchange(1, std::memory_order_seq_cst));
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Stores before it are visible before stores after it.
inline void store_fence() {
#ifdef __SANITIZE_THREAD__
  full_fence();
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace splitnic::fabric
