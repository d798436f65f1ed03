#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/os/unix_listener.h"
#include "os_stale_socket.h"
#include "os_temporary_directory.h"
#include "tests/unit/common/fork_beside_threads.h"
#include "tests/unit/other_process.h"

namespace splitnic::os::os_unix_listener_test {
namespace {

std::string error_of(const std::string& path) {
  const auto listener = UnixListener::listen(path);
  return listener ? "none" : listener.error().message;
}

/// Waits until a change of a file gets a later time than one before.
void wait_for_tick() {
  const auto tick = [] {
    timespec time{};
    ::clock_gettime(CLOCK_REALTIME_COARSE, &time);
    return time.tv_nsec;
  };
  for (const long before = tick(); tick() == before;) std::this_thread::yield();
}

TEST_CASE("a child that is forked while a thread binds a socket does not keep the folder's lock",
          "[common][unix_listener]") {
  const TemporaryDirectory directory;
  std::deque<testing::SleepingChild> children;
  {
    const test::ThreadBesideForks binder([&] { static_cast<void>(UnixListener::listen(directory.path("s"))); });
    while (children.size() < 100) children.emplace_back();
  }
  const UniqueFd folder(::open(directory.path("").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  CHECK(::flock(folder.get(), LOCK_EX | LOCK_NB) == 0);
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

TEST_CASE("a socket's file is removed while it is the same, and not what took its place", "[common][unix_listener]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("s");
  auto first = UnixListener::listen(path);
  REQUIRE(first);
  first->leave_path();
  const SocketFile file(path);
  file.remove();  // although somebody listens
  CHECK(probe_socket(path) == SocketState::kAbsent);
  file.remove();
  wait_for_tick();
  for (int time = 0; time < 2; ++time) {  // most often with the same inode number
    const auto next = UnixListener::listen(path);
    REQUIRE(next);
    file.remove();
    CHECK(probe_socket(path) == SocketState::kLive);
  }
  leave_stale_socket(path);  // as after a change of its mode
  file.remove();
  CHECK(probe_socket(path) == SocketState::kAbsent);
  std::ofstream(path) << "precious";
  file.remove();
  CHECK(std::filesystem::file_size(path) == 8);
}

}  // namespace
}  // namespace splitnic::os::os_unix_listener_test
