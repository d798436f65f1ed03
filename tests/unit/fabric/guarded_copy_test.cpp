#include "fabric/memory/guarded_copy.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "common/time.h"
#include "mapped_memory.h"
#include "tests/unit/common/fork_beside_threads.h"

namespace splitnic::fabric::guarded_copy_test {
namespace {

constexpr std::array<std::size_t, 29> kSizes{1,   2,   3,   4,   5,    7,    8,    9,    15,   16,
                                             17,  31,  32,  33,  63,   64,   65,   127,  128,  129,
                                             159, 160, 161, 255, 4095, 4096, 4097, 8193, 65536};

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>(i * 131 + (i >> 8U) + 1);
  return result;
}

/// Catch puts its own SIGSEGV handler on top for each test case; the guard goes on top of that. And the first fault is
/// behind us: ThreadSanitizer maps memory at it, which must not land in a hole that a test has made.
struct Guarded {
  Guarded() {
    enable_guarded_copy();
    char to = 0;
    REQUIRE_FALSE(guarded_copy(&to, nullptr, 1));
  }
};

/// Runs `work` in a child with the default handlers, as a program without Catch has them. Returns waitpid's status.
template <class Work>
int status_of_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGBUS, SIG_DFL);
    work();
    _exit(0);
  }
  REQUIRE(child > 0);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

bool exited_with(int status, int code) { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
bool died_of(int status, int signal) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }

/// In assembly, so that neither the compiler nor a sanitizer knows better than the processor.
void read_at(const volatile void* address) {
#if defined(__x86_64__)
  char value = 0;
  asm volatile("movb (%1), %0" : "=q"(value) : "r"(address) : "memory");
#else
  static_cast<void>(*static_cast<const volatile char*>(address));
#endif
}

bool copies(void* to, const void* from, std::size_t bytes) { return guarded_copy(to, from, bytes); }

}  // namespace

TEST_CASE_METHOD(Guarded, "a guarded copy copies exactly, at every length and alignment", "[fabric][memory]") {
  const auto copy = GENERATE(guarded_copy, guarded_stream);
  constexpr std::size_t kRoom = 160;
  const auto source = pattern(2300);
  std::vector<std::byte> target(source.size() + kRoom);
  for (std::size_t bytes = 0; bytes <= 2200; bytes = bytes < 400 || bytes / 64 == 16 ? bytes + 1 : bytes + 37) {
    for (std::size_t shift = 0; shift < 65; shift += bytes < 200 ? 1 : 5) {
      std::fill(target.begin(), target.end(), std::byte{0});
      const std::size_t from = (shift * 7) % 33;
      const std::size_t begin = 40 + shift;
      REQUIRE(copy(target.data() + begin, source.data() + from, bytes));
      REQUIRE(std::equal(target.begin() + static_cast<std::ptrdiff_t>(begin),
                         target.begin() + static_cast<std::ptrdiff_t>(begin + bytes),
                         source.begin() + static_cast<std::ptrdiff_t>(from)));
      const auto zeros =
          std::count(target.begin(), target.begin() + static_cast<std::ptrdiff_t>(begin), std::byte{0}) +
          std::count(target.begin() + static_cast<std::ptrdiff_t>(begin + bytes), target.end(), std::byte{0});
      REQUIRE(zeros == static_cast<std::ptrdiff_t>(target.size() - bytes));
    }
  }
}

TEST_CASE_METHOD(Guarded, "a guarded copy to two places copies exactly, and survives either that is gone",
                 "[fabric][memory]") {
  constexpr std::size_t kApart = 200;
  const auto source = pattern(300);
  const MappedMemory gone(page_bytes());
  gone.protect(0, page_bytes(), PROT_NONE);
  std::vector<std::byte> target(3 * kApart);
  for (std::size_t bytes = 0; bytes <= 100; ++bytes) {
    for (std::size_t rest = 0; rest <= 100; ++rest) {
      std::ranges::fill(target, std::byte{0});
      std::byte* const first = target.data() + bytes % 5;
      std::byte* const second = target.data() + kApart + rest % 7;
      REQUIRE(guarded_copy_parts(first, source.data(), bytes, second, rest));
      REQUIRE(std::equal(first, first + bytes, source.data()));
      REQUIRE(std::equal(second, second + rest, source.data() + bytes));
      const auto zeros = std::ranges::count(target, std::byte{0});
      const auto of_source = std::count(source.data(), source.data() + bytes + rest, std::byte{0});
      REQUIRE(static_cast<std::size_t>(zeros - of_source) == target.size() - bytes - rest);
      if (bytes != 0) REQUIRE_FALSE(guarded_copy_parts(gone.data(), source.data(), bytes, second, rest));
      if (rest != 0) REQUIRE_FALSE(guarded_copy_parts(first, source.data(), bytes, gone.data(), rest));
    }
  }
}

