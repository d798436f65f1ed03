#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace splitnic::testing {

/// What a port of a core would sleep on.
template <class Waits>
std::vector<int> descriptors_of(const Waits& waits) {
  std::vector<int> descriptors;
  waits.collect_descriptors(descriptors);
  return descriptors;
}

/// While it lives, the thread is in a network namespace of its own, which vanishes with everything in it. False, with a
/// warning, where the test may not make one. The programs that run() starts are in it too.
class TestNamespace {
 public:
  TestNamespace() : home_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    inside_ = home_ >= 0 && ::access("/dev/net/tun", F_OK) == 0 && ::unshare(CLONE_NEWNET) == 0;
    if (!inside_) WARN("skipped: needs root, network namespaces and /dev/net/tun");
  }
  ~TestNamespace() {
    if (inside_ && ::setns(home_, CLONE_NEWNET) != 0) std::abort();
    ::close(home_);
  }
  TestNamespace(const TestNamespace&) = delete;
  TestNamespace& operator=(const TestNamespace&) = delete;
  explicit operator bool() const { return inside_; }

 private:
  int home_;
  bool inside_ = false;
};

/// A process that does nothing but hold another network namespace open.
class OtherNamespace {
 public:
  OtherNamespace() {
    int ready[2];
    REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also where the test crashes
      const char said = ::unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
      if (::write(ready[1], &said, 1) == 1) ::pause();
      ::_exit(0);
    }
    char heard = 'n';
    const bool answered = ::read(ready[0], &heard, 1) == 1;
    ::close(ready[0]);
    ::close(ready[1]);
    REQUIRE(answered);
    REQUIRE(heard == 'y');
  }
  ~OtherNamespace() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  OtherNamespace(const OtherNamespace&) = delete;
  OtherNamespace& operator=(const OtherNamespace&) = delete;
  [[nodiscard]] std::string process() const { return std::to_string(process_); }

 private:
  pid_t process_ = -1;
};

inline void run(const std::string& command) {
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
}

inline std::string output_of(const std::string& command) {
  std::string output;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[512];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) output += buffer;
  ::pclose(pipe);
  return output;
}

/// Whether one of the descriptors is readable now, or becomes so in the time given.
inline bool readable(const std::vector<int>& descriptors, std::chrono::milliseconds within = {}) {
  std::vector<pollfd> waiting;
  for (const int fd : descriptors) waiting.push_back({fd, POLLIN, 0});
  return ::poll(waiting.data(), waiting.size(), static_cast<int>(within.count())) > 0;
}

}  // namespace splitnic::testing
