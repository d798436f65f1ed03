#pragma once

#include <atomic>

namespace splitnic::fabric {

/// Orders earlier stores before later loads: all processors see the stores before the loads are done. Release and
/// acquire do not give this order, and "arm, then poll again" depends on it. Thread: any.
inline void full_fence() {
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer does not understand fences (g++ refuses them). A locked exchange is a full fence on the processors
  // that the sanitizer supports. On a private word it gives the sanitizer no order between threads that production
  // would not have.
  std::atomic<unsigned> word{0};
  static_cast<void>(word.exchange(1, std::memory_order_seq_cst));
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Earlier stores become visible before later stores.
inline void store_fence() {
#ifdef __SANITIZE_THREAD__
  full_fence();
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace splitnic::fabric
