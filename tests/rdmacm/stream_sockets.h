#pragma once

#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "tests/rdmacm/manager.h"

/// Fixtures for tests of stream sockets over RDMA, both ends in this process.
namespace splitnic::rdmacm::testing::streams {

/// A socket that is closed.
struct Socket {
  explicit Socket(int made) : number(made) { REQUIRE(number >= 0); }
  ~Socket() {
    if (number >= 0) rclose(number);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void close() { REQUIRE(rclose(std::exchange(number, -1)) == 0); }
  void set(int level, int name, int value) { REQUIRE(rsetsockopt(number, level, name, &value, sizeof value) == 0); }
  [[nodiscard]] int get(int level, int name) const {
    int value = -1;
    socklen_t bytes = sizeof value;
    REQUIRE(rgetsockopt(number, level, name, &value, &bytes) == 0);
    return value;
  }
  void set_nonblocking() { REQUIRE(rfcntl(number, F_SETFL, O_NONBLOCK) == 0); }
  [[nodiscard]] short poll(short events, int milliseconds = kLimitMilliseconds) const {
    pollfd one{number, events, 0};
    return rpoll(&one, 1, milliseconds) == 1 ? one.revents : short{0};
  }
  void send(const std::string& text) { REQUIRE(rsend(number, text.data(), text.size(), 0) == ssize(text)); }
  [[nodiscard]] std::string receive(std::size_t most = 1000, int flags = 0) {
    std::string text(most, '\0');
    const ssize_t got = rrecv(number, text.data(), text.size(), flags);
    REQUIRE(got >= 0);
    text.resize(static_cast<std::size_t>(got));
    return text;
  }
  static ssize_t ssize(const std::string& text) { return static_cast<ssize_t>(text.size()); }

  int number;
};

inline int new_socket() {
  static_cast<void>(fabric_folder());
  return rsocket(AF_INET, SOCK_STREAM, 0);
}

inline sockaddr* generic(sockaddr_in& address) { return static_cast<sockaddr*>(static_cast<void*>(&address)); }

struct Listener : Socket {
  Listener() : Socket(new_socket()) {
    sockaddr_in address = at(0);
    REQUIRE(rbind(number, generic(address), sizeof address) == 0);
    REQUIRE(rlisten(number, 4) == 0);
  }
  [[nodiscard]] sockaddr_in address() const {
    sockaddr_in found{};
    socklen_t bytes = sizeof found;
    REQUIRE(rgetsockname(number, generic(found), &bytes) == 0);
    REQUIRE(bytes == sizeof found);
    return found;
  }
};

/// A connection. The options of both ends are set before.
struct Pair {
  template <class Prepare>
  explicit Pair(Prepare&& prepare) : client(new_socket()) {
    prepare(listener);
    prepare(client);
    client.set_nonblocking();
    sockaddr_in to = listener.address();
    REQUIRE(rconnect(client.number, generic(to), sizeof to) == -1);
    REQUIRE(errno == EINPROGRESS);
    accepted = raccept(listener.number, nullptr, nullptr);
    server.emplace(accepted);
    REQUIRE(client.poll(POLLOUT) == POLLOUT);
    REQUIRE(client.get(SOL_SOCKET, SO_ERROR) == 0);
    REQUIRE(rfcntl(client.number, F_SETFL, 0) == 0);
  }
  Pair() : Pair([](Socket&) {}) {}

  Listener listener;
  Socket client;
  int accepted = -1;
  std::optional<Socket> server;
};

inline pid_t own_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

/// Whether the thread of this process sleeps in this system call.
inline bool sleeps_in(pid_t thread, long call) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
  long number = -1;
  return file >> number && number == call;
}
inline bool sleeps_on_sockets(pid_t thread) { return sleeps_in(thread, SYS_ppoll); }

inline void expect_error(ssize_t result, int number) {
  const int seen = errno;
  CHECK(result == -1);
  CHECK(seen == number);
}

}  // namespace splitnic::rdmacm::testing::streams
