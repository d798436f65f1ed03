#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/os/errno_text.h"
#include "common/os/runtime_directory.h"
#include "common/os/unique_fd.h"
#include "common/os/unix_listener.h"
#include "os_stale_socket.h"
#include "os_temporary_directory.h"

namespace splitnic::os::os_runtime_directory_test {
namespace {

mode_t mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_mode & 07777U;
}

/// The process's umask for as long as this lives.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }

 private:
  mode_t before_;
};

TEST_CASE("control sockets lie in a closed folder within one that others may enter", "[common][runtime_directory]") {
  for (const mode_t mask : {0U, 022U, 077U}) {
    const Umask umask(mask);
    const TemporaryDirectory directory;
    const std::string run = directory.path("run");
    const auto made = make_control_directory({directory.path("none/run"), run});
    REQUIRE(made);
    CHECK(*made == run + "/control");
    CHECK(mode_of(run) == 0755);
    CHECK(mode_of(run + "/control") == 0700);
    CHECK(make_control_directory({run}) == run + "/control");  // again: it is ours
  }
}

TEST_CASE("what systemd makes as RuntimeDirectory is taken", "[common][runtime_directory]") {
  const TemporaryDirectory directory;
  for (const mode_t mode : {0755U, 0750U, 0700U}) {
    const std::string run = directory.path(std::to_string(mode));
    std::filesystem::create_directory(run);
    REQUIRE(::chmod(run.c_str(), mode) == 0);
    CHECK(make_control_directory({run}) == run + "/control");
    CHECK(mode_of(run) == mode);
  }
}

TEST_CASE("folders where others can write or read control sockets are refused", "[common][runtime_directory]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  std::filesystem::create_directory(run);
  const std::string hint = "; name a control socket elsewhere with --control";
  for (const mode_t mode : {0777U, 0775U, 0757U, 01777U}) {
    REQUIRE(::chmod(run.c_str(), mode) == 0);
    CHECK(make_control_directory({run}).error().message ==
          run + ": exists, but is not a directory that only this user may write to" + hint);
  }
  REQUIRE(::chmod(run.c_str(), 0755) == 0);
  std::filesystem::create_directory(run + "/control");
  for (const mode_t mode : {0755U, 0710U, 0704U}) {
    REQUIRE(::chmod((run + "/control").c_str(), mode) == 0);
    CHECK(make_control_directory({run}).error().message ==
          run + "/control: exists, but is not a directory that is this user's alone (mode 0700)" + hint);
  }
  const std::string link = directory.path("link");
  std::filesystem::create_symlink(directory.path(), link);
  CHECK_FALSE(make_control_directory({link}));
  CHECK(make_control_directory({directory.path("none/run")}).error().message ==
        "no directory for the control socket: " + directory.path("none/run") + ": No such file or directory" + hint);
}

TEST_CASE("a folder of another user is refused", "[common][runtime_directory][privileged]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  std::filesystem::create_directory(run);
  if (::chown(run.c_str(), 65534, 65534) != 0) {
    WARN("skipped: giving a folder to another user is not permitted");
    return;
  }
  CHECK_FALSE(make_control_directory({run}));
}

TEST_CASE("the folder of a listening socket is made where it is missing", "[common][runtime_directory]") {
  const Umask umask(077);
  const TemporaryDirectory directory;
  const std::string path = directory.path("run/lan0.sock");
  REQUIRE(make_socket_directory(path));
  CHECK(mode_of(directory.path("run")) == 0755);
  CHECK(others_can_reach(path));
  REQUIRE(::chmod(directory.path("run").c_str(), 0700) == 0);
  REQUIRE(make_socket_directory(path));
  CHECK(mode_of(directory.path("run")) == 0700);  // stays as it is
  CHECK_FALSE(others_can_reach(path));
  CHECK(make_socket_directory(directory.path("no/such/lan0.sock")).error().message ==
        directory.path("no/such") + ": No such file or directory");
  CHECK(make_socket_directory("lan0.sock"));
  CHECK(make_socket_directory("/lan0.sock"));
}

