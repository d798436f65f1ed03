#include "fabric/memory/guarded_copy.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "common/check.h"
#include "fabric/memory/guarded_routines.h"

namespace splitnic::fabric {
namespace {

/// What handled a signal before this did. Never freed: a handler may be reading it on another thread.
struct Previous {
  struct sigaction action {};
  Previous* older = nullptr;        ///< what did before that, for reuse
  std::atomic<bool> spent = false;  ///< a one-time handler (SA_RESETHAND) that has had its time
};

struct Guard {
  const int signal;
  std::atomic<Previous*> previous = nullptr;
  Previous* newest = nullptr;  ///< of all there have been
};
Guard guards[] = {{SIGSEGV}, {SIGBUS}};

std::mutex install_mutex;
std::atomic<bool> enabled = false;
/// A fault has been passed on to a previous handler.
std::atomic<bool> passed_on = false;

/// Ends the process as if there had been no handler: the same signal with the same cause, taken at the interrupted
/// instruction once this handler has returned, so that a core dump shows it.
void leave_to_default(int signal, siginfo_t* info) {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), signal, info);
}

void pass_on(Previous& previous, int signal, siginfo_t* info, void* context) {
  const struct sigaction& action = previous.action;
  const bool sent = info->si_code <= 0;  // by a process, not by the processor
  const bool takes_info = (action.sa_flags & SA_SIGINFO) != 0;
  if (!takes_info && action.sa_handler == SIG_IGN && sent) return;
  // Crash handlers put back what they found and raise the signal again. Where that was this handler, they must not be
  // called a second time, and so for ever.
  const bool raised_again = sent && info->si_pid == getpid() && passed_on.load();
  const bool one_time = (action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0;
  if (raised_again || (one_time && previous.spent.exchange(true)) ||
      (!takes_info && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN))) {
    leave_to_default(signal, info);
    return;
  }
  passed_on.store(true);
  if (takes_info) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (info->si_code > 0 && routines::recover(*static_cast<ucontext_t*>(context))) return;
  const int saved_errno = errno;
  for (Guard& guard : guards) {
    // C1 (acquire): the action before the pointer; pairs with C2 in install(). Without it a fault on another thread
    // may call through a half-written action.
    if (guard.signal == signal) pass_on(*guard.previous.load(std::memory_order_acquire), signal, info, context);
  }
  errno = saved_errno;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_fault;
}

bool same(const struct sigaction& left, const struct sigaction& right) {
  // The two kinds of handler share their place; glibc keeps the rest of the mask zero.
  return left.sa_sigaction == right.sa_sigaction && left.sa_flags == right.sa_flags &&
         std::memcmp(&left.sa_mask, &right.sa_mask, sizeof(left.sa_mask)) == 0;
}

/// The entry for an action, an earlier one of the guard if there is one: a test runner that exchanges handlers with
/// each test must not make the list grow.
Previous* previous_of(Guard& guard, const struct sigaction& action) {
  for (Previous* known = guard.newest; known != nullptr; known = known->older) {
    if (same(known->action, action)) return known;
  }
  guard.newest = new Previous{action, guard.newest};
  return guard.newest;
}

void install(Guard& guard) {
  struct sigaction current {};
  CHECK(sigaction(guard.signal, nullptr, &current) == 0);
  if (is_ours(current)) return;
  Previous* const previous = previous_of(guard, current);
  previous->spent.store(false);
  // C2 (release): see C1. Before the handler is in place, because it may run at once.
  guard.previous.store(previous, std::memory_order_release);
  // The previous handler gets the signal mask it asked for, and the alternative stack if the thread has one: the fault
  // may be an overflow of the ordinary one.
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_mask = current.sa_mask;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (current.sa_flags & (SA_NODEFER | SA_RESTART));
  CHECK(sigaction(guard.signal, &action, nullptr) == 0);
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
  enabled.store(true, std::memory_order_relaxed);  // orders nothing: the kernel knows the handler, that is all
}

bool guarded_copy(void* to, const void* from, std::size_t bytes) {
  ensure_enabled();
  return routines::copy(to, from, bytes);
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