TEST_CASE_METHOD(Guarded, "a long guarded copy copies exactly, however far its two ends lie apart modulo a page",
                 "[fabric][memory]") {
  constexpr std::size_t kBytes = 10'000;
  const auto source = pattern(kBytes + 4096);
  std::vector<std::byte> target(kBytes + 2 * 4096);
  for (std::size_t shift = 0; shift < 4096; shift += shift < 80 || shift > 4020 ? 1 : 61) {
    std::fill(target.begin(), target.end(), std::byte{0});
    const auto begin = target.begin() + static_cast<std::ptrdiff_t>(shift + 1);
    REQUIRE(guarded_copy(&*begin, source.data() + shift % 3, kBytes));
    REQUIRE(std::equal(begin, begin + kBytes, source.begin() + static_cast<std::ptrdiff_t>(shift % 3)));
    REQUIRE(std::count(begin + kBytes, target.end(), std::byte{0}) == target.end() - begin - std::ptrdiff_t{kBytes});
    REQUIRE(std::count(target.begin(), begin, std::byte{0}) == begin - target.begin());
  }
}

#if defined(__x86_64__) && !defined(SPLITNIC_GUARDED_PORTABLE)  // nothing else promises an order
TEST_CASE_METHOD(Guarded, "the last bytes of a guarded copy are visible last", "[fabric][memory]") {
  // Who polls the last word of a message reads the rest when it has changed.
  const std::size_t bytes = GENERATE(std::size_t{1024}, std::size_t{65536});
  const std::size_t words = bytes / sizeof(std::uint64_t);
  std::vector<std::uint64_t> to(words);
  constexpr std::uint64_t kRounds = 2000;
  std::atomic<std::uint64_t> seen = 0;
  std::atomic<std::uint64_t> early = 0;
  std::thread reader([&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      while (__atomic_load_n(&to.back(), __ATOMIC_ACQUIRE) != round) std::this_thread::yield();
      for (std::size_t word = 0; word < words; word += 7) {
        early += __atomic_load_n(&to[word], __ATOMIC_RELAXED) == round ? 0U : 1U;
      }
      seen.store(round, std::memory_order_release);
    }
  });
  std::vector<std::uint64_t> from(words);
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    std::fill(from.begin(), from.end(), round);
    CHECK(guarded_copy(to.data(), from.data(), bytes));
    while (seen.load(std::memory_order_acquire) != round) std::this_thread::yield();
  }
  reader.join();
  CHECK(early == 0);
}
#endif

TEST_CASE_METHOD(Guarded, "a guarded copy that reaches one byte into forbidden memory answers false, before and behind",
                 "[fabric][memory]") {
  const auto copy = GENERATE(guarded_copy, guarded_stream);
  const std::size_t page = page_bytes();
  std::vector<std::byte> other(17 * page, std::byte{1});
  const MappedMemory memory(20 * page);
  memory.protect(18 * page, 2 * page, PROT_NONE);
  memory.protect(0, page, PROT_NONE);
  const std::size_t wall = 18 * page;
  for (const std::size_t bytes : kSizes) {
    CAPTURE(bytes);
    std::byte* const fits = memory.at(wall - bytes);
    CHECK(copy(fits, other.data(), bytes));
    CHECK(copy(other.data(), fits, bytes));
    CHECK_FALSE(copy(fits + 1, other.data(), bytes));
    CHECK_FALSE(copy(other.data(), fits + 1, bytes));
    CHECK_FALSE(copy(memory.at(page - 1), other.data(), bytes));
    CHECK_FALSE(copy(other.data(), memory.at(page - 1), bytes));
    CHECK_FALSE(copy(memory.at(wall), other.data(), bytes));
    CHECK_FALSE(copy(other.data(), memory.at(wall), bytes));
    CHECK(copy(memory.at(wall), memory.at(wall), 0));
  }
}

