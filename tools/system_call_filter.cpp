#include "tools/system_call_filter.h"

#include <fmt/format.h>
#include <poll.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <memory>

#include "common/check.h"
#include "common/os/errno_text.h"

namespace splitnic::tools {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kBuiltIn = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kBuiltIn = false;
#else
constexpr bool kBuiltIn = true;
#endif
#else
constexpr bool kBuiltIn = true;
#endif

constexpr std::size_t kMaxCalls = 512;  // x86-64 has numbers up to 462

/// The C library uses clone, whose flags a filter sees, a copy instead of mremap, and threads without robust mutexes.
constexpr std::array kUnavailable{"clone3", "mremap", "set_robust_list"};

/// What the signal handler writes. A handler gets no argument of its own, and may not allocate, so this is static.
struct Report {
  pid_t process = 0;
  long heap_end = 0;
  std::array<char, 160> subject{};
  std::array<std::array<char, 32>, kMaxCalls> names{};
};
Report report;

template <std::size_t kSize>
void copy(const std::string& text, std::array<char, kSize>& to) {
  to.fill('\0');
  text.copy(to.data(), to.size() - 1);
}

/// Async-signal-safe. In one write.
void say(std::initializer_list<const char*> texts) {
  std::array<char, 256> line;
  std::size_t size = 0;
  for (const char* text : texts) {
    const std::size_t bytes = std::min(std::strlen(text), line.size() - size);
    std::memcpy(&line[size], text, bytes);
    size += bytes;
  }
  static_cast<void>(!::write(STDERR_FILENO, line.data(), size));
}

/// abort() asks for the numbers of its process and its thread, and nothing else here does. The process then ends as it
/// wanted to, without two more permitted calls.
[[noreturn]] void end_by_abort() {
  say({report.subject.data(), "abort: ending\n"});
  ::syscall(SYS_tgkill, report.process, report.process, SIGABRT);
  for (;;) ::ppoll(nullptr, 0, nullptr, nullptr);  // another thread gets the signal, and it ends them all
}

/// Names the call, and ends the process by the same signal.
[[noreturn]] void end_by_violation(int call) {
  const auto number = static_cast<std::size_t>(call);
  const bool named = number < report.names.size() && report.names[number].front() != '\0';
  say({report.subject.data(), "the sandbox forbids the system call ",
       named ? report.names[number].data() : "with an unknown number", ": ending\n"});
  // The signal is blocked here, so the next forbidden call, which does nothing without its magic numbers, ends the
  // process by SIGSYS.
  ::syscall(SYS_reboot, 0, 0, 0, nullptr);
  ::_exit(128 + SIGSYS);
}

/// Async-signal-safe.
void on_forbidden_call(int /*signal*/, siginfo_t* info, [[maybe_unused]] void* context) {
  switch (info->si_syscall) {
#ifdef __x86_64__
    case SYS_brk:
      // The heap can't grow, so malloc takes its memory from mmap.
      static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = report.heap_end;
      return;
#endif
    case SYS_getpid:
    case SYS_gettid:
      end_by_abort();
    default:
      end_by_violation(info->si_syscall);
  }
}

void prepare_report(const std::string& subject) {
  report.process = ::getpid();
  report.heap_end = ::syscall(SYS_brk, 0);
  copy(fmt::format("splitnic {}: ", subject), report.subject);
  for (std::size_t number = 0; number < report.names.size(); ++number) {
    const std::unique_ptr<char, decltype(&std::free)> name(
        seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, static_cast<int>(number)), &std::free);
    copy(name ? std::string(name.get()) : std::string(), report.names[number]);
  }
}

Result<void> failed(const char* what, int error) {
  return fail("the sandbox's filter of system calls: {}: {}", what, os::errno_text(-error));
}

int add_rule(scmp_filter_ctx filter, const PermittedCall& call) {
  const int number = seccomp_syscall_resolve_name(std::string(call.name).c_str());
  SPLITNIC_CHECK_OP(number, !=, __NR_SCMP_ERROR);
  std::vector<scmp_arg_cmp> conditions;
  for (const auto& condition : call.conditions) {
    conditions.push_back({condition.argument, SCMP_CMP_MASKED_EQ, condition.mask, condition.value});
  }
  const std::uint32_t action = call.made ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(static_cast<unsigned>(call.error));
  return seccomp_rule_add_array(filter, action, number, static_cast<unsigned>(conditions.size()), conditions.data());
}

}  // namespace

bool filter_is_built_in() { return kBuiltIn; }

Result<void> close_filter(const std::vector<PermittedCall>& calls, const std::string& subject) {
  if (!kBuiltIn) return {};
  prepare_report(subject);
  struct sigaction action {};
  action.sa_sigaction = on_forbidden_call;
  action.sa_flags = SA_SIGINFO;
  SPLITNIC_CHECK(::sigaction(SIGSYS, &action, nullptr) == 0);

  const std::unique_ptr<void, decltype(&seccomp_release)> filter(seccomp_init(SCMP_ACT_TRAP), &seccomp_release);
  if (!filter) return failed("starting it", -ENOMEM);
  // All threads; another architecture's calls are not even named; a binary tree instead of a list.
  for (const auto& [attribute, value] : {std::pair{SCMP_FLTATR_CTL_TSYNC, std::uint32_t{1}},
                                         {SCMP_FLTATR_ACT_BADARCH, std::uint32_t{SCMP_ACT_KILL_PROCESS}},
                                         {SCMP_FLTATR_CTL_OPTIMIZE, std::uint32_t{2}}}) {
    if (const int set = seccomp_attr_set(filter.get(), attribute, value); set != 0) return failed("setting it up", set);
  }
  for (const auto& call : calls) {
    if (const int added = add_rule(filter.get(), call); added != 0) {
      return failed(std::string(call.name).c_str(), added);
    }
  }
  for (const char* name : kUnavailable) {
    const int number = seccomp_syscall_resolve_name(name);
    if (const int added = seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(ENOSYS), number, 0); added != 0) {
      return failed(name, added);
    }
  }
  // Boost.Asio makes each descriptor that it watches non-blocking. Ours are, or are only waited for.
  const scmp_arg_cmp is_non_blocking{1, SCMP_CMP_MASKED_EQ, 0xffffffff, FIONBIO};
  if (const int added = seccomp_rule_add_array(filter.get(), SCMP_ACT_ERRNO(0), SCMP_SYS(ioctl), 1, &is_non_blocking);
      added != 0) {
    return failed("ioctl", added);
  }
  if (const int loaded = seccomp_load(filter.get()); loaded != 0) return failed("closing it", loaded);
  return {};
}

}  // namespace splitnic::tools
