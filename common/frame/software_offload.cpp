#include "common/frame/software_offload.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tl/expected.hpp>
#include <variant>

#include "common/crc32c.h"
#include "common/frame/checksum.h"
#include "common/frame/headers.h"
#include "common/frame/ip.h"
#include "common/frame/packet_headers.h"
#include "common/frame/transport.h"

namespace splitnic::frame {
namespace {

// If the MTU is not small, smaller segments mean a hostile packet, made to be cut into many (long extension headers).
constexpr std::size_t kMinSegmentPayload = 256;
constexpr std::size_t kSmallMtu = 576;
// The payload in the smallest MTU of IPv4, 68, with the largest header (RFC 791, 3.2): bounds the number of segments.
constexpr std::size_t kMinSegmentPayloadSmallMtu = 8;

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
  if (packet.protocol == IpProtocol::udp && udp_datagram_bytes(transport)) {
    const auto udp = load<UdpHeader>(transport, 0);
    if (udp.checksum.value() == 0 && packet.version == IpVersion::v4) return std::nullopt;
    return Covered{packet.transport_offset + offsetof(UdpHeader, checksum), udp.checksum.value(), udp.bytes.value()};
  }
  return std::nullopt;
}

// RFC 768: a UDP checksum of zero would mean that there is none.
std::uint16_t never_zero(std::uint16_t checksum) { return checksum == 0 ? std::uint16_t{0xffff} : checksum; }

/// A packet that can be cut, and how. Offsets as in IpPacket.
struct Cut {
  IpPacket packet;         // whose payload is cut: the frame's, or the one inside of its tunnel
  bool tunnelled = false;  // it is inside
  std::variant<TcpHeader, UdpHeader> header;
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

TcpHeader header_of(TcpHeader tcp, const Part& part) {
  tcp.sequence = tcp.sequence.value() + static_cast<std::uint32_t>(part.begin);
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

UdpHeader header_of(UdpHeader udp, const Part& part) {
  udp.bytes = static_cast<std::uint16_t>(sizeof udp + part.bytes);
  return udp;
}

// Stores the part's transport header with its checksum. segment: has the IP header of the part and its payload.
void rewrite_transport(std::span<std::byte> segment, const IpPacket& packet, TcpHeader tcp) {
  tcp.checksum = 0;
  store(segment, packet.transport_offset, tcp);
  const auto transport = segment.subspan(packet.transport_offset);
  InternetSum sum = pseudo_header_of(segment, packet, transport.size());
  tcp.checksum = sum.add(transport).checksum();
  store(segment, packet.transport_offset, tcp);
}

void rewrite_transport(std::span<std::byte> segment, const IpPacket& packet, UdpHeader udp) {
  const bool none = udp.checksum.value() == 0 && packet.version == IpVersion::v4;
  udp.checksum = 0;
  store(segment, packet.transport_offset, udp);
  if (none) return;
  const auto transport = segment.subspan(packet.transport_offset);
  InternetSum sum = pseudo_header_of(segment, packet, transport.size());
  udp.checksum = never_zero(sum.add(transport).checksum());
  store(segment, packet.transport_offset, udp);
}

// How to cut a packet that is larger than the MTU or that is to be cut by its metadata, or the result that refuses it.
tl::expected<Cut, OffloadResult> plan_cut(std::span<const std::byte> frame, const IpPacket& outer,
                                          const FrameOffload& offload, std::uint32_t mtu) {
  const auto refuse = [](OffloadResult result) { return tl::unexpected(result); };
  const auto found = offload.kind == SegmentKind::none ? outer : packet_to_cut(frame, outer, offload.kind);
  if (!found) return refuse(OffloadResult::dropped_malformed);
  const IpPacket& packet = *found;
  if (packet.fragment || packet.final_destination_unknown) return refuse(OffloadResult::dropped_oversize);
  const bool udp = packet.protocol == IpProtocol::udp;
  if (udp && offload.kind == SegmentKind::none) return refuse(OffloadResult::dropped_udp_oversize);
  if (!udp && packet.protocol != IpProtocol::tcp) return refuse(OffloadResult::dropped_oversize);
  // The new headers get new checksums, which must not hide damage of the original header.
  const bool tunnelled = packet.offset != outer.offset;
  if (!has_valid_ip_header(frame, outer) || (tunnelled && !has_valid_ip_header(frame, packet))) {
    return refuse(OffloadResult::dropped_malformed);
  }

  const auto transport = transport_bytes(frame, packet);
  const auto header_bytes = udp ? sizeof(UdpHeader) : tcp_header_bytes(transport);
  if (!header_bytes) return refuse(OffloadResult::dropped_malformed);
  Cut cut{.packet = packet,
          .tunnelled = tunnelled,
          .header = {},
          .payload_offset = packet.transport_offset + *header_bytes,
          .payload_bytes = transport.size() - *header_bytes,
          .segment_bytes = offload.segment_bytes};
  const std::size_t overhead = cut.payload_offset - outer.offset;
  if (udp) {
    if (overhead + cut.segment_bytes > mtu) return refuse(OffloadResult::dropped_udp_oversize);
    cut.header = load<UdpHeader>(transport, 0);
    return cut;
  }
  const auto tcp = load<TcpHeader>(transport, 0);
  // SYN takes a sequence number and RST voids later data, so no stack sends them in a packet to be cut.
  if ((tcp.flags & (tcp_flag::kSyn | tcp_flag::kRst)) != 0) return refuse(OffloadResult::dropped_malformed);
  const std::size_t smallest = mtu < kSmallMtu ? kMinSegmentPayloadSmallMtu : kMinSegmentPayload;
  if (mtu < overhead + smallest) return refuse(OffloadResult::dropped_oversize);
  const std::size_t room = mtu - overhead;
  cut.segment_bytes = offload.kind == SegmentKind::none ? room : std::min(cut.segment_bytes, room);
  cut.header = tcp;
  return cut;
}

// Whether the metadata asks for more than one segment. It must have been checked before.
bool is_super_frame(std::span<const std::byte> frame, const IpPacket& packet, const FrameOffload& offload) {
  if (offload.kind == SegmentKind::none) return false;
  const auto transport = transport_bytes(frame, packet_to_cut(frame, packet, offload.kind).value_or(packet));
  const std::size_t header_bytes =
      offload.kind == SegmentKind::udp ? sizeof(UdpHeader) : tcp_header_bytes(transport).value_or(transport.size());
  return transport.size() - header_bytes > offload.segment_bytes;
}

/// What is done with a frame and its metadata.
struct Way {
  OffloadResult result{};
  std::size_t fits = 0;              // bytes of a frame within the MTU
  std::optional<IpPacket> packet{};  // unless nothing is to be done
  std::optional<Cut> cut{};          // if segmented
};

Way way_of(std::span<const std::byte> frame, const FrameOffload& offload, std::uint32_t mtu) {
  if (frame.size() > kMaxFrameBytes) return {OffloadResult::dropped_oversize};
  const auto ethernet = parse_ethernet(frame);
  if (!ethernet) return {OffloadResult::dropped_malformed};
  const std::size_t fits = ethernet->payload_offset + mtu;
  if (!offload.asks_for_work() && frame.size() <= fits) return {OffloadResult::unchanged, fits};
  const auto packet = parse_whole_ip(frame, *ethernet);
  if (why_not_offload(frame, packet ? &*packet : nullptr, offload)) return {OffloadResult::dropped_bad_offload};
  if (!packet) return {ethernet->is_ip() ? OffloadResult::dropped_malformed : OffloadResult::dropped_oversize};
  if (packet->end > fits || is_super_frame(frame, *packet, offload)) {
    const auto cut = plan_cut(frame, *packet, offload, mtu);
    if (!cut) return {cut.error()};
    return {OffloadResult::segmented, fits, packet, *cut};
  }
  const bool changed = offload.partial_checksum || frame.size() > fits;
  return {changed ? OffloadResult::finished : OffloadResult::unchanged, fits, packet};
}

// packet: the frame's. scratch: kMaxFrameBytes, for one segment at a time.
void emit_segments(std::span<const std::byte> frame, const IpPacket& packet, const Cut& cut,
                   std::span<std::byte> scratch, FrameSink& sink) {
  const std::uint16_t first_identification = identification_of(frame, packet);
  const std::uint16_t first_inside = identification_of(frame, cut.packet);
  std::memcpy(scratch.data(), frame.data(), cut.payload_offset);

  Part part{};
  do {
    part.bytes = std::min(cut.segment_bytes, cut.payload_bytes - part.begin);
    part.last = part.begin + part.bytes == cut.payload_bytes;
    const auto segment = scratch.first(cut.payload_offset + part.bytes);
    std::memcpy(segment.data() + cut.payload_offset, frame.data() + cut.payload_offset + part.begin, part.bytes);
    rewrite_ip_header(segment, packet, static_cast<std::uint16_t>(first_identification + part.index));
    if (cut.tunnelled) {
      rewrite_ip_header(segment, cut.packet, static_cast<std::uint16_t>(first_inside + part.index));
    }
    std::visit([&](const auto& header) { rewrite_transport(segment, cut.packet, header_of(header, part)); },
               cut.header);
    sink.on_frame(segment);
    part.begin += part.bytes;
    ++part.index;
  } while (!part.last);
}

// frame: has an SCTP header.
void store_crc(std::span<std::byte> frame, const IpPacket& packet) {
  auto sctp = load<SctpHeader>(frame, packet.transport_offset);
  sctp.checksum = 0;
  store(frame, packet.transport_offset, sctp);
  sctp.checksum = crc32c(transport_bytes(frame, packet));
  store(frame, packet.transport_offset, sctp);
}

// Whether all of the frame is the packet, and all of the packet the TCP segment or UDP datagram.
bool is_all_transport(std::span<const std::byte> frame, const IpPacket& packet) {
  if (packet.end != frame.size()) return false;
  const auto transport = transport_bytes(frame, packet);
  return packet.protocol != IpProtocol::udp || udp_datagram_bytes(transport) == transport.size();
}

}  // namespace

UnfinishedFrame judge_unfinished(std::span<const std::byte> frame, const FrameOffload& offload, std::uint32_t mtu) {
  const Way way = way_of(frame, offload, mtu);
  UnfinishedFrame judged{.result = way.result, .offload = offload};
  if (!way.packet) {
    if (way.result == OffloadResult::unchanged) judged.longest_bytes = frame.size();
    return judged;
  }
  // The next hop would complete the Internet checksum, also where the field is that of a CRC.
  const bool sums = offload.partial_checksum && way.packet->protocol != IpProtocol::sctp;
  judged.whole = sums && is_all_transport(frame, *way.packet);
  if (!way.cut) {
    judged.longest_bytes = frame.size() <= way.fits ? frame.size() : way.packet->end;
    if (judged.whole) judged.offload.kind = SegmentKind::none;  // one segment is no super-frame
    return judged;
  }
  judged.longest_bytes = way.cut->payload_offset + std::min(way.cut->segment_bytes, way.cut->payload_bytes);
  const std::size_t full = way.cut->payload_bytes / way.cut->segment_bytes;
  judged.frames = std::max<std::uint64_t>(full + (way.cut->payload_bytes % way.cut->segment_bytes == 0 ? 0 : 1), 1);
  judged.whole = judged.whole && offload.kind != SegmentKind::none && !way.cut->tunnelled &&
                 way.cut->segment_bytes == offload.segment_bytes;
  if (judged.whole) judged.offload.header_bytes = static_cast<std::uint16_t>(way.cut->payload_offset);
  return judged;
}

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

