// Datagram sockets over RDMA through their C interface, all in this process.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "fabric/rdmacm/datagram_record.h"
#include "tests/rdmacm/manager.h"
#include "tests/rdmacm/processes.h"
#include "tests/rdmacm/stream_sockets.h"

namespace splitnic::rdmacm::testing::datagram_sockets_test {
namespace {

sockaddr* generic(sockaddr_in& address) { return static_cast<sockaddr*>(static_cast<void*>(&address)); }

struct Socket {
  struct Unbound {};

  explicit Socket(Unbound /*how*/) {
    static_cast<void>(fabric_folder());
    number = rsocket(AF_INET, SOCK_DGRAM, 0);
    REQUIRE(number >= 0);
  }
  explicit Socket(sockaddr_in wanted = at(0)) : Socket(Unbound{}) {
    REQUIRE(bind(wanted) == 0);
    socklen_t bytes = sizeof address;
    REQUIRE(rgetsockname(number, generic(address), &bytes) == 0);
  }
  ~Socket() { CHECK(rclose(number) == 0); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  [[nodiscard]] int bind(sockaddr_in wanted = at(0)) const { return rbind(number, generic(wanted), sizeof wanted); }
  void set_receive_bytes(int bytes) const {
    REQUIRE(rsetsockopt(number, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
  }
  ssize_t send_to(const Socket& other, const std::string& text) {
    sockaddr_in to = other.address;
    return rsendto(number, text.data(), text.size(), 0, generic(to), sizeof to);
  }
  std::string receive(int flags = 0) {
    std::string text(5000, '\0');
    socklen_t bytes = sizeof from;
    const ssize_t got = rrecvfrom(number, text.data(), text.size(), flags, generic(from), &bytes);
    REQUIRE(got >= 0);
    text.resize(static_cast<std::size_t>(got));
    return text;
  }

  int number = -1;
  sockaddr_in address{};
  sockaddr_in from{};  ///< of the last datagram
};

bool same(const sockaddr_in& one, const sockaddr_in& other) {
  return one.sin_port == other.sin_port && one.sin_addr.s_addr == other.sin_addr.s_addr;
}

/// Sends the first datagram between two sockets: the receiver's thread has to answer who it is.
void introduce(Socket& sender, Socket& receiver) {
  ssize_t sent = 0;
  std::thread thread([&] { sent = sender.send_to(receiver, "first"); });
  CHECK(receiver.receive() == "first");
  thread.join();
  CHECK(sent == 5);
  CHECK(same(receiver.from, sender.address));
}

/// The address of a socket that knows `sender` and has ended.
sockaddr_in place_of_an_earlier(Socket& sender) {
  Socket earlier;
  introduce(sender, earlier);
  return earlier.address;
}

TEST_CASE("a datagram is answered to where it came from", "[rdmacm][rsocket]") {
  Socket one;
  Socket other;
  introduce(one, other);
  REQUIRE(other.send_to(one, "the answer") == 10);
  REQUIRE(other.send_to(one, "") == 0);
  REQUIRE(other.send_to(one, std::string(4068, 'x')) == 4068);
  CHECK(one.receive(MSG_PEEK) == "the answer");
  CHECK(one.receive() == "the answer");
  CHECK(same(one.from, other.address));
  CHECK(one.receive().empty());
  CHECK(one.receive() == std::string(4068, 'x'));
  CHECK(other.send_to(one, std::string(4069, 'x')) == -1);
  CHECK(errno == EMSGSIZE);
  char byte = 0;
  CHECK(rrecv(one.number, &byte, 1, MSG_DONTWAIT) == -1);
  CHECK(errno == EAGAIN);
  REQUIRE(other.send_to(one, "cut") == 3);
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  REQUIRE(rrecvmsg(one.number, &message, 0) == 1);
  CHECK(message.msg_flags == MSG_TRUNC);
}

TEST_CASE("a connected datagram socket hears only its peer", "[rdmacm][rsocket]") {
  Socket server;
  Socket client;
  Socket stranger;
  introduce(stranger, client);
  REQUIRE(rconnect(client.number, generic(server.address), sizeof server.address) == 0);
  ssize_t sent = 0;
  std::thread thread([&] { sent = rsend(client.number, "hello", 5, 0); });
  CHECK(server.receive() == "hello");
  thread.join();
  CHECK(sent == 5);
  REQUIRE(stranger.send_to(client, "not for you") == 11);
  REQUIRE(server.send_to(client, "welcome") == 7);
  CHECK(client.receive() == "welcome");
  pollfd one{client.number, POLLIN | POLLOUT, 0};
  CHECK(rpoll(&one, 1, 0) == 1);
  CHECK(one.revents == POLLOUT);
}

TEST_CASE("datagrams to nobody are lost, and a connected socket is told", "[rdmacm][rsocket]") {
  sockaddr_in nowhere{};
  {
    const Socket gone;
    nowhere = gone.address;
  }
  Socket one;
  CHECK(rsend(one.number, "x", 1, 0) == -1);
  CHECK(errno == EDESTADDRREQ);
  CHECK(rsendto(one.number, "x", 1, 0, generic(nowhere), sizeof nowhere) == 1);
  REQUIRE(rconnect(one.number, generic(nowhere), sizeof nowhere) == 0);
  CHECK(rsend(one.number, "x", 1, 0) == -1);
  CHECK(errno == ECONNREFUSED);
  CHECK(rlisten(one.number, 1) == -1);
  CHECK(errno == EOPNOTSUPP);
}

TEST_CASE("a socket that has the address of an earlier one is found", "[rdmacm][rsocket]") {
  Socket one;
  const sockaddr_in address = place_of_an_earlier(one);
  Socket later(address);
  std::atomic<bool> heard{false};
  std::thread thread([&] {
    sockaddr_in to = address;
    while (!heard && rsendto(one.number, "again", 5, 0, generic(to), sizeof to) == 5) std::this_thread::yield();
  });
  pollfd readable{later.number, POLLIN, 0};
  CHECK(rpoll(&readable, 1, kLimitMilliseconds) == 1);
  heard = true;
  // A question that is under way is answered.
  CHECK(rpoll(&readable, 1, 0) == 1);
  CHECK(later.receive() == "again");
  thread.join();
  sockaddr_in group = at(5, "239.1.2.3");
  CHECK(rsendto(one.number, "x", 1, 0, generic(group), sizeof group) == -1);
  CHECK(errno == ENETUNREACH);
}

/// Sends without waiting.
ssize_t hand_over(const Socket& from, const Socket& to, const std::string& text) {
  sockaddr_in there = to.address;
  return rsendto(from.number, text.data(), text.size(), MSG_DONTWAIT, generic(there), sizeof there);
}

short poll_one(const Socket& socket, short events, int milliseconds = kLimitMilliseconds) {
  pollfd one{socket.number, events, 0};
  return rpoll(&one, 1, milliseconds) == 1 ? one.revents : short{0};
}

/// What comes next; both programs call functions of their sockets.
std::string next_from(const Socket& sender, Socket& receiver) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMilliseconds);
  while (poll_one(receiver, POLLIN, 1) == 0) {
    REQUIRE(std::chrono::steady_clock::now() < limit);
    static_cast<void>(poll_one(sender, POLLIN, 1));
  }
  return receiver.receive();
}

TEST_CASE("a peer that does not answer holds up no datagrams to others", "[rdmacm][rsocket]") {
  Socket one;
  Socket other;
  Socket silent;
  introduce(one, other);
  ssize_t waited = 0;
  std::thread waits;
  SECTION("when the sender does not wait: the last datagram is kept") {
    CHECK(hand_over(one, silent, "first") == 5);
    CHECK(hand_over(one, silent, "second") == 6);
  }
  SECTION("when another thread waits") {
    std::atomic<pid_t> thread{0};
    waits = std::thread([&] {
      thread = gettid();
      waited = one.send_to(silent, "second");
    });
    while (thread == 0 || !streams::sleeps_on_sockets(thread)) std::this_thread::yield();
  }
  CHECK(poll_one(one, POLLOUT, 0) == POLLOUT);
  CHECK(one.send_to(other, "hello") == 5);
  CHECK(other.receive() == "hello");
  CHECK(next_from(one, silent) == "second");
  if (waits.joinable()) {
    waits.join();
    CHECK(waited == 6);
  }
  CHECK(hand_over(one, silent, "third") == 5);
  CHECK(silent.receive() == "third");
}

/// Longer than a way is good for without being asked for again.
template <class Often>
void let_routes_age(const Socket& idle, Often&& often) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  while (std::chrono::steady_clock::now() < end) {
    CHECK(poll_one(idle, POLLIN, 100) == 0);
    often();
  }
}

TEST_CASE("a way is used while it is asked for again", "[rdmacm][rsocket]") {
  Socket one;
  Socket other;
  introduce(one, other);
  std::size_t sent = 0;
  let_routes_age(one, [&] {
    CHECK(hand_over(one, other, "again") == 5);
    ++sent;
  });
  std::string text(100, '\0');
  std::size_t got = 0;
  while (rrecv(other.number, text.data(), text.size(), MSG_DONTWAIT) == 5) ++got;
  CHECK(got == sent);
}

TEST_CASE("what is sent to the place of an earlier socket reaches the one that has its address", "[rdmacm][rsocket]") {
  Socket one;
  const sockaddr_in address = place_of_an_earlier(one);
  Socket later(address);
  let_routes_age(one, [] {});
  CHECK(hand_over(one, later, "once") == 4);
  CHECK(next_from(one, later) == "once");
}

TEST_CASE("a connected socket that does not wait learns later that nobody is there", "[rdmacm][rsocket]") {
  sockaddr_in nowhere{};
  {
    const Socket gone;
    nowhere = gone.address;
  }
  Socket one;
  REQUIRE(rconnect(one.number, generic(nowhere), sizeof nowhere) == 0);
  CHECK(rsend(one.number, "x", 1, MSG_DONTWAIT) == 1);
  CHECK(poll_one(one, POLLIN) == POLLERR);
  char byte = 0;
  CHECK(rrecv(one.number, &byte, 1, 0) == -1);
  CHECK(errno == ECONNREFUSED);
  CHECK(rrecv(one.number, &byte, 1, MSG_DONTWAIT) == -1);
  CHECK(errno == EAGAIN);
}

TEST_CASE("a receiver without room loses datagrams, and gets those that follow", "[rdmacm][rsocket]") {
  Socket one;
  Socket other;
  introduce(one, other);
  for (int count = 0; count < 300; ++count) REQUIRE(one.send_to(other, "many") == 4);
  std::size_t got = 0;
  std::string text(100, '\0');
  while (rrecv(other.number, text.data(), text.size(), MSG_DONTWAIT) == 4) ++got;
  CHECK(got >= 64);
  REQUIRE(one.send_to(other, "one more") == 8);
  while (other.receive() != "one more") {
  }
}

#ifndef __SANITIZE_ADDRESS__  // with it comes UBSan, which takes a pipe to look at a type, and calls all wrong without

/// Binds the socket while this process may have only descriptors below a number.
int bind_below(rlim_t numbers, const Socket& socket) {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit low{numbers, before.rlim_max};
  const bool limited = setrlimit(RLIMIT_NOFILE, &low) == 0;
  const int bound = limited ? socket.bind() : 0;
  const bool lifted = setrlimit(RLIMIT_NOFILE, &before) == 0;
  REQUIRE((limited && lifted));
  return bound;
}

/// A limit with which a socket can be bound: the lowest one, unless other descriptors were closed meanwhile.
rlim_t bind_with_few() {
  constexpr rlim_t kMostDescriptors = 100;  // that a binding takes
  const Socket socket(Socket::Unbound{});
  const auto first = static_cast<rlim_t>(socket.number);
  rlim_t numbers = first;
  while (bind_below(numbers, socket) != 0) REQUIRE(++numbers < first + kMostDescriptors);
  return numbers;
}

/// A socket with so many bytes to receive that could not be bound, for want of one descriptor.
std::unique_ptr<Socket> fail_to_bind(int receive_bytes) {
  for (rlim_t numbers = bind_with_few(); numbers > 0; --numbers) {
    auto socket = std::make_unique<Socket>(Socket::Unbound{});
    socket->set_receive_bytes(receive_bytes);
    if (bind_below(numbers, *socket) != 0) return socket;
  }
  FAIL("a socket can be bound without a descriptor");
  return nullptr;
}

TEST_CASE("a socket whose binding failed for want of descriptors has no more buffers than others",
          "[rdmacm][rsocket]") {
  static_cast<void>(fabric_folder());
  const Pipe addresses;
  const Child receiver([&] {
    Socket own;
    if (!addresses.put(own.address)) return 1;
    if (own.receive() != "hello") return 2;
    return raise(SIGSTOP);
  });
  sockaddr_in there{};
  REQUIRE(addresses.get(there));
  const auto without_buffers = fail_to_bind(8 << 20);
  const Socket& sender = *without_buffers;
  sender.set_receive_bytes(4096);
  REQUIRE(sender.bind() == 0);
  REQUIRE(rsendto(sender.number, "hello", 5, 0, generic(there), sizeof there) == 5);
  int status = 0;
  REQUIRE(waitpid(receiver.process, &status, WUNTRACED) == receiver.process);
  REQUIRE(WIFSTOPPED(status));
  // The datagrams fill what is between the processes, and then the buffers.
  const std::string longest(4068, 'x');
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMilliseconds);
  while (rsendto(sender.number, longest.data(), longest.size(), MSG_DONTWAIT, generic(there), sizeof there) == 4068)
    REQUIRE(std::chrono::steady_clock::now() < limit);
  CHECK(errno == EAGAIN);
  REQUIRE(kill(receiver.process, SIGKILL) == 0);
  CHECK(receiver.ended() == -1);
}

#endif

TEST_CASE("the header of a datagram has these bytes", "[rdmacm][rsocket]") {
  Address source = any_ip4();
  source.bytes[12] = 10;
  source.bytes[15] = 7;
  source.number = 0x1234;
  source.scope = 5;
  const DatagramHeaderBytes bytes = encode_source(source);
  std::string text;
  for (const std::byte byte : std::as_bytes(std::span(&bytes, 1)))
    text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  CHECK(text ==
        "534c5244"
        "0100"
        "3412"
        "00000000000000000000ffff0a000007"
        "05000000");
  CHECK(decode_source(std::as_bytes(std::span(&bytes, 1))) == source);
}

TEST_CASE("a datagram without the header of a socket is dropped", "[rdmacm][rsocket]") {
  const auto decoded = [](auto change) {
    Address source = any_ip4();
    source.bytes[12] = 10;
    source.number = 1;
    DatagramHeaderBytes bytes = encode_source(source);
    change(bytes);
    return decode_source(std::as_bytes(std::span(&bytes, 1)));
  };
  CHECK(decoded([](auto&) {}));
  CHECK_FALSE(decoded([](auto& bytes) { bytes.magic = 1; }));
  CHECK_FALSE(decoded([](auto& bytes) { bytes.version = 2; }));
  CHECK_FALSE(decoded([](auto& bytes) { bytes.number = 0; }));
  CHECK_FALSE(decoded([](auto& bytes) { bytes.address[12] = 0; }));
  CHECK_FALSE(decoded([](auto& bytes) { bytes.address[12] = 224; }));
  CHECK_FALSE(decode_source({}));
}

}  // namespace
}  // namespace splitnic::rdmacm::testing::datagram_sockets_test
