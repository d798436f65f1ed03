#include "fabric/memory/guarded_copy.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>

#include "common/check.h"
#include "fabric/memory/guarded_routines.h"

namespace splitnic::fabric {
namespace {

/// The previous handler of a signal. Never freed, because a handler on another thread may be reading it.
struct Previous {
  struct sigaction action {};
  Previous* older = nullptr;         ///< the one before, for reuse
  std::atomic<bool> spent = false;   ///< a one-time handler (SA_RESETHAND) that has run
  std::atomic<bool> called = false;  ///< a fault was forwarded to it
};

/// How often the handler goes on top of another one as a function of its own. A program's crash handler may call the
/// handler that it has found, or put it back: if that was this one, it then goes on with what was below at that time,
/// and not with the crash handler again.
constexpr std::size_t kEntries = 8;

struct Guard {
  const int signal;
  std::array<std::atomic<Previous*>, kEntries> previous{};  ///< by entry
  std::size_t newest_entry = kEntries - 1;                  ///< the one that was installed last
  Previous* newest = nullptr;                               ///< head of the list of all previous handlers
};
Guard guards[] = {{.signal = SIGSEGV}, {.signal = SIGBUS}};

// The routine needs a whole line after it has aligned its target.
constexpr std::size_t kStreamedBytesMin = 256;

std::mutex install_mutex;
/// A child that is forked while another thread installs the handlers would find the mutex locked for ever.
[[maybe_unused]] const int kept_whole_by_forks =
    pthread_atfork([] { install_mutex.lock(); }, [] { install_mutex.unlock(); }, [] { install_mutex.unlock(); });

std::atomic<bool> enabled = false;

/// Ends the process as if no handler were installed, at the interrupted instruction, so that a core dump shows it. A
/// fault happens again when this handler returns. Of a signal that a process has sent, it queues another one.
void leave_to_default(int signal, siginfo_t* info) {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  if (info->si_code > 0) return;
  syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), signal, info);
}

void pass_on(Previous& previous, int signal, siginfo_t* info, void* context) {
  const struct sigaction& action = previous.action;
  const bool sent = info->si_code <= 0;  // sent by a process, not raised by the processor
  const bool takes_info = (action.sa_flags & SA_SIGINFO) != 0;
  if (!takes_info && action.sa_handler == SIG_IGN && sent) return;
  // Crash handlers restore the handler that they found and raise the signal again. If they found this entry, it must
  // not call them again: that would be an endless loop.
  const bool raised_again = sent && info->si_pid == getpid() && previous.called.load();
  const bool one_time = (action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0;
  if (raised_again || (one_time && previous.spent.exchange(true)) ||
      (!takes_info && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN))) {
    leave_to_default(signal, info);
    return;
  }
  previous.called.store(true);
  if (takes_info) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
}

template <std::size_t entry>
void on_fault(int signal, siginfo_t* info, void* context) {
  if (info->si_code > 0 && routines::recover(*static_cast<ucontext_t*>(context))) return;
  const int saved_errno = errno;
  for (Guard& guard : guards) {
    // C1 (acquire): the action before the pointer; pairs with C2 in install(). Without it a fault on another thread
    // may call through a half-written action.
    if (guard.signal == signal) pass_on(*guard.previous[entry].load(std::memory_order_acquire), signal, info, context);
  }
  errno = saved_errno;
}

using Handler = void (*)(int, siginfo_t*, void*);

template <std::size_t... entries>
constexpr std::array<Handler, kEntries> handlers(std::index_sequence<entries...>) {
  return {on_fault<entries>...};
}
constexpr std::array<Handler, kEntries> kHandlers = handlers(std::make_index_sequence<kEntries>());

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && std::ranges::find(kHandlers, action.sa_sigaction) != kHandlers.end();
}

bool same(const struct sigaction& left, const struct sigaction& right) {
  // Both kinds of handler are in one union; glibc keeps the rest of the mask zero.
  return left.sa_sigaction == right.sa_sigaction && left.sa_flags == right.sa_flags &&
         std::memcmp(&left.sa_mask, &right.sa_mask, sizeof(left.sa_mask)) == 0;
}

