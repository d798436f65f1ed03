// Stream sockets over RDMA whose other end is a process of its own, which dies.
#include <fcntl.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/os/unique_fd.h"
#include "tests/rdmacm/processes.h"
#include "tests/rdmacm/stream_sockets.h"

namespace splitnic::rdmacm::testing::stream_processes_test {
namespace {

using namespace streams;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLimit{kLimitMilliseconds};

std::atomic<bool> progress_threads_held{false};
std::atomic<bool> sleep_is_held{false};

/// Between its sleep and its work a progress thread waits as long as this object is there, as if it got no processor.
struct HeldProgressThreads {
  HeldProgressThreads() { progress_threads_held = true; }
  ~HeldProgressThreads() { progress_threads_held = false; }
  HeldProgressThreads(const HeldProgressThreads&) = delete;
  HeldProgressThreads& operator=(const HeldProgressThreads&) = delete;
};

TEST_CASE("what a process has sent before it died is read, whoever gets a processor first", "[rdmacm][rsocket]") {
  constexpr std::size_t kBytes = 350;  // each in a message of its own
  static_cast<void>(fabric_folder());
  const Pipe addresses;
  const Pipe go;
  const Child server([&] {
    const Listener listener;
    if (!addresses.put(listener.address())) return 1;
    Socket accepted(raccept(listener.number, nullptr, nullptr));
    if (accepted.receive(5, MSG_WAITALL) != "hello") return 2;
    accepted.send("hello");
    char byte = 0;
    if (!go.get(byte)) return 3;
    for (std::size_t i = 0; i < kBytes; ++i) accepted.send("x");
    _exit(0);  // closes nothing
  });
  sockaddr_in there{};
  REQUIRE(addresses.get(there));
  Socket client(new_socket());
  REQUIRE(rconnect(client.number, generic(there), sizeof there) == 0);
  client.send("hello");
  REQUIRE(client.receive(5, MSG_WAITALL) == "hello");
  std::optional<HeldProgressThreads> held;
  std::thread starter([&, reader = own_thread()] {
    const auto limit = Clock::now() + kLimit;
    while (!sleeps_on_sockets(reader) && Clock::now() < limit) std::this_thread::yield();
    held.emplace();
    static_cast<void>(go.put('g'));
  });
  const std::string got = client.receive(kBytes, MSG_WAITALL);
  starter.join();
  held.reset();
  CHECK(got.size() == kBytes);
  CHECK(server.ended() == 0);
}

TEST_CASE("an end whose peer has closed its socket learns it with the first bytes that it sends", "[rdmacm][rsocket]") {
  static_cast<void>(fabric_folder());
  const Pipe addresses;
  const Pipe closed;
  const Pipe go;
  const Child server([&] {
    const Listener listener;
    if (!addresses.put(listener.address())) return 1;
    Socket(raccept(listener.number, nullptr, nullptr)).close();
    char byte = 'c';
    return closed.put(byte) && go.get(byte) ? 0 : 2;
  });
  sockaddr_in there{};
  REQUIRE(addresses.get(there));
  Socket client(new_socket());
  REQUIRE(rconnect(client.number, generic(there), sizeof there) == 0);
  char byte = 0;
  REQUIRE(closed.get(byte));
  REQUIRE(client.poll(POLLIN) == POLLIN);
  CHECK(client.receive().empty());
  expect_error(rsend(client.number, "x", 1, 0), EPIPE);
  REQUIRE(go.put(byte));
  CHECK(server.ended() == 0);
}

TEST_CASE("an end that has lost bytes learns it once, from whichever call notices the end", "[rdmacm][rsocket]") {
  static_cast<void>(fabric_folder());
  const Pipe addresses;
  const Pipe never;
  const Child server([&] {
    const Listener listener;
    if (!addresses.put(listener.address())) return 1;
    Socket accepted(raccept(listener.number, nullptr, nullptr));
    accepted.send("hello");
    char byte = 0;
    return never.get(byte) ? 2 : 3;
  });
  sockaddr_in there{};
  REQUIRE(addresses.get(there));
  Socket client(new_socket());
  REQUIRE(rconnect(client.number, generic(there), sizeof there) == 0);
  REQUIRE(client.receive(5, MSG_WAITALL) == "hello");
  REQUIRE(kill(server.process, SIGSTOP) == 0);
  REQUIRE(waitpid(server.process, nullptr, WUNTRACED) == server.process);
  client.send("lost");
  std::optional<HeldProgressThreads> held(std::in_place);  // so that only this thread's calls notice anything
  REQUIRE(kill(server.process, SIGKILL) == 0);
  CHECK(server.ended() == -1);
  const auto limit = Clock::now() + kLimit;
  while (rsend(client.number, "x", 1, MSG_DONTWAIT) == 1) REQUIRE(Clock::now() < limit);
  CHECK(errno == ECONNRESET);
  expect_error(rsend(client.number, "x", 1, 0), EPIPE);
  held.reset();
}

TEST_CASE("a forked child that closed all descriptors makes sockets in the places of its parent's",
          "[rdmacm][rsocket]") {
  Pair ends;
  const int last = std::max({ends.listener.number, ends.client.number, ends.server->number});
  const Child child([last] {
    if (close_range(3, ~0U, 0) != 0) return 1;
    int made = 0;
    do {
      made = new_socket();
      if (made < 0) return 2;
    } while (made < last);
    return 0;
  });
  CHECK(child.ended() == 0);
  ends.client.send("still here");
  CHECK(ends.server->receive() == "still here");
}

constexpr std::size_t kFiles = 300;  ///< more than the parent has descriptors
std::array<int, kFiles> files_of_child{};

/// Files in the places of all descriptors that a child has inherited.
bool replace_descriptors() {
  if (close_range(3, ~0U, 0) != 0) return false;
  for (int& file : files_of_child) file = dup(0);
  return files_of_child.back() >= 0;
}

bool all_files_open() {
  return std::ranges::all_of(files_of_child, [](int file) { return fcntl(file, F_GETFD) >= 0; });
}

/// This thread sleeps for a moment.
void sleep_once(int descriptor) {
  pollfd never{descriptor, POLLIN, 0};
  CHECK(rpoll(&never, 1, 1) == 0);
}

TEST_CASE("a forked child's own files stay open where its parent's thread had a descriptor", "[rdmacm][rsocket]") {
  const Pipe never;
  sleep_once(never.ends[0]);
  const bool by_its_end = GENERATE(false, true);
  const Child child([by_its_end]() -> int {
    if (!replace_descriptors()) return 1;
    if (by_its_end) {
      // This comes behind the destructors of the thread, and in front of all that the parent has to end.
      if (std::atexit([] { _exit(all_files_open() ? 0 : 2); }) != 0) return 3;
      std::exit(4);
    }
    const Pipe own;
    sleep_once(own.ends[0]);
    return all_files_open() ? 0 : 2;
  });
  CHECK(child.ended() == 0);
}

std::set<std::string> threads() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    found.insert(entry.path().filename());
  return found;
}

TEST_CASE("a caller for whom the program had no descriptors is connected without it when there are some",
          "[rdmacm][rsocket]") {
  constexpr std::size_t kLeft = 3;  // enough to hear the caller, and too few for its connection
  static_cast<void>(fabric_folder());
  const Child child([] {
    const Socket idle(new_socket());
    const auto before = threads();
    Listener listener;
    auto with_listener = threads();
    for (const std::string& thread : before) with_listener.erase(thread);
    if (with_listener.size() != 1) return 1;
    const pid_t thread = std::stoi(*with_listener.begin());
    while (!sleeps_in(thread, SYS_epoll_pwait)) std::this_thread::yield();
    sleep_is_held = true;  // so the listener's thread serves once more, and then leaves the next caller to the program
    sockaddr_in there = listener.address();
    const Socket first(new_socket());
    if (rconnect(first.number, generic(there), sizeof there) != 0) return 2;
    const Socket accepted(raccept(listener.number, nullptr, nullptr));
    listener.set_nonblocking();
    Socket second(new_socket());
    second.set_nonblocking();
    if (rconnect(second.number, generic(there), sizeof there) == 0) return 3;
    const rlimit few{300, 300};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 4;
    std::vector<os::UniqueFd> taken;
    for (int made = 0; (made = dup(0)) >= 0;) taken.emplace_back(made);
    taken.resize(taken.size() - kLeft);
    if (raccept(listener.number, nullptr, nullptr) >= 0 || errno != EMFILE) return 5;
    taken.clear();
    sleep_is_held = false;
    return second.poll(POLLOUT) == POLLOUT ? 0 : 6;
  });
  CHECK(child.ended() == 0);
}

}  // namespace

/// A thread that is about to sleep without end waits as long as it is held.
void wait_until_it_may_sleep(bool without_end) {
  const auto limit = Clock::now() + kLimit;
  while (without_end && sleep_is_held && Clock::now() < limit) std::this_thread::yield();
}

/// What epoll_wait() has found, when it may be used. Programs sleep without end in progress threads alone.
int found_events(int count, bool without_end) {
  const auto limit = Clock::now() + kLimit;
  while (without_end && progress_threads_held && Clock::now() < limit) std::this_thread::yield();
  return count;
}

}  // namespace splitnic::rdmacm::testing::stream_processes_test

/// In front of the one of the C library, for the libraries, too.
extern "C" int epoll_wait(int set, epoll_event* events, int room, int milliseconds) {
  splitnic::rdmacm::testing::stream_processes_test::wait_until_it_may_sleep(milliseconds < 0);
  const int count = epoll_pwait(set, events, room, milliseconds, nullptr);
  return splitnic::rdmacm::testing::stream_processes_test::found_events(count, milliseconds < 0);
}
