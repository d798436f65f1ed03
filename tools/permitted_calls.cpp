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
#include <cerrno>
#include <csignal>
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

/// SO_PASSRIGHTS, younger than the headers.
constexpr std::uint64_t kPassRights = 83;

/// Those of a thread that the C library starts.
constexpr std::uint64_t kThreadFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                                       CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;

Condition is(unsigned argument, std::uint64_t value) { return {argument, kAllBits, value}; }
Condition has_none(unsigned argument, std::uint64_t bits) { return {argument, bits, 0}; }
Condition has_all(unsigned argument, std::uint64_t bits) { return {argument, bits, bits}; }

/// The caller asks, and can do without an answer.
PermittedCall fails(std::string_view name, int error) { return {.name = name, .made = false, .error = error}; }

/// The caller gets 0.
PermittedCall finds_nothing(std::string_view name) { return {.name = name, .made = false}; }

PermittedCall read_a_file() { return {"openat", {has_none(2, O_ACCMODE | O_CREAT | O_TRUNC)}}; }

PermittedCall set_tap_offloads() { return {"ioctl", {is(1, TUNSETOFFLOAD), has_none(2, kAllBits & ~kTapOffloads)}}; }

/// Every part: the allocator, the log, sockets, and a clean or an unclean end.
const Calls& common_calls() {
  static const Calls calls{
      {"clock_gettime"},  // of a thread's processor time, and where the C library can't read the clock by itself
      {"close"},
      {"exit_group"},
      {"futex"},  // between threads, and at the first exception
      {"madvise", {is(2, MADV_DONTNEED)}},
      {"mmap", {has_none(2, PROT_EXEC)}},
      {"munmap"},
      {"ppoll"},
      {"preadv2"},
      {"recvmmsg"},
      {"rt_sigaction", {is(0, SIGABRT)}},  // a crash gets its usual effect
      {"rt_sigaction", {is(0, SIGBUS)}},
      {"rt_sigaction", {is(0, SIGSEGV)}},
      {"rt_sigprocmask"},
      {"rt_sigreturn"},
      {"sendmmsg"},
      {"tgkill", {is(2, SIGABRT)}},
      {"write"},
      {"writev"},  // a TAP's frames, and the C library's last words
  };
  return calls;
}

/// The event loop, the control socket and random numbers of both daemons.
const Calls& daemon_calls() {
  static const Calls calls{
      {"accept4"},   {"epoll_create1"}, {"epoll_ctl"},       {"epoll_wait"},
      {"getrandom"}, {"sched_yield"},   {"timerfd_settime"},
  };
  return calls;
}

/// The TAP, and the set-up of a bridge with whatever unit listens at the socket.
const Calls& host_calls() {
  static const Calls calls{
      {"connect"},
      {"fcntl", {is(1, F_GET_SEALS)}},
      {"fcntl", {is(1, F_SETFL), is(2, O_NONBLOCK)}},
      {"fstatfs"},
      {"getsockopt", {is(1, SOL_SOCKET)}},
      {"inotify_add_watch"},
      {"inotify_rm_watch"},
      {"ioctl", {is(1, TUNGETIFF)}},
      {"ioctl", {is(1, TUNSETCARRIER)}},
      set_tap_offloads(),
      {"ioctl", {is(1, TUNSETPERSIST)}},
      {"ioctl", {is(1, TUNSETQUEUE)}},
      {"ioctl", {is(1, TUNSETSTEERINGEBPF)}},
      {"ioctl", {is(1, SIOCGIFHWADDR)}},
      {"ioctl", {is(1, SIOCSIFHWADDR)}},
      {"newfstatat"},
      {"sched_setaffinity", {is(0, 0)}},  // of the calling thread
      {"setsockopt", {is(1, SOL_SOCKET), is(2, kPassRights)}},
      {"socket", {is(0, AF_UNIX)}},
  };
  return calls;
}

/// The LAN, and the doorman: threads, and the memory of bridges.
const Calls& unit_calls() {
  static const Calls calls{
      {"clone", {is(0, kThreadFlags)}},
      {"close_range"},
      {"eventfd2"},
      {"exit"},
      {"fallocate", {is(1, 0)}},
      {"fcntl", {is(1, F_ADD_SEALS)}},
      {"getsockopt", {is(1, SOL_SOCKET)}},
      {"getsockopt", {is(1, SOL_PACKET)}},
      {"madvise", {is(2, MADV_REMOVE)}},
      {"madvise", {is(2, MADV_POPULATE_WRITE)}},
      {"madvise", {is(2, MADV_WIPEONFORK)}},
      {"memfd_create"},
      {"shutdown"},
      {"rseq"},  // of a new thread
      {"socketpair", {is(0, AF_UNIX)}},
  };
  return calls;
}

