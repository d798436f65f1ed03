#include "common/frame/frame_merger.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/frame/checksum.h"
#include "common/frame/headers.h"
#include "common/frame/packet_headers.h"
#include "common/frame/software_offload.h"
#include "common/frame/transport.h"

namespace splitnic::frame {
namespace {

// Whoever cuts a super-frame takes smaller segments for a hostile packet.
constexpr std::size_t kLeastTcpPayload = 256;
constexpr std::size_t kLeastUdpPayload = 8;
// A kernel that knows super-frames of UDP takes so many datagrams in one. The headers count, too (counts_as_frames).
constexpr std::size_t kMaxDatagrams = 64;
// An IP packet's length is a number of 16 bits.
constexpr std::size_t kMaxPacketBytes = 65535;
constexpr std::size_t kBufferBytes = (kMaxFrameBytes + 63) / 64 * 64;

std::size_t checksum_offset_of(SegmentKind kind) {
  return kind == SegmentKind::udp ? offsetof(UdpHeader, checksum) : offsetof(TcpHeader, checksum);
}

bool has_ip_options(const IpPacket& packet) {
  const std::size_t plain = packet.version == IpVersion::v4 ? sizeof(Ipv4Header) : sizeof(Ipv6Header);
  return packet.transport_offset - packet.offset != plain;
}

bool may_be_fragmented(std::span<const std::byte> frame, const IpPacket& packet) {
  if (packet.version == IpVersion::v6) return false;
  return load<Ipv4Header>(frame, packet.offset).flags_and_fragment.value() != kIpv4DontFragment;
}

}  // namespace

FrameMerger::FrameMerger() : memory_(kFlows * kBufferBytes) {
  for (std::size_t flow = 0; flow < kFlows; ++flow) {
    bursts_[flow].memory = memory_.bytes().subspan(flow * kBufferBytes, kBufferBytes);
  }
}

bool FrameMerger::keep(std::span<const std::byte> frame, const FrameOffload* offload, std::uint32_t mtu,
                       MergerClient& client) {
  const auto header = parse_ethernet(frame);
  if (!header || !header->is_ip()) return false;
  const auto packet = parse_whole_ip(frame, *header);
  if (!packet) return false;
  const auto segment = segment_of(frame, offload, *packet);
  if (!segment) {
    // A fragment, say: it may be of any flow that is kept.
    const bool has_flow = packet->protocol == IpProtocol::tcp || packet->protocol == IpProtocol::udp;
    if (packet->fragment || has_flow) flush(client);
    return false;
  }
  if (const std::size_t place = find(*segment); place != kept_) {
    Burst& burst = bursts_[place];
    if (continues(burst, *segment)) {
      append(burst, *segment);
      const bool last = (segment->flags & tcp_flag::kPsh) != 0 || segment->payload_bytes() < burst.segment_bytes;
      if (last || is_full(burst)) give(place, client);
      return true;
    }
    give(place, client);
  }
  if (!may_begin(*segment, mtu) || !client.wants_merged(*header, segment->kind)) return false;
  if (kept_ == bursts_.size()) give(0, client);
  begin(*segment);
  return true;
}

/// nullopt: nothing that could belong to a burst.
std::optional<FrameMerger::Segment> FrameMerger::segment_of(std::span<const std::byte> frame,
                                                            const FrameOffload* offload, const IpPacket& packet) {
  if (packet.fragment) return std::nullopt;
  Segment segment{.received = frame, .frame = frame.first(packet.end), .offload = offload, .packet = packet};
  const auto transport = transport_bytes(frame, packet);
  if (packet.protocol == IpProtocol::tcp) {
    const auto header_bytes = tcp_header_bytes(transport);
    if (!header_bytes) return std::nullopt;
    const auto tcp = load<TcpHeader>(transport, 0);
    segment.kind = packet.version == IpVersion::v4 ? SegmentKind::tcp_v4 : SegmentKind::tcp_v6;
    segment.payload_offset = packet.transport_offset + *header_bytes;
    segment.sequence = tcp.sequence.value();
    segment.flags = tcp.flags;
    return segment;
  }
  if (packet.protocol != IpProtocol::udp || udp_datagram_bytes(transport) != transport.size()) return std::nullopt;
  segment.kind = SegmentKind::udp;
  segment.payload_offset = packet.transport_offset + sizeof(UdpHeader);
  return segment;
}

FrameMerger::CommonHeaders FrameMerger::common_headers(const Segment& segment) {
  CommonHeaders common;
  common.size = segment.payload_offset;
  SPLITNIC_CHECK_OP(common.size, <=, common.bytes.size());
  std::memcpy(common.bytes.data(), segment.frame.data(), common.size);
  const auto may_differ = [&](std::size_t offset, std::size_t bytes) {
    std::memset(common.bytes.data() + offset, 0, bytes);
  };
  const std::size_t ip = segment.packet.offset;
  if (segment.packet.version == IpVersion::v4) {
    may_differ(ip + offsetof(Ipv4Header, total_bytes), sizeof(Ipv4Header::total_bytes));
    may_differ(ip + offsetof(Ipv4Header, identification), sizeof(Ipv4Header::identification));
    may_differ(ip + offsetof(Ipv4Header, checksum), sizeof(Ipv4Header::checksum));
  } else {
    may_differ(ip + offsetof(Ipv6Header, payload_bytes), sizeof(Ipv6Header::payload_bytes));
  }
  const std::size_t transport = segment.packet.transport_offset;
  may_differ(transport + checksum_offset_of(segment.kind), sizeof(TcpHeader::checksum));
  if (segment.is_udp()) {
    may_differ(transport + offsetof(UdpHeader, bytes), sizeof(UdpHeader::bytes));
  } else {
    may_differ(transport + offsetof(TcpHeader, sequence), sizeof(TcpHeader::sequence));
    common.bytes[transport + offsetof(TcpHeader, flags)] &= ~std::byte{tcp_flag::kPsh};
  }
  return common;
}

/// Of both headers. The transport's may be left to the receiver's side: metadata says so, or else the field's value.
bool FrameMerger::has_good_checksums(const Segment& segment) {
  const IpPacket& packet = segment.packet;
  if (!has_valid_ip_header(segment.frame, packet)) return false;
  const FrameOffload* offload = segment.offload;
  const std::size_t field_offset = checksum_offset_of(segment.kind);
  const auto transport = transport_bytes(segment.frame, packet);
  const std::uint16_t field = load<big_uint16_buf_t>(transport, field_offset).value();
  InternetSum sum = pseudo_header_of(segment.frame, packet, transport.size());
  const bool is_partial = field == sum.folded();
  if (offload != nullptr && offload->partial_checksum) {
    return is_partial && offload->checksum_start == packet.transport_offset && offload->checksum_offset == field_offset;
  }
  if (offload == nullptr && is_partial) return true;
  if (segment.is_udp() && field == 0) return false;  // it has none
  return sum.add(transport).is_valid();
}

/// A segment that says PSH ends a burst, so that none begins with it: nothing is known to follow it.
bool FrameMerger::may_begin(const Segment& segment, std::uint32_t mtu) {
  const bool usual = segment.is_udp() ? segment.payload_bytes() >= kLeastUdpPayload
                                      : segment.flags == tcp_flag::kAck && segment.payload_bytes() >= kLeastTcpPayload;
  const bool has_room = segment.received.size() <= kMaxFrameBytes &&  // for a second one
                        segment.frame.size() + segment.payload_bytes() - segment.packet.offset <= kMaxPacketBytes;
  return usual && has_room && !segment.is_super_frame() && segment.frame.size() <= segment.packet.offset + mtu &&
         !has_ip_options(segment.packet) && !may_be_fragmented(segment.frame, segment.packet);
}

bool FrameMerger::continues(const Burst& burst, const Segment& segment) {
  const std::size_t bytes = segment.payload_bytes();
  if (segment.sequence != burst.next_sequence || bytes == 0 || bytes > burst.segment_bytes) return false;
  if (segment.payload_offset != burst.payload_offset() || segment.is_super_frame()) return false;
  const CommonHeaders headers = common_headers(segment);
  const bool same = std::memcmp(headers.bytes.data(), burst.headers.bytes.data(), headers.size) == 0;
  return same && has_good_checksums(segment) && (burst.segments > 1 || is_good(burst));
}

/// The first segment is checked when a second one comes: many have none.
bool FrameMerger::is_good(const Burst& burst) {
  return has_good_checksums({.received = burst.frame(),
                             .frame = burst.frame(),
                             .offload = burst.offload ? &*burst.offload : nullptr,
                             .packet = burst.packet,
                             .kind = burst.kind,
                             .payload_offset = burst.payload_offset()});
}

/// There is no room for one more.
bool FrameMerger::is_full(const Burst& burst) {
  const std::size_t bytes = burst.bytes + burst.segment_bytes;
  if (burst.kind == SegmentKind::udp && bytes > kMaxDatagrams * burst.segment_bytes) return true;
  return bytes - burst.packet.offset > kMaxPacketBytes;
}

/// The place of its flow's burst; kept_: there is none.
std::size_t FrameMerger::find(const Segment& segment) const {
  const auto ports = [](std::span<const std::byte> frame, const IpPacket& packet) {
    return frame.subspan(packet.transport_offset, 2 * sizeof(TcpHeader::source_port));
  };
  std::size_t place = 0;
  for (; place != kept_; ++place) {
    const Burst& burst = bursts_[place];
    const std::span<const std::byte> frame = burst.frame();
    if (burst.packet.protocol == segment.packet.protocol &&
        std::ranges::equal(ports(frame, burst.packet), ports(segment.frame, segment.packet)) &&
        std::ranges::equal(burst.packet.source(frame), segment.packet.source(segment.frame)) &&
        std::ranges::equal(burst.packet.destination(frame), segment.packet.destination(segment.frame))) {
      break;
    }
  }
  return place;
}

void FrameMerger::begin(const Segment& segment) {
  Burst& burst = bursts_[kept_++];
  burst.bytes = segment.frame.size();
  burst.received_bytes = segment.received.size();
  burst.segments = 1;
  burst.segment_bytes = segment.payload_bytes();
  burst.next_sequence = segment.next_sequence();
  burst.kind = segment.kind;
  burst.packet = segment.packet;
  burst.headers = common_headers(segment);
  burst.offload = segment.offload != nullptr ? std::optional(*segment.offload) : std::nullopt;
  // All of it: it may stay alone.
  std::ranges::copy(segment.received, burst.memory.begin());
}

void FrameMerger::append(Burst& burst, const Segment& segment) {
  const auto payload = segment.frame.subspan(segment.payload_offset);
  SPLITNIC_CHECK_OP(burst.bytes + payload.size(), <=, burst.memory.size());
  std::memcpy(burst.memory.data() + burst.bytes, payload.data(), payload.size());
  burst.bytes += payload.size();
  burst.received_bytes += segment.received.size();
  ++burst.segments;
  burst.next_sequence = segment.next_sequence();
  if ((segment.flags & tcp_flag::kPsh) != 0) {
    burst.memory[burst.packet.transport_offset + offsetof(TcpHeader, flags)] |= std::byte{tcp_flag::kPsh};
  }
}

/// Makes a super-frame of several segments; returns the frame's metadata.
std::optional<FrameOffload> FrameMerger::finish(Burst& burst) {
  if (burst.segments == 1) return burst.offload;
  const IpPacket& packet = burst.packet;
  const auto frame = burst.frame();
  const std::size_t transport_size = frame.size() - packet.transport_offset;
  rewrite_ip_header(frame, packet, identification_of(frame, packet));
  if (burst.kind == SegmentKind::udp) {
    auto udp = load<UdpHeader>(frame, packet.transport_offset);
    udp.bytes = static_cast<std::uint16_t>(transport_size);
    store(frame, packet.transport_offset, udp);
  }
  const std::size_t field_offset = checksum_offset_of(burst.kind);
  store(frame, packet.transport_offset + field_offset,
        big_uint16_buf_t(pseudo_header_of(frame, packet, transport_size).folded()));
  return FrameOffload{.partial_checksum = true,
                      .checksum_start = static_cast<std::uint16_t>(packet.transport_offset),
                      .checksum_offset = static_cast<std::uint16_t>(field_offset),
                      .kind = burst.kind,
                      .segment_bytes = static_cast<std::uint16_t>(burst.segment_bytes),
                      .header_bytes = static_cast<std::uint16_t>(burst.payload_offset())};
}

void FrameMerger::give(std::size_t place, MergerClient& client) {
  // Its place is the next one's; the order among flows stays.
  std::rotate(bursts_.begin() + static_cast<std::ptrdiff_t>(place),
              bursts_.begin() + static_cast<std::ptrdiff_t>(place) + 1,
              bursts_.begin() + static_cast<std::ptrdiff_t>(kept_));
  Burst& burst = bursts_[--kept_];
  const auto offload = finish(burst);
  const auto frame = burst.segments == 1 ? burst.memory.first(burst.received_bytes) : burst.frame();
  client.on_kept_frame(frame, offload ? &*offload : nullptr, burst.segments, burst.received_bytes);
}

}  // namespace splitnic::frame
