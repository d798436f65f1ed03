// Connections that wait in the backlog of a listening stream socket while its program does something else.
#include <fcntl.h>
#include <rdma/rsocket.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/os/unique_fd.h"
#include "tests/rdmacm/processes.h"
#include "tests/rdmacm/stream_sockets.h"
#include "tests/unit/common/fork_beside_threads.h"

namespace splitnic::rdmacm::testing::backlog_test {
namespace {

using namespace streams;

constexpr int kMomentMilliseconds = 50;  ///< in which nothing is expected to happen

/// A socket that is connected without anybody's accepting it.
struct Client : Socket {
  explicit Client(sockaddr_in to) : Socket(new_socket()) {
    const timeval limit{kLimitMilliseconds / 1000, 0};
    REQUIRE(rsetsockopt(number, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    REQUIRE(rconnect(number, generic(to), sizeof to) == 0);
  }
  [[nodiscard]] sockaddr_in address() const {
    sockaddr_in found{};
    socklen_t bytes = sizeof found;
    REQUIRE(rgetsockname(number, generic(found), &bytes) == 0);
    return found;
  }
};

/// A socket whose connection is under way.
struct Calling : Socket {
  explicit Calling(sockaddr_in to) : Socket(new_socket()) {
    set_nonblocking();
    expect_error(rconnect(number, generic(to), sizeof to), EINPROGRESS);
  }
};

std::vector<std::unique_ptr<Client>> clients_of(const Listener& listener, int count) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < count; ++i) clients.push_back(std::make_unique<Client>(listener.address()));
  return clients;
}

std::set<std::string> threads() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) found.insert(entry.path());
  return found;
}

/// Whether the thread with this file of /proc, its "syscall", sleeps in the system call.
bool sleeps_in(const os::UniqueFd& calls, long call) {
  std::array<char, 100> text{};
  return pread(calls.get(), text.data(), text.size() - 1, 0) > 0 && std::atol(text.data()) == call;
}

/// The signals that a thread leaves to others, by their numbers less one.
std::uint64_t blocked_signals(const std::string& thread) {
  std::ifstream status(thread + "/status");
  std::string word;
  while (status >> word && word != "SigBlk:") {
  }
  std::uint64_t mask = 0;
  status >> std::hex >> mask;
  return mask;
}

TEST_CASE("callers are connected, and what they send is kept, while the listener's program does something else",
          "[rdmacm][rsocket]") {
  const Listener listener;
  const auto clients = clients_of(listener, 3);
  for (std::size_t i = 0; i < clients.size(); ++i) clients[i]->send("from " + std::to_string(i));
  const sockaddr_in last = clients[2]->address();
  clients[2]->close();  // it may also have gone
  for (std::size_t i = 0; i < clients.size(); ++i) {
    CHECK(listener.poll(POLLIN) == POLLIN);
    sockaddr_in peer{};
    socklen_t bytes = sizeof peer;
    Socket server(raccept(listener.number, generic(peer), &bytes));
    CHECK(peer.sin_port == (i == 2 ? last : clients[i]->address()).sin_port);
    CHECK(server.receive() == "from " + std::to_string(i));
    if (i == 2) {
      CHECK(server.receive().empty());
    } else {
      server.send("an answer");
      CHECK(clients[i]->receive() == "an answer");
    }
  }
  CHECK(listener.poll(POLLIN, 0) == 0);
}

TEST_CASE("a connection gets its number when it is accepted", "[rdmacm][rsocket]") {
  const Listener listener;
  const auto clients = clients_of(listener, 1);
  REQUIRE(listener.poll(POLLIN) == POLLIN);
  std::vector<os::UniqueFd> taken;  // the lowest numbers that are free
  for (int i = 0; i < 100; ++i) taken.emplace_back(dup(0));
  const int last = taken.back().get();
  const Socket server(raccept(listener.number, nullptr, nullptr));
  CHECK(server.number > last);
}

