#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/os/runtime_directory.h"
#include "common/os/unix_listener.h"
#include "os_temporary_directory.h"

namespace splitnic::os {
namespace {

std::string error_of(const std::string& path) {
  const auto listener = UnixListener::listen(path);
  return listener ? "none" : listener.error().message;
}

// What a killed daemon leaves behind.
void leave_stale_socket(const std::string& path, int type = SOCK_STREAM) {
  const UniqueFd descriptor(::socket(AF_UNIX, type, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(descriptor.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

TEST_CASE("a listener's socket has its mode from the start and goes with it", "[common][unix_listener]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("s");
  for (const mode_t mode : {0600U, 0666U}) {
    const auto listener = UnixListener::listen(path, mode);
    REQUIRE(listener);
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777U) == mode);
    CHECK(probe_socket(path) == SocketState::kLive);
  }
  CHECK(probe_socket(path) == SocketState::kAbsent);
}

TEST_CASE("a stale socket is replaced, a live one is in use", "[common][unix_listener]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("s");
  leave_stale_socket(path);
  CHECK(probe_socket(path) == SocketState::kStale);
  const auto listener = UnixListener::listen(path);
  REQUIRE(listener);
  CHECK(error_of(path) == "address in use: " + path + " (somebody listens there)");
  CHECK(probe_socket(path) == SocketState::kLive);
}

TEST_CASE("a live listener whose queue is full is still in use", "[common][unix_listener]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("s");
  const auto listener = UnixListener::listen(path, 0600, 0);
  REQUIRE(listener);
  for (int connection = 0; connection < 3; ++connection) CHECK(probe_socket(path) == SocketState::kLive);
}

TEST_CASE("what is no socket is never removed", "[common][unix_listener]") {
  const TemporaryDirectory directory;
  const std::string file = directory.path("file");
  std::ofstream(file) << "precious";
  CHECK(error_of(file) == file + ": exists and is no socket");
  CHECK_FALSE(remove_stale_socket(file));
  CHECK(std::filesystem::file_size(file) == 8);

  leave_stale_socket(directory.path("stale"));
  const std::string link = directory.path("link");
  std::filesystem::create_symlink(directory.path("stale"), link);
  CHECK(error_of(link) == link + ": exists and is no socket");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(error_of(directory.path()) == directory.path() + ": exists and is no socket");
}

TEST_CASE("a path that a socket can't have is an error that says so", "[common][unix_listener]") {
  const TemporaryDirectory directory;
  CHECK(error_of("") == "a socket's path can't be empty");
  const std::string longest = directory.path(std::string(kMaxSocketPathBytes - directory.path().size() - 1, 'x'));
  REQUIRE(longest.size() == 107);
  CHECK(UnixListener::listen(longest));
  CHECK(error_of(longest + "x") == longest + "x: a socket's path has at most 107 bytes, this one has 108");
  CHECK(error_of(directory.path("none/s")) == directory.path("none/s") + ": No such file or directory");
}

TEST_CASE("a listener leaves alone what took its path meanwhile", "[common][unix_listener]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("s");
  {
    auto first = UnixListener::listen(path);
    REQUIRE(first);
    const UnixListener moved = std::move(*first);
    REQUIRE(::unlink(path.c_str()) == 0);
    leave_stale_socket(directory.path("other"));  // so that the inode number is not given out again
    std::ofstream(path) << "x";
  }
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("the run-time directory is private or refused", "[common][runtime_directory]") {
  const TemporaryDirectory directory;
  const std::string candidate = directory.path("run");
  const auto made = make_runtime_directory({directory.path("none/run"), candidate});
  REQUIRE(made);
  CHECK(*made == candidate);
  struct stat status {};
  REQUIRE(::stat(candidate.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777U) == 0700);
  CHECK(make_runtime_directory({candidate}));  // again: it is ours

  REQUIRE(::chmod(candidate.c_str(), 0755) == 0);
  CHECK_FALSE(make_runtime_directory({candidate}));
  const std::string link = directory.path("link");
  std::filesystem::create_symlink(directory.path(), link);
  CHECK_FALSE(make_runtime_directory({link}));
  const auto none = make_runtime_directory({directory.path("none/run")});
  REQUIRE_FALSE(none);
  CHECK(none.error().message ==
        "no directory for run-time files: " + directory.path("none/run") + ": No such file or directory");
}

TEST_CASE("live control sockets are found and stale ones removed", "[common][runtime_directory]") {
  const TemporaryDirectory directory;
  const auto second = UnixListener::listen(directory.path("iounit-2.sock"));
  const auto first = UnixListener::listen(directory.path("host-1.sock"));
  leave_stale_socket(directory.path("host-3.sock"));
  leave_stale_socket(directory.path("foreign"));
  std::ofstream(directory.path("file.sock")) << "x";
  CHECK(find_control_sockets({directory.path("none"), directory.path()}) ==
        std::vector<std::string>{directory.path("host-1.sock"), directory.path("iounit-2.sock")});
  CHECK_FALSE(std::filesystem::exists(directory.path("host-3.sock")));
  CHECK(std::filesystem::exists(directory.path("foreign")));
  CHECK(std::filesystem::exists(directory.path("file.sock")));
}

TEST_CASE("a daemon's control socket is named by role and process", "[common][runtime_directory]") {
  CHECK(default_control_path("/run/splitnic", "host") == "/run/splitnic/host-" + std::to_string(::getpid()) + ".sock");
}

}  // namespace
}  // namespace splitnic::os