TEST_CASE("a service's folder comes before all others", "[common][runtime_directory]") {
  REQUIRE(::setenv("RUNTIME_DIRECTORY", "/run/a:/run/b", 1) == 0);
  CHECK(runtime_directories().front() == "/run/a");
  REQUIRE(::unsetenv("RUNTIME_DIRECTORY") == 0);
  CHECK(runtime_directories().front() != "/run/a");
}

TEST_CASE("live control sockets are found and stale ones removed", "[common][runtime_directory]") {
  const TemporaryDirectory directory;
  const auto control = make_control_directory({directory.path("run")});
  REQUIRE(control);
  const auto in_control = [&](const std::string& name) { return *control + "/" + name; };
  const auto second = UnixListener::listen(in_control("iounit-2.sock"));
  const auto first = UnixListener::listen(in_control("host-1.sock"));
  leave_stale_socket(in_control("host-3.sock"));
  leave_stale_socket(in_control("foreign"));
  std::ofstream(in_control("file.sock")) << "x";
  const auto listening = UnixListener::listen(directory.path("run/lan0.sock"));
  const std::string run = directory.path("run");
  CHECK(find_control_sockets({directory.path("none"), run, run}).value() ==
        std::vector<std::string>{in_control("host-1.sock"), in_control("iounit-2.sock")});
  CHECK_FALSE(std::filesystem::exists(in_control("host-3.sock")));
  CHECK(std::filesystem::exists(in_control("foreign")));
  CHECK(std::filesystem::exists(in_control("file.sock")));
  REQUIRE(::chmod(control->c_str(), 0755) == 0);
  CHECK(find_control_sockets({run}).value().empty());
}

TEST_CASE("a search for control sockets without descriptors is not a search that finds none",
          "[common][runtime_directory]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  const auto control = make_control_directory({run});
  REQUIRE(control);
  const std::string path = *control + "/host-1.sock";
  const auto listening = UnixListener::listen(path);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const auto found_with = [&](rlim_t free) {
    const UniqueFd lowest(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit fewer = limit;
    fewer.rlim_cur = static_cast<rlim_t>(lowest.get()) + 1 + free;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &fewer) == 0);
    auto found = find_control_sockets({run});
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return found;
  };
  const auto none_for_the_folder = found_with(0);
  REQUIRE_FALSE(none_for_the_folder);
  CHECK(none_for_the_folder.error().message == *control + ": " + errno_text(EMFILE));
  CHECK(found_with(1).value() == std::vector{path});  // none for the socket
}

TEST_CASE("a daemon's control socket is named by role and process", "[common][runtime_directory]") {
  const TemporaryDirectory directory;
  const std::string name = "host-" + std::to_string(::getpid());
  const auto first = listen_at_default_path(directory.path(), "host");
  REQUIRE(first);
  CHECK(first->path() == directory.path(name + ".sock"));
  CHECK(listen_at_default_path(directory.path("none"), "host").error().message ==
        directory.path("none/" + name + ".sock") + ": No such file or directory");
}

TEST_CASE("daemons that have one pid, in several PID namespaces, share a folder for control sockets",
          "[common][runtime_directory]") {
  const TemporaryDirectory directory;
  const std::string name = "host-" + std::to_string(::getpid());
  const auto first = listen_at_default_path(directory.path(), "host");
  leave_stale_socket(directory.path(name + "-2.sock"));
  const auto second = listen_at_default_path(directory.path(), "host");
  const auto third = listen_at_default_path(directory.path(), "host");
  REQUIRE((first && second && third));
  CHECK(second->path() == directory.path(name + "-2.sock"));
  CHECK(third->path() == directory.path(name + "-3.sock"));
  // What is no daemon's socket is an error, not taken for one.
  std::ofstream(directory.path(name + "-4.sock")) << "x";
  CHECK(listen_at_default_path(directory.path(), "host").error().message ==
        directory.path(name + "-4.sock") + ": exists and is no socket");
}

}  // namespace
}  // namespace splitnic::os::os_runtime_directory_test
