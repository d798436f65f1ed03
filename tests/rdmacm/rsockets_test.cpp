// Stream sockets over RDMA through their C interface, both ends in this process.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "common/os/unique_fd.h"
#include "tests/rdmacm/stream_sockets.h"

namespace splitnic::rdmacm::testing::rsockets_test {
namespace {

using namespace streams;

/// Asks until the answer is another one than "not yet"; 0 or an errno.
int connect_again_and_again(const Socket& client, sockaddr_in to) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMilliseconds);
  while (rconnect(client.number, generic(to), sizeof to) == -1) {
    if (errno != EINPROGRESS && errno != EALREADY) return errno;
    if (std::chrono::steady_clock::now() > limit) FAIL("there is no answer");
  }
  return 0;
}

TEST_CASE("a stream socket carries bytes both ways until each end has ended its stream", "[rdmacm][rsocket]") {
  Pair ends;
  sockaddr_in own{};
  sockaddr_in peer{};
  socklen_t bytes = sizeof own;
  REQUIRE(rgetsockname(ends.client.number, generic(own), &bytes) == 0);
  REQUIRE(rgetpeername(ends.server->number, generic(peer), &bytes) == 0);
  CHECK(std::memcmp(&own, &peer, sizeof own) == 0);
  CHECK(ends.server->poll(POLLIN, 0) == 0);
  ends.client.send("some");
  ends.client.send(" bytes");
  CHECK(ends.server->receive(10, MSG_WAITALL) == "some bytes");
  ends.server->send("an answer");
  CHECK(ends.client.receive(2) == "an");
  CHECK(ends.client.receive(100, MSG_PEEK) == " answer");
  CHECK(ends.client.receive() == " answer");

  REQUIRE(rshutdown(ends.client.number, SHUT_WR) == 0);
  CHECK(ends.server->poll(POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP));
  errno = 0;
  CHECK(ends.server->receive().empty());
  CHECK(errno == 0);
  expect_error(rsend(ends.client.number, "x", 1, 0), EPIPE);
  ends.server->send("the other way is open");
  CHECK(ends.client.receive() == "the other way is open");
  ends.server->close();
  CHECK(ends.client.receive().empty());
  CHECK((ends.client.poll(POLLIN) & POLLHUP) != 0);
}

TEST_CASE("lists of buffers are sent and received as one stream", "[rdmacm][rsocket]") {
  Pair ends;
  std::array<char, 3> first{'a', 'b', 'c'};
  std::array<char, 4> second{'d', 'e', 'f', 'g'};
  std::array<iovec, 3> parts{{{first.data(), 3}, {nullptr, 0}, {second.data(), 4}}};
  REQUIRE(rwritev(ends.client.number, parts.data(), 3) == 7);
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = 3;
  REQUIRE(rsendmsg(ends.client.number, &message, 0) == 7);
  CHECK(ends.server->receive(14, MSG_WAITALL) == "abcdefgabcdefg");
  ends.server->send("1234567890");
  first = {};
  second = {};
  REQUIRE(rrecvmsg(ends.client.number, &message, MSG_WAITALL) == 7);
  CHECK(std::string(first.data(), 3) + std::string(second.data(), 4) == "1234567");
  REQUIRE(rreadv(ends.client.number, parts.data(), 3) == 3);
  CHECK(std::string(first.data(), 3) == "890");
  CHECK(rwrite(ends.client.number, "w", 1) == 1);
  char byte = 0;
  CHECK(rread(ends.server->number, &byte, 1) == 1);
  CHECK(byte == 'w');
}

