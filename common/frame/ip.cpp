#include "common/frame/ip.h"

#include <algorithm>

namespace splitnic::frame {
namespace {

// More than any stack sends. This bounds the work that a hostile packet can cause.
constexpr int kMaxExtensionHeaders = 8;

// Routing headers whose first entry, at offset 8, is the final destination.
constexpr std::uint8_t kRoutingTypeMobility = 2;  // RFC 6275, 6.4: the home address
constexpr std::uint8_t kRoutingTypeSegments = 4;  // RFC 8754, 2: the segment list is in reverse
constexpr std::size_t kRoutingFirstEntry = 8;

// The parsers fill the caller's value, and return false for a malformed packet. Copying a value just written field by
// field would cost as much as the rest of the parsing.
bool parse_ipv4(std::span<const std::byte> frame, std::size_t offset, IpPacket& packet) {
  if (!holds<Ipv4Header>(frame, offset)) return false;
  const auto header = load<Ipv4Header>(frame, offset);
  const std::size_t header_bytes = (header.version_and_words & 0x0fU) * 4U;
  const std::size_t total_bytes = header.total_bytes.value();
  if (header.version_and_words >> 4U != 4 || header_bytes < sizeof header || total_bytes < header_bytes ||
      frame.size() - offset < header_bytes) {
    return false;
  }
  packet.version = IpVersion::v4;
  packet.protocol = IpProtocol{header.protocol};
  packet.fragment = (header.flags_and_fragment.value() & (kIpv4MoreFragments | kIpv4FragmentOffset)) != 0;
  packet.offset = offset;
  packet.transport_offset = offset + header_bytes;
  packet.end = offset + total_bytes;
  packet.source_offset = offset + offsetof(Ipv4Header, source);
  packet.destination_offset = offset + offsetof(Ipv4Header, destination);
  packet.address_bytes = sizeof header.source;
  return true;
}

// RFC 8200, 8.1: until the packet arrives, the header's own destination is the next hop, not the final destination.
void follow_routing_header(IpPacket& packet, const Ipv6ExtensionHeader& header, std::size_t header_bytes) {
  if (header.segments_left == 0) return;
  const bool known = header.routing_type == kRoutingTypeMobility || header.routing_type == kRoutingTypeSegments;
  if (known && header_bytes >= kRoutingFirstEntry + packet.address_bytes) {
    packet.destination_offset = packet.transport_offset + kRoutingFirstEntry;
  } else {
    packet.final_destination_unknown = true;
  }
}

bool is_extension(IpProtocol protocol) {
  return protocol == IpProtocol::hop_by_hop || protocol == IpProtocol::routing ||
         protocol == IpProtocol::destination_options;
}

bool parse_ipv6(std::span<const std::byte> frame, std::size_t offset, IpPacket& packet) {
  if (!holds<Ipv6Header>(frame, offset)) return false;
  const auto header = load<Ipv6Header>(frame, offset);
  if (header.version_class_label.value() >> 28U != 6) return false;
  packet.version = IpVersion::v6;
  packet.protocol = IpProtocol{header.next_header};
  packet.offset = offset;
  packet.transport_offset = offset + sizeof header;
  packet.end = packet.transport_offset + header.payload_bytes.value();
  packet.source_offset = offset + offsetof(Ipv6Header, source);
  packet.destination_offset = offset + offsetof(Ipv6Header, destination);
  packet.address_bytes = sizeof header.source;

  const auto packet_bytes = frame.first(std::min(frame.size(), packet.end));
  for (int passed = 0; is_extension(packet.protocol); ++passed) {
    if (passed == kMaxExtensionHeaders || !holds<Ipv6ExtensionHeader>(packet_bytes, packet.transport_offset)) {
      return false;
    }
    const auto extension = load<Ipv6ExtensionHeader>(packet_bytes, packet.transport_offset);
    const std::size_t extension_bytes = (extension.eights_after_first + 1U) * 8U;
    if (packet_bytes.size() - packet.transport_offset < extension_bytes) return false;
    if (packet.protocol == IpProtocol::routing) follow_routing_header(packet, extension, extension_bytes);
    packet.protocol = IpProtocol{extension.next_header};
    packet.transport_offset += extension_bytes;
  }
  packet.fragment = packet.protocol == IpProtocol::fragment;
  return true;
}

}  // namespace

std::optional<IpPacket> parse_ip(std::span<const std::byte> frame, const EthernetHeader& ethernet) {
  std::optional<IpPacket> packet(std::in_place);
  const auto parse = ethernet.ethertype == kEtherTypeIpv4 ? parse_ipv4 : parse_ipv6;
  if (!parse(frame, ethernet.payload_offset, *packet)) packet.reset();
  return packet;
}

std::optional<IpPacket> parse_whole_ip(std::span<const std::byte> frame, const EthernetHeader& ethernet) {
  if (!ethernet.is_ip()) return std::nullopt;
  auto packet = parse_ip(frame, ethernet);
  if (packet && packet->end > frame.size()) packet.reset();
  return packet;
}

std::optional<IpPacket> parse_whole_ip(std::span<const std::byte> frame) {
  const auto ethernet = parse_ethernet(frame);
  return ethernet ? parse_whole_ip(frame, *ethernet) : std::nullopt;
}

std::optional<IpPacket> parse_tunnelled(std::span<const std::byte> frame, const IpPacket& packet) {
  if (packet.fragment) return std::nullopt;
  EthernetHeader as_if_below;
  as_if_below.payload_offset = packet.transport_offset;
  const auto whole = frame.first(packet.end);
  if (packet.protocol == IpProtocol::ipv4_tunnel) {
    as_if_below.ethertype = kEtherTypeIpv4;
  } else if (packet.protocol == IpProtocol::ipv6_tunnel) {
    as_if_below.ethertype = kEtherTypeIpv6;
  } else if (packet.protocol == IpProtocol::gre && holds<GreHeader>(whole, packet.transport_offset)) {
    const auto gre = load<GreHeader>(whole, packet.transport_offset);
    const std::uint16_t flags = gre.flags_and_version.value();
    if (flags != 0 && flags != kGreHasKey) return std::nullopt;
    as_if_below.ethertype = gre.protocol.value();
    as_if_below.payload_offset += sizeof gre + (flags == kGreHasKey ? kGreKeyBytes : 0);
  }
  if (!as_if_below.is_ip() || as_if_below.payload_offset > whole.size()) return std::nullopt;
  auto inside = parse_ip(whole, as_if_below);
  if (inside && (inside->end != packet.end || inside->fragment)) inside.reset();
  return inside;
}

bool holds_all_headers(std::span<const std::byte> head) {
  constexpr std::size_t kLongestTransportHeader = 60;  // TCP with all of its options
  const auto ethernet = parse_ethernet(head);
  if (!ethernet || !ethernet->is_ip()) return false;
  const auto packet = parse_ip(head, *ethernet);
  return packet && !is_tunnel(packet->protocol) && packet->transport_offset + kLongestTransportHeader <= head.size();
}

}  // namespace splitnic::frame
