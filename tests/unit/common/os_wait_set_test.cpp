// The kernel may refuse to watch a descriptor at any time. Each test runs in a child process, because it takes
// something away from the whole process.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

#include "common/os/errno_text.h"
#include "common/os/event_loop.h"
#include "common/os/unique_fd.h"
#include "common/os/wait_set.h"

namespace splitnic::os::os_wait_set_test {
namespace {

using namespace std::chrono_literals;

/// Runs `work` in a child and returns its exit code, or -1 if a signal ended it.
template <class Work>
int exit_code_of(Work work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  REQUIRE(child > 0);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// From now on the system call fails with this error in the calling process.
bool refuse(unsigned call, unsigned error) {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(steps)), steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// Ends the loop when its eventfd has been written, or the time has come.
struct WatchedTask final : Task {
  WatchedTask(EventLoop& event_loop, int fd) : loop(event_loop), descriptor(fd) {}
  std::size_t poll(Time now) override {
    if (now >= end) loop.stop();
    std::uint64_t value = 0;
    if (::read(descriptor, &value, sizeof value) == sizeof value) {
      rung = true;
      loop.stop();
      return 1;
    }
    return 0;
  }
  bool prepare_sleep(Time) override { return true; }
  void disarm() override {}
  Time next_deadline() const override { return kNever; }
  void collect_descriptors(std::vector<int>& out) const override { out.push_back(descriptor); }

  EventLoop& loop;
  int descriptor;
  Time end = kNever;
  bool rung = false;
};

void ring(int descriptor) {
  const std::uint64_t one = 1;
  static_cast<void>(::write(descriptor, &one, sizeof one));
}

}  // namespace

TEST_CASE("a loop whose descriptors the kernel refuses to watch says so and continues", "[common][event_loop]") {
  const unsigned error = GENERATE(ENOSPC, ENOMEM);
  CAPTURE(error);
  CHECK(exit_code_of([&] {
          std::vector<std::string> lines;
          const UniqueFd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
          EventLoopOptions options{.spin_max = 0us, .handle_signals = false};
          options.on_trouble = [&](const std::string& line) {
            lines.push_back(line);
            ring(event.get());  // ends the next short sleep
          };
          EventLoop loop(options);
          WatchedTask task(loop, event.get());
          loop.add(task);
          if (!refuse(SYS_epoll_ctl, error)) return 2;
          loop.run();
          if (!task.rung) return 3;
          if (lines.empty() || lines.size() != loop.counters().sleeps_cut_short) return 4;
          return lines[0].find("can't sleep for long: watching") == 0 ? 17 : 5;
        }) == 17);
}

TEST_CASE("a loop whose descriptors the kernel refuses to watch sleeps briefly", "[common][event_loop]") {
  CHECK(exit_code_of([] {
          const UniqueFd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
          EventLoop loop({.spin_max = 0us, .handle_signals = false});
          WatchedTask task(loop, event.get());
          task.end = monotonic_now() + 300ms;
          loop.add(task);
          if (!refuse(SYS_epoll_ctl, ENOSPC)) return 2;
          loop.run();
          if (loop.counters().sleeps_cut_short < 2) return 3;  // it tries again and again
          return loop.counters().iterations < 100 ? 17 : 4;
        }) == 17);
}

TEST_CASE("a wait set that runs out of descriptors is whole again when there are some", "[common][event_loop]") {
  CHECK(exit_code_of([] {
          WaitSet set;
          const UniqueFd first(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
          const UniqueFd second(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
          if (!set.update(std::vector{first.get()})) return 2;
          // UBSan needs descriptors to check an object's type for the first time: that of fmt's buffer here, not below.
          static_cast<void>(fmt::format("creating an epoll: {}", errno_text()));
          rlimit before{};
          getrlimit(RLIMIT_NOFILE, &before);
          const rlimit none{0, before.rlim_max};
          setrlimit(RLIMIT_NOFILE, &none);
          const auto refused = set.update(std::vector{second.get()});
          if (refused || refused.error().message.find("creating an epoll") != 0) return 3;
          if (set.update(std::vector{second.get()})) return 4;  // does not believe that nothing has changed
          setrlimit(RLIMIT_NOFILE, &before);
          const auto again = set.update(std::vector{second.get()});
          if (!again || !*again) return 5;
          const auto same = set.update(std::vector{second.get()});
          return same && !*same ? 17 : 6;
        }) == 17);
}

}  // namespace splitnic::os::os_wait_set_test
