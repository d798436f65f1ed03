#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/frame/checksum.h"
#include "common/frame/headers.h"
#include "common/frame/ip.h"

/// What cutting and merging do to the headers of a packet (IpPacket) in its frame. frame: private bytes that have all
/// of its headers. Any thread.
namespace splitnic::frame {

/// The sum of TCP's or UDP's pseudo-header. transport_size: bytes of the transport header and its payload, less than
/// 2^16.
[[nodiscard]] inline InternetSum pseudo_header_of(std::span<const std::byte> frame, const IpPacket& packet,
                                                  std::size_t transport_size) {
  return pseudo_header_sum(packet.source(frame), packet.destination(frame), static_cast<std::uint8_t>(packet.protocol),
                           static_cast<std::uint16_t>(transport_size));
}

/// Whether IPv4's checksum is right. IPv6 has none.
[[nodiscard]] inline bool has_valid_ip_header(std::span<const std::byte> frame, const IpPacket& packet) {
  if (packet.version == IpVersion::v6) return true;
  const auto header = frame.subspan(packet.offset, packet.transport_offset - packet.offset);
  return InternetSum().add(header).is_valid();
}

/// IPv4's; 0 for IPv6.
[[nodiscard]] inline std::uint16_t identification_of(std::span<const std::byte> frame, const IpPacket& packet) {
  if (packet.version == IpVersion::v6) return 0;
  return load<Ipv4Header>(frame, packet.offset).identification.value();
}

/// Gives the IP header the length of a packet that ends where the span ends, less than 2^16 bytes, and IPv4's also this
/// identification and its checksum.
inline void rewrite_ip_header(std::span<std::byte> frame, const IpPacket& packet, std::uint16_t identification) {
  if (packet.version == IpVersion::v6) {
    auto ip = load<Ipv6Header>(frame, packet.offset);
    ip.payload_bytes = static_cast<std::uint16_t>(frame.size() - packet.offset - sizeof ip);
    store(frame, packet.offset, ip);
    return;
  }
  auto ip = load<Ipv4Header>(frame, packet.offset);
  ip.total_bytes = static_cast<std::uint16_t>(frame.size() - packet.offset);
  ip.identification = identification;
  store(frame, packet.offset, ip);
  ip.checksum = ipv4_header_checksum(frame.subspan(packet.offset, packet.transport_offset - packet.offset));
  store(frame, packet.offset, ip);
}

}  // namespace splitnic::frame
