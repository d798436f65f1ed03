#include "fabric/rdmacm/address.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "common/os/unique_fd.h"

namespace splitnic::rdmacm {
namespace {

constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr std::size_t kIp4At = kMapped.size();

socklen_t bytes_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

/// A socket of the address's family, and the address in the system's form. The system call itself: a program may have
/// a library that turns socket(2) into rsocket() (librspreload).
os::UniqueFd datagram_socket(const Address& address, sockaddr_storage& system) {
  put_address(address, system);
  return os::UniqueFd(static_cast<int>(::syscall(SYS_socket, system.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
}

/// Which route leads to an address. Of IPv4, the message ends behind the first four bytes of the address.
struct RouteQuestion {
  nlmsghdr header{};
  rtmsg route{};
  rtattr to_is{};
  std::array<std::uint8_t, 16> to{};
  rtattr interface_is{};
  std::uint32_t interface = 0;
};
static_assert(offsetof(RouteQuestion, interface_is) == 48 && sizeof(RouteQuestion) == 56);

struct RouteAnswer {
  nlmsghdr header{};
  rtmsg route{};  ///< or an error
};

/// Source: rtnetlink(7), RTM_GETROUTE.
RouteQuestion question_about(const Address& address) {
  const std::size_t bytes = address.is_ip4() ? 4 : address.bytes.size();
  const auto attribute = [](std::size_t payload, int type) {
    return rtattr{static_cast<std::uint16_t>(sizeof(rtattr) + payload), static_cast<std::uint16_t>(type)};
  };
  RouteQuestion ask;
  ask.header.nlmsg_type = RTM_GETROUTE;
  ask.header.nlmsg_flags = NLM_F_REQUEST;
  ask.route.rtm_family = address.is_ip4() ? AF_INET : AF_INET6;
  ask.route.rtm_dst_len = static_cast<std::uint8_t>(8 * bytes);
  ask.to_is = attribute(bytes, RTA_DST);
  std::copy_n(address.bytes.end() - static_cast<std::ptrdiff_t>(bytes), bytes, ask.to.begin());
  ask.interface_is = attribute(sizeof ask.interface, RTA_OIF);
  ask.interface = address.scope;
  const bool whole = address.scope != 0;
  ask.header.nlmsg_len = static_cast<std::uint32_t>(whole ? sizeof ask : offsetof(RouteQuestion, to) + bytes);
  return ask;
}

/// Whether the kernel delivers packets to this address here. nullopt: it does not say.
std::optional<bool> is_delivered_here(const Address& address) {
  const os::UniqueFd socket(
      static_cast<int>(::syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)));
  const RouteQuestion ask = question_about(address);
  RouteAnswer answer;
  if (!socket || ::send(socket.get(), &ask, ask.header.nlmsg_len, 0) < 0) return std::nullopt;
  // The kernel answers before send() returns. What follows the route's fixed part is cut off.
  const ssize_t got = ::recv(socket.get(), &answer, sizeof answer, MSG_DONTWAIT);
  if (got != ssize_t{sizeof answer}) return std::nullopt;
  if (answer.header.nlmsg_type == RTM_NEWROUTE) return answer.route.rtm_type == RTN_LOCAL;
  int error = 0;
  std::memcpy(&error, &answer.route, sizeof error);
  if (answer.header.nlmsg_type != NLMSG_ERROR || error == -EPERM || error == -EOPNOTSUPP) return std::nullopt;
  return false;  // no route
}

Address loopback_ip4() {
  Address address = any_ip4();
  address.bytes[kIp4At] = IN_LOOPBACKNET;
  address.bytes[15] = 1;
  return address;
}

Address loopback_ip6() {
  Address address;
  address.bytes[15] = 1;
  return address;
}

void put_ip6(const Address& address, sockaddr_storage& to) {
  sockaddr_in6 system{};
  system.sin6_family = AF_INET6;
  system.sin6_port = htons(address.number);
  system.sin6_scope_id = address.scope;
  std::memcpy(&system.sin6_addr, address.bytes.data(), sizeof system.sin6_addr);
  std::memcpy(&to, &system, sizeof system);
}

}  // namespace

bool Address::is_ip4() const { return std::ranges::equal(kMapped, std::span(bytes).first(kIp4At)); }

bool Address::is_any() const {
  const auto zero = [](std::uint8_t byte) { return byte == 0; };
  return std::ranges::all_of(is_ip4() ? std::span(bytes).subspan(kIp4At) : std::span(bytes), zero);
}

bool Address::is_loopback() const {
  if (is_ip4()) return bytes[kIp4At] == IN_LOOPBACKNET;
  const auto zero = [](std::uint8_t byte) { return byte == 0; };
  return std::ranges::all_of(std::span(bytes).first(15), zero) && bytes[15] == 1;
}

bool Address::is_multicast() const { return is_ip4() ? IN_MULTICAST(ip4()) : bytes[0] == 0xff; }

std::uint32_t Address::ip4() const {
  std::uint32_t network = 0;
  std::memcpy(&network, &bytes[kIp4At], sizeof network);
  return ntohl(network);
}

Address any_ip4() {
  Address address;
  std::ranges::copy(kMapped, address.bytes.begin());
  return address;
}

std::optional<Address> address_of(const sockaddr* from) {
  Address address = any_ip4();
  if (from == nullptr) return std::nullopt;
  if (from->sa_family == AF_INET) {
    sockaddr_in system{};
    std::memcpy(&system, from, sizeof system);
    std::memcpy(&address.bytes[kIp4At], &system.sin_addr, sizeof system.sin_addr);
    address.number = ntohs(system.sin_port);
    return address;
  }
  if (from->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 system{};
  std::memcpy(&system, from, sizeof system);
  std::memcpy(address.bytes.data(), &system.sin6_addr, sizeof system.sin6_addr);
  address.number = ntohs(system.sin6_port);
  if (IN6_IS_ADDR_LINKLOCAL(&system.sin6_addr)) address.scope = system.sin6_scope_id;
  return address;
}

void put_address(const Address& address, sockaddr_storage& to) {
  to = {};
  if (address.is_ip4()) {
    sockaddr_in system{};
    system.sin_family = AF_INET;
    system.sin_port = htons(address.number);
    std::memcpy(&system.sin_addr, &address.bytes[kIp4At], sizeof system.sin_addr);
    std::memcpy(&to, &system, sizeof system);
    return;
  }
  put_ip6(address, to);
}

socklen_t put_address_as(const Address& address, int family, sockaddr_storage& to) {
  if (family == AF_INET6) {
    put_ip6(address, to);
  } else {
    put_address(address, to);
  }
  return bytes_of(to);
}

void put_number(sockaddr_storage& in, std::uint16_t number) {
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  const std::uint16_t network = htons(number);
  std::memcpy(generic(in)->sa_data, &network, sizeof network);
}

bool is_local(const Address& address) {
  if (address.is_loopback()) return true;
  if (address.is_multicast() || address.is_any()) return false;
  Address anywhere = address;
  anywhere.number = 0;
  sockaddr_storage system;
  const os::UniqueFd socket = datagram_socket(anywhere, system);
  const bool bound = socket && ::bind(socket.get(), generic(system), bytes_of(system)) == 0;
  // A socket is also bound to a broadcast address, and to any one where net.ipv4.ip_nonlocal_bind is set.
  return bound && is_delivered_here(address).value_or(true);
}

std::optional<Address> source_towards(const Address& destination) {
  if (is_local(destination)) {
    Address same = destination;
    same.number = 0;
    return same;
  }
  constexpr std::uint16_t kSomeNumber = 9;  // nothing is sent
  Address somewhere = destination;
  somewhere.number = kSomeNumber;
  sockaddr_storage system;
  const os::UniqueFd socket = datagram_socket(somewhere, system);
  if (!socket) return std::nullopt;
  if (::connect(socket.get(), generic(system), bytes_of(system)) != 0) {
    if (!destination.is_multicast()) return std::nullopt;
    return destination.is_ip4() ? loopback_ip4() : loopback_ip6();
  }
  socklen_t bytes = sizeof system;
  if (::getsockname(socket.get(), generic(system), &bytes) != 0) return std::nullopt;
  auto source = address_of(generic(system));
  if (source) source->number = 0;
  return source;
}

}  // namespace splitnic::rdmacm
