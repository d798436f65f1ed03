#include "bench/nic/traffic.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/nic/echo.h"
#include "bench/percentile.h"
#include "bench/summary.h"
#include "common/os/errno_text.h"
#include "common/os/netns.h"
#include "common/os/unique_fd.h"

namespace splitnic::bench::nic {

namespace {

// Long enough for TCP to have grown its window, and for the spinning of daemons to have settled.
constexpr Duration kRunUp = std::chrono::milliseconds(200);
constexpr std::size_t kStreamChunkBytes = 128 << 10;
// 14 of Ethernet, 20 of IPv4, 8 of UDP, these, and 4 of checksum: the smallest Ethernet frame.
constexpr std::size_t kUdpPayloadBytes = 18;
constexpr std::size_t kUdpBatch = 32;
constexpr int kUdpReceiveBytes = 4 << 20;

template <class Value>
void set_option(const os::UniqueFd& socket, int level, int name, const Value& value) {
  ::setsockopt(socket.get(), level, name, &value, sizeof value);
}

sockaddr_in address_of(const char* address, in_port_t port = 0) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  ::inet_pton(AF_INET, address, &result.sin_addr);
  return result;
}

/// Nothing blocks for longer than this, so that a contestant that lost its way is noticed.
void limit_waiting(const os::UniqueFd& socket) {
  const timeval patience{3, 0};
  set_option(socket, SOL_SOCKET, SO_RCVTIMEO, patience);
  set_option(socket, SOL_SOCKET, SO_SNDTIMEO, patience);
}

Result<os::UniqueFd> open_socket(int netns, int type) {
  const auto inside = os::ScopedNetns::enter(netns);
  if (!inside) return tl::unexpected(inside.error());
  os::UniqueFd socket(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  if (!socket) return fail("a socket: {}", os::errno_text());
  limit_waiting(socket);
  return socket;
}

/// Bound to an address of its namespace, at a port that the kernel chose and that comes back in `at`.
Result<os::UniqueFd> open_bound_socket(int netns, int type, sockaddr_in& at) {
  auto socket = open_socket(netns, type);
  if (!socket) return socket;
  socklen_t length = sizeof at;
  if (::bind(socket->get(), reinterpret_cast<sockaddr*>(&at), length) != 0 ||
      ::getsockname(socket->get(), reinterpret_cast<sockaddr*>(&at), &length) != 0) {
    return fail("binding a socket: {}", os::errno_text());
  }
  return socket;
}

struct Connection {
  os::UniqueFd from;
  os::UniqueFd to;
};

Result<Connection> connect_tcp(const Route& route) {
  sockaddr_in at = address_of(route.to_address);
  auto listener = open_bound_socket(route.to_netns, SOCK_STREAM, at);
  if (!listener) return tl::unexpected(listener.error());
  auto from = open_socket(route.from_netns, SOCK_STREAM);
  if (!from) return tl::unexpected(from.error());
  if (::listen(listener->get(), 1) != 0 || ::connect(from->get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) {
    return fail("connecting {} to {}: {}", route.from_address, route.to_address, os::errno_text());
  }
  os::UniqueFd to(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!to) return fail("accepting a connection: {}", os::errno_text());
  limit_waiting(to);
  for (const auto* end : {&*from, &to}) {
    set_option(*end, IPPROTO_TCP, TCP_NODELAY, 1);
    // Closed without sending the rest: the next measurement shall not find it on its way.
    set_option(*end, SOL_SOCKET, SO_LINGER, linger{1, 0});
  }
  return Connection{*std::move(from), std::move(to)};
}

/// A thread that does turn() again and again until it says false or this is destroyed. turn() must not block for ever.
class Repeat {
 public:
  template <class Turn>
  explicit Repeat(Turn turn)
      : thread_([this, turn] {
          while (!stop_.load(std::memory_order_relaxed) && turn()) {
          }
        }) {}
  ~Repeat() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  Repeat(const Repeat&) = delete;
  Repeat& operator=(const Repeat&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct Rate {
  double per_second = 0;
  Time begin, end;  ///< of the time counted
};

/// Calls step() until the run-up and then `length` are over, and adds up what it returns meanwhile. A negative value is
/// the system call's failure. at_begin() is called when the count begins.
template <class Step, class AtBegin>
Result<Rate> count_per_second(Duration length, const char* what, Step step, AtBegin at_begin) {
  const Time begin = monotonic_now() + kRunUp;
  double sum = 0;
  Rate rate;
  for (bool counting = false;;) {
    const auto amount = step();
    if (amount < 0 && errno != EINTR) return fail("{}: {}", what, os::errno_text());
    if (amount == 0) return fail("{}: the connection ended", what);
    const Time now = monotonic_now();
    if (!counting) {
      if (now < begin) continue;
      counting = true;
      rate.begin = now;
      at_begin();
      continue;
    }
    if (amount > 0) sum += static_cast<double>(amount);
    if (now - rate.begin < length) continue;
    rate.end = now;
    rate.per_second = sum / std::chrono::duration<double>(now - rate.begin).count();
    return rate;
  }
}

/// Counts the processor time that the machine spends, from begin() on.
class BusyCores {
 public:
  void begin() {
    busy_ = busy_seconds();
    begin_ = monotonic_now();
  }
  /// How many cores were busy since begin().
  [[nodiscard]] double since_begin() const {
    return (busy_seconds() - busy_) / std::chrono::duration<double>(monotonic_now() - begin_).count();
  }

 private:
  /// Of all cores since the machine started: all but idle, waiting for disks, and taken by other virtual machines.
  static double busy_seconds() {
    std::ifstream file("/proc/stat");
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, disk = 0, interrupts = 0, soft_interrupts = 0;
    file >> name >> user >> nice >> system >> idle >> disk >> interrupts >> soft_interrupts;
    return (user + nice + system + interrupts + soft_interrupts) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

  double busy_ = 0;
  Time begin_{};
};

/// What several connections together receive: each has a thread that sends, and poll(2) finds those that have
/// something.
class Streams {
 public:
  explicit Streams(std::vector<Connection> connections)
      : connections_(std::move(connections)), outgoing_(kStreamChunkBytes) {
    for (const Connection& connection : connections_) {
      waits_.push_back({connection.to.get(), POLLIN, 0});
      senders_.push_back(std::make_unique<Repeat>([this, from = connection.from.get()] {
        return ::send(from, outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL) > 0;
      }));
    }
  }
  /// Lets go of senders that wait for room.
  ~Streams() {
    for (const Connection& connection : connections_) {
      ::shutdown(connection.to.get(), SHUT_RDWR);
      ::shutdown(connection.from.get(), SHUT_RDWR);
    }
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  /// Bytes of the next connection that has some; negative: a failure.
  ssize_t receive() {
    if (waits_.size() == 1) return ::recv(waits_[0].fd, incoming_.data(), incoming_.size(), 0);
    for (std::size_t looked = 0; looked < waits_.size(); ++looked) {
      next_ = (next_ + 1) % waits_.size();
      const ssize_t got = ::recv(waits_[next_].fd, incoming_.data(), incoming_.size(), MSG_DONTWAIT);
      if (got >= 0 || errno != EAGAIN) return got;
    }
    const int ready = ::poll(waits_.data(), waits_.size(), kPollPatience);
    if (ready == 0)
      errno = EAGAIN;
    else if (ready > 0)
      errno = EINTR;  // there is something now: the caller comes again
    return -1;
  }

 private:
  static constexpr int kPollPatience = 3000;  // milliseconds

  std::vector<Connection> connections_;
  std::vector<std::byte> outgoing_;
  std::vector<std::byte> incoming_ = std::vector<std::byte>(kStreamChunkBytes);
  std::vector<pollfd> waits_;
  std::size_t next_ = 0;
  std::vector<std::unique_ptr<Repeat>> senders_;  // last, so that they end first
};

}  // namespace

Result<StreamRate> measure_tcp_stream(const Route& route, Duration length, std::size_t connections) {
  std::vector<Connection> connected;
  while (connected.size() < connections) {
    auto connection = connect_tcp(route);
    if (!connection) return tl::unexpected(connection.error());
    connected.push_back(*std::move(connection));
  }
  Streams streams(std::move(connected));
  BusyCores busy;
  const auto bytes = count_per_second(
      length, "receiving TCP", [&] { return streams.receive(); }, [&] { busy.begin(); });
  if (!bytes) return tl::unexpected(bytes.error());
  return StreamRate{.bits_per_second = bytes->per_second * 8, .busy_cores = busy.since_begin()};
}

Result<RequestRate> measure_tcp_request_response(const Route& route, Duration length) {
  auto connection = connect_tcp(route);
  if (!connection) return tl::unexpected(connection.error());
  const Repeat responder([to = connection->to.get()] {
    std::byte byte{};
    return ::recv(to, &byte, 1, 0) == 1 && ::send(to, &byte, 1, MSG_NOSIGNAL) == 1;
  });
  std::vector<double> microseconds;
  microseconds.reserve(1U << 20U);
  BusyCores busy;
  const auto requests = count_per_second(
      length, "waiting for a TCP response",
      [&, from = connection->from.get()]() -> ssize_t {
        std::byte byte{};
        const Time asked = monotonic_now();
        const ssize_t sent = ::send(from, &byte, 1, MSG_NOSIGNAL);
        const ssize_t got = sent == 1 ? ::recv(from, &byte, 1, 0) : sent;
        if (got == 1)
          microseconds.push_back(std::chrono::duration<double, std::micro>(monotonic_now() - asked).count());
        return got;
      },
      [&] {
        microseconds.clear();
        busy.begin();
      });
  const double busy_cores = busy.since_begin();
  ::shutdown(connection->from.get(), SHUT_RDWR);
  ::shutdown(connection->to.get(), SHUT_RDWR);
  if (!requests) return tl::unexpected(requests.error());
  return RequestRate{
      .per_second = requests->per_second, .p99_microseconds = percentile(microseconds, 99), .busy_cores = busy_cores};
}

Result<PacketRate> measure_udp_rate(const Route& route, Duration length) {
  sockaddr_in at = address_of(route.to_address);
  auto receiver = open_bound_socket(route.to_netns, SOCK_DGRAM, at);
  if (!receiver) return tl::unexpected(receiver.error());
  auto sender = open_socket(route.from_netns, SOCK_DGRAM);
  if (!sender) return tl::unexpected(sender.error());
  set_option(*receiver, SOL_SOCKET, SO_RCVBUF, kUdpReceiveBytes);
  set_option(*receiver, SOL_SOCKET, SO_RCVBUFFORCE, kUdpReceiveBytes);
  if (::connect(sender->get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) {
    return fail("connecting UDP: {}", os::errno_text());
  }
  std::array<std::byte, kUdpPayloadBytes> payload{};
  iovec part{payload.data(), payload.size()};
  std::array<mmsghdr, kUdpBatch> batch{};
  for (auto& message : batch) {
    message.msg_hdr.msg_iov = &part;
    message.msg_hdr.msg_iovlen = 1;
  }
  std::atomic<std::uint64_t> sent{0};
  std::uint64_t sent_before = 0;
  std::uint64_t sent_after = 0;
  auto received = batch;
  Result<Rate> packets;
  {
    const Repeat sending([&] {
      const int count = ::sendmmsg(sender->get(), batch.data(), kUdpBatch, 0);
      if (count > 0) sent.fetch_add(static_cast<std::uint64_t>(count), std::memory_order_relaxed);
      return count > 0 || errno == ENOBUFS || errno == EAGAIN || errno == EINTR;
    });
    packets = count_per_second(
        length, "receiving UDP",
        [&] { return ::recvmmsg(receiver->get(), received.data(), kUdpBatch, MSG_WAITFORONE, nullptr); },
        [&] { sent_before = sent.load(std::memory_order_relaxed); });
    sent_after = sent.load(std::memory_order_relaxed);
  }
  if (!packets) return tl::unexpected(packets.error());
  PacketRate rate{.received_per_second = packets->per_second};
  const double sent_per_second = static_cast<double>(sent_after - sent_before) /
                                 std::chrono::duration<double>(packets->end - packets->begin).count();
  if (sent_per_second > rate.received_per_second) rate.lost_share = 1 - rate.received_per_second / sent_per_second;
  return rate;
}

Result<double> measure_ping(const Route& route, Duration length, Duration interval) {
  auto echo = Echo::open(route.from_netns, route.to_address);
  if (!echo) return tl::unexpected(echo.error());
  static_cast<void>(echo->once(std::chrono::milliseconds(200)));  // resolves the address
  std::vector<double> microseconds;
  std::size_t lost = 0;
  const Time end = monotonic_now() + length;
  for (Time at = monotonic_now(); at < end; at += interval) {
    if (interval > Duration(0)) std::this_thread::sleep_until(at);
    const auto round_trip = echo->once(std::chrono::milliseconds(200));
    if (round_trip) {
      microseconds.push_back(std::chrono::duration<double, std::micro>(*round_trip).count());
    } else {
      ++lost;
    }
    at = std::max(at, monotonic_now() - interval);  // late by much: no burst to catch up
  }
  if (microseconds.size() < 9 * lost || microseconds.empty()) {
    return fail("ping: {} of {} echoes lost", lost, lost + microseconds.size());
  }
  return summary_of(microseconds).median;
}

bool wait_until_reachable(const Route& route, Time deadline) {
  auto echo = Echo::open(route.from_netns, route.to_address);
  while (echo && monotonic_now() < deadline) {
    if (echo->once(std::chrono::milliseconds(100))) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace splitnic::bench::nic
