#include "fabric/threads/biased_lock.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <mutex>
#include <thread>

#include "common/random.h"
#include "tests/unit/state_of.h"
#include "threads_fixtures.h"

/// The lock of an adapter that threads share, by real threads. tests/models/bias.pml has every interleaving.
namespace splitnic::fabric::test::threads_biased_lock_test {
namespace {

constexpr BiasPolicy kQuick{.first_row = 4, .longest_row = 16, .uses_that_pay = 10};

void take(BiasedLock& lock, std::uint64_t times) {
  for (std::uint64_t i = 0; i < times; ++i) const std::lock_guard guard(lock);
}

void take_elsewhere(BiasedLock& lock, std::uint64_t times) {
  std::thread([&] { take(lock, times); }).join();
}

/// A store to it leaves the processor late.
struct alignas(64) SlowLine {
  void store(std::uint64_t what) {
#if defined(__x86_64__)
    __builtin_ia32_clflush(&value);
#endif
    value.store(what, std::memory_order_relaxed);
  }
  std::atomic<std::uint64_t> value{0};
};

void pass(std::uint64_t turns) {
  for (; turns != 0; --turns) std::atomic_signal_fence(std::memory_order_seq_cst);
}

/// For this thread, for good.
bool refuse_membarrier() {
  std::array filter{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

#ifndef __SANITIZE_THREAD__
/// A signal that keeps a thread between two instructions.
struct Interruption {
  static constexpr Duration kLongest = std::chrono::milliseconds(3);
  static inline std::atomic<std::uint64_t> count{0};
  static inline std::atomic<bool> held{false};
  static inline std::atomic<bool> ended{false};

  Interruption() {
    struct sigaction action {};
    action.sa_handler = [](int) {
      const Time limit = monotonic_now() + kLongest;
      held = true;
      ++count;
      while (!ended && monotonic_now() < limit) {
      }
      held = false;
    };
    REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
  }
  ~Interruption() { ::sigaction(SIGUSR1, &before, nullptr); }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  struct sigaction before {};
};
#endif

}  // namespace

TEST_CASE("verb lock: a thread that finds it held counts that, and gets it when it is given back",
          "[fabric][threads]") {
  VerbLock lock(/*single_threaded=*/false);
  std::atomic<bool> inside{false};
  lock.lock();
  CHECK(lock.contended() == 0);
  std::thread other([&] {
    const std::lock_guard guard(lock);
    inside = true;
  });
  CHECK(eventually([&] { return lock.contended() == 1; }));
  CHECK_FALSE(inside);
  lock.unlock();
  other.join();
  CHECK(inside);
}

TEST_CASE("biased lock: it becomes biased to the thread that takes it in a row", "[fabric][threads]") {
  BiasedLock lock(/*single_threaded=*/false, kQuick);
  take(lock, 3);
  take_elsewhere(lock, 1);
  take(lock, 3);
  CHECK(lock.biases() == 0);
  take(lock, 1);
  CHECK(lock.biases() == 1);
  take(lock, 100);
  CHECK(lock.biases() == 1);
  CHECK(lock.revocations() == 0);
}

TEST_CASE("biased lock: any other thread revokes the bias, and rows become longer where it does not last",
          "[fabric][threads]") {
  BiasedLock lock(/*single_threaded=*/false, kQuick);
  std::uint64_t biases = 0;
  for (const std::uint64_t row : {4U, 8U, 16U, 16U}) {
    take(lock, row - 1);
    CHECK(lock.biases() == biases);
    take(lock, 1);
    CHECK(lock.biases() == ++biases);
    take(lock, kQuick.uses_that_pay - 1);
    take_elsewhere(lock, 1);
    CHECK(lock.revocations() == biases);
  }
  for (const std::uint64_t row : {16U, 8U, 4U, 4U}) {
    take(lock, row);
    CHECK(lock.biases() == ++biases);
    take(lock, kQuick.uses_that_pay);
    take_elsewhere(lock, 1);
  }
  CHECK(lock.revocations() == biases);
}

TEST_CASE("biased lock: a thread in the background revokes a bias, but breaks no row and gets none",
          "[fabric][threads]") {
  BiasedLock lock(/*single_threaded=*/false, kQuick);
  const auto in_background = [&](int times) {
    std::thread([&] {
      for (int i = 0; i < times; ++i) {
        lock.lock_in_background();
        lock.unlock();
      }
    }).join();
  };
  in_background(100);
  CHECK(lock.biases() == 0);
  take(lock, 3);
  in_background(1);
  take(lock, 1);
  CHECK(lock.biases() == 1);
  in_background(1);
  CHECK(lock.revocations() == 1);
  take(lock, 7);
  in_background(1);
  CHECK(lock.biases() == 1);
  take(lock, 1);
  CHECK(lock.biases() == 2);
}

TEST_CASE("biased lock: who revokes a bias sleeps while the other thread is inside, and is woken",
          "[fabric][threads]") {
  BiasedLock lock(/*single_threaded=*/false, kQuick);
  for (int round = 0; round < 20; ++round) {
    take(lock, kQuick.longest_row);
    std::atomic<pid_t> other{0};
    std::atomic<bool> inside{false};
    lock.lock();
    const std::uint64_t revocations = lock.revocations();
    std::thread revoker([&] {
      other = ::gettid();
      const std::lock_guard guard(lock);
      inside = true;
    });
    CHECK(eventually([&] { return other != 0 && splitnic::testing::state_of(other) == 'S'; }));
    CHECK_FALSE(inside);
    CHECK(lock.revocations() == revocations);  // the lock was biased
    lock.unlock();
    CHECK(eventually([&] { return inside.load(); }));
    revoker.join();
    CHECK(lock.revocations() == revocations + 1);
  }
}

TEST_CASE("biased lock: there is never more than one thread inside, whoever it is biased to", "[fabric][threads]") {
  // They meet again and again just when the lock is biased to the first. Before that it stores to lines that no cache
  // has, behind which its word that it is inside has to wait.
  constexpr BiasPolicy kEager{.first_row = 2, .longest_row = 2, .uses_that_pay = 0};
  constexpr std::uint64_t kRevocations = 10'000;
  constexpr std::uint64_t kOfABusyMachine = 1000;  // within the time, beside others who want the processors
  constexpr std::uint64_t kWhileStoresWait = 300;
  constexpr std::uint64_t kMostBetween = 20'000;
  std::array<SlowLine, 4> lines;
  BiasedLock lock(/*single_threaded=*/false, kEager);
  std::atomic<std::size_t> inside{0};  // relaxed, so that it orders nothing
  std::uint64_t counted = 0;
  std::array<std::uint64_t, 2> counts{};
  std::atomic<std::uint64_t> beside{0};
  std::atomic<bool> end{false};
  const Time limit = monotonic_now() + seconds(10);
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < counts.size(); ++index) {
    threads.emplace_back([&, index] {
      SeededRandom random(index);
      for (std::uint64_t turn = 1; !end; ++turn) {
        if (turn % 1024 == 0 && monotonic_now() > limit) end = true;
        if (index == 0) {
          for (SlowLine& line : lines) line.store(counts[0]);
        } else {
          pass(random.below(kMostBetween));  // so that the lock is biased again
        }
        const std::lock_guard guard(lock);
        inside.store(index, std::memory_order_relaxed);
        ++counted;
        ++counts[index];
        pass(kWhileStoresWait);
        if (inside.load(std::memory_order_relaxed) != index) ++beside;
        if (lock.revocations() >= kRevocations) end = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();  // not in a loop: two processors are all that some machines have
  CHECK(lock.revocations() >= kOfABusyMachine);
  CHECK(beside == 0);
  CHECK(counted == counts[0] + counts[1]);
}

#ifndef __SANITIZE_THREAD__  // which delivers no signal between two instructions
TEST_CASE("biased lock: who is interrupted before it says that it is inside looks again", "[fabric][threads]") {
  constexpr BiasPolicy kEager{.first_row = 2, .longest_row = 2, .uses_that_pay = 0};
  constexpr int kOften = 300;
  const Interruption interruption;
  BiasedLock lock(/*single_threaded=*/false, kEager);
  std::atomic<bool> inside{false};  // this thread
  std::atomic<std::uint64_t> beside{0};
  std::atomic<bool> end{false};
  std::thread biased([&] {
    while (!end) {
      const std::lock_guard guard(lock);
      if (inside) ++beside;
    }
  });
  int while_held = 0;  // else it was inside, and this thread had to wait
  for (const Time limit = monotonic_now() + seconds(10); while_held < kOften && monotonic_now() < limit;) {
    const std::uint64_t before = Interruption::count;
    Interruption::ended = false;
    REQUIRE(::pthread_kill(biased.native_handle(), SIGUSR1) == 0);
    if (!eventually([&] { return Interruption::count > before; })) break;
    const std::lock_guard guard(lock);
    inside = true;
    if (Interruption::held) ++while_held;
    Interruption::ended = true;
    pass(20'000);
    inside = false;
  }
  end = true;
  biased.join();
  CHECK(while_held > 0);
  CHECK(beside == 0);
}
#endif

TEST_CASE("biased lock: more threads than it can be biased to take it as any other lock", "[fabric][threads]") {
  BiasedLock lock(/*single_threaded=*/false, kQuick);
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;  // all at once: a later one could be taken for an earlier one
  std::uint64_t biases = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    std::atomic<bool> done{false};
    threads.emplace_back([&] {
      take(lock, kQuick.longest_row);
      take(lock, kQuick.uses_that_pay);
      done = true;
      while (!end) std::this_thread::yield();
    });
    REQUIRE(eventually([&] { return done.load(); }));
    biases += i < 32 ? 1 : 0;
    CHECK(lock.biases() == biases);
  }
  end = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("biased lock: where a filter of system calls refuses the fence, there is no bias any more",
          "[fabric][threads]") {
  BiasedLock lock(/*single_threaded=*/false, kQuick);
  take(lock, 100);
  REQUIRE(lock.biases() == 1);
  lock.lock();
  std::atomic<bool> refused{false};
  std::atomic<bool> inside{false};
  std::thread filtered([&] {
    refused = refuse_membarrier();
    const std::lock_guard guard(lock);
    inside = true;
  });
  CHECK(eventually([&] { return refused.load(); }));
  CHECK_FALSE(inside);
  lock.unlock();
  filtered.join();
  CHECK(inside);
  CHECK(lock.revocations() == 1);
  take(lock, 100);
  CHECK(lock.biases() == 1);
}

TEST_CASE("biased lock: that of a single thread locks nothing", "[fabric][threads]") {
  BiasedLock lock(/*single_threaded=*/true, kQuick);
  lock.lock();
  take_elsewhere(lock, 100);
  lock.unlock();
  CHECK(lock.biases() == 0);
}

}  // namespace splitnic::fabric::test::threads_biased_lock_test