TEST_CASE_METHOD(Guarded, "a guarded copy from or to unmapped memory answers false", "[fabric][memory]") {
  const auto copy = GENERATE(guarded_copy, guarded_stream);
  MappedMemory memory(64 * 1024);
  std::vector<std::byte> other(memory.size());
  for (const std::size_t bytes : kSizes) {
    memory.unmap();
    const bool from = copy(other.data(), memory.data(), bytes);
    const bool to = copy(memory.data(), other.data(), bytes);
    memory.map_again();
    CAPTURE(bytes);
    CHECK_FALSE(from);
    CHECK_FALSE(to);
    CHECK(copy(memory.data(), other.data(), bytes));
  }
}

/// Spins, because a thread that yields comes too late to see what is not yet visible; but not beside a thread that
/// waits for its core. Returns the new value.
std::uint32_t spin_while(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  std::uint32_t now = 0;
  for (int spins = 1; (now = word.load(std::memory_order_acquire)) == value; ++spins) {
    if (spins % 1000 == 0) std::this_thread::yield();
  }
  return now;
}

TEST_CASE_METHOD(Guarded, "what is stored after a guarded stream is visible after it", "[fabric][memory]") {
  constexpr std::size_t kBytes = 4096;
  constexpr std::uint32_t kMostRounds = 4000;  // fewer where other programs want the cores
  constexpr std::uint32_t kEnd = kMostRounds + 1;
  std::vector<std::byte> source(kBytes);
  alignas(64) std::array<std::byte, kBytes> memory{};  // whole lines: all of it is streamed
  std::atomic<std::uint32_t> written = 0;
  std::atomic<std::uint32_t> taken = 0;
  std::uint32_t stale = 0;
  std::thread reader([&] {
    for (std::uint32_t round = 0; (round = spin_while(written, round)) != kEnd;) {
      stale += memory.back() != static_cast<std::byte>(round) ? 1 : 0;
      taken.store(round, std::memory_order_release);
    }
  });
  bool streamed = true;
  std::uint32_t round = 0;
  for (const Time end = monotonic_now() + std::chrono::seconds(10); round < kMostRounds && monotonic_now() < end;) {
    ++round;
    std::ranges::fill(source, static_cast<std::byte>(round));
    streamed = guarded_stream(memory.data(), source.data(), kBytes) && streamed;
    written.store(round, std::memory_order_release);
    spin_while(taken, round - 1);
  }
  written.store(kEnd, std::memory_order_release);
  reader.join();
  CHECK(round > 100);
  CHECK(streamed);
  CHECK(stale == 0);
}

TEST_CASE_METHOD(Guarded, "null, the kernel's addresses and impossible ones answer false", "[fabric][memory]") {
  std::array<std::byte, 256> other{};
  for (const std::uintptr_t address :
       {std::uintptr_t{0}, std::uintptr_t{1}, std::uintptr_t{0x8000'0000'0000'0000},
        std::uintptr_t{0xffff'8000'0000'0000}, std::uintptr_t{0x1234'5678'9abc'def0}, ~std::uintptr_t{7}}) {
    CAPTURE(address);
    auto* const at = reinterpret_cast<std::byte*>(address);
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{8}, std::size_t{64}, std::size_t{256}}) {
      CHECK_FALSE(copies(at, other.data(), bytes));
      CHECK_FALSE(copies(other.data(), at, bytes));
    }
  }
}

TEST_CASE_METHOD(Guarded, "read-only memory can be copied from and not to, forbidden memory neither",
                 "[fabric][memory]") {
  const MappedMemory memory(64 * 1024);
  std::vector<std::byte> other(memory.size());
  for (const std::size_t bytes : kSizes) {
    if (bytes > memory.size()) continue;
    CAPTURE(bytes);
    memory.protect(PROT_READ);
    CHECK(guarded_copy(other.data(), memory.data(), bytes));
    CHECK_FALSE(guarded_copy(memory.data(), other.data(), bytes));
    memory.protect(PROT_NONE);
    CHECK_FALSE(guarded_copy(other.data(), memory.data(), bytes));
    CHECK_FALSE(guarded_copy(memory.data(), other.data(), bytes));
    memory.protect(PROT_READ | PROT_WRITE);
    CHECK(guarded_copy(memory.data(), other.data(), bytes));
  }
}

