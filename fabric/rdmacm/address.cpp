#include "fabric/rdmacm/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "common/os/unique_fd.h"

namespace splitnic::rdmacm {
namespace {

constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr std::size_t kIp4At = kMapped.size();

sockaddr* generic(sockaddr_storage& address) { return reinterpret_cast<sockaddr*>(&address); }

socklen_t bytes_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

/// A socket of the address's family, and the address in the system's form. The system call itself: a program may have
/// a library that turns socket(2) into rsocket() (librspreload).
os::UniqueFd datagram_socket(const Address& address, sockaddr_storage& system) {
  put_address(address, system);
  return os::UniqueFd(static_cast<int>(::syscall(SYS_socket, system.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
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
  return socket && ::bind(socket.get(), generic(system), bytes_of(system)) == 0;
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
