#include "iounit/ip_guard.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "common/frame/headers.h"
#include "common/frame/ip.h"

namespace splitnic::iounit {

namespace {

using frame::big_uint16_buf_t;

/// RFC 826, for Ethernet and IPv4.
struct ArpMessage {
  big_uint16_buf_t hardware;
  big_uint16_buf_t protocol;
  std::uint8_t hardware_bytes;
  std::uint8_t protocol_bytes;
  big_uint16_buf_t operation;
  MacAddress sender_hardware;
  std::byte sender[4];
  MacAddress target_hardware;
  std::byte target[4];
};
static_assert(sizeof(ArpMessage) == 28 && alignof(ArpMessage) == 1);

/// The beginning of a UDP header (RFC 768) and of an ICMPv6 message (RFC 4443).
struct UdpPorts {
  big_uint16_buf_t source;
  big_uint16_buf_t destination;
};

/// RFC 8200, 4.5.
struct FragmentHeader {
  std::uint8_t next_header;
  std::uint8_t reserved;
  big_uint16_buf_t offset_and_flags;
  frame::big_uint32_buf_t identification;
};
static_assert(sizeof(FragmentHeader) == 8 && alignof(FragmentHeader) == 1);
constexpr std::uint16_t kFragmentOffset = 0xfff8;

/// Behind an 802.3 length: LLC (IEEE 802.2) and SNAP (RFC 1042), which carry an EtherType.
struct SnapHeader {
  std::uint8_t destination;
  std::uint8_t source;
  std::uint8_t control;
  std::uint8_t organisation[3];
  big_uint16_buf_t ethertype;
};
static_assert(sizeof(SnapHeader) == 8 && alignof(SnapHeader) == 1);
constexpr std::uint16_t kLeastEtherType = 0x600;  // less is a length

/// RFC 2131, 4.1, and RFC 8415, 7.2.
struct DhcpPorts {
  std::uint16_t server;
  std::uint16_t client;
};
constexpr DhcpPorts kDhcp{.server = 67, .client = 68};
constexpr DhcpPorts kDhcpv6{.server = 547, .client = 546};
constexpr std::byte kRouterAdvertisement{134};
constexpr std::byte kNeighbourSolicitation{135};
constexpr std::byte kNeighbourAdvertisement{136};
constexpr std::byte kRedirect{137};
constexpr std::size_t kNeighbourTarget = 8;  // its offset in a neighbour solicitation and advertisement

bool is_unspecified(std::span<const std::byte> address) {
  return std::ranges::all_of(address, [](std::byte octet) { return octet == std::byte{}; });
}

/// Whether these bytes may be an address of the host.
bool is_permitted(const IpGuard& guard, std::span<const std::byte> address) {
  if (guard.addresses.empty() || is_unspecified(address)) return true;
  const bool link_local =
      address.size() == 16 && address[0] == std::byte{0xfe} && (address[1] & std::byte{0xc0}) == std::byte{0x80};
  return link_local || std::ranges::any_of(guard.addresses, [&](const IpAddress& own) {
           return own.bytes == address.size() && std::equal(address.begin(), address.end(), own.octets.begin());
         });
}

/// Without a sender it is a probe (RFC 5227): whoever is probing the same address gives it up.
IpClaim claim_of_arp(const IpGuard& guard, const frame::EthernetHeader& header, std::span<const std::byte> frame) {
  if (guard.addresses.empty()) return IpClaim::none;
  if (!frame::holds<ArpMessage>(frame, header.payload_offset)) return IpClaim::address;
  const auto arp = frame::load<ArpMessage>(frame, header.payload_offset);
  const bool of_ipv4 = arp.hardware.value() == 1 && arp.protocol.value() == frame::kEtherTypeIpv4 &&
                       arp.hardware_bytes == 6 && arp.protocol_bytes == 4;
  const auto& claimed = is_unspecified(arp.sender) ? arp.target : arp.sender;
  return of_ipv4 && arp.sender_hardware == header.source && is_permitted(guard, claimed) ? IpClaim::none
                                                                                         : IpClaim::address;
}

/// Whether a neighbour message claims its target. A solicitation without a source looks for others who have the target
/// (RFC 4862, 5.4): whoever is looking for the same gives it up.
bool claims_target(std::byte type, std::span<const std::byte> source) {
  return type == kNeighbourAdvertisement || (type == kNeighbourSolicitation && is_unspecified(source));
}

/// source: of the packet.
IpClaim claim_of_icmpv6(const IpGuard& guard, std::span<const std::byte> source, std::span<const std::byte> message) {
  if (message.empty()) return IpClaim::none;
  if (!guard.router && (message[0] == kRouterAdvertisement || message[0] == kRedirect)) return IpClaim::router;
  if (guard.addresses.empty() || !claims_target(message[0], source)) return IpClaim::none;
  if (message.size() < kNeighbourTarget + source.size()) return IpClaim::address;
  return is_permitted(guard, message.subspan(kNeighbourTarget, source.size())) ? IpClaim::none : IpClaim::address;
}

/// A client takes an answer from any port.
IpClaim claim_of_udp(const IpGuard& guard, const DhcpPorts& dhcp, std::span<const std::byte> message) {
  if (guard.dhcp_server) return IpClaim::none;
  // A fragment that ends within the header hides the ports.
  if (!frame::holds<UdpPorts>(message, 0)) return IpClaim::dhcp_server;
  const auto ports = frame::load<UdpPorts>(message, 0);
  const bool is_servers = ports.source.value() == dhcp.server || ports.destination.value() == dhcp.client;
  return is_servers ? IpClaim::dhcp_server : IpClaim::none;
}

/// The beginning of a transport message.
struct Message {
  frame::IpProtocol protocol{};
  std::span<const std::byte> bytes;
};

/// nullopt: the packet is a fragment behind the first one.
std::optional<Message> first_message(const frame::IpPacket& packet, std::span<const std::byte> frame) {
  const std::size_t end = std::min(packet.end, frame.size());
  const std::size_t begin = std::min(packet.transport_offset, end);
  Message message{packet.protocol, frame.subspan(begin, end - begin)};
  if (!packet.fragment) return message;
  if (packet.version == frame::IpVersion::v4) {
    const auto header = frame::load<frame::Ipv4Header>(frame, packet.offset);
    const bool first = (header.flags_and_fragment.value() & frame::kIpv4FragmentOffset) == 0;
    return first ? std::optional(message) : std::nullopt;
  }
  if (!frame::holds<FragmentHeader>(message.bytes, 0)) return message;  // of protocol `fragment`
  const auto header = frame::load<FragmentHeader>(message.bytes, 0);
  if ((header.offset_and_flags.value() & kFragmentOffset) != 0) return std::nullopt;
  return Message{frame::IpProtocol{header.next_header}, message.bytes.subspan(sizeof header)};
}

/// Whether the headers up to the message are in a later fragment (RFC 7112 forbids such packets).
bool is_hidden(frame::IpProtocol protocol) {
  return protocol == frame::IpProtocol::fragment || protocol == frame::IpProtocol::hop_by_hop ||
         protocol == frame::IpProtocol::routing || protocol == frame::IpProtocol::destination_options;
}

/// A message that can't be seen may be any message.
IpClaim claim_of_hidden(const IpGuard& guard) {
  if (!guard.router) return IpClaim::router;
  if (!guard.dhcp_server) return IpClaim::dhcp_server;
  return guard.addresses.empty() ? IpClaim::none : IpClaim::address;
}

/// Receivers differ in how they would read such a packet. Linux reads more tags and more extension headers than this
/// program, and takes an IPv6 packet with options and a length of zero to be as long as its frame. Some DHCP clients
/// read the headers of IPv4 themselves, and check less of them than a stack does.
IpClaim claim_of_unreadable(const IpGuard& guard, const frame::EthernetHeader& header) {
  if (!guard.addresses.empty()) return IpClaim::address;
  if (header.ethertype != frame::kEtherTypeIpv4) return claim_of_hidden(guard);
  return guard.dhcp_server ? IpClaim::none : IpClaim::dhcp_server;
}

/// The header with the EtherType that follows in LLC and SNAP headers; nullopt: there are none. Receivers differ in
/// what lengths and control fields they accept, so neither counts here, nor do the lowest bits of the two service
/// points.
std::optional<frame::EthernetHeader> behind_snap(const frame::EthernetHeader& header,
                                                 std::span<const std::byte> frame) {
  if (header.ethertype >= kLeastEtherType || !frame::holds<SnapHeader>(frame, header.payload_offset)) {
    return std::nullopt;
  }
  const auto snap = frame::load<SnapHeader>(frame, header.payload_offset);
  constexpr unsigned kSnap = 0xaa;
  if ((snap.destination & 0xfeU) != kSnap || (snap.source & 0xfeU) != kSnap) return std::nullopt;
  // RFC 1042, and 802.1H for bridges; other organisations have numbers of their own there.
  const bool has_ethertype = snap.organisation[0] == 0 && snap.organisation[1] == 0 &&
                             (snap.organisation[2] == 0 || snap.organisation[2] == 0xf8);
  if (!has_ethertype) return std::nullopt;
  frame::EthernetHeader inner = header;
  inner.ethertype = snap.ethertype.value();
  inner.payload_offset += sizeof snap;
  return inner;
}

/// header: its EtherType, wherever that stands.
IpClaim claim_of(const IpGuard& guard, const frame::EthernetHeader& header, std::span<const std::byte> frame) {
  if (header.ethertype == frame::kEtherTypeArp) return claim_of_arp(guard, header, frame);
  if (frame::is_vlan(header.ethertype)) return claim_of_unreadable(guard, header);  // more tags than are parsed
  if (!header.is_ip()) return IpClaim::none;
  const auto packet = frame::parse_ip(frame, header);
  if (!packet) return claim_of_unreadable(guard, header);
  if (!is_permitted(guard, packet->source(frame))) return IpClaim::address;
  const auto message = first_message(*packet, frame);
  if (!message) return IpClaim::none;
  if (packet->version == frame::IpVersion::v6 && is_hidden(message->protocol)) return claim_of_hidden(guard);
  if (packet->version == frame::IpVersion::v6 && message->protocol == frame::IpProtocol::icmpv6) {
    return claim_of_icmpv6(guard, packet->source(frame), message->bytes);
  }
  if (message->protocol != frame::IpProtocol::udp) return IpClaim::none;
  return claim_of_udp(guard, packet->version == frame::IpVersion::v4 ? kDhcp : kDhcpv6, message->bytes);
}

}  // namespace

std::optional<IpAddress> parse_ip_address(const std::string& text) {
  IpAddress address;
  if (::inet_pton(AF_INET, text.c_str(), address.octets.data()) == 1) {
    address.bytes = 4;
  } else if (::inet_pton(AF_INET6, text.c_str(), address.octets.data()) == 1) {
    address.bytes = 16;
  } else {
    return std::nullopt;
  }
  return address;
}

std::string to_string(const IpAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = address.bytes == 4 ? AF_INET : AF_INET6;
  return ::inet_ntop(family, address.octets.data(), text.data(), text.size()) != nullptr ? text.data() : "";
}

IpClaim forbidden_claim(const IpGuard& guard, const frame::EthernetHeader& header, std::span<const std::byte> frame) {
  if (guard.addresses.empty() && guard.dhcp_server && guard.router) return IpClaim::none;
  const auto inner = behind_snap(header, frame);
  return claim_of(guard, inner ? *inner : header, frame);
}

}  // namespace splitnic::iounit
