#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "common/time.h"
#include "fabric/memory/guarded_copy.h"

namespace splitnic::fabric {

/// How long payloads are stored that another core reads next: plainly, or past this core's caches. Plain stores have to
/// fetch each line from where the reader has it. If the two cores have a cache in common, and the memory is larger than
/// the caches that they have not, that is fast, and so is the reader. If not, stores past the caches are several times
/// as fast. Which it is can change while a program runs, where a virtual machine's processors move. So a habit times
/// some of its plain stores, and tries them again now and then. Thread: the owner of what it stores for.
class StoreHabit {
 public:
  /// Never a simulated one: what is stored is the same.
  using Clock = Time (*)();

  /// Shorter copies are always plain: they are over before they have fetched much.
  static constexpr std::size_t kLongBytes = 1024;
  /// Plain copies that take no longer than this for each byte, and this for each copy, are kept. Past the caches the
  /// reader has to fetch from memory, not much faster than that, and each copy ends with a wait until its stores have
  /// left. Slower plain stores between near cores become fast once others have gone past the caches.
  static constexpr std::uint64_t kFastBytesPerSecond = 8'000'000'000;
  static constexpr std::chrono::nanoseconds kWaitOfCopy{160};
  /// Of plain copies, one in so many is timed.
  static constexpr unsigned kTimedOneIn = 64;
  /// Timed copies, one after the other, that say the same before the habit changes: an interrupt slows one down.
  static constexpr unsigned kAgreeing = 3;
  /// Bytes past the caches before plain stores are tried: for the first time, and again.
  static constexpr std::size_t kFirstTryAfter = 64U << 10U;
  static constexpr std::size_t kTryAgainAfter = 4U << 20U;

  StoreHabit() = default;
  /// null: always plain, for memory that this core reads next.
  explicit StoreHabit(Clock clock) : clock_(clock) {}

  /// As guarded_copy(). What is stored after it is visible after it.
  [[nodiscard]] bool store(std::byte* to, const std::byte* from, std::size_t bytes) {
    const bool choice = bytes >= kLongBytes && clock_ != nullptr;
    return choice ? store_long(to, from, bytes) : guarded_copy(to, from, bytes);
  }
  /// The longest time that a plain copy of so many bytes may take to be worth keeping.
  [[nodiscard]] static std::chrono::nanoseconds longest_fast(std::size_t bytes);
  /// Whether there is a choice at all.
  [[nodiscard]] bool chooses() const { return clock_ != nullptr; }
  /// Whether long payloads are stored plainly at present.
  [[nodiscard]] bool plain() const { return clock_ == nullptr || plain_; }

 private:
  [[nodiscard]] bool store_long(std::byte* to, const std::byte* from, std::size_t bytes);
  [[nodiscard]] bool store_timed(std::byte* to, const std::byte* from, std::size_t bytes);

  Clock clock_ = nullptr;
  bool plain_ = false;
  unsigned agreeing_ = 0;  ///< timed copies that speak against the present habit, one after the other
  unsigned untimed_ = 0;   ///< plain copies since the last timed one
  std::size_t try_after_ = kFirstTryAfter;
};

}  // namespace splitnic::fabric
