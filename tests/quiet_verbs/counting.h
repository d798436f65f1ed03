#pragma once

#include <cstdint>

/// Counts what a thread asks of the allocator, of locks and of the kernel.
namespace splitnic::quiet_verbs {

struct Counted {
  std::uint64_t allocations = 0;  ///< malloc and its relatives; free does not count
  std::uint64_t system_calls = 0;
  std::uint64_t locks =
      0;  ///< taken by a call that sleeps or spins while others hold it; of mutexes, rwlocks, spinlocks
  /// Taken by pthread_mutex_trylock and its relatives: an atomic operation, and one to unlock.
  std::uint64_t tried_locks = 0;
  std::uint64_t failed_tries = 0;  ///< calls of these that found the lock taken

  friend bool operator==(const Counted&, const Counted&) = default;
};

/// From now on until stop(), of this thread. The first call adds a filter of system calls to the thread, for good: let
/// it be one that ends soon. The calls are carried out.
void start_counting();
Counted stop_counting();

/// Bytes that the allocator has given out and not got back, in all threads.
[[nodiscard]] std::uint64_t bytes_in_use();

}  // namespace splitnic::quiet_verbs
