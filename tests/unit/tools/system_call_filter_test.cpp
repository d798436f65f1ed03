#include "tools/system_call_filter.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <string>
#include <thread>

namespace splitnic::tools::system_call_filter_test {
namespace {

struct Ending {
  int status = 0;
  std::string said{};  ///< on stderr
  [[nodiscard]] bool by_signal(int number) const { return WIFSIGNALED(status) && WTERMSIG(status) == number; }
  [[nodiscard]] bool clean() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

/// A process that closes the filter, does `work` and ends; without the filter it would end cleanly.
Ending after(FilteredPart part, const std::function<void()>& work) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::prctl(PR_SET_DUMPABLE, 0);  // no core files
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
      if (::read(go[0], &byte, 1) == 1) ::syscall(SYS_chroot, "/");
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
    const int file = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0 || socket < 0) ::_exit(5);
  });
  CHECK(host.clean());
  CHECK(host.said.empty());
  const auto unit = after(FilteredPart::unit, [] { std::thread([] {}).join(); });
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
  const auto write_file = [] { static_cast<void>(::open("/tmp/nothing", O_WRONLY | O_CLOEXEC)); };
  const auto make_file = [] { static_cast<void>(::open("/tmp/nothing", O_RDONLY | O_CREAT | O_CLOEXEC, 0600)); };
  const auto map_code = [] {
    static_cast<void>(::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  };
  for (const FilteredPart part : {FilteredPart::host, FilteredPart::unit}) {
    refused(part, "openat", write_file);
    refused(part, "openat", make_file);
    refused(part, "mmap", map_code);
    refused(part, "socket", [] { static_cast<void>(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); });
    refused(part, "ioctl", [] { ::syscall(SYS_ioctl, 0, 0x5412, ""); });  // TIOCSTI types into the terminal
  }
  refused(FilteredPart::host, "ioctl", [] { ::syscall(SYS_ioctl, 0, TUNSETOFFLOAD, TUN_F_UFO); });
  refused(FilteredPart::unit, "clone", [] { ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); });
  refused(FilteredPart::unit, "unshare", [] { ::syscall(SYS_unshare, 0x10000000); });  // a user namespace
  refused(FilteredPart::unit, "mprotect", [] { ::syscall(SYS_mprotect, 0, 4096, PROT_READ | PROT_EXEC); });
}

TEST_CASE("each part may make as many different calls as the documentation says", "[tools][sandbox]") {
  const auto count = [](FilteredPart part) { return count_names(permitted_calls(part)); };
  CHECK(count(FilteredPart::host) == 50);
  CHECK(count(FilteredPart::unit) == 58);
  CHECK(count(FilteredPart::unit_with_libpcap) == 66);
  CHECK(count(FilteredPart::host_rights) == 33);
}

}  // namespace
}  // namespace splitnic::tools::system_call_filter_test
