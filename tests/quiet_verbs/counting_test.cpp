// What the other tests here rely on: whatever is done on purpose between start and stop is counted, to the exact
// number.
#include <pthread.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <thread>

#include "exchange.h"

namespace splitnic::quiet_verbs {
namespace {

/// Each round does so much of everything, and is complete at once.
class Noise final : public Exchange {
 public:
  explicit Noise(const Counted& per_round) : Exchange(1, 1), per_round_(per_round) {
    for (pthread_spinlock_t* spin : {&spin_, &taken_spin_}) pthread_spin_init(spin, PTHREAD_PROCESS_PRIVATE);
    taken_mutex_.lock();
    taken_shared_.lock();
    pthread_spin_lock(&taken_spin_);
  }
  ~Noise() override {
    pthread_spin_unlock(&taken_spin_);
    taken_shared_.unlock();
    taken_mutex_.unlock();
    for (pthread_spinlock_t* spin : {&spin_, &taken_spin_}) pthread_spin_destroy(spin);
  }
  Noise(const Noise&) = delete;
  Noise& operator=(const Noise&) = delete;

 private:
  bool post() override {
    count_verb();
    for (std::uint64_t i = 0; i < per_round_.allocations; ++i) allocate();
    for (std::uint64_t i = 0; i < per_round_.locks; ++i) lock();
    for (std::uint64_t i = 0; i < per_round_.tried_locks; ++i) try_to_lock();
    for (std::uint64_t i = 0; i < per_round_.failed_tries; ++i) try_in_vain();
    for (std::uint64_t i = 0; i < per_round_.system_calls; ++i) static_cast<void>(::getppid());
    return true;
  }
  bool poll() override {
    count_completion(/*of_receive=*/false);
    count_completion(/*of_receive=*/true);
    return true;
  }

  /// By another function each time.
  void allocate() {
    void* volatile memory = nullptr;
    switch (turn_++ % 5) {
      case 0:
        memory = std::malloc(10);
        return std::free(memory);
      case 1:
        memory = std::calloc(2, 10);
        return std::free(memory);
      case 2:
        memory = std::realloc(nullptr, 10);
        return std::free(memory);
      case 3:
        memory = ::operator new(10);
        return ::operator delete(memory);
      default:
        memory = ::operator new (10, std::align_val_t{64});
        return ::operator delete (memory, std::align_val_t{64});
    }
  }
  void lock() {
    switch (turn_++ % 4) {
      case 0:
        mutex_.lock();
        return mutex_.unlock();
      case 1:
        shared_.lock();
        return shared_.unlock();
      case 2:
        shared_.lock_shared();
        return shared_.unlock_shared();
      default:
        pthread_spin_lock(&spin_);
        pthread_spin_unlock(&spin_);
    }
  }
  void try_to_lock() {
    switch (turn_++ % 4) {
      case 0:
        return mutex_.try_lock() ? mutex_.unlock() : std::abort();
      case 1:
        return shared_.try_lock() ? shared_.unlock() : std::abort();
      case 2:
        return shared_.try_lock_shared() ? shared_.unlock_shared() : std::abort();
      default:
        if (pthread_spin_trylock(&spin_) != 0) std::abort();
        pthread_spin_unlock(&spin_);
    }
  }

  void try_in_vain() {
    switch (turn_++ % 4) {
      case 0:
        return taken_mutex_.try_lock() ? std::abort() : void();
      case 1:
        return taken_shared_.try_lock() ? std::abort() : void();
      case 2:
        return taken_shared_.try_lock_shared() ? std::abort() : void();
      default:
        if (pthread_spin_trylock(&taken_spin_) == 0) std::abort();
    }
  }

  const Counted per_round_;
  std::uint64_t turn_ = 0;
  std::mutex mutex_;
  std::shared_mutex shared_;
  pthread_spinlock_t spin_{};
  // Held all the time, by the thread that made this.
  std::mutex taken_mutex_;
  std::shared_mutex taken_shared_;
  pthread_spinlock_t taken_spin_{};
};

}  // namespace

TEST_CASE("allocations, system calls and locks are counted, each to the exact number", "[quiet]") {
  constexpr std::uint64_t kCounted = 60;
  for (const Counted per_round : {Counted{}, Counted{1, 0, 0, 0}, Counted{0, 1, 0, 0}, Counted{0, 0, 1, 0},
                                  Counted{0, 0, 0, 1}, Counted{0, 0, 0, 0, 1}, Counted{7, 3, 5, 2, 4}}) {
    Noise noise(per_round);
    const Outcome outcome = count_rounds(noise, kCounted);
    CHECK(outcome.rounds == kCounted);
    CHECK(outcome.verbs == kCounted);
    CHECK(outcome.counted.allocations == kCounted * per_round.allocations);
    CHECK(outcome.counted.system_calls == kCounted * per_round.system_calls);
    CHECK(outcome.counted.locks == kCounted * per_round.locks);
    CHECK(outcome.counted.tried_locks == kCounted * per_round.tried_locks);
    CHECK(outcome.counted.failed_tries == kCounted * per_round.failed_tries);
  }
}

TEST_CASE("what comes after the end of the count is not counted", "[quiet]") {
  Counted after;
  Counted anew;
  std::thread([&] {
    start_counting();
    static_cast<void>(stop_counting());
    void* volatile memory = std::malloc(10);
    std::free(memory);
    static_cast<void>(::getppid());
    std::mutex mutex;
    const std::lock_guard guard(mutex);
    after = stop_counting();
    start_counting();
    anew = stop_counting();
  }).join();
  CHECK(after == Counted{});
  CHECK(anew == Counted{});
}

}  // namespace splitnic::quiet_verbs