TEST_CASE_METHOD(Guarded, "a mapping beyond its file's end answers false, also when the file was cut off later",
                 "[fabric][memory]") {
  const std::size_t page = page_bytes();
  const MemoryFile file(4 * page);
  const MappedMemory memory(file.descriptor(), 4 * page);
  std::vector<std::byte> other(4 * page, std::byte{7});
  CHECK(guarded_copy(memory.data(), other.data(), 4 * page));
  file.resize(2 * page);
  CHECK_FALSE(guarded_copy(memory.data(), other.data(), 4 * page));
  CHECK_FALSE(guarded_copy(other.data(), memory.data(), 4 * page));
  CHECK_FALSE(guarded_copy(other.data(), memory.at(3 * page), 8));
  CHECK(guarded_copy(other.data(), memory.data(), 2 * page));
  file.resize(4 * page);
  CHECK(guarded_copy(other.data(), memory.data(), 4 * page));
  CHECK(other[2 * page] == std::byte{0});
}

TEST_CASE_METHOD(Guarded, "guarded atomics do what atomics do", "[fabric][memory]") {
  std::uint64_t word = 5;
  std::uint64_t before = 0;
  CHECK(guarded_compare_swap(&word, 5, 9, before));
  CHECK(before == 5);
  CHECK(word == 9);
  CHECK(guarded_compare_swap(&word, 5, 1, before));
  CHECK(before == 9);
  CHECK(word == 9);
  CHECK(guarded_fetch_add(&word, ~std::uint64_t{0}, before));
  CHECK(before == 9);
  CHECK(word == 8);
}

TEST_CASE_METHOD(Guarded, "guarded atomics on memory that can't be written answer false and tell nothing",
                 "[fabric][memory]") {
  MappedMemory memory(page_bytes());
  auto* const word = reinterpret_cast<std::uint64_t*>(memory.data());
  std::uint64_t before = 77;
  memory.protect(PROT_READ);
  CHECK_FALSE(guarded_compare_swap(word, 1, 2, before));  // would not store
  CHECK_FALSE(guarded_compare_swap(word, 0, 2, before));
  CHECK_FALSE(guarded_fetch_add(word, 0, before));
  memory.unmap();
  const bool swapped = guarded_compare_swap(word, 0, 2, before);
  const bool added = guarded_fetch_add(word, 1, before);
  memory.map_again();
  CHECK_FALSE(swapped);
  CHECK_FALSE(added);
  CHECK_FALSE(guarded_fetch_add(nullptr, 1, before));
  for (std::size_t shift = 1; shift < 8; ++shift) {
    CHECK_FALSE(guarded_fetch_add(reinterpret_cast<std::uint64_t*>(memory.at(shift)), 1, before));
    CHECK_FALSE(guarded_compare_swap(reinterpret_cast<std::uint64_t*>(memory.at(shift)), 0, 1, before));
  }
  CHECK(before == 77);
  CHECK(*word == 0);
}

TEST_CASE_METHOD(Guarded, "four threads add to one word and lose nothing", "[fabric][memory]") {
  alignas(8) std::uint64_t word = 0;
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      std::uint64_t before = 0;
      for (int n = 0; n < 20'000; ++n) failed += guarded_fetch_add(&word, 1, before) ? 0 : 1;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(word == 80'000);
}