TEST_CASE("a socket that does not block takes what there is room for, and says when there is more",
          "[rdmacm][rsocket]") {
  Pair ends([](Socket& socket) {
    socket.set(SOL_SOCKET, SO_SNDBUF, 20000);
    socket.set(SOL_SOCKET, SO_RCVBUF, 30000);
  });
  ends.client.set_nonblocking();
  expect_error(rrecv(ends.client.number, &ends, 1, 0), EAGAIN);
  expect_error(rrecv(ends.server->number, &ends, 1, MSG_DONTWAIT), EAGAIN);
  const std::string all(500'000, 'x');
  std::size_t sent = 0;
  std::size_t received = 0;
  bool was_full = false;
  while (received != all.size()) {
    const ssize_t some = rsend(ends.client.number, all.data() + sent, all.size() - sent, 0);
    if (some > 0) {
      sent += static_cast<std::size_t>(some);
      continue;
    }
    if (sent != all.size()) {
      REQUIRE(errno == EAGAIN);
      was_full = true;
      REQUIRE(sent - received <= 30000);
    }
    const std::string part = ends.server->receive(7777);
    REQUIRE(part.find_first_not_of('x') == std::string::npos);
    received += part.size();
  }
  CHECK(was_full);
  CHECK(ends.client.poll(POLLOUT) == POLLOUT);
}

TEST_CASE("one thread sends while another one receives on the same socket", "[rdmacm][rsocket]") {
  Pair ends;
  constexpr std::uint32_t kWords = 400'000;
  const auto send_all = [](int number) {
    std::vector<std::uint32_t> words(kWords);
    std::iota(words.begin(), words.end(), 0U);
    const auto bytes = static_cast<ssize_t>(kWords * sizeof(std::uint32_t));
    return rsend(number, words.data(), static_cast<std::size_t>(bytes), 0) == bytes;
  };
  const auto receive_all = [](int number) {
    std::array<std::uint32_t, 1000> some{};
    for (std::uint32_t at = 0; at < kWords; at += 1000) {
      if (rrecv(number, some.data(), sizeof some, MSG_WAITALL) != ssize_t{sizeof some}) return false;
      for (std::uint32_t i = 0; i < 1000; ++i) {
        if (some[i] != at + i) return false;
      }
    }
    return true;
  };
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (const int number : {ends.client.number, ends.server->number}) {
    threads.emplace_back([&, number] { right += send_all(number) ? 1 : 0; });
    threads.emplace_back([&, number] { right += receive_all(number) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 4);
}

TEST_CASE("bytes that were sent arrive although their socket is closed at once", "[rdmacm][rsocket]") {
  Pair ends;
  const std::string all(200'000, 'y');
  ends.client.send(all);
  ends.client.close();
  CHECK(ends.server->receive(all.size(), MSG_WAITALL) == all);
  CHECK(ends.server->receive().empty());
}

TEST_CASE("an end that the other one has left can't send", "[rdmacm][rsocket]") {
  Pair ends;
  ends.client.close();
  CHECK(ends.server->receive().empty());
  // What is sent first may still have been on its way.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMilliseconds);
  while (rsend(ends.server->number, "x", 1, 0) == 1) REQUIRE(std::chrono::steady_clock::now() < limit);
  CHECK((errno == EPIPE || errno == ECONNRESET));
  expect_error(rsend(ends.server->number, "x", 1, 0), EPIPE);
}

TEST_CASE("a connection to an address where nobody listens is refused", "[rdmacm][rsocket]") {
  sockaddr_in nowhere{};
  {
    const Listener listener;
    nowhere = listener.address();
  }
  SECTION("when the program waits") {
    Socket client(new_socket());
    expect_error(rconnect(client.number, generic(nowhere), sizeof nowhere), ECONNREFUSED);
    expect_error(rrecv(client.number, &nowhere, 1, 0), ENOTCONN);
  }
  SECTION("when it does not wait") {
    Socket client(new_socket());
    client.set_nonblocking();
    expect_error(rconnect(client.number, generic(nowhere), sizeof nowhere), EINPROGRESS);
    expect_error(rconnect(client.number, generic(nowhere), sizeof nowhere), EALREADY);
    CHECK((client.poll(POLLOUT) & (POLLOUT | POLLERR | POLLHUP)) == (POLLOUT | POLLERR | POLLHUP));
    CHECK(client.get(SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
    CHECK(client.get(SOL_SOCKET, SO_ERROR) == 0);
  }
  SECTION("when it asks again until it knows") {
    Socket client(new_socket());
    client.set_nonblocking();
    CHECK(connect_again_and_again(client, nowhere) == ECONNREFUSED);
  }
}

TEST_CASE("a program may ask for its connection again until it has it", "[rdmacm][rsocket]") {
  const Listener listener;
  sockaddr_in there = listener.address();
  Socket client(new_socket());
  client.set_nonblocking();
  expect_error(rconnect(client.number, generic(there), sizeof there), EINPROGRESS);
  const Socket server(raccept(listener.number, nullptr, nullptr));
  SECTION("without waiting") { CHECK(connect_again_and_again(client, there) == 0); }
  SECTION("waiting the second time, as after a signal") {
    REQUIRE(rfcntl(client.number, F_SETFL, 0) == 0);
    CHECK(rconnect(client.number, generic(there), sizeof there) == 0);
  }
  expect_error(rconnect(client.number, generic(there), sizeof there), EISCONN);
}

TEST_CASE("calls that a socket's state does not allow are refused", "[rdmacm][rsocket]") {
  Socket idle(new_socket());
  char byte = 0;
  sockaddr_in address = at(0);
  socklen_t bytes = sizeof address;
  expect_error(rsend(idle.number, &byte, 1, 0), ENOTCONN);
  expect_error(rrecv(idle.number, &byte, 1, 0), ENOTCONN);
  expect_error(raccept(idle.number, nullptr, nullptr), EINVAL);
  expect_error(rshutdown(idle.number, SHUT_WR), ENOTCONN);
  expect_error(rgetpeername(idle.number, generic(address), &bytes), ENOTCONN);
  expect_error(rsocket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
  expect_error(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
  expect_error(rclose(-1), EBADF);
  expect_error(rsend(100000, &byte, 1, 0), EBADF);
  const Listener first;
  sockaddr_in taken = first.address();
  expect_error(rbind(idle.number, generic(taken), sizeof taken), EADDRINUSE);
  Pair ends;
  expect_error(rconnect(ends.client.number, generic(taken), sizeof taken), EISCONN);
  expect_error(rlisten(ends.client.number, 1), EINVAL);
}

TEST_CASE("options are kept, and those that a socket does not have are refused", "[rdmacm][rsocket]") {
  Socket socket(new_socket());
  for (const auto& [level, name, value] : {std::tuple{SOL_SOCKET, SO_RCVBUF, 100000},
                                           {SOL_SOCKET, SO_SNDBUF, 70000},
                                           {SOL_SOCKET, SO_REUSEADDR, 1},
                                           {SOL_SOCKET, SO_KEEPALIVE, 1},
                                           {SOL_SOCKET, SO_OOBINLINE, 1},
                                           {IPPROTO_TCP, TCP_NODELAY, 1},
                                           {IPPROTO_TCP, TCP_KEEPIDLE, 33},
                                           {IPPROTO_TCP, TCP_MAXSEG, 1400},
                                           {IPPROTO_IPV6, IPV6_V6ONLY, 1},
                                           {SOL_RDMA, RDMA_SQSIZE, 100},
                                           {SOL_RDMA, RDMA_RQSIZE, 200},
                                           {SOL_RDMA, RDMA_INLINE, 32},
                                           {SOL_RDMA, RDMA_IOMAPSIZE, 3}}) {
    socket.set(level, name, value);
    CHECK(socket.get(level, name) == value);
  }
  CHECK(socket.get(SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
  CHECK(socket.get(SOL_SOCKET, SO_ACCEPTCONN) == 0);
  int value = 0;
  socklen_t bytes = sizeof value;
  expect_error(rsetsockopt(socket.number, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof value), EINVAL);
  expect_error(rsetsockopt(socket.number, SOL_SOCKET, SO_RCVBUF, &value, 1), EINVAL);
  expect_error(rsetsockopt(socket.number, IPPROTO_TCP, TCP_CONGESTION, "reno", 4), ENOPROTOOPT);
  expect_error(rgetsockopt(socket.number, IPPROTO_TCP, TCP_INFO, &value, &bytes), ENOPROTOOPT);
  linger wanted{1, 5};
  REQUIRE(rsetsockopt(socket.number, SOL_SOCKET, SO_LINGER, &wanted, sizeof wanted) == 0);
  wanted = {};
  bytes = sizeof wanted;
  REQUIRE(rgetsockopt(socket.number, SOL_SOCKET, SO_LINGER, &wanted, &bytes) == 0);
  CHECK(wanted.l_linger == 5);
  CHECK((rfcntl(socket.number, F_GETFL) & O_NONBLOCK) == 0);
  socket.set_nonblocking();
  CHECK((rfcntl(socket.number, F_GETFL) & O_NONBLOCK) != 0);
}

TEST_CASE("a wait ends with a signal, with its time, and when another thread closes the socket", "[rdmacm][rsocket]") {
  Pair ends;
  char byte = 0;
  SECTION("time") {
    const timeval limit{0, 20'000};
    REQUIRE(rsetsockopt(ends.client.number, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    expect_error(rrecv(ends.client.number, &byte, 1, 0), EAGAIN);
    CHECK(ends.client.poll(POLLIN, 20) == 0);
  }
  SECTION("signal") {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    struct sigaction before {};
    REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
    std::atomic<bool> done{false};
    std::thread killer([&done, victim = pthread_self()] {
      // The victim may not be asleep yet, so it is woken until it was.
      while (!done) {
        pthread_kill(victim, SIGUSR1);
        std::this_thread::yield();
      }
    });
    expect_error(rrecv(ends.client.number, &byte, 1, 0), EINTR);
    done = true;
    killer.join();
    REQUIRE(sigaction(SIGUSR1, &before, nullptr) == 0);
  }
  SECTION("close") {
    const int number = std::exchange(ends.client.number, -1);
    int closed = -1;
    std::thread closer([&] { closed = rclose(number); });
    const ssize_t got = rrecv(number, &byte, 1, 0);
    closer.join();
    CHECK(closed == 0);
    CHECK(got <= 0);
  }
}

#ifndef __SANITIZE_ADDRESS__  // with it comes UBSan, which takes a pipe to look at a type, and calls all wrong without

TEST_CASE("a thread that had no descriptor when it first slept is woken nevertheless", "[rdmacm][rsocket]") {
  Pair ends;
  const timeval limit{kLimitMilliseconds / 1000, 0};
  REQUIRE(rsetsockopt(ends.client.number, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
  std::atomic<pid_t> thread{0};
  std::atomic<bool> may_sleep{false};
  ssize_t got = -1;
  std::thread sleeper([&] {
    thread = own_thread();
    while (!may_sleep) std::this_thread::yield();
    char byte = 0;
    got = rrecv(ends.client.number, &byte, 1, 0);
  });
  while (thread == 0) std::this_thread::yield();
  const os::UniqueFd calls(open(("/proc/self/task/" + std::to_string(thread) + "/syscall").c_str(), O_RDONLY));
  rlimit before{};
  const bool known = calls && getrlimit(RLIMIT_NOFILE, &before) == 0;
  const rlimit none{3, before.rlim_max};
  const bool limited = known && setrlimit(RLIMIT_NOFILE, &none) == 0;
  may_sleep = true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMilliseconds);
  bool sleeps = false;
  while (limited && !sleeps && std::chrono::steady_clock::now() < end) {
    std::array<char, 100> text{};
    sleeps = pread(calls.get(), text.data(), text.size() - 1, 0) > 0 && std::atol(text.data()) == SYS_ppoll;
  }
  const bool lifted = limited && setrlimit(RLIMIT_NOFILE, &before) == 0;
  // Nothing but the other thread's call tells the sleeper, or the end of its time.
  const int shut = rshutdown(ends.client.number, SHUT_RD);
  const auto before_its_end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMilliseconds / 2);
  sleeper.join();
  CHECK(std::chrono::steady_clock::now() < before_its_end);
  REQUIRE((sleeps && lifted && shut == 0));
  CHECK(got == 0);
}

#endif

TEST_CASE("a thread that is cancelled in its sleep leaves its descriptor to nobody", "[rdmacm][rsocket]") {
  Listener listener;
  std::atomic<pid_t> thread{0};
  std::thread sleeper([&] {
    thread = own_thread();
    static_cast<void>(raccept(listener.number, nullptr, nullptr));
  });
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMilliseconds);
  while (thread == 0 || !sleeps_on_sockets(thread)) REQUIRE(std::chrono::steady_clock::now() < limit);
  REQUIRE(pthread_cancel(sleeper.native_handle()) == 0);
  sleeper.join();
  // One of them has the number of the thread's descriptor now.
  std::array<os::UniqueFd, 8> files;
  for (os::UniqueFd& file : files) {
    file = os::UniqueFd(memfd_create("file", MFD_CLOEXEC));
    REQUIRE(file);
  }
  listener.close();  // wakes those who sleep
  for (const os::UniqueFd& file : files) {
    struct stat about {};
    REQUIRE(fstat(file.get(), &about) == 0);
    CHECK(about.st_size == 0);
  }
}

TEST_CASE("rpoll and rselect watch plain descriptors beside sockets", "[rdmacm][rsocket]") {
  Pair ends;
  const os::UniqueFd plain(eventfd(0, EFD_CLOEXEC));
  std::array<pollfd, 3> all{{{ends.server->number, POLLIN, 0}, {plain.get(), POLLIN, 0}, {-1, POLLIN, 0}}};
  CHECK(rpoll(all.data(), all.size(), 0) == 0);
  std::thread writer([&] { eventfd_write(plain.get(), 1); });
  CHECK(rpoll(all.data(), all.size(), kLimitMilliseconds) == 1);
  writer.join();
  CHECK(all[0].revents == 0);
  CHECK(all[1].revents == POLLIN);
  ssize_t sent = 0;
  std::thread sender([&] { sent = rsend(ends.client.number, "x", 1, 0); });
  CHECK(ends.server->poll(POLLIN) == POLLIN);
  sender.join();
  CHECK(sent == 1);

  fd_set reads;
  fd_set writes;
  FD_ZERO(&reads);
  FD_ZERO(&writes);
  FD_SET(ends.server->number, &reads);
  FD_SET(ends.client.number, &reads);
  FD_SET(plain.get(), &reads);
  FD_SET(ends.client.number, &writes);
  timeval limit{1, 0};
  CHECK(rselect(FD_SETSIZE, &reads, &writes, nullptr, &limit) == 3);
  CHECK(FD_ISSET(ends.server->number, &reads));
  CHECK_FALSE(FD_ISSET(ends.client.number, &reads));
  CHECK(FD_ISSET(plain.get(), &reads));
  CHECK(FD_ISSET(ends.client.number, &writes));

  eventfd_t count = 0;
  REQUIRE(eventfd_read(plain.get(), &count) == 0);
  FD_ZERO(&reads);
  FD_SET(plain.get(), &reads);
  limit = {-1, 0};
  expect_error(rselect(FD_SETSIZE, &reads, nullptr, nullptr, &limit), EINVAL);
  limit = {std::numeric_limits<time_t>::max(), 0};
  std::thread late([&] { eventfd_write(plain.get(), 1); });
  CHECK(rselect(FD_SETSIZE, &reads, nullptr, nullptr, &limit) == 1);
  late.join();
}

TEST_CASE("a buffer that is mapped is written directly, before what is sent afterwards", "[rdmacm][rsocket]") {
  Pair ends([](Socket& socket) { socket.set(SOL_RDMA, RDMA_IOMAPSIZE, 1); });
  std::string buffer(1 << 20, '-');
  std::string other(100, '-');
  REQUIRE(riomap(ends.server->number, buffer.data(), buffer.size(), PROT_WRITE, 0, 4096) == 4096);
  expect_error(static_cast<ssize_t>(riomap(ends.server->number, other.data(), 100, PROT_WRITE, 0, 1 << 30)), ENOBUFS);
  ends.server->send("mapped");
  CHECK(ends.client.receive() == "mapped");
  const std::string all(buffer.size(), 'z');
  REQUIRE(riowrite(ends.client.number, all.data(), all.size(), 4096, 0) == all.size());
  ends.client.send("written");
  CHECK(ends.server->receive() == "written");
  CHECK(buffer == all);
  expect_error(static_cast<ssize_t>(riowrite(ends.client.number, "x", 1, 4095, 0)), EFAULT);
  expect_error(static_cast<ssize_t>(riowrite(ends.client.number, "x", 1, 4096 + (1 << 20), 0)), EFAULT);
  CHECK(riowrite(ends.client.number, "xy", 2, 4096 + (1 << 20) - 1, 0) == 1);
  REQUIRE(riounmap(ends.server->number, buffer.data(), buffer.size()) == 0);
  expect_error(riounmap(ends.server->number, buffer.data(), buffer.size()), EINVAL);
  ends.server->send("gone");
  CHECK(ends.client.receive() == "gone");
  expect_error(static_cast<ssize_t>(riowrite(ends.client.number, "x", 1, 4096, 0)), EFAULT);
}

TEST_CASE("a peer maps as many buffers as it was allowed when the connection was made", "[rdmacm][rsocket]") {
  Pair ends([](Socket& socket) { socket.set(SOL_RDMA, RDMA_IOMAPSIZE, 1); });
  ends.client.set(SOL_RDMA, RDMA_IOMAPSIZE, 0);
  std::string buffer(100, '-');
  REQUIRE(riomap(ends.server->number, buffer.data(), buffer.size(), PROT_WRITE, 0, 0) == 0);
  ends.server->send("mapped");
  CHECK(ends.client.receive() == "mapped");
  REQUIRE(riowrite(ends.client.number, "direct", 6, 0, 0) == 6);
  ends.client.send("written");
  CHECK(ends.server->receive() == "written");
  CHECK(buffer.starts_with("direct-"));
}

}  // namespace
}  // namespace splitnic::rdmacm::testing::rsockets_test
