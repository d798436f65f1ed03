#pragma once

#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "common/check.h"

/// Headers with their layout in a frame: packed, byte order by type, no alignment. Parsers copy them out with load().
namespace splitnic::frame {

using boost::endian::big_uint16_buf_t;
using boost::endian::big_uint32_buf_t;
using boost::endian::little_uint32_buf_t;

enum class IpProtocol : std::uint8_t {
  hop_by_hop = 0,
  igmp = 2,
  ipv4_tunnel = 4,
  tcp = 6,
  udp = 17,
  ipv6_tunnel = 41,
  routing = 43,
  fragment = 44,
  gre = 47,
  icmpv6 = 58,
  destination_options = 60,
  sctp = 132,
};

/// RFC 791, without options.
struct Ipv4Header {
  std::uint8_t version_and_words;
  std::uint8_t traffic_class;
  big_uint16_buf_t total_bytes;
  big_uint16_buf_t identification;
  big_uint16_buf_t flags_and_fragment;
  std::uint8_t time_to_live;
  std::uint8_t protocol;
  big_uint16_buf_t checksum;
  std::uint8_t source[4];
  std::uint8_t destination[4];
};
static_assert(sizeof(Ipv4Header) == 20 && alignof(Ipv4Header) == 1 && std::is_trivially_copyable_v<Ipv4Header>);
static_assert(offsetof(Ipv4Header, checksum) == 10 && offsetof(Ipv4Header, source) == 12);

inline constexpr std::uint16_t kIpv4DontFragment = 0x4000;
inline constexpr std::uint16_t kIpv4MoreFragments = 0x2000;
inline constexpr std::uint16_t kIpv4FragmentOffset = 0x1fff;

/// RFC 8200.
struct Ipv6Header {
  big_uint32_buf_t version_class_label;
  big_uint16_buf_t payload_bytes;
  std::uint8_t next_header;
  std::uint8_t hop_limit;
  std::uint8_t source[16];
  std::uint8_t destination[16];
};
static_assert(sizeof(Ipv6Header) == 40 && alignof(Ipv6Header) == 1 && std::is_trivially_copyable_v<Ipv6Header>);

/// The first four bytes of a hop-by-hop, routing or destination options header (RFC 8200, 4.3 to 4.6). Only a routing
/// header has the last two.
struct Ipv6ExtensionHeader {
  std::uint8_t next_header;
  std::uint8_t eights_after_first;
  std::uint8_t routing_type;
  std::uint8_t segments_left;
};
static_assert(sizeof(Ipv6ExtensionHeader) == 4 && std::is_trivially_copyable_v<Ipv6ExtensionHeader>);

/// RFC 9293, without options.
struct TcpHeader {
  big_uint16_buf_t source_port;
  big_uint16_buf_t destination_port;
  big_uint32_buf_t sequence;
  big_uint32_buf_t acknowledgement;
  std::uint8_t offset_and_reserved;
  std::uint8_t flags;
  big_uint16_buf_t window;
  big_uint16_buf_t checksum;
  big_uint16_buf_t urgent;
};
static_assert(sizeof(TcpHeader) == 20 && alignof(TcpHeader) == 1 && std::is_trivially_copyable_v<TcpHeader>);
static_assert(offsetof(TcpHeader, flags) == 13 && offsetof(TcpHeader, checksum) == 16);

namespace tcp_flag {
inline constexpr std::uint8_t kFin = 0x01;
inline constexpr std::uint8_t kSyn = 0x02;
inline constexpr std::uint8_t kRst = 0x04;
inline constexpr std::uint8_t kPsh = 0x08;
inline constexpr std::uint8_t kAck = 0x10;
inline constexpr std::uint8_t kUrg = 0x20;
inline constexpr std::uint8_t kCwr = 0x80;
}  // namespace tcp_flag

/// RFC 768.
struct UdpHeader {
  big_uint16_buf_t source_port;
  big_uint16_buf_t destination_port;
  big_uint16_buf_t bytes;
  big_uint16_buf_t checksum;
};
static_assert(sizeof(UdpHeader) == 8 && alignof(UdpHeader) == 1 && std::is_trivially_copyable_v<UdpHeader>);
static_assert(offsetof(UdpHeader, checksum) == 6);

/// RFC 9260, 3.1. The checksum is CRC-32C, little-endian (appendix A).
struct SctpHeader {
  big_uint16_buf_t source_port;
  big_uint16_buf_t destination_port;
  big_uint32_buf_t verification_tag;
  little_uint32_buf_t checksum;
};
static_assert(sizeof(SctpHeader) == 12 && alignof(SctpHeader) == 1 && std::is_trivially_copyable_v<SctpHeader>);
static_assert(offsetof(SctpHeader, checksum) == 8);

/// RFC 2784. A checksum may follow (GreChecksummed), and a key (RFC 2890).
struct GreHeader {
  big_uint16_buf_t flags_and_version;
  big_uint16_buf_t protocol;
};
static_assert(sizeof(GreHeader) == 4 && alignof(GreHeader) == 1 && std::is_trivially_copyable_v<GreHeader>);

/// With the checksum that kGreHasChecksum announces. It covers this header and the payload, and no pseudo-header.
struct GreChecksummed {
  GreHeader header;
  big_uint16_buf_t checksum;
  big_uint16_buf_t reserved;
};
static_assert(sizeof(GreChecksummed) == 8 && offsetof(GreChecksummed, checksum) == 4);

inline constexpr std::uint16_t kGreHasChecksum = 0x8000;
inline constexpr std::uint16_t kGreHasKey = 0x2000;
inline constexpr std::size_t kGreKeyBytes = 4;

/// Whether IP or anything else travels inside of such a packet.
[[nodiscard]] constexpr bool is_tunnel(IpProtocol protocol) {
  return protocol == IpProtocol::ipv4_tunnel || protocol == IpProtocol::ipv6_tunnel || protocol == IpProtocol::gre;
}

/// Whether a Header starts at offset and ends within bytes.
template <class Header>
[[nodiscard]] constexpr bool holds(std::span<const std::byte> bytes, std::size_t offset) {
  return offset <= bytes.size() && bytes.size() - offset >= sizeof(Header);
}

/// Copies out the Header at offset, which must lie within bytes.
template <class Header>
[[nodiscard]] Header load(std::span<const std::byte> bytes, std::size_t offset) {
  static_assert(std::is_trivially_copyable_v<Header>);
  SPLITNIC_CHECK(holds<Header>(bytes, offset));
  Header header;
  std::memcpy(&header, bytes.data() + offset, sizeof header);
  return header;
}

/// Writes the header at offset; bytes must have room for it.
template <class Header>
void store(std::span<std::byte> bytes, std::size_t offset, const Header& header) {
  static_assert(std::is_trivially_copyable_v<Header>);
  SPLITNIC_CHECK(holds<Header>(bytes, offset));
  std::memcpy(bytes.data() + offset, &header, sizeof header);
}

}  // namespace splitnic::frame
