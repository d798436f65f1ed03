#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/mac_address.h"

/// Ethernet frames built by hand for tests, byte by byte and with a checksum of its own, so that what is tested is not
/// also what makes the test's input.
namespace splitnic::test {

using Bytes = std::vector<std::byte>;

inline void put8(Bytes& to, std::size_t number) { to.push_back(static_cast<std::byte>(number & 0xffU)); }
inline void put16(Bytes& to, std::size_t number) {
  put8(to, number >> 8U);
  put8(to, number);
}
inline void put32(Bytes& to, std::size_t number) {
  put16(to, number >> 16U);
  put16(to, number);
}
inline void put(Bytes& to, std::span<const std::byte> bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

inline std::uint16_t get16(std::span<const std::byte> bytes, std::size_t at) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[at]) << 8U |
                                    std::to_integer<unsigned>(bytes[at + 1]));
}
inline std::uint32_t get32(std::span<const std::byte> bytes, std::size_t at) {
  return static_cast<std::uint32_t>(get16(bytes, at)) << 16U | get16(bytes, at + 2);
}
inline void set16(std::span<std::byte> bytes, std::size_t at, std::size_t number) {
  bytes[at] = static_cast<std::byte>(number >> 8U & 0xffU);
  bytes[at + 1] = static_cast<std::byte>(number & 0xffU);
}

/// RFC 1071 as its text says it, two bytes at a time.
inline std::uint16_t reference_sum(std::span<const std::byte> bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const unsigned octet = std::to_integer<unsigned>(bytes[i]);
    sum += i % 2 == 0 ? octet << 8U : octet;
    sum = (sum & 0xffffU) + (sum >> 16U);
  }
  return static_cast<std::uint16_t>(sum);
}

/// `bytes` bytes that differ from each other and, by seed, from those of other calls.
inline Bytes pattern(std::size_t bytes, unsigned seed = 1) {
  Bytes made;
  made.reserve(bytes);
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::size_t i = 0; i < bytes; ++i) {
    state = state * 1664525U + 1013904223U;
    put8(made, state >> 24U);
  }
  return made;
}

struct VlanTag {
  std::uint16_t ethertype = 0x8100;
  std::uint16_t control = 0;
};

/// An IPv6 extension header: body is what follows its first two bytes, 8n + 6 bytes.
struct Ipv6Extension {
  std::uint8_t type = 0;
  Bytes body = Bytes(6);
};

/// What lies below TCP or UDP. The defaults are a plain frame between two hosts.
struct Below {
  MacAddress destination{{0x02, 0, 0, 0, 0, 0x02}};
  MacAddress source{{0x02, 0, 0, 0, 0, 0x01}};
  std::vector<VlanTag> vlans;
  int ip_version = 4;
  Bytes ipv4_options;  // a multiple of 4, at most 40
  std::uint16_t ipv4_identification = 0x1234;
  std::uint16_t ipv4_fragment = 0x4000;  // flags and offset: don't fragment
  std::vector<Ipv6Extension> ipv6_extensions;
  /// Where the pseudo-header's destination is not the header's (a routing header).
  std::optional<std::array<std::byte, 16>> final_destination;

  [[nodiscard]] std::size_t ip_offset() const { return 14 + 4 * vlans.size(); }
  [[nodiscard]] std::size_t transport_offset() const {
    if (ip_version == 4) return ip_offset() + 20 + ipv4_options.size();
    std::size_t offset = ip_offset() + 40;
    for (const auto& extension : ipv6_extensions) offset += 2 + extension.body.size();
    return offset;
  }
  [[nodiscard]] Bytes source_address() const {
    Bytes address;
    if (ip_version == 4) {
      put32(address, 0x0a000001);
    } else {
      put32(address, 0x20010db8);
      put32(address, 0);
      put32(address, 0);
      put32(address, 1);
    }
    return address;
  }
  [[nodiscard]] Bytes destination_address() const {
    Bytes address = source_address();
    address.back() = std::byte{2};
    return address;
  }
};

struct Tcp {
  std::uint32_t sequence = 0xfffffff0;  // wraps early
  std::uint32_t acknowledgement = 0x01020304;
  std::uint8_t flags = 0x10;
  std::uint16_t urgent = 0;
  Bytes options{};  // a multiple of 4, at most 40
};

enum class Fill { complete, partial, wrong, none };

inline Bytes ethernet_frame(const Below& below, std::uint16_t ethertype, std::span<const std::byte> payload) {
  Bytes frame;
  for (const auto octet : below.destination.octets) put8(frame, octet);
  for (const auto octet : below.source.octets) put8(frame, octet);
  for (const auto& tag : below.vlans) {
    put16(frame, tag.ethertype);
    put16(frame, tag.control);
  }
  put16(frame, ethertype);
  put(frame, payload);
  return frame;
}

