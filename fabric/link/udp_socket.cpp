#include "fabric/link/udp_socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/system/error_code.hpp>
#include <cerrno>
#include <map>
#include <utility>
#include <vector>

#include "common/os/unique_fd.h"

namespace splitnic::fabric {
namespace {

using boost::asio::ip::udp;
using boost::system::error_code;

constexpr std::size_t kDatagramsAtOnce = 64;
// What the kernel keeps while this end is busy; the system's limit cuts it (on Linux, net.core.rmem_max).
constexpr int kKernelBytes = 1 << 20;

Result<udp::endpoint> endpoint_of(const UdpAddress& address) {
  error_code error;
  const auto ip = boost::asio::ip::make_address(address.ip, error);
  if (error) return fail("'{}' is not an IP address", address.ip);
  return udp::endpoint(ip, address.udp_port);
}

/// Asio's own open() would leave the socket, and its port, to programs that the process executes.
void open_close_on_exec(udp::socket& socket, const udp& protocol, error_code& error) {
  os::UniqueFd made(::socket(protocol.family(), SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP));
  if (!made) {
    error = error_code(errno, boost::system::system_category());
    return;
  }
  socket.assign(protocol, made.get(), error);
  if (!error) static_cast<void>(made.release());
}

}  // namespace

class UdpSocket::PeerSink final : public DatagramSink {
 public:
  PeerSink(udp::socket& socket, udp::endpoint to, UdpSocketCounters& counters)
      : socket_(socket), to_(std::move(to)), counters_(counters) {}

  [[nodiscard]] bool send(std::span<const std::byte> datagram) override {
    error_code error;
    socket_.send_to(boost::asio::buffer(datagram.data(), datagram.size()), to_, 0, error);
    if (!error) return true;
    if (error == boost::asio::error::would_block || error == boost::asio::error::no_buffer_space) return false;
    ++counters_.send_failed;
    return true;
  }

 private:
  udp::socket& socket_;
  udp::endpoint to_;
  UdpSocketCounters& counters_;
};

std::string to_string(const UdpAddress& address) {
  const bool v6 = address.ip.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.ip, address.udp_port) : fmt::format("{}:{}", address.ip, address.udp_port);
}

struct UdpSocket::State {
  struct Known {
    std::unique_ptr<PeerSink> sink;
    UdpPeer* peer = nullptr;
  };

  boost::asio::io_context context{1};
  udp::socket socket{context};
  UdpSocketCounters counters{};
  std::map<udp::endpoint, Known> peers;
  std::size_t links = 0;  // those of peers that have one
  std::array<std::byte, kUdpMaxDatagram + 1> datagram{};

  void share_kernel_bytes();
};

/// What lies unread in the kernel is a part of the windows of all links. If they were larger together, a sender that
/// keeps to its window would lose datagrams whenever this end is busy. Asio tells the half of what the kernel counts:
/// the rest is for the kernel's own data about each datagram.
void UdpSocket::State::share_kernel_bytes() {
  boost::asio::socket_base::receive_buffer_size kept;
  error_code error;
  socket.get_option(kept, error);
  if (error || links == 0) return;
  const std::uint64_t each = static_cast<std::uint64_t>(std::max(kept.value(), 0)) / links;
  for (const auto& [address, known] : peers) {
    if (known.peer != nullptr) known.peer->limit_windows(each);
  }
}

UdpSocket::UdpSocket(std::unique_ptr<State> state) : state_(std::move(state)) {}

UdpSocket::~UdpSocket() = default;

Result<std::unique_ptr<UdpSocket>> UdpSocket::open(const UdpAddress& local) {
  const auto endpoint = endpoint_of(local);
  if (!endpoint) return tl::unexpected(endpoint.error());
  auto state = std::make_unique<State>();
  error_code error;
  udp::socket& socket = state->socket;
  open_close_on_exec(socket, endpoint->protocol(), error);
  if (!error) socket.bind(*endpoint, error);
  if (!error) socket.non_blocking(true, error);
  if (error) return fail("cannot use UDP address {}: {}", to_string(local), error.message());
  // What the system refuses here makes the windows smaller (share_kernel_bytes).
  error_code ignored;
  socket.set_option(boost::asio::socket_base::receive_buffer_size(kKernelBytes), ignored);
  socket.set_option(boost::asio::socket_base::send_buffer_size(kKernelBytes), ignored);
  return std::unique_ptr<UdpSocket>(new UdpSocket(std::move(state)));
}

UdpAddress UdpSocket::local() const {
  error_code error;
  const udp::endpoint endpoint = state_->socket.local_endpoint(error);
  return {endpoint.address().to_string(), endpoint.port()};
}

Result<std::unique_ptr<UdpLink>> UdpSocket::connect(const UdpAddress& peer, const UdpOptions& options,
                                                    RandomSource& random) {
  const auto endpoint = endpoint_of(peer);
  if (!endpoint) return tl::unexpected(endpoint.error());
  error_code error;
  if (endpoint->protocol() != state_->socket.local_endpoint(error).protocol()) {
    return fail("UDP address {} is not of the same family as {}", to_string(peer), to_string(local()));
  }
  State::Known& known = state_->peers[*endpoint];
  if (known.peer != nullptr) return fail("UDP address {} has a link already", to_string(peer));
  if (known.sink == nullptr) known.sink = std::make_unique<PeerSink>(state_->socket, *endpoint, state_->counters);
  auto made = std::make_unique<UdpLink>(*known.sink, options, random, this);
  known.peer = &made->peer();
  ++state_->links;
  state_->share_kernel_bytes();
  return made;
}

void UdpSocket::forget(const UdpPeer& peer) {
  state_->links -= std::erase_if(state_->peers, [&peer](const auto& each) { return each.second.peer == &peer; });
  state_->share_kernel_bytes();
}

std::size_t UdpSocket::receive(Time now) {
  std::size_t count = 0;
  while (count < kDatagramsAtOnce) {
    error_code error;
    udp::endpoint from;
    const auto into = boost::asio::buffer(state_->datagram.data(), state_->datagram.size());
    const std::size_t bytes = state_->socket.receive_from(into, from, 0, error);
    if (error == boost::asio::error::would_block) break;
    ++count;
    if (error) {
      ++state_->counters.receive_failed;
      continue;
    }
    const auto known = state_->peers.find(from);
    if (known == state_->peers.end()) {
      ++state_->counters.dropped_unknown_source;
      continue;
    }
    ++state_->counters.datagrams_received;
    known->second.peer->take(std::span(state_->datagram).first(bytes), now);
  }
  return count;
}

int UdpSocket::descriptor() const { return state_->socket.native_handle(); }

const UdpSocketCounters& UdpSocket::counters() const { return state_->counters; }

}  // namespace splitnic::fabric
