#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/frame/ethernet.h"

namespace splitnic::iounit {

/// An IPv4 or IPv6 address.
struct IpAddress {
  std::array<std::byte, 16> octets{};
  std::size_t bytes = 0;  ///< 4 or 16
  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

/// "10.1.2.3", "fd00::1"; nullopt for anything else.
std::optional<IpAddress> parse_ip_address(const std::string& text);
std::string to_string(const IpAddress& address);

/// What a host may claim to be in the payload of its frames.
struct IpGuard {
  /// Its own addresses. Empty: any.
  std::vector<IpAddress> addresses{};
  bool dhcp_server = true;  ///< may answer as a DHCP server, or relay a server's answers
  bool router = true;       ///< may send IPv6 router advertisements and redirects
  friend bool operator==(const IpGuard&, const IpGuard&) = default;
};

/// What a frame claims that the guard does not permit.
enum class IpClaim : std::uint8_t {
  none,
  /// The source of an IP packet, the sender of an ARP message, the target of a neighbour advertisement; where sender or
  /// source is unspecified, the target of the ARP message or neighbour solicitation.
  address,
  dhcp_server,  ///< a packet from the port of a DHCP server, or to a client's
  router,
};

/// frame: private bytes; header: of the frame. With addresses set, a message that can't be parsed claims a wrong
/// address; an IPv6 packet that can't be parsed or hides its message, and a message behind more tags than are parsed,
/// claim whatever is forbidden; an IPv4 packet that can't be parsed is a DHCP server's. The unspecified address and,
/// for IPv6, link-local addresses are always permitted: address detection and DHCP need them. Fragments behind the
/// first are judged by their source alone. Source: RFC 826 and 5227 (ARP), 4861 and 4862 (neighbour discovery), 6105
/// and 7113 (RA guard), 2131 and 8415 (DHCP).
[[nodiscard]] IpClaim forbidden_claim(const IpGuard& guard, const frame::EthernetHeader& header,
                                      std::span<const std::byte> frame);

}  // namespace splitnic::iounit