  if (packet->end > fits) {
    const auto plan = plan_cut(frame, *packet, FrameOffload{}, mtu);
    if (!plan) return plan.error();
    emit_segments(frame, *packet, *plan, scratch_, sink);
    return OffloadResult::segmented;
  }
  if (frame.size() <= fits) return complete_checksum(frame, *packet, sink);
  // Only the bytes after the packet (a captured FCS, a trailer) exceed the MTU. Cut them off, whatever the checksum is.
  complete_checksum(frame.first(packet->end), *packet, sink);
  return OffloadResult::finished;
}

OffloadResult SoftwareOffload::complete(std::span<const std::byte> frame, const FrameOffload& offload,
                                        std::uint32_t mtu, FrameSink& sink) {
  const Way way = way_of(frame, offload, mtu);
  if (way.cut) {
    emit_segments(frame, *way.packet, *way.cut, scratch_, sink);
  } else if (way.packet) {
    // Bytes after the packet are cut off where they exceed the MTU.
    complete_checksum(frame.size() <= way.fits ? frame : frame.first(way.packet->end), *way.packet, offload, sink);
  } else if (way.result == OffloadResult::unchanged) {
    sink.on_frame(frame);
  }
  return way.result;
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
  if (packet.protocol == IpProtocol::udp) checksum = never_zero(checksum);

  const auto patched = std::span(scratch_).first(frame.size());
  std::memcpy(patched.data(), frame.data(), frame.size());
  store(patched, covered->field_offset, big_uint16_buf_t(checksum));
  sink.on_frame(patched);
  return OffloadResult::finished;
}

OffloadResult SoftwareOffload::complete_checksum(std::span<const std::byte> frame, const IpPacket& packet,
                                                 const FrameOffload& offload, FrameSink& sink) {
  if (!offload.partial_checksum) {
    sink.on_frame(frame);
    return OffloadResult::unchanged;
  }
  const auto patched = std::span(scratch_).first(frame.size());
  std::memcpy(patched.data(), frame.data(), frame.size());
  if (packet.protocol == IpProtocol::sctp) {
    store_crc(patched, packet);
    sink.on_frame(patched);
    return OffloadResult::finished;
  }
  const std::size_t field = std::size_t{offload.checksum_start} + offload.checksum_offset;
  const bool own_header = offload.checksum_start == packet.transport_offset;
  InternetSum sum;
  std::size_t covered = packet.end - offload.checksum_start;
  if (own_header && packet.protocol == IpProtocol::udp) {
    covered = udp_datagram_bytes(transport_bytes(frame, packet)).value_or(covered);
  }
  const bool has_pseudo_header = packet.protocol != IpProtocol::gre;
  if (own_header && has_pseudo_header && !packet.final_destination_unknown) {
    // The sum of the pseudo-header is computed again: the field may hold anything.
    store(patched, field, big_uint16_buf_t(0));
    sum = pseudo_header_of(frame, packet, covered);
  }
  std::uint16_t checksum = sum.add(patched.subspan(offload.checksum_start, covered)).checksum();
  if (!own_header || packet.protocol == IpProtocol::udp) checksum = never_zero(checksum);
  store(patched, field, big_uint16_buf_t(checksum));
  sink.on_frame(patched);
  return OffloadResult::finished;
}

}  // namespace splitnic::frame