TEST_CASE("a connection that was not accepted keeps as many bytes as its receive buffer has", "[rdmacm][rsocket]") {
  constexpr int kRoom = 30000;
  Listener listener;
  listener.set(SOL_SOCKET, SO_RCVBUF, kRoom);
  Client client(listener.address());
  client.set_nonblocking();
  const std::string all(100'000, 'x');
  std::size_t sent = 0;
  for (ssize_t some = 0; (some = rsend(client.number, all.data(), all.size(), 0)) > 0;)
    sent += static_cast<std::size_t>(some);
  expect_error(-1, EAGAIN);
  CHECK(sent == kRoom);
  Socket server(raccept(listener.number, nullptr, nullptr));
  CHECK(server.receive(sent, MSG_WAITALL) == std::string(sent, 'x'));
  CHECK(client.poll(POLLOUT) == POLLOUT);
}

TEST_CASE("a caller for whom the backlog has no room is connected when there is some", "[rdmacm][rsocket]") {
  const Listener listener;
  const auto clients = clients_of(listener, 4);
  const Calling next(listener.address());
  CHECK(next.poll(POLLOUT, kMomentMilliseconds) == 0);
  SECTION("because one was accepted") {
    const Socket server(raccept(listener.number, nullptr, nullptr));
    CHECK(next.poll(POLLOUT) == POLLOUT);
  }
  SECTION("because the program listens with a longer one") {
    REQUIRE(rlisten(listener.number, 5) == 0);
    CHECK(next.poll(POLLOUT) == POLLOUT);
  }
  CHECK(next.get(SOL_SOCKET, SO_ERROR) == 0);
}

TEST_CASE("the end of a listener ends the connections that were not accepted", "[rdmacm][rsocket]") {
  Listener listener;
  const auto clients = clients_of(listener, 4);
  const Calling next(listener.address());
  SECTION("when it is closed") { listener.close(); }
  SECTION("when it is shut down") { REQUIRE(rshutdown(listener.number, SHUT_RD) == 0); }
  for (const auto& client : clients) CHECK(client->receive().empty());
  CHECK((next.poll(POLLOUT) & POLLERR) != 0);
  CHECK(next.get(SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
}

TEST_CASE("what a caller has sent before it died is read when it is accepted", "[rdmacm][rsocket]") {
  static_cast<void>(fabric_folder());
  const Pipe addresses;
  const Child child([&addresses]() -> int {
    sockaddr_in there{};
    if (!addresses.get(there)) return 2;
    Client first(there);
    if (first.receive(5, MSG_WAITALL) != "hello") return 1;  // there is a link between the two processes
    Client second(there);
    second.send("last words");
    _exit(0);  // closes nothing
  });
  const Listener listener;
  REQUIRE(addresses.put(listener.address()));
  Socket first(raccept(listener.number, nullptr, nullptr));
  first.send("hello");
  REQUIRE(child.ended() == 0);
  Socket second(raccept(listener.number, nullptr, nullptr));
  CHECK(second.receive(10, MSG_WAITALL) == "last words");
  CHECK(second.receive().empty());
}

TEST_CASE("one thread, which takes no signals, serves all listeners of a process, and only where there are any",
          "[rdmacm][rsocket]") {
  static_cast<void>(fabric_folder());
  const Child child([] {
    const Socket idle(new_socket());
    const auto before = threads();
    const Listener first;
    auto with_listener = threads();
    const Listener second;
    if (threads() != with_listener || with_listener.size() != before.size() + 1) return 1;
    for (const std::string& thread : before) with_listener.erase(thread);
    const std::uint64_t blocked = blocked_signals(*with_listener.begin());
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD}) {
      if ((blocked >> static_cast<unsigned>(signal - 1) & 1U) == 0) return 2;
    }
    const Client of_first(first.address());
    const Client of_second(second.address());
    return 0;
  });
  CHECK(child.ended() == 0);
}

TEST_CASE("parent and forked child each have listeners that are served", "[rdmacm][rsocket]") {
  static_cast<void>(fabric_folder());
  std::optional<Listener> listener;
  if (splitnic::test::kForksBesideThreads) listener.emplace();
  const Pipe addresses;
  const Child child([&addresses] {
    const Listener own;
    const Client client(own.address());
    sockaddr_in there{};
    if (!addresses.get(there)) return 1;
    const Client of_parent(there);
    return 0;
  });
  if (!listener) listener.emplace();
  const Client client(listener->address());
  REQUIRE(addresses.put(listener->address()));
  CHECK(child.ended() == 0);
}

/// All descriptors of the process but so many.
std::vector<os::UniqueFd> take_descriptors(std::size_t left) {
  std::vector<os::UniqueFd> taken;
  for (int made = 0; (made = dup(0)) >= 0;) taken.emplace_back(made);
  for (; left != 0; --left) taken.pop_back();
  return taken;
}

/// Accepts a first connection. Its bytes show that there is a link between the two processes.
bool has_link(const Listener& listener) {
  Socket first(raccept(listener.number, nullptr, nullptr));
  return first.receive(5, MSG_WAITALL) == "hello";
}

TEST_CASE("a listener without descriptors for its callers says so, and takes them when it has some",
          "[rdmacm][rsocket]") {
  constexpr std::size_t kOfConnection = 12;  // more than it takes
  static_cast<void>(fabric_folder());
  const Pipe addresses;
  const Pipe scarce;
  const Child server([&] {
    Listener listener;
    if (!addresses.put(listener.address())) return 1;
    if (!has_link(listener)) return 9;
    listener.set_nonblocking();
    const rlimit few{300, 300};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
    bool refused = false;
    for (std::size_t left = 0; left != kOfConnection; ++left) {
      auto taken = take_descriptors(left);
      if (!scarce.put('s') || listener.poll(POLLIN) != POLLIN) return 3;
      int accepted = raccept(listener.number, nullptr, nullptr);
      // The verbs say ENOMEM for anything that they can't have.
      const int why = accepted < 0 ? errno : 0;
      if (accepted < 0 && why != EMFILE && why != ENOMEM && why != EAGAIN) return 4;
      refused = refused || why == EMFILE;
      taken.clear();
      if (accepted < 0 && listener.poll(POLLIN) != POLLIN) return 5;
      while (accepted < 0) {
        accepted = raccept(listener.number, nullptr, nullptr);
        if (accepted < 0 && errno != EAGAIN) return 6;
      }
      Socket made(accepted);
      if (made.receive(2, MSG_WAITALL) != "hi") return 7;
    }
    return refused ? 0 : 8;
  });
  sockaddr_in there{};
  REQUIRE(addresses.get(there));
  Client(there).send("hello");
  for (std::size_t left = 0; left != kOfConnection; ++left) {
    char byte = 0;
    REQUIRE(scarce.get(byte));
    Client(there).send("hi");
  }
  CHECK(server.ended() == 0);
}

TEST_CASE("connections that wait in a backlog leave descriptors to their program, which may accept more than fit",
          "[rdmacm][rsocket]") {
  constexpr rlim_t kDescriptors = 300;
  constexpr std::size_t kForProgram = 60;  // of a quarter, a connection may have taken some
  constexpr std::size_t kMostCallers = 60;
  constexpr int kSilenceMilliseconds = 1500;
  static_cast<void>(fabric_folder());
  const Pipe addresses;
  const Pipe counts;
  const Child server([&] {
    const rlimit few{kDescriptors, kDescriptors};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
    const Listener listener;
    std::size_t callers = 0;
    if (rlisten(listener.number, 200) != 0 || !addresses.put(listener.address()) || !counts.get(callers)) return 2;
    if (take_descriptors(0).size() < kForProgram) return 3;
    for (; callers != 0; --callers) {
      if (raccept(listener.number, nullptr, nullptr) < 0) return 4;
    }
    return 0;
  });
  sockaddr_in there{};
  REQUIRE(addresses.get(there));
  std::vector<std::unique_ptr<Calling>> callers;
  do {
    callers.push_back(std::make_unique<Calling>(there));
  } while (callers.back()->poll(POLLOUT, kSilenceMilliseconds) == POLLOUT && callers.size() != kMostCallers);
  REQUIRE(counts.put(callers.size()));
  CHECK(server.ended() == 0);
  CHECK(callers.size() > 4);
}

TEST_CASE("a listener that had no descriptors takes its callers without its program", "[rdmacm][rsocket]") {
  static_cast<void>(fabric_folder());
  const Pipe addresses;
  const Pipe steps;
  const Pipe done;
  const Child server([&] {
    const Socket idle(new_socket());
    const auto before = threads();
    const Listener listener;
    auto service = threads();
    for (const std::string& thread : before) service.erase(thread);
    if (service.size() != 1) return 5;
    const os::UniqueFd calls(open((*service.begin() + "/syscall").c_str(), O_RDONLY));
    if (!addresses.put(listener.address())) return 1;
    if (!has_link(listener)) return 9;
    const rlimit few{300, 300};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
    auto taken = take_descriptors(0);
    char byte = 0;
    if (!steps.put('s') || listener.poll(POLLIN) != POLLIN) return 3;
    while (!sleeps_in(calls, SYS_epoll_pwait)) std::this_thread::yield();  // until it has tried in vain, too
    taken.clear();
    return done.get(byte) ? 0 : 4;
  });
  sockaddr_in there{};
  REQUIRE(addresses.get(there));
  Client(there).send("hello");
  char byte = 0;
  REQUIRE(steps.get(byte));
  const Client second(there);
  REQUIRE(done.put('d'));
  CHECK(server.ended() == 0);
}

}  // namespace
}  // namespace splitnic::rdmacm::testing::backlog_test