TEST_CASE_METHOD(Guarded, "four threads copy while another unmaps and maps", "[fabric][memory]") {
  MappedMemory memory(64 * 1024);
  std::atomic<bool> stop = false;
  std::atomic<int> copied = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      std::vector<std::byte> own(memory.size(), std::byte{1});
      std::uint64_t before = 0;
      for (unsigned n = i; !stop; ++n) {
        const std::size_t bytes = kSizes[n % kSizes.size()];
        const bool there = n % 3 == 0   ? guarded_copy(own.data(), memory.data(), bytes)
                           : n % 3 == 1 ? guarded_copy(memory.data(), own.data(), bytes)
                                        : guarded_fetch_add(reinterpret_cast<std::uint64_t*>(memory.data()), 1, before);
        ++(there ? copied : refused);
      }
    });
  }
  // Ends when both outcomes were seen often; the limit only keeps a failure from hanging.
  for (int n = 0; n < 2'000'000 && (copied < 2'000 || refused < 2'000); ++n) {
    // Forbidden in place rather than a hole, into which somebody else's mapping might land; then other pages there.
    memory.protect(PROT_NONE);
    std::this_thread::yield();
    memory.map_again();
    std::this_thread::yield();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  CHECK(copied >= 2'000);
  CHECK(refused >= 2'000);
}

TEST_CASE("an ordinary fault still ends the process by its signal", "[fabric][memory]") {
  const auto null_read = status_of_child([] {
    enable_guarded_copy();
    std::array<char, 8> to{};
    if (guarded_copy(to.data(), nullptr, to.size())) _exit(2);
    read_at(nullptr);
  });
  CHECK(died_of(null_read, SIGSEGV));

  const auto raised = status_of_child([] {
    enable_guarded_copy();
    kill(getpid(), SIGSEGV);
  });
  CHECK(died_of(raised, SIGSEGV));

  const auto bus = status_of_child([] {
    enable_guarded_copy();
    const MemoryFile file(0);
    const MappedMemory memory(file.descriptor(), page_bytes());
    read_at(memory.data());
  });
  CHECK(died_of(bus, SIGBUS));
}

namespace {
sigjmp_buf recovered;
const void* volatile seen_address = nullptr;
volatile std::sig_atomic_t seen_count = 0;

void recovering_handler(int, siginfo_t* info, void*) {
  seen_address = info->si_addr;
  seen_count = seen_count + 1;
  siglongjmp(recovered, 1);
}

void leaving_handler(int signal) { _exit(40 + signal); }

/// As crash handlers do that put back what they found.
struct sigaction found_before {};
void restoring_handler(int signal) {
  seen_count = seen_count + 1;
  if (seen_count > 3) _exit(3);  // called for ever
  sigaction(signal, &found_before, nullptr);
  raise(signal);
}
}  // namespace

TEST_CASE("a handler that was there before gets the faults that are not the guard's", "[fabric][memory]") {
  const auto recovering = status_of_child([] {
    struct sigaction action {};
    action.sa_sigaction = recovering_handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    enable_guarded_copy();
    std::array<char, 8> to{};
    for (int n = 1; n <= 3; ++n) {
      if (sigsetjmp(recovered, 1) == 0) {
        read_at(reinterpret_cast<const void*>(std::uintptr_t{0x40}));
        _exit(2);
      }
      if (seen_count != n || seen_address != reinterpret_cast<const void*>(std::uintptr_t{0x40})) _exit(3);
      if (guarded_copy(to.data(), nullptr, to.size()) || seen_count != n) _exit(4);
    }
    _exit(17);
  });
  CHECK(exited_with(recovering, 17));

  const auto plain = status_of_child([] {
    std::signal(SIGSEGV, leaving_handler);
    enable_guarded_copy();
    enable_guarded_copy();  // finds itself in place
    read_at(nullptr);
  });
  CHECK(exited_with(plain, 40 + SIGSEGV));
}

TEST_CASE("a handler installed for one time gets one fault", "[fabric][memory]") {
  const auto status = status_of_child([] {
    struct sigaction action {};
    action.sa_sigaction = recovering_handler;
    action.sa_flags = SA_SIGINFO | static_cast<int>(SA_RESETHAND);
    sigaction(SIGSEGV, &action, nullptr);
    enable_guarded_copy();
    if (sigsetjmp(recovered, 1) == 0) read_at(nullptr);
    if (seen_count != 1) _exit(3);
    read_at(nullptr);
  });
  CHECK(died_of(status, SIGSEGV));
}

TEST_CASE("the guard goes back on top of a handler that replaced it, and the two do not chase each other",
          "[fabric][memory]") {
  const auto status = status_of_child([] {
    enable_guarded_copy();
    struct sigaction action {};
    action.sa_handler = restoring_handler;
    sigaction(SIGSEGV, &action, &found_before);
    enable_guarded_copy();
    std::array<char, 8> to{};
    if (guarded_copy(to.data(), nullptr, to.size()) || seen_count != 0) _exit(2);
    read_at(nullptr);
  });
  CHECK(died_of(status, SIGSEGV));
}

namespace {
/// As crash handlers do that call what they found.
void calling_handler(int signal, siginfo_t* info, void* context) {
  seen_count = seen_count + 1;
  if (seen_count > 3) _exit(3);  // called for ever
  found_before.sa_sigaction(signal, info, context);
}

/// As crash handlers do that put back what they found and let the fault happen again.
void returning_handler(int signal) {
  seen_count = seen_count + 1;
  if (seen_count > 3) _exit(3);
  sigaction(signal, &found_before, nullptr);
}
}  // namespace

TEST_CASE("a handler under the guard that calls or restores what it has found comes to the handler below",
          "[fabric][memory]") {
  const bool calls = GENERATE(true, false);
  CAPTURE(calls);
  const auto status = status_of_child([calls] {
    std::signal(SIGSEGV, leaving_handler);
    enable_guarded_copy();
    struct sigaction action {};
    action.sa_handler = returning_handler;
    if (calls) {
      action.sa_sigaction = calling_handler;
      action.sa_flags = SA_SIGINFO;
    }
    sigaction(SIGSEGV, &action, &found_before);
    enable_guarded_copy();
    std::array<char, 8> to{};
    if (guarded_copy(to.data(), nullptr, to.size()) || seen_count != 0) _exit(2);
    read_at(nullptr);
  });
  CHECK(exited_with(status, 40 + SIGSEGV));
}

TEST_CASE("the guard goes on top of however many handlers", "[fabric][memory]") {
  const auto status = status_of_child([] {
    std::array<char, 8> to{};
    for (int round = 0; round < 50; ++round) {
      struct sigaction action {};
      action.sa_handler = leaving_handler;
      action.sa_flags = round % 2 != 0 ? static_cast<int>(SA_NODEFER) : 0;
      sigaction(SIGSEGV, &action, nullptr);
      enable_guarded_copy();
      if (guarded_copy(to.data(), nullptr, to.size())) _exit(2);
    }
    read_at(nullptr);
  });
  CHECK(exited_with(status, 40 + SIGSEGV));
}

TEST_CASE("an ignored signal stays ignored when sent, and kills when the processor raises it", "[fabric][memory]") {
  const auto status = status_of_child([] {
    std::signal(SIGSEGV, SIG_IGN);
    enable_guarded_copy();
    kill(getpid(), SIGSEGV);
    read_at(nullptr);
  });
  CHECK(died_of(status, SIGSEGV));
  const auto sent = status_of_child([] {
    std::signal(SIGSEGV, SIG_IGN);
    enable_guarded_copy();
    kill(getpid(), SIGSEGV);
    _exit(17);
  });
  CHECK(exited_with(sent, 17));
}

TEST_CASE("making ready unblocks the signals in the calling thread", "[fabric][memory]") {
  const auto status = status_of_child([] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    enable_guarded_copy();
    std::array<char, 8> to{};
    for (int n = 0; n < 3; ++n) {
      if (guarded_copy(to.data(), nullptr, to.size())) _exit(2);
    }
    _exit(17);
  });
  CHECK(exited_with(status, 17));
}

TEST_CASE("a fault leaves the thread's signal mask as it was, whatever the handler before blocks", "[fabric][memory]") {
  const auto status = status_of_child([] {
    struct sigaction action {};
    action.sa_handler = leaving_handler;
    sigfillset(&action.sa_mask);
    for (const int signal : {SIGSEGV, SIGBUS}) sigaction(signal, &action, nullptr);
    enable_guarded_copy();
    sigset_t before;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    std::array<char, 8> to{};
    std::uint64_t word = 0;
    if (guarded_copy(to.data(), nullptr, to.size()) || guarded_fetch_add(nullptr, 1, word)) _exit(2);
    sigset_t after;
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    for (int signal = 1; signal < SIGRTMIN; ++signal) {
      if (sigismember(&after, signal) != sigismember(&before, signal)) _exit(3);
    }
    std::signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
  });
  CHECK(died_of(status, SIGTERM));
}

TEST_CASE("a child that is forked while a thread makes ready makes ready, too", "[fabric][memory]") {
  const splitnic::test::ThreadBesideForks again([] { enable_guarded_copy(); });
  for (int child = 0; child < 200; ++child) {
    const int status = status_of_child([] {
      alarm(20);  // if it waits for a lock that the other thread holds
      enable_guarded_copy();
      char to = 0;
      _exit(guarded_copy(&to, nullptr, 1) ? 1 : 0);
    });
    REQUIRE(exited_with(status, 0));
  }
}

TEST_CASE("a fault with errno at hand leaves errno alone", "[fabric][memory]") {
  enable_guarded_copy();
  std::array<char, 8> to{};
  errno = ENOTTY;
  CHECK_FALSE(guarded_copy(to.data(), nullptr, to.size()));
  CHECK(errno == ENOTTY);
}

}  // namespace splitnic::fabric::guarded_copy_test
