#include "common/frame/software_offload.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tl/expected.hpp>

#include "common/frame/checksum.h"
#include "common/frame/headers.h"
#include "common/frame/ip.h"

namespace splitnic::frame {
namespace {

// If the MTU is not small, smaller segments mean a hostile packet, made to be cut into many (long extension headers).
constexpr std::size_t kMinSegmentPayload = 256;
constexpr std::size_t kSmallMtu = 576;
// The payload in the smallest MTU of IPv4, 68, with the largest header (RFC 791, 3.2): bounds the number of segments.
constexpr std::size_t kMinSegmentPayloadSmallMtu = 8;

std::span<const std::byte> transport_bytes(std::span<const std::byte> frame, const IpPacket& packet) {
  return frame.subspan(packet.transport_offset, packet.end - packet.transport_offset);
}

// Bytes of the TCP header with its options. nullopt: no TCP header, or an impossible length.
std::optional<std::size_t> tcp_header_bytes(std::span<const std::byte> transport) {
  if (!holds<TcpHeader>(transport, 0)) return std::nullopt;
  const std::size_t bytes = (load<TcpHeader>(transport, 0).offset_and_reserved >> 4U) * 4U;
  if (bytes < sizeof(TcpHeader) || bytes > transport.size()) return std::nullopt;
  return bytes;
}

/// A checksum field and the range that it covers.
struct Covered {
  std::size_t field_offset;  // in the frame
  std::uint16_t field;
  std::uint16_t bytes;  // from the transport header on
};

// nullopt: no valid TCP or UDP header, or no checksum.
std::optional<Covered> covered_by_checksum(std::span<const std::byte> frame, const IpPacket& packet) {
  if (packet.fragment || packet.final_destination_unknown) return std::nullopt;
  const auto transport = transport_bytes(frame, packet);
  if (packet.protocol == IpProtocol::tcp && tcp_header_bytes(transport)) {
    return Covered{packet.transport_offset + offsetof(TcpHeader, checksum),
                   load<TcpHeader>(transport, 0).checksum.value(), static_cast<std::uint16_t>(transport.size())};
  }
  if (packet.protocol == IpProtocol::udp && holds<UdpHeader>(transport, 0)) {
    const auto udp = load<UdpHeader>(transport, 0);
    if (udp.bytes.value() < sizeof udp || udp.bytes.value() > transport.size()) return std::nullopt;
    if (udp.checksum.value() == 0 && packet.version == IpVersion::v4) return std::nullopt;
    return Covered{packet.transport_offset + offsetof(UdpHeader, checksum), udp.checksum.value(), udp.bytes.value()};
  }
  return std::nullopt;
}

InternetSum pseudo_header_of(std::span<const std::byte> frame, const IpPacket& packet, std::size_t transport_size) {
  return pseudo_header_sum(packet.source(frame), packet.destination(frame), static_cast<std::uint8_t>(packet.protocol),
                           static_cast<std::uint16_t>(transport_size));
}

/// A TCP packet that can be cut, and how. Offsets as in IpPacket.
struct Cut {
  TcpHeader tcp;
  std::size_t payload_offset;
  std::size_t payload_bytes;  // of the whole packet
  std::size_t segment_bytes;  // payload of each segment except the last
};

/// One segment's part of the payload.
struct Part {
  std::size_t begin;
  std::size_t bytes;
  std::size_t index;
  bool last;
};

TcpHeader tcp_header_of(const Cut& cut, const Part& part) {
  TcpHeader tcp = cut.tcp;
  tcp.sequence = tcp.sequence.value() + static_cast<std::uint32_t>(part.begin);
  tcp.checksum = 0;
  // RFC 3168, 6.1.2: only the first segment says CWR. PSH and FIN belong to the last byte.
  if (part.index > 0) tcp.flags &= static_cast<std::uint8_t>(~tcp_flag::kCwr);
  if (!part.last) tcp.flags &= static_cast<std::uint8_t>(~(tcp_flag::kPsh | tcp_flag::kFin));
  if ((tcp.flags & tcp_flag::kUrg) != 0) {  // the pointer counts from the segment's own sequence number
    if (tcp.urgent.value() > part.begin) {
      tcp.urgent = static_cast<std::uint16_t>(tcp.urgent.value() - part.begin);
    } else {
      tcp.urgent = 0;
      tcp.flags &= static_cast<std::uint8_t>(~tcp_flag::kUrg);
    }
  }
  return tcp;
}

// segment: has the headers of the whole packet; they become those of a packet that ends where the span ends.
void rewrite_ip_header(std::span<std::byte> segment, const IpPacket& packet, std::uint16_t identification) {
  if (packet.version == IpVersion::v6) {
    auto ip = load<Ipv6Header>(segment, packet.offset);
    ip.payload_bytes = static_cast<std::uint16_t>(segment.size() - packet.offset - sizeof ip);
    store(segment, packet.offset, ip);
    return;
  }
  auto ip = load<Ipv4Header>(segment, packet.offset);
  ip.total_bytes = static_cast<std::uint16_t>(segment.size() - packet.offset);
  ip.identification = identification;
  store(segment, packet.offset, ip);
  ip.checksum = ipv4_header_checksum(segment.subspan(packet.offset, packet.transport_offset - packet.offset));
  store(segment, packet.offset, ip);
}

// How to cut a packet that is larger than the MTU, or the result that refuses it.
tl::expected<Cut, OffloadResult> plan_cut(std::span<const std::byte> frame, const IpPacket& packet, std::uint32_t mtu) {
  if (packet.fragment || packet.final_destination_unknown) return tl::unexpected(OffloadResult::dropped_oversize);
  if (packet.protocol == IpProtocol::udp) return tl::unexpected(OffloadResult::dropped_udp_oversize);
  if (packet.protocol != IpProtocol::tcp) return tl::unexpected(OffloadResult::dropped_oversize);
  if (packet.version == IpVersion::v4) {
    // The new headers get new checksums, which must not hide damage of the original header.
    const auto header = frame.subspan(packet.offset, packet.transport_offset - packet.offset);
    if (!InternetSum().add(header).is_valid()) return tl::unexpected(OffloadResult::dropped_malformed);
  }
  const auto transport = transport_bytes(frame, packet);
  const auto header_bytes = tcp_header_bytes(transport);
  if (!header_bytes) return tl::unexpected(OffloadResult::dropped_malformed);
  const auto tcp = load<TcpHeader>(transport, 0);
  // SYN takes a sequence number and RST voids later data, so no stack sends them in a packet to be cut.
  if ((tcp.flags & (tcp_flag::kSyn | tcp_flag::kRst)) != 0) return tl::unexpected(OffloadResult::dropped_malformed);

  const std::size_t payload_offset = packet.transport_offset + *header_bytes;
  const std::size_t overhead = payload_offset - packet.offset;
  const std::size_t smallest = mtu < kSmallMtu ? kMinSegmentPayloadSmallMtu : kMinSegmentPayload;
  if (mtu < overhead + smallest) return tl::unexpected(OffloadResult::dropped_oversize);
  return Cut{.tcp = tcp,
             .payload_offset = payload_offset,
             .payload_bytes = packet.end - payload_offset,
             .segment_bytes = mtu - overhead};
}

}  // namespace

SoftwareOffload::SoftwareOffload() : scratch_(kMaxFrameBytes) {}

OffloadResult SoftwareOffload::complete(std::span<const std::byte> frame, std::uint32_t mtu, FrameSink& sink) {
  if (frame.size() > kMaxFrameBytes) return OffloadResult::dropped_oversize;
  const auto ethernet = parse_ethernet(frame);
  if (!ethernet) return OffloadResult::dropped_malformed;
  const std::size_t fits = ethernet->payload_offset + mtu;
  const auto as_it_is = [&](OffloadResult if_oversize) {
    if (frame.size() > fits) return if_oversize;
    sink.on_frame(frame);
    return OffloadResult::unchanged;
  };
  if (!ethernet->is_ip()) return as_it_is(OffloadResult::dropped_oversize);
  const auto packet = parse_ip(frame, *ethernet);
  if (!packet || packet->end > frame.size()) return as_it_is(OffloadResult::dropped_malformed);

  if (packet->end > fits) return cut_to_mtu(frame, *packet, mtu, sink);
  if (frame.size() <= fits) return complete_checksum(frame, *packet, sink);
  // Only the bytes after the packet (a captured FCS, a trailer) exceed the MTU. Cut them off, whatever the checksum is.
  complete_checksum(frame.first(packet->end), *packet, sink);
  return OffloadResult::finished;
}

OffloadResult SoftwareOffload::complete_checksum(std::span<const std::byte> frame, const IpPacket& packet,
                                                 FrameSink& sink) {
  const auto pass = [&] {
    sink.on_frame(frame);
    return OffloadResult::unchanged;
  };
  const auto covered = covered_by_checksum(frame, packet);
  if (!covered) return pass();
  InternetSum pseudo_header = pseudo_header_of(frame, packet, covered->bytes);
  if (pseudo_header.folded() != covered->field) return pass();

  // A partial checksum, or a complete one that has the same value by chance. The sum over the segment contains the
  // field, whose value is the pseudo-header's sum.
  InternetSum with_field;
  with_field.add(frame.subspan(packet.transport_offset, covered->bytes));
  if (pseudo_header.add_number(with_field.folded()).is_valid()) return pass();
  std::uint16_t checksum = with_field.checksum();
  if (checksum == 0 && packet.protocol == IpProtocol::udp) checksum = 0xffff;  // RFC 768: 0 would mean none

  const auto patched = std::span(scratch_).first(frame.size());
  std::memcpy(patched.data(), frame.data(), frame.size());
  store(patched, covered->field_offset, big_uint16_buf_t(checksum));
  sink.on_frame(patched);
  return OffloadResult::finished;
}

OffloadResult SoftwareOffload::cut_to_mtu(std::span<const std::byte> frame, const IpPacket& packet, std::uint32_t mtu,
                                          FrameSink& sink) {
  const auto plan = plan_cut(frame, packet, mtu);
  if (!plan) return plan.error();
  const Cut& cut = *plan;
  const std::uint16_t first_identification =
      packet.version == IpVersion::v4 ? load<Ipv4Header>(frame, packet.offset).identification.value() : std::uint16_t{};
  std::memcpy(scratch_.data(), frame.data(), cut.payload_offset);

  Part part{};
  do {
    part.bytes = std::min(cut.segment_bytes, cut.payload_bytes - part.begin);
    part.last = part.begin + part.bytes == cut.payload_bytes;
    const auto segment = std::span(scratch_).first(cut.payload_offset + part.bytes);
    std::memcpy(segment.data() + cut.payload_offset, frame.data() + cut.payload_offset + part.begin, part.bytes);
    rewrite_ip_header(segment, packet, static_cast<std::uint16_t>(first_identification + part.index));
    TcpHeader tcp = tcp_header_of(cut, part);
    store(segment, packet.transport_offset, tcp);
    const auto transport = segment.subspan(packet.transport_offset);
    InternetSum sum = pseudo_header_of(segment, packet, transport.size());
    tcp.checksum = sum.add(transport).checksum();
    store(segment, packet.transport_offset, tcp);
    sink.on_frame(segment);
    part.begin += part.bytes;
    ++part.index;
  } while (!part.last);
  return OffloadResult::segmented;
}

}  // namespace splitnic::frame
