#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>

namespace splitnic::rdmacm {

/// An IP address and a port number of the IP kind, as programs name the ends of a connection. An IPv4 address is held
/// as an IPv4-mapped IPv6 address, so an address has one form.
struct Address {
  std::array<std::uint8_t, 16> bytes{};  ///< network order
  std::uint16_t number = 0;              ///< the IP port number, host order; 0: none yet
  std::uint32_t scope = 0;               ///< of link-local IPv6: the interface

  [[nodiscard]] bool is_ip4() const;
  /// 0.0.0.0 or ::.
  [[nodiscard]] bool is_any() const;
  [[nodiscard]] bool is_loopback() const;
  [[nodiscard]] bool is_multicast() const;
  /// Of an IPv4 address: its 32 bits, host order.
  [[nodiscard]] std::uint32_t ip4() const;
  /// The same address, whatever the number.
  [[nodiscard]] bool same_host(const Address& other) const { return bytes == other.bytes && scope == other.scope; }
  friend bool operator==(const Address&, const Address&) = default;
};

/// As system calls and verbs take it.
[[nodiscard]] inline sockaddr* generic(sockaddr_storage& address) {
  return static_cast<sockaddr*>(static_cast<void*>(&address));
}

/// 0.0.0.0.
[[nodiscard]] Address any_ip4();

/// nullopt: neither IPv4 nor IPv6, or null.
[[nodiscard]] std::optional<Address> address_of(const sockaddr* from);
/// As a struct of the system: AF_INET for IPv4, otherwise AF_INET6.
void put_address(const Address& address, sockaddr_storage& to);
/// As a socket of this family tells it: IPv4 is an IPv4-mapped address for AF_INET6. Returns the bytes of the struct.
socklen_t put_address_as(const Address& address, int family, sockaddr_storage& to);
/// Changes only the number in a struct of the system.
void put_number(sockaddr_storage& in, std::uint16_t number);

/// Whether this machine (this network namespace) has the address: the kernel delivers what is sent to it here alone.
/// Loopback counts always, broadcast and multicast never.
[[nodiscard]] bool is_local(const Address& address);
/// The address from which this machine reaches the destination, without a number; nullopt with errno: no route. A local
/// destination is reached from itself; a multicast one without a route from the loopback address, because no packet is
/// sent.
[[nodiscard]] std::optional<Address> source_towards(const Address& destination);

}  // namespace splitnic::rdmacm
