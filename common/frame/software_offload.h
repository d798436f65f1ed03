#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/frame/ethernet.h"
#include "common/frame/frame_offload.h"

namespace splitnic::frame {

/// Header, tags and the largest IP packet: an IPv6 header of 40 bytes and 65535 bytes of payload.
inline constexpr std::size_t kMaxFrameBytes = kEthernetHeaderBytes + kMaxVlanTags * kVlanTagBytes + 40 + 65535;

enum class OffloadResult : std::uint8_t {
  unchanged,             ///< the sink got the frame itself
  finished,              ///< the sink got one frame: its checksum was completed, or bytes after the IP packet cut off
  segmented,             ///< the sink got two or more segments
  dropped_udp_oversize,  ///< UDP beyond the MTU: the intended segment size is unknown, or beyond the MTU too
  dropped_malformed,     ///< no Ethernet header, or beyond the MTU with malformed headers
  dropped_oversize,      ///< beyond the MTU and can't be cut, or the MTU leaves no room for segments
  dropped_bad_offload,   ///< the metadata does not fit the frame (why_not_offload)
};

/// What becomes of a frame with metadata that asks for work, which may be hostile.
struct UnfinishedFrame {
  OffloadResult result{};         ///< what SoftwareOffload::complete() gives with the same MTU
  bool whole = false;             ///< a hop that finishes frames of this kind itself may get the frame as it is
  FrameOffload offload{};         ///< for that hop, or for complete(); if whole, header_bytes is what the headers have
  std::size_t longest_bytes = 0;  ///< of the frames that it becomes, with header and tags; 0 if it is dropped
  std::uint64_t frames = 1;       ///< how many frames it becomes where it is cut; 1 if it is dropped

  /// So many bytes were put behind the frame's addresses.
  void grow(std::size_t bytes) {
    offload = moved_by(offload, static_cast<std::ptrdiff_t>(bytes));
    longest_bytes += bytes;
  }
};
/// Judges a frame as SoftwareOffload::complete() does, without the work. A frame is whole only if a kernel or a NIC
/// makes the same frames from it: its checksum is left to the hop too and is no CRC (SCTP), no byte follows the packet,
/// and its segments fit the MTU. frame, mtu: as for complete(). Any thread.
[[nodiscard]] UnfinishedFrame judge_unfinished(std::span<const std::byte> frame, const FrameOffload& offload,
                                               std::uint32_t mtu);

/// Takes frames. frame: begins with the destination address; valid during the call.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual void on_frame(std::span<const std::byte> frame) = 0;
};

/// Software checksum and segmentation, for a next hop without offloads. A frame that was meant for an offloading NIC
/// may have a partial checksum, where the TCP or UDP checksum field holds only the folded sum of the pseudo-header, and
/// may be a super-frame, larger than the MTU, for the NIC to cut. With metadata (FrameOffload) the frame says so
/// itself. libpcap has none: there a partial checksum is recognised by its value, and TCP is cut to the MTU.
///
/// A complete frame within the MTU costs only a parse of its headers. Wrong checksums, IP fragments, other protocols
/// and malformed packets within the MTU pass unchanged, because a bridge doesn't repair. Never allocates after
/// construction. Thread: the owner's.
class SoftwareOffload {
 public:
  SoftwareOffload();

  /// Gives `sink` the frames made from `frame`, in order; none if dropped.
  /// frame: private bytes, lent for the call. mtu: layer-3 bytes, without Ethernet header and VLAN tags.
  OffloadResult complete(std::span<const std::byte> frame, std::uint32_t mtu, FrameSink& sink);
  /// The same with the frame's metadata, which may be hostile. Segments of TCP have at most segment_bytes of payload,
  /// and fewer where the MTU requires that; datagrams of UDP have exactly segment_bytes, except for the last.
  OffloadResult complete(std::span<const std::byte> frame, const FrameOffload& offload, std::uint32_t mtu,
                         FrameSink& sink);

  /// The same with a callable that takes span<const byte>.
  template <class Emit>
  requires std::invocable<Emit&, std::span<const std::byte>> OffloadResult complete(std::span<const std::byte> frame,
                                                                                    std::uint32_t mtu, Emit&& emit) {
    CallingSink<Emit> sink(emit);
    return complete(frame, mtu, static_cast<FrameSink&>(sink));
  }
  template <class Emit>
  requires std::invocable<Emit&, std::span<const std::byte>> OffloadResult complete(std::span<const std::byte> frame,
                                                                                    const FrameOffload& offload,
                                                                                    std::uint32_t mtu, Emit&& emit) {
    CallingSink<Emit> sink(emit);
    return complete(frame, offload, mtu, static_cast<FrameSink&>(sink));
  }

 private:
  template <class Emit>
  struct CallingSink final : FrameSink {
    explicit CallingSink(Emit& emit_to) : emit(emit_to) {}
    void on_frame(std::span<const std::byte> finished) override { emit(finished); }
    Emit& emit;
  };

  OffloadResult complete_checksum(std::span<const std::byte> frame, const IpPacket& packet, FrameSink& sink);
  OffloadResult complete_checksum(std::span<const std::byte> frame, const IpPacket& packet, const FrameOffload& offload,
                                  FrameSink& sink);

  std::vector<std::byte> scratch_;  // kMaxFrameBytes: the copy with a completed checksum, or one segment
};

}  // namespace splitnic::frame