/// Finds or makes the entry for an action. Entries are reused, because the list must not grow with a test runner that
/// exchanges handlers for each test.
Previous* previous_of(Guard& guard, const struct sigaction& action) {
  for (Previous* known = guard.newest; known != nullptr; known = known->older) {
    if (same(known->action, action)) return known;
  }
  guard.newest = new Previous{action, guard.newest};
  return guard.newest;
}

/// The entry that goes on top of this handler. Never the newest one: that is what the handler has found, most likely.
/// One that was on top of it before is used again, because a test runner puts its handlers in and out for each test.
std::size_t entry_for(Guard& guard, const Previous* previous) {
  for (std::size_t entry = 0; entry != kEntries; ++entry) {
    const bool known = guard.previous[entry].load(std::memory_order_relaxed) == previous;
    if (known && entry != guard.newest_entry) return entry;
  }
  return (guard.newest_entry + 1) % kEntries;
}

void install(Guard& guard) {
  struct sigaction current {};
  SPLITNIC_CHECK(sigaction(guard.signal, nullptr, &current) == 0);
  if (is_ours(current)) return;
  Previous* const previous = previous_of(guard, current);
  previous->spent.store(false);
  previous->called.store(false);
  const std::size_t entry = entry_for(guard, previous);
  guard.newest_entry = entry;
  // C2 (release): see C1. Must come before the handler is installed, because the handler may run at once.
  guard.previous[entry].store(previous, std::memory_order_release);
  // The previous handler gets the signal mask that it asked for, and the alternative stack if the thread has one,
  // because the fault may be an overflow of the ordinary stack.
  struct sigaction action {};
  action.sa_sigaction = kHandlers[entry];
  action.sa_mask = current.sa_mask;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (current.sa_flags & (SA_NODEFER | SA_RESTART));
  SPLITNIC_CHECK(sigaction(guard.signal, &action, nullptr) == 0);
}

inline void ensure_enabled() {
  if (!enabled.load(std::memory_order_relaxed)) [[unlikely]]
    enable_guarded_copy();
}

bool misaligned(const std::uint64_t* at) { return reinterpret_cast<std::uintptr_t>(at) % sizeof(*at) != 0; }

}  // namespace

void enable_guarded_copy() {
  const std::lock_guard lock(install_mutex);
  for (Guard& guard : guards) install(guard);
  routines::choose_widest();
  routines::unblock_faults();
  enabled.store(true, std::memory_order_relaxed);  // orders nothing: it only says that the kernel knows the handler
}

bool guarded_copy(void* to, const void* from, std::size_t bytes) {
  if (routines::is_short(bytes)) [[likely]]
    return routines::copy_short(to, from, bytes);
  ensure_enabled();
  return routines::copy(to, from, bytes);
}

bool guarded_copy_parts(void* to, const void* from, std::size_t bytes, void* rest_to, std::size_t rest_bytes) {
  if (routines::is_short(bytes) && rest_bytes <= routines::kShortRest) [[likely]]
    return routines::copy_short_parts(to, from, bytes, rest_to, rest_bytes);
  return guarded_copy(rest_to, static_cast<const std::byte*>(from) + bytes, rest_bytes) &&
         guarded_copy(to, from, bytes);
}

bool guarded_stream(void* to, const void* from, std::size_t bytes) {
  ensure_enabled();
  if (bytes < kStreamedBytesMin) return routines::copy(to, from, bytes);
  return routines::stream(to, from, bytes);
}

bool guarded_compare_swap(std::uint64_t* at, std::uint64_t expected, std::uint64_t desired, std::uint64_t& before) {
  if (misaligned(at)) return false;
  ensure_enabled();
  const routines::Fetched fetched = routines::compare_swap(at, expected, desired);
  if (fetched.done == 0) return false;
  before = fetched.before;
  return true;
}

bool guarded_fetch_add(std::uint64_t* at, std::uint64_t addend, std::uint64_t& before) {
  if (misaligned(at)) return false;
  ensure_enabled();
  const routines::Fetched fetched = routines::fetch_add(at, addend);
  if (fetched.done == 0) return false;
  before = fetched.before;
  return true;
}

}  // namespace splitnic::fabric
