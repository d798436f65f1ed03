// The system calls that each part may make after its start. docs/security.md explains the choice; a unit test pins the
// numbers.
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <set>

#include "tools/system_call_filter.h"

namespace splitnic::tools {

namespace {

using Calls = std::vector<PermittedCall>;
using Condition = PermittedCall::Condition;

// The kernel looks at 32 bits of these arguments, and the upper half of the register may have anything.
constexpr std::uint64_t kAllBits = 0xffffffff;

/// Those that TapDevice switches: checksums, super-frames of TCP, and TUN_F_USO4 and TUN_F_USO6 of UDP.
constexpr std::uint64_t kTapOffloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | 0x20U | 0x40U;

Condition is(unsigned argument, std::uint64_t value) { return {argument, kAllBits, value}; }
Condition has_none(unsigned argument, std::uint64_t bits) { return {argument, bits, 0}; }
Condition has_all(unsigned argument, std::uint64_t bits) { return {argument, bits, bits}; }

/// What the event loop, the control socket, the log, the allocator and a clean end need.
const Calls& common_calls() {
  static const Calls calls{
      {"accept"},
      {"brk"},
      {"clock_gettime"},  // where the C library can't read the clock by itself
      {"clock_nanosleep"},
      {"close"},
      {"epoll_create1"},
      {"epoll_ctl"},
      {"epoll_wait"},
      {"exit_group"},
      {"fcntl"},
      {"futex"},
      {"getpid"},
      {"getrandom"},
      {"getsockopt"},
      {"ioctl", {is(1, FIONBIO)}},
      {"madvise"},
      {"mmap", {has_none(2, PROT_EXEC)}},
      {"mremap"},
      {"munmap"},
      {"newfstatat"},
      {"openat", {has_none(2, O_ACCMODE | O_CREAT | O_TRUNC)}},
      {"poll"},
      {"ppoll"},
      {"read"},
      {"recvfrom"},
      {"recvmmsg"},
      {"recvmsg"},
      {"restart_syscall"},  // the kernel continues a sleep with it after SIGSTOP and SIGCONT
      {"rt_sigaction"},
      {"rt_sigprocmask"},
      {"rt_sigreturn"},
      {"sched_yield"},
      {"sendmsg"},
      {"sendto"},
      {"tgkill"},  // abort
      {"timerfd_settime"},
      {"unlink"},
      {"write"},
  };
  return calls;
}

/// The TAP, and the set-up of a bridge with whatever unit listens at the socket.
const Calls& host_calls() {
  static const Calls calls{
      {"connect"},
      {"fstatfs"},
      {"getsockname"},
      {"inotify_add_watch"},
      {"inotify_init1"},
      {"inotify_rm_watch"},
      {"ioctl", {is(1, TUNGETIFF)}},
      {"ioctl", {is(1, TUNSETCARRIER)}},
      {"ioctl", {is(1, TUNSETOFFLOAD), has_none(2, kAllBits & ~kTapOffloads)}},
      {"ioctl", {is(1, TUNSETPERSIST)}},
      {"ioctl", {is(1, SIOCGIFHWADDR)}},
      {"ioctl", {is(1, SIOCSIFHWADDR)}},
      {"preadv2"},
      {"readlink"},
      {"readv"},
      {"setsockopt"},
      {"socket", {is(0, AF_UNIX)}},
      {"writev"},
  };
  return calls;
}

/// The LAN, and the doorman: threads, the memory of bridges, the file of names.
const Calls& unit_calls() {
  static const Calls calls{
      {"accept4"},
      {"clone", {has_all(0, CLONE_THREAD)}},
      {"close_range"},
      {"eventfd2"},
      {"exit"},
      {"fallocate"},
      {"fsync"},
      {"ftruncate"},
      {"geteuid"},
      {"lseek"},
      {"memfd_create"},
      {"mprotect", {has_none(2, PROT_EXEC)}},
      {"openat", {has_all(2, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW)}},
      {"preadv2"},
      {"rename"},
      {"rseq"},
      {"sendmmsg"},
      {"set_robust_list"},
      {"shutdown"},
      {"socketpair", {is(0, AF_UNIX)}},
      {"unshare", {is(0, CLONE_FILES)}},
  };
  return calls;
}

/// libpcap opens an interface that came back.
const Calls& libpcap_calls() {
  static const Calls calls{
      {"access"},   {"bind"},   {"getsockname"}, {"getdents64"}, {"ioctl"},
      {"readlink"}, {"socket"}, {"setsockopt"},  {"uname"},      {"mmap"},
  };
  return calls;
}

/// The privileged process: it makes TAPs, looks into their namespaces, writes their settings, and removes sockets that
/// the daemon has left behind.
const Calls& rights_calls() {
  static const Calls calls{
      {"bind"},         {"brk"},
      {"close"},        {"connect"},
      {"exit_group"},   {"fcntl"},
      {"flock"},        {"futex"},
      {"getpid"},       {"getrandom"},
      {"getsockname"},  {"ioctl"},
      {"madvise"},      {"mmap", {has_none(2, PROT_EXEC)}},
      {"munmap"},       {"newfstatat"},
      {"openat"},       {"poll"},
      {"read"},         {"recvfrom"},
      {"recvmsg"},      {"restart_syscall"},
      {"rt_sigaction"}, {"rt_sigprocmask"},
      {"rt_sigreturn"}, {"sendmsg"},
      {"sendto"},       {"setns"},
      {"setsockopt"},   {"socket"},
      {"tgkill"},       {"unlink"},
      {"write"},
  };
  return calls;
}

Calls joined(std::initializer_list<const Calls*> lists) {
  Calls all;
  for (const Calls* list : lists) all.insert(all.end(), list->begin(), list->end());
  return all;
}

/// A list without the conditional entries that an unconditional one covers.
Calls simplified(Calls calls) {
  std::set<std::string_view> free;
  for (const auto& call : calls) {
    if (call.conditions.empty()) free.insert(call.name);
  }
  std::erase_if(calls, [&](const auto& call) { return !call.conditions.empty() && free.contains(call.name); });
  return calls;
}

}  // namespace

const Calls& permitted_calls(FilteredPart part) {
  static const Calls host = joined({&common_calls(), &host_calls()});
  static const Calls unit = joined({&common_calls(), &unit_calls()});
  static const Calls with_libpcap = simplified(joined({&common_calls(), &unit_calls(), &libpcap_calls()}));
  switch (part) {
    case FilteredPart::host:
      return host;
    case FilteredPart::unit:
      return unit;
    case FilteredPart::unit_with_libpcap:
      return with_libpcap;
    case FilteredPart::host_rights:
      break;
  }
  return rights_calls();
}

std::size_t count_names(const Calls& calls) {
  std::set<std::string_view> names;
  for (const auto& call : calls) names.insert(call.name);
  return names.size();
}

}  // namespace splitnic::tools