/// An IP packet with any protocol's bytes in it, in its frame.
inline Bytes ip_frame(const Below& below, std::uint8_t protocol, std::span<const std::byte> transport) {
  Bytes packet;
  if (below.ip_version == 4) {
    put8(packet, 0x45 + below.ipv4_options.size() / 4);
    put8(packet, 0);
    put16(packet, 20 + below.ipv4_options.size() + transport.size());
    put16(packet, below.ipv4_identification);
    put16(packet, below.ipv4_fragment);
    put8(packet, 64);
    put8(packet, protocol);
    put16(packet, 0);
    put(packet, below.source_address());
    put(packet, below.destination_address());
    put(packet, below.ipv4_options);
    set16(packet, 10, 0xffffU ^ reference_sum(packet));
    put(packet, transport);
    return ethernet_frame(below, 0x0800, packet);
  }
  put32(packet, 0x60000000);
  put16(packet, below.transport_offset() - below.ip_offset() - 40 + transport.size());
  put8(packet, below.ipv6_extensions.empty() ? protocol : below.ipv6_extensions.front().type);
  put8(packet, 64);
  put(packet, below.source_address());
  put(packet, below.destination_address());
  for (std::size_t i = 0; i < below.ipv6_extensions.size(); ++i) {
    const auto& body = below.ipv6_extensions[i].body;
    put8(packet, i + 1 < below.ipv6_extensions.size() ? below.ipv6_extensions[i + 1].type : protocol);
    put8(packet, (body.size() + 2) / 8 - 1);
    put(packet, body);
  }
  put(packet, transport);
  return ethernet_frame(below, 0x86dd, packet);
}

inline Bytes igmp(unsigned type, Below below = {}) {
  below.destination = {{0x01, 0x00, 0x5e, 0x00, 0x00, 0x16}};
  below.ipv4_options = {std::byte{0x94}, std::byte{4}, std::byte{0}, std::byte{0}};  // router alert
  Bytes message = pattern(16);
  message[0] = static_cast<std::byte>(type);
  return ip_frame(below, 2, message);
}

inline Bytes mld(unsigned type, Below below = {}) {
  below.destination = {{0x33, 0x33, 0x00, 0x00, 0x00, 0x16}};
  below.ip_version = 6;
  below.ipv6_extensions.push_back(
      {0, {std::byte{5}, std::byte{2}, std::byte{0}, std::byte{0}, std::byte{1}, std::byte{0}}});
  Bytes message = pattern(28);
  message[0] = static_cast<std::byte>(type);
  return ip_frame(below, 58, message);
}

/// The pseudo-header as it stands in the RFCs, to be summed.
inline Bytes pseudo_header(const Below& below, std::uint8_t protocol, std::size_t bytes) {
  Bytes header = below.source_address();
  if (below.final_destination) {
    put(header, *below.final_destination);
  } else {
    put(header, below.destination_address());
  }
  put32(header, bytes);
  put32(header, protocol);
  return header;
}

/// What a complete checksum's field holds; transport: from the TCP or UDP header on, its field zero.
inline std::uint16_t reference_checksum(const Below& below, std::uint8_t protocol,
                                        std::span<const std::byte> transport) {
  Bytes covered = pseudo_header(below, protocol, transport.size());
  put(covered, transport);
  return static_cast<std::uint16_t>(0xffffU ^ reference_sum(covered));
}

inline std::uint16_t filled(const Below& below, std::uint8_t protocol, std::span<const std::byte> transport,
                            Fill fill) {
  const std::uint16_t complete = reference_checksum(below, protocol, transport);
  switch (fill) {
    case Fill::complete:
      return complete == 0 && protocol == 17 ? std::uint16_t{0xffff} : complete;
    case Fill::partial:
      return reference_sum(pseudo_header(below, protocol, transport.size()));
    case Fill::wrong:
      return static_cast<std::uint16_t>(complete ^ 0x0100U);
    case Fill::none:
      break;
  }
  return 0;
}

inline Bytes tcp_frame(const Below& below, const Tcp& tcp, std::span<const std::byte> payload,
                       Fill fill = Fill::complete) {
  Bytes transport;
  put16(transport, 40000);
  put16(transport, 80);
  put32(transport, tcp.sequence);
  put32(transport, tcp.acknowledgement);
  put8(transport, (5 + tcp.options.size() / 4) << 4U);
  put8(transport, tcp.flags);
  put16(transport, 512);
  put16(transport, 0);
  put16(transport, tcp.urgent);
  put(transport, tcp.options);
  put(transport, payload);
  set16(transport, 16, filled(below, 6, transport, fill));
  return ip_frame(below, 6, transport);
}

inline Bytes udp_frame(const Below& below, std::span<const std::byte> payload, Fill fill = Fill::complete) {
  Bytes transport;
  put16(transport, 40000);
  put16(transport, 53);
  put16(transport, 8 + payload.size());
  put16(transport, 0);
  put(transport, payload);
  set16(transport, 6, filled(below, 17, transport, fill));
  return ip_frame(below, 17, transport);
}

/// Pads to the medium's 60 bytes, as a NIC does, or by more.
inline Bytes padded(Bytes frame, std::size_t to = 60, std::byte with = std::byte{0}) {
  if (frame.size() < to) frame.resize(to, with);
  return frame;
}

}  // namespace splitnic::test