/// libpcap reads the ring of a capture that was opened before, and makes no call that it could not do without:
/// - where the ring is empty, it polls the socket for errors, which PcapLan asks for itself;
/// - it counts in /sys what the hardware lost;
/// - at the end it gives the ring back, which the end of the socket does as well.
const Calls& libpcap_calls() {
  static const Calls calls{
      finds_nothing("poll"),
      fails("openat", ENOENT),
      fails("setsockopt", EPERM),
  };
  return calls;
}

/// Both privileged processes: their answers, and sockets that the daemon has left behind.
const Calls& rights_calls() {
  static const Calls calls{
      {"bind"},   {"connect"}, {"flock"}, {"newfstatat"}, read_a_file(), {"setsockopt"}, {"socket", {is(0, AF_UNIX)}},
      {"unlink"},
  };
  return calls;
}

/// The host's makes TAPs, looks into their namespaces, and writes their settings.
const Calls& host_rights_calls() {
  static const Calls calls{
      {"fcntl", {is(1, F_DUPFD_CLOEXEC)}},
      {"ioctl", {is(1, SIOCGIFHWADDR)}},
      {"ioctl", {is(1, SIOCSIFHWADDR)}},
      {"ioctl", {is(1, TUNGETDEVNETNS)}},
      {"ioctl", {is(1, TUNGETIFF)}},
      {"ioctl", {is(1, TUNSETCARRIER)}},
      {"ioctl", {is(1, TUNSETIFF)}},
      set_tap_offloads(),
      {"ioctl", {is(1, TUNSETPERSIST)}},
      {"ioctl", {is(1, TUNSETQUEUE)}},
      {"ioctl", {is(1, TUNSETVNETHDRSZ)}},
      {"ioctl", {is(1, TUNSETVNETLE)}},
      {"openat", {is(2, O_RDWR | O_NONBLOCK | O_CLOEXEC)}},
      {"openat", {is(2, O_WRONLY | O_CLOEXEC)}},
      {"setns", {is(1, CLONE_NEWNET)}},
      {"socket", {is(0, AF_NETLINK)}},
  };
  return calls;
}

/// The unit's opens packet sockets, reads the policy and writes the file of names.
const Calls& unit_rights_calls() {
  static const Calls calls{
      {"fsync"},
      {"getsockname"},
      {"getsockopt", {is(1, SOL_PACKET)}},
      {"ioctl", {is(1, SIOCGIFNAME)}},
      {"memfd_create"},
      {"openat", {has_all(2, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW)}},
      {"rename"},
      {"socket", {is(0, AF_PACKET)}},
  };
  return calls;
}

Calls joined(std::initializer_list<const Calls*> lists) {
  Calls all;
  for (const Calls* list : lists) all.insert(all.end(), list->begin(), list->end());
  return all;
}

}  // namespace

const Calls& permitted_calls(FilteredPart part) {
  static const Calls host = joined({&common_calls(), &daemon_calls(), &host_calls()});
  static const Calls unit = joined({&common_calls(), &daemon_calls(), &unit_calls()});
  static const Calls with_libpcap = joined({&unit, &libpcap_calls()});
  static const Calls host_rights = joined({&common_calls(), &rights_calls(), &host_rights_calls()});
  static const Calls unit_rights = joined({&common_calls(), &rights_calls(), &unit_rights_calls()});
  switch (part) {
    case FilteredPart::host:
      return host;
    case FilteredPart::unit:
      return unit;
    case FilteredPart::unit_with_libpcap:
      return with_libpcap;
    case FilteredPart::host_rights:
      return host_rights;
    case FilteredPart::unit_rights:
      break;
  }
  return unit_rights;
}

std::size_t count_names(const Calls& calls) {
  std::set<std::string_view> names;
  for (const auto& call : calls) {
    if (call.made) names.insert(call.name);
  }
  return names.size();
}

}  // namespace splitnic::tools
