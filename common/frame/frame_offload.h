#pragma once

#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tl/expected.hpp>

namespace splitnic::frame {

struct IpPacket;

/// What a super-frame is cut into.
enum class SegmentKind : std::uint8_t { none, tcp_v4, tcp_v6, udp };

/// What the sender of a frame left to the NIC. Offsets count from the frame's first byte. The default: nothing, the
/// frame is complete. The values come from a kernel or a peer and may be anything: see why_not_offload().
/// Source: virtio 1.2, 5.1.6.
struct FrameOffload {
  bool partial_checksum = false;      ///< the checksum's field holds the sum of the pseudo-header only
  std::uint16_t checksum_start = 0;   ///< the first byte that the checksum covers
  std::uint16_t checksum_offset = 0;  ///< of the checksum's field, from checksum_start
  SegmentKind kind = SegmentKind::none;
  std::uint16_t segment_bytes = 0;  ///< of TCP or UDP payload in each segment; the last may have less
  std::uint16_t header_bytes = 0;   ///< a hint, which must lie within the frame; the headers themselves decide

  [[nodiscard]] bool asks_for_work() const { return partial_checksum || kind != SegmentKind::none; }
  friend bool operator==(const FrameOffload&, const FrameOffload&) = default;
};

/// The metadata of a frame into whose addresses' end `bytes` were put; negative: taken out. Offsets that don't fit
/// become the nearest that do, and then fit no frame.
[[nodiscard]] FrameOffload moved_by(const FrameOffload& offload, std::ptrdiff_t bytes);

/// How many frames a super-frame claims to be: its length by its segments', rounded up. Any other frame counts as one.
/// The metadata need not be checked, so this is for a first look; the MTU may require more: UnfinishedFrame::frames.
[[nodiscard]] constexpr std::uint64_t counts_as_frames(std::size_t frame_bytes, const FrameOffload& offload) {
  if (offload.kind == SegmentKind::none || offload.segment_bytes == 0) return 1;
  return (frame_bytes + offload.segment_bytes - 1) / offload.segment_bytes;
}

/// Why offload metadata is refused.
enum class OffloadFault : std::uint8_t {
  unknown_flags,       ///< of the virtio-net header
  unknown_kind,        ///< a kind of segmentation that has no SegmentKind
  header_outside,      ///< header_bytes is beyond the frame
  not_ip,              ///< no IP packet, or not all of it is in the frame
  fragment,            ///< an IP fragment has no transport header of its own to complete
  checksum_outside,    ///< the checksum's field is beyond the packet
  checksum_position,   ///< not the field of this TCP, UDP, SCTP or GRE header, nor inside of a tunnel's payload
  kind_mismatch,       ///< the packet is not of that IP version or protocol, nor is the one inside of its tunnel
  transport_header,    ///< the header is cut off, has an impossible length, or has no checksum
  segment_size_zero,   ///< of a kind that needs one
  segments_too_small,  ///< too many segments of too few bytes: made to multiply the frame
};
/// The enumerator's name.
[[nodiscard]] std::string_view to_string(OffloadFault fault);

/// Why the metadata does not fit its frame; nullopt: it does, or asks for nothing. Work in software then writes
/// nothing in front of the transport header except IP's lengths, identification and checksum (of both IP headers where
/// a tunnel's TCP is cut), and no more than a checksum into a frame that is not cut. So addresses, ports and tags that
/// were judged before stay as they were. frame: private bytes, lent for the call. Any thread.
[[nodiscard]] std::optional<OffloadFault> why_not_offload(std::span<const std::byte> frame,
                                                          const FrameOffload& offload);
/// The same for a caller that has parsed the packet; null: not IP, malformed, or not all of it is in the frame.
[[nodiscard]] std::optional<OffloadFault> why_not_offload(std::span<const std::byte> frame, const IpPacket* packet,
                                                          const FrameOffload& offload);

/// The packet of which a super-frame of this kind is made: the frame's own, or the one inside of its tunnel, which
/// receiving merges for TCP (GRO). packet: the frame's own, its end within the frame. nullopt: neither is of that kind.
[[nodiscard]] std::optional<IpPacket> packet_to_cut(std::span<const std::byte> frame, const IpPacket& packet,
                                                    SegmentKind kind);

/// The header in front of a frame, as a packet socket or a TAP carries it. Source: virtio 1.2, 5.1.6, the legacy
/// format; linux/virtio_net.h.
struct VirtioNetHeader {
  std::uint8_t flags;
  std::uint8_t kind;
  boost::endian::little_uint16_buf_t header_bytes;
  boost::endian::little_uint16_buf_t segment_bytes;
  boost::endian::little_uint16_buf_t checksum_start;
  boost::endian::little_uint16_buf_t checksum_offset;
};
static_assert(sizeof(VirtioNetHeader) == 10 && alignof(VirtioNetHeader) == 1);
static_assert(offsetof(VirtioNetHeader, segment_bytes) == 4 && offsetof(VirtioNetHeader, checksum_offset) == 8);

/// What a header asks for. Fields that its flags and kind don't use are left out. Errors: unknown_flags, unknown_kind.
/// Any thread.
[[nodiscard]] tl::expected<FrameOffload, OffloadFault> parse_virtio_net_header(const VirtioNetHeader& header);
/// The header that asks for this. All zeros: the frame is complete.
[[nodiscard]] VirtioNetHeader make_virtio_net_header(const FrameOffload& offload);

}  // namespace splitnic::frame
