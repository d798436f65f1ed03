#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "common/time.h"
#include "fabric/bridge/shm_memory.h"

namespace splitnic::fabric {

/// New memory of bridges, to be prefaulted when there is time. Clearing and mapping the memory of one bridge takes
/// milliseconds, and a host that has just got its bridge needs the processor more: it uses few pages at first. So each
/// memory waits for its time, and is then prefaulted in slices between which other work can be done. A memory that ends
/// before is left out. Thread: the owner.
class PrefaultQueue {
 public:
  /// How long a new memory waits, and the bytes of a slice, which takes about 0.1 ms.
  static constexpr Duration kDelay = std::chrono::milliseconds(50);
  static constexpr std::size_t kSliceBytes = 256U << 10U;

  /// bytes: from the start; more than the memory has mean all of it.
  void add(std::weak_ptr<const ShmMemory> memory, Time now, std::size_t bytes = ~std::size_t{0}) {
    waiting_.push_back({now + kDelay, std::move(memory), bytes});
  }
  /// Prefaults a slice of the first memory, if it is time. No errors: what can't be prefaulted faults later.
  void poll(Time now);
  /// Of the first memory that has not ended; kNever: there is none.
  [[nodiscard]] Time next_deadline() const;

 private:
  struct Waiting {
    Time due;
    std::weak_ptr<const ShmMemory> memory;
    std::size_t bytes = 0;
    std::size_t done = 0;
  };

  std::deque<Waiting> waiting_;
};

}  // namespace splitnic::fabric
