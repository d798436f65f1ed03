#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdint>
#include <utility>

#include "common/os/unique_fd.h"

/// Processes that a test starts and kills, to see what the kernel frees when a process ends: its locks and sockets.
namespace splitnic::testing {

/// Ends a process that is not a child of this one.
class KilledAtTheEnd {
 public:
  explicit KilledAtTheEnd(pid_t process) : process_(process) {}
  ~KilledAtTheEnd() { ::kill(process_, SIGKILL); }
  KilledAtTheEnd(const KilledAtTheEnd&) = delete;
  KilledAtTheEnd& operator=(const KilledAtTheEnd&) = delete;

 private:
  pid_t process_;
};

/// Of a child that runs `work`, which returns it.
template <class Work>
int exit_code_of(Work work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// A child with a copy of every descriptor and mapping, which lives as long as this object.
class SleepingChild {
 public:
  SleepingChild() : process_(::fork()) {
    if (process_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  ~SleepingChild() {
    if (process_ < 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  SleepingChild(const SleepingChild&) = delete;
  SleepingChild& operator=(const SleepingChild&) = delete;

 private:
  pid_t process_;
};

/// A child that runs `work` and reports through a pipe. Fork it before the test has threads.
class OtherProcess {
 public:
  class Pipe {
   public:
    explicit Pipe(int to) : to_(to) {}
    void say_number(std::int64_t number) { static_cast<void>(!::write(to_, &number, sizeof number)); }

   private:
    int to_;
  };

  template <class Work>
  explicit OtherProcess(Work work) {
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    from_ = os::UniqueFd(ends[0]);
    os::UniqueFd to(ends[1]);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::alarm(60);  // if the test is killed
      Pipe pipe(to.get());
      work(pipe);
      ::_exit(0);
    }
  }
  ~OtherProcess() { kill(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  std::int64_t number() {
    std::int64_t number = 0;
    REQUIRE(::read(from_.get(), &number, sizeof number) == static_cast<ssize_t>(sizeof number));
    return number;
  }
  /// As kill -9; returns when it is gone.
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  os::UniqueFd from_;
  pid_t pid_ = -1;
};

}  // namespace splitnic::testing
