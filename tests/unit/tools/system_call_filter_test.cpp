#include "tools/system_call_filter.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/os/close_elsewhere.h"
#include "common/os/message_io.h"
#include "common/os/ready_before.h"
#include "common/os/unique_fd.h"
#include "common/os/unix_listener.h"
#include "fabric/memory/guarded_copy.h"
#include "tests/unit/common/os_temporary_directory.h"
#include "tests/unit/state_of.h"

namespace splitnic::tools::system_call_filter_test {
namespace {

struct Ending {
  int status = 0;
  std::string said{};  ///< on stderr
  [[nodiscard]] bool by_signal(int number) const { return WIFSIGNALED(status) && WTERMSIG(status) == number; }
  [[nodiscard]] bool clean() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

/// All parts that are held to the limit.
constexpr FilteredPart kParts[] = {FilteredPart::host, FilteredPart::unit, FilteredPart::unit_with_libpcap,
                                   FilteredPart::host_rights, FilteredPart::unit_rights};

[[gnu::noinline]] void throw_from_here() { throw std::runtime_error("nobody catches this"); }

/// A process that closes the filter, does `work` and ends; without the filter it would end cleanly. beside: a thread of
/// it that existed before the filter.
Ending after(FilteredPart part, const std::function<void()>& work, const std::function<void()>& beside = {}) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::prctl(PR_SET_DUMPABLE, 0);  // no core files
    ::mallopt(M_ARENA_MAX, 1);    // as Sandbox
    // The handlers of the test runner make calls of their own.
    for (const int number : {SIGABRT, SIGBUS, SIGSEGV}) std::signal(number, SIG_DFL);
    if (beside) std::thread(beside).detach();
    if (!close_filter(permitted_calls(part), "test")) ::_exit(3);
    work();
    ::_exit(0);
  }
  ::close(ends[1]);
  Ending ending;
  std::array<char, 512> text{};
  for (ssize_t got = 0; (got = ::read(ends[0], text.data(), text.size())) > 0;) {
    ending.said.append(text.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  REQUIRE(::waitpid(process, &ending.status, 0) == process);
  return ending;
}

TEST_CASE("a forbidden system call is named, and ends the process by SIGSYS", "[tools][sandbox]") {
  if (!filter_is_built_in()) return;
  const auto ending = after(FilteredPart::host, [] { ::syscall(SYS_ptrace, 0, 0, 0, 0); });
  CHECK(ending.by_signal(SIGSYS));
  CHECK(ending.said == "splitnic test: the sandbox forbids the system call ptrace: ending\n");
}

TEST_CASE("no part may use io_uring, whose operations the filter does not see", "[tools][sandbox]") {
  if (!filter_is_built_in()) return;
  for (const FilteredPart part : kParts) {
    const auto ending = after(part, [] { ::syscall(SYS_io_uring_setup, 1, nullptr); });
    CAPTURE(static_cast<int>(part), ending.said);
    CHECK(ending.by_signal(SIGSYS));
    CHECK_THAT(ending.said, Catch::Contains("forbids the system call io_uring_setup:"));
  }
}

TEST_CASE("abort ends the process by SIGABRT, from any thread", "[tools][sandbox]") {
  if (!filter_is_built_in()) return;
  for (const FilteredPart part : kParts) {
    const auto ending = after(part, [] { std::abort(); });
    CAPTURE(static_cast<int>(part), ending.status, ending.said);
    CHECK(ending.by_signal(SIGABRT));
    CHECK(ending.said == "splitnic test: abort: ending\n");
  }
  std::atomic<bool> go = false;
  const auto elsewhere = after(
      FilteredPart::unit,
      [&] {
        go = true;
        go.notify_all();
        for (;;) ::ppoll(nullptr, 0, nullptr, nullptr);
      },
      [&] {
        go.wait(false);
        std::abort();
      });
  CHECK(elsewhere.by_signal(SIGABRT));
  CHECK(elsewhere.said == "splitnic test: abort: ending\n");
}

TEST_CASE("a crash and an exception that nobody catches end the process by their own signals", "[tools][sandbox]") {
  if (!filter_is_built_in()) return;
  for (const FilteredPart part : kParts) {
    const auto crash = after(part, [] {
      fabric::enable_guarded_copy();
      volatile int* const nowhere = nullptr;
      *nowhere = 1;
    });
    CAPTURE(static_cast<int>(part), crash.said);
    CHECK(crash.by_signal(SIGSEGV));
    const auto uncaught = after(part, []() noexcept { throw_from_here(); });
    CHECK(uncaught.by_signal(SIGABRT));
    CHECK_THAT(uncaught.said, Catch::Contains("nobody catches this"));
  }
}

TEST_CASE("memory comes from mmap when the heap can't grow", "[tools][sandbox]") {
  for (const FilteredPart part : kParts) {
    const auto ending = after(part, [] {
      std::vector<std::unique_ptr<std::array<char, 10'000>>> blocks;
      for (int block = 0; block < 1000; ++block) blocks.push_back(std::make_unique<std::array<char, 10'000>>());
      std::vector<char> grown(1 << 20);
      for (int time = 0; time < 6; ++time) grown.resize(2 * grown.size());  // by mremap, where there is one
      blocks.clear();
      ::malloc_trim(0);
      if (std::string(100'000, 'x').size() != 100'000) ::_exit(5);
    });
    CAPTURE(static_cast<int>(part), ending.said);
    CHECK(ending.clean());
  }
}

TEST_CASE("the filter holds for threads that existed before it, and names their calls", "[tools][sandbox]") {
  if (!filter_is_built_in()) return;
  std::array<int, 2> go{};
  REQUIRE(::pipe2(go.data(), O_CLOEXEC) == 0);
  std::array<int, 2> said{};
  REQUIRE(::pipe2(said.data(), O_CLOEXEC) == 0);
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(said[1], STDERR_FILENO);
    ::prctl(PR_SET_DUMPABLE, 0);
    std::thread thread([&] {
      char byte = 0;
      if (os::read_some(go[0], std::as_writable_bytes(std::span(&byte, 1))) == 1) ::syscall(SYS_chroot, "/");
    });
    if (!close_filter(permitted_calls(FilteredPart::unit), "test")) ::_exit(3);
    if (::write(go[1], "", 1) != 1) ::_exit(4);
    thread.join();
    ::_exit(0);
  }
  ::close(said[1]);
  std::array<char, 512> text{};
  const ssize_t got = ::read(said[0], text.data(), text.size());
  int status = 0;
  REQUIRE(::waitpid(process, &status, 0) == process);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS));
  const std::string line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  CHECK(line.starts_with("splitnic test: the sandbox forbids the system call chroot"));
  for (const int end : {go[0], go[1], said[0]}) ::close(end);
}

TEST_CASE("permitted calls go on working with the arguments that are permitted", "[tools][sandbox]") {
  const auto host = after(FilteredPart::host, [] {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    if (socket < 0 || ::ioctl(socket, FIONBIO, &on) != 0) ::_exit(5);
  });
  CHECK(host.clean());
  CHECK(host.said.empty());
  const auto unit = after(
      FilteredPart::unit,
      [] {
        std::vector<os::UniqueFd> closing;
        closing.emplace_back(::epoll_create1(EPOLL_CLOEXEC));
        if (!os::close_elsewhere(std::move(closing)).empty()) ::_exit(5);  // starts a thread
      },
      [] {});  // the first thread of a process has more to set up, and comes before the filter
  CHECK(unit.clean());
  CHECK(unit.said.empty());
}

TEST_CASE("a permitted call is forbidden with other arguments", "[tools][sandbox]") {
  if (!filter_is_built_in()) return;
  const auto refused = [](FilteredPart part, const std::string& name, const std::function<void()>& work) {
    const auto ending = after(part, work);
    CAPTURE(name, ending.status, ending.said);
    CHECK(ending.by_signal(SIGSYS));
    CHECK_THAT(ending.said, Catch::Contains("forbids the system call " + name + ":"));
  };
  const auto read_file = [] { static_cast<void>(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)); };
  const auto write_file = [] { static_cast<void>(::open("/tmp/nothing", O_WRONLY | O_CLOEXEC)); };
  const auto make_file = [] { static_cast<void>(::open("/tmp/nothing", O_RDONLY | O_CREAT | O_CLOEXEC, 0600)); };
  const auto map_code = [] {
    static_cast<void>(::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  };
  for (const FilteredPart part : {FilteredPart::host, FilteredPart::unit, FilteredPart::unit_with_libpcap}) {
    for (const auto& open_file : {std::function<void()>(read_file), std::function<void()>(write_file)}) {
      if (part != FilteredPart::unit_with_libpcap) refused(part, "openat", open_file);  // there it fails
    }
    refused(part, "mmap", map_code);
    refused(part, "socket", [] { static_cast<void>(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); });
    refused(part, "ioctl", [] { ::syscall(SYS_ioctl, 0, 0x5412, ""); });  // TIOCSTI types into the terminal
    refused(part, "tgkill", [] { ::syscall(SYS_tgkill, 1, 1, SIGKILL); });
    refused(part, "fcntl", [] { ::fcntl(0, F_SETOWN, 1); });
    refused(part, "mprotect", [] { ::syscall(SYS_mprotect, 0, 4096, PROT_READ | PROT_EXEC); });
    refused(part, "prctl", [] { ::prctl(PR_SET_NAME, "other"); });
    refused(part, "execve", [] { ::syscall(SYS_execve, "/bin/true", nullptr, nullptr); });
  }
  for (const FilteredPart part : {FilteredPart::host_rights, FilteredPart::unit_rights}) {
    refused(part, "mmap", map_code);
    refused(part, "socket", [] { static_cast<void>(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); });
    refused(part, "clone", [] { ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); });
    refused(part, "execve", [] { ::syscall(SYS_execve, "/bin/true", nullptr, nullptr); });
  }
  refused(FilteredPart::host_rights, "openat", make_file);
  refused(FilteredPart::host_rights, "setns", [] { ::syscall(SYS_setns, 0, 0x00020000); });  // CLONE_NEWNS
  refused(FilteredPart::unit_rights, "openat", write_file);
  refused(FilteredPart::unit_rights, "setns", [] { ::syscall(SYS_setns, 0, CLONE_NEWNET); });
  refused(FilteredPart::host, "ioctl", [] { ::syscall(SYS_ioctl, 0, TUNSETOFFLOAD, TUN_F_UFO); });
  refused(FilteredPart::unit, "clone", [] { ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); });
  for (const FilteredPart part : {FilteredPart::unit, FilteredPart::unit_with_libpcap}) {
    refused(part, "socket", [] { static_cast<void>(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); });
    refused(part, "read", [] { ::syscall(SYS_read, 0, nullptr, 0); });
    refused(part, "sendmsg", [] { ::syscall(SYS_sendmsg, -1, nullptr, 0); });
  }
  refused(FilteredPart::unit, "unshare", [] { ::syscall(SYS_unshare, 0x10000000); });  // a user namespace
}

