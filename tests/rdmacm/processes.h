#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <functional>

#include "tests/rdmacm/manager.h"

/// Fixtures for tests of several processes on the fabric of the program.
namespace splitnic::rdmacm::testing {

/// Runs work() in a forked child, which then ends without closing anything; it ends with the thread that made it, too.
struct Child {
  explicit Child(const std::function<int()>& work) : process(fork()) {
    REQUIRE(process >= 0);
    if (process != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // also if it is stopped
    alarm(kLimitMilliseconds / 1000);  // if it hangs
    _exit(work());
  }
  [[nodiscard]] int ended() const {
    int status = 0;
    REQUIRE(waitpid(process, &status, 0) == process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  pid_t process;
};

/// Values from one process to another.
struct Pipe {
  Pipe() { REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0); }
  ~Pipe() {
    for (const int end : ends) close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  template <class Value>
  [[nodiscard]] bool put(const Value& value) const {
    return write(ends[1], &value, sizeof value) == ssize_t{sizeof value};
  }
  template <class Value>
  [[nodiscard]] bool get(Value& value) const {
    return read(ends[0], &value, sizeof value) == ssize_t{sizeof value};
  }

  std::array<int, 2> ends{};
};

}  // namespace splitnic::rdmacm::testing
