#include "common/frame/frame_offload.h"

#include <algorithm>
#include <boost/describe/enum.hpp>
#include <boost/describe/enum_to_string.hpp>

#include <limits>

#include "common/frame/ip.h"
#include "common/frame/transport.h"

namespace splitnic::frame {
namespace {

// Fewer payload bytes in each segment are refused, unless the segments are few: merging of received frames (GRO) makes
// super-frames of single bytes, but not of many.
constexpr std::size_t kMinSegmentBytes = 8;
constexpr std::size_t kMaxSmallSegments = 128;
// A tunnel's own header, in front of which no checksum of its payload starts (RFC 2784; VXLAN and others have a UDP
// header and 8 bytes).
constexpr std::size_t kMinTunnelHeaderBytes = 4;

namespace virtio {
constexpr std::uint8_t kNeedsChecksum = 0x01;
constexpr std::uint8_t kChecksumValid = 0x02;
constexpr std::uint8_t kSegmentNone = 0;
constexpr std::uint8_t kSegmentTcpV4 = 1;
constexpr std::uint8_t kSegmentTcpV6 = 4;
constexpr std::uint8_t kSegmentUdp = 5;
constexpr std::uint8_t kSegmentEcn = 0x80;
}  // namespace virtio

bool has_gre_checksum(std::span<const std::byte> transport) {
  return holds<GreChecksummed>(transport, 0) &&
         (load<GreHeader>(transport, 0).flags_and_version.value() & kGreHasChecksum) != 0;
}

// Where a checksum may be completed: the field of the packet's own TCP, UDP, SCTP or GRE header, or anything in the
// payload of a tunnel. The sender could have written that payload itself.
std::optional<OffloadFault> why_not_checksum(std::span<const std::byte> transport, const IpPacket& packet,
                                             const FrameOffload& offload) {
  const std::size_t field = std::size_t{offload.checksum_start} + offload.checksum_offset;
  if (field + sizeof(std::uint16_t) > packet.end) return OffloadFault::checksum_outside;
  // The sum takes words from checksum_start on; the field must be one of them.
  if (offload.checksum_offset % 2 != 0 || offload.checksum_start < packet.transport_offset) {
    return OffloadFault::checksum_position;
  }
  const std::size_t inside = offload.checksum_start - packet.transport_offset;
  const bool own_header = inside == 0;
  switch (packet.protocol) {
    case IpProtocol::tcp:
      if (!own_header || offload.checksum_offset != offsetof(TcpHeader, checksum)) break;
      if (!tcp_header_bytes(transport)) return OffloadFault::transport_header;
      return std::nullopt;
    case IpProtocol::udp:
      if (own_header ? offload.checksum_offset != offsetof(UdpHeader, checksum) : inside < sizeof(UdpHeader)) break;
      if (!udp_datagram_bytes(transport)) return OffloadFault::transport_header;
      return std::nullopt;
    case IpProtocol::sctp:
      if (!own_header || offload.checksum_offset != offsetof(SctpHeader, checksum)) break;
      if (!holds<SctpHeader>(transport, 0)) return OffloadFault::transport_header;
      return std::nullopt;
    case IpProtocol::gre:
      if (inside >= kMinTunnelHeaderBytes) return std::nullopt;
      // Linux leaves GRE's own checksum to the NIC where it leaves none inside.
      if (!own_header || offload.checksum_offset != offsetof(GreChecksummed, checksum)) break;
      if (!has_gre_checksum(transport)) return OffloadFault::transport_header;
      return std::nullopt;
    default:
      if (is_tunnel(packet.protocol) && inside >= kMinTunnelHeaderBytes) return std::nullopt;
  }
  return OffloadFault::checksum_position;
}

bool is_of_kind(const IpPacket& packet, SegmentKind kind) {
  switch (kind) {
    case SegmentKind::tcp_v4:
      return packet.version == IpVersion::v4 && packet.protocol == IpProtocol::tcp;
    case SegmentKind::tcp_v6:
      return packet.version == IpVersion::v6 && packet.protocol == IpProtocol::tcp;
    case SegmentKind::udp:
      return packet.protocol == IpProtocol::udp;
    case SegmentKind::none:
      break;
  }
  return false;
}

std::optional<OffloadFault> why_not_segments(std::span<const std::byte> transport, const IpPacket& packet,
                                             const FrameOffload& offload) {
  if (offload.partial_checksum && offload.checksum_start != packet.transport_offset) {
    return OffloadFault::checksum_position;
  }
  std::optional<std::size_t> header_bytes;
  if (offload.kind != SegmentKind::udp) {
    header_bytes = tcp_header_bytes(transport);
  } else if (udp_datagram_bytes(transport) == transport.size()) {
    header_bytes = sizeof(UdpHeader);
  }
  if (!header_bytes) return OffloadFault::transport_header;
  if (offload.segment_bytes == 0) return OffloadFault::segment_size_zero;
  const std::size_t payload_bytes = transport.size() - *header_bytes;
  if (offload.segment_bytes < kMinSegmentBytes && payload_bytes > kMaxSmallSegments * offload.segment_bytes) {
    return OffloadFault::segments_too_small;
  }
  return std::nullopt;
}

}  // namespace

std::optional<IpPacket> packet_to_cut(std::span<const std::byte> frame, const IpPacket& packet, SegmentKind kind) {
  if (is_of_kind(packet, kind)) return packet;
  if (kind == SegmentKind::udp) return std::nullopt;
  auto inside = parse_tunnelled(frame, packet);
  if (inside && !is_of_kind(*inside, kind)) inside.reset();
  return inside;
}

BOOST_DESCRIBE_ENUM(OffloadFault, unknown_flags, unknown_kind, header_outside, not_ip, fragment, checksum_outside,
                    checksum_position, kind_mismatch, transport_header, segment_size_zero, segments_too_small)

std::string_view to_string(OffloadFault fault) { return boost::describe::enum_to_string(fault, "unknown"); }

FrameOffload moved_by(const FrameOffload& offload, std::ptrdiff_t bytes) {
  const auto moved = [&](std::uint16_t offset) {
    constexpr std::ptrdiff_t kMax = std::numeric_limits<std::uint16_t>::max();
    return static_cast<std::uint16_t>(std::clamp<std::ptrdiff_t>(offset + bytes, 0, kMax));
  };
  FrameOffload result = offload;
  if (offload.partial_checksum) result.checksum_start = moved(offload.checksum_start);
  if (offload.kind != SegmentKind::none) result.header_bytes = moved(offload.header_bytes);
  return result;
}

std::optional<OffloadFault> why_not_offload(std::span<const std::byte> frame, const IpPacket* packet,
                                            const FrameOffload& offload) {
  if (!offload.asks_for_work()) return std::nullopt;
  if (offload.header_bytes > frame.size()) return OffloadFault::header_outside;
  if (packet == nullptr) return OffloadFault::not_ip;
  if (packet->fragment) return OffloadFault::fragment;
  const auto transport = transport_bytes(frame, *packet);
  if (offload.partial_checksum) {
    if (const auto fault = why_not_checksum(transport, *packet, offload)) return fault;
  }
  if (offload.kind == SegmentKind::none) return std::nullopt;
  const auto cut = packet_to_cut(frame, *packet, offload.kind);
  if (!cut) return OffloadFault::kind_mismatch;
  return why_not_segments(transport_bytes(frame, *cut), *cut, offload);
}

std::optional<OffloadFault> why_not_offload(std::span<const std::byte> frame, const FrameOffload& offload) {
  const auto packet = parse_whole_ip(frame);
  return why_not_offload(frame, packet ? &*packet : nullptr, offload);
}

tl::expected<FrameOffload, OffloadFault> parse_virtio_net_header(const VirtioNetHeader& header) {
  if ((header.flags & ~(virtio::kNeedsChecksum | virtio::kChecksumValid)) != 0) {
    return tl::unexpected(OffloadFault::unknown_flags);
  }
  FrameOffload offload;
  offload.partial_checksum = (header.flags & virtio::kNeedsChecksum) != 0;
  if (offload.partial_checksum) {
    offload.checksum_start = header.checksum_start.value();
    offload.checksum_offset = header.checksum_offset.value();
  }
  switch (header.kind) {
    case virtio::kSegmentNone:
      return offload;
    case virtio::kSegmentTcpV4:
    case virtio::kSegmentTcpV4 | virtio::kSegmentEcn:
      offload.kind = SegmentKind::tcp_v4;
      break;
    case virtio::kSegmentTcpV6:
    case virtio::kSegmentTcpV6 | virtio::kSegmentEcn:
      offload.kind = SegmentKind::tcp_v6;
      break;
    case virtio::kSegmentUdp:
      offload.kind = SegmentKind::udp;
      break;
    default:
      return tl::unexpected(OffloadFault::unknown_kind);
  }
  offload.segment_bytes = header.segment_bytes.value();
  offload.header_bytes = header.header_bytes.value();
  return offload;
}

VirtioNetHeader make_virtio_net_header(const FrameOffload& offload) {
  VirtioNetHeader header{};
  if (offload.partial_checksum) {
    header.flags = virtio::kNeedsChecksum;
    header.checksum_start = offload.checksum_start;
    header.checksum_offset = offload.checksum_offset;
  }
  switch (offload.kind) {
    case SegmentKind::none:
      return header;
    case SegmentKind::tcp_v4:
      header.kind = virtio::kSegmentTcpV4;
      break;
    case SegmentKind::tcp_v6:
      header.kind = virtio::kSegmentTcpV6;
      break;
    case SegmentKind::udp:
      header.kind = virtio::kSegmentUdp;
      break;
  }
  header.segment_bytes = offload.segment_bytes;
  header.header_bytes = offload.header_bytes;
  return header;
}

}  // namespace splitnic::frame