TEST_CASE("a privileged process waits for the lock on a socket's folder and then removes the socket",
          "[tools][sandbox]") {
  const os::TemporaryDirectory directory;
  for (const FilteredPart part : {FilteredPart::host_rights, FilteredPart::unit_rights}) {
    auto listener = os::UnixListener::listen(directory.path("s"));
    REQUIRE(listener);
    const os::SocketFile file(listener->path());
    listener->leave_path();
    const os::UniqueFd folder(::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    REQUIRE(::flock(folder.get(), LOCK_EX) == 0);
    const auto ending = after(part, [&] { file.remove(); });
    CAPTURE(static_cast<int>(part), ending.said);
    CHECK(ending.clean());
    CHECK(os::probe_socket(directory.path("s")) == os::SocketState::kAbsent);
  }
}

TEST_CASE("a unit that is stopped and continued while it waits for a thread goes on waiting", "[tools][sandbox]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const pid_t process = ::fork();
  if (process == 0) {
    ::prctl(PR_SET_DUMPABLE, 0);
    if (!close_filter(permitted_calls(FilteredPart::unit), "test")) ::_exit(3);
    std::promise<int> never;
    const auto answer = never.get_future();
    if (::write(ends[1], "", 1) != 1) ::_exit(4);
    ::_exit(os::ready_before(answer, monotonic_now() + std::chrono::seconds(1)) ? 5 : 0);
  }
  char byte = 0;
  REQUIRE(::read(ends[0], &byte, 1) == 1);
  const Time give_up = monotonic_now() + std::chrono::seconds(3);
  while (testing::state_of(process) != 'S' && monotonic_now() < give_up) std::this_thread::yield();
  REQUIRE(::kill(process, SIGSTOP) == 0);
  int status = 0;
  REQUIRE(::waitpid(process, &status, WUNTRACED) == process);
  REQUIRE(WIFSTOPPED(status));
  REQUIRE(::kill(process, SIGCONT) == 0);
  REQUIRE(::waitpid(process, &status, 0) == process);
  CAPTURE(status);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  for (const int end : ends) ::close(end);
}

TEST_CASE("what libpcap tries in the sandbox has no effect, and ends nothing", "[tools][sandbox]") {
  if (!filter_is_built_in()) return;
  const auto ending = after(FilteredPart::unit_with_libpcap, [] {
    const auto fails = [](auto answer, int error) { return answer == -1 && errno == error; };
    pollfd at_once{STDERR_FILENO, POLLOUT, 0};
    const bool as_promised = fails(::open("/etc/passwd", O_RDONLY | O_CLOEXEC), ENOENT) &&
                             fails(::open("/tmp/made", O_WRONLY | O_CREAT | O_CLOEXEC, 0600), ENOENT) &&
                             fails(::setsockopt(STDERR_FILENO, SOL_SOCKET, SO_DEBUG, nullptr, 0), EPERM) &&
                             ::syscall(SYS_poll, &at_once, 1, -1) == 0;
    if (!as_promised) ::_exit(1);
  });
  CAPTURE(ending.status, ending.said);
  CHECK(ending.clean());
}

TEST_CASE("no part may make more than 35 different calls", "[tools][sandbox]") {
  constexpr std::size_t kMostCalls = 35;
  for (const FilteredPart part : kParts) {
    CAPTURE(static_cast<int>(part));
    CHECK(count_names(permitted_calls(part)) <= kMostCalls);
  }
  // docs/security.md says these numbers.
  CHECK(count_names(permitted_calls(FilteredPart::host)) == 35);
  CHECK(count_names(permitted_calls(FilteredPart::unit)) == 35);
  CHECK(count_names(permitted_calls(FilteredPart::unit_with_libpcap)) == 35);
  CHECK(count_names(permitted_calls(FilteredPart::host_rights)) == 28);
  CHECK(count_names(permitted_calls(FilteredPart::unit_rights)) == 31);
}

}  // namespace
}  // namespace splitnic::tools::system_call_filter_test
