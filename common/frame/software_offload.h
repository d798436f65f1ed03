#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/frame/ethernet.h"

namespace splitnic::frame {

struct IpPacket;

/// Header, tags and the largest IP packet: an IPv6 header of 40 bytes and 65535 bytes of payload.
inline constexpr std::size_t kMaxFrameBytes = kEthernetHeaderBytes + kMaxVlanTags * kVlanTagBytes + 40 + 65535;

enum class OffloadResult : std::uint8_t {
  unchanged,             ///< the sink got the frame itself
  finished,              ///< the sink got one frame: its checksum was completed, or bytes after the IP packet cut off
  segmented,             ///< the sink got two or more TCP segments
  dropped_udp_oversize,  ///< UDP beyond the MTU: the intended segment size is unknown
  dropped_malformed,     ///< no Ethernet header, or beyond the MTU with malformed headers
  dropped_oversize,      ///< beyond the MTU and can't be cut, or the MTU leaves no room for segments
};

/// Takes frames. frame: begins with the destination address; valid during the call.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual void on_frame(std::span<const std::byte> frame) = 0;
};

/// Software checksum and segmentation, for a medium without offloads. libpcap may capture frames from a veth or a TAP
/// that were meant for an offloading NIC: the TCP or UDP checksum field holds only the folded sum of the pseudo-header
/// (a partial checksum), and a TCP frame may be larger than the MTU, for the NIC to cut.
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

  /// The same with a callable that takes span<const byte>.
  template <class Emit>
  requires std::invocable<Emit&, std::span<const std::byte>> OffloadResult complete(std::span<const std::byte> frame,
                                                                                    std::uint32_t mtu, Emit&& emit) {
    struct CallingSink final : FrameSink {
      explicit CallingSink(Emit& emit_to) : emit_(emit_to) {}
      void on_frame(std::span<const std::byte> finished) override { emit_(finished); }
      Emit& emit_;
    } sink(emit);
    return complete(frame, mtu, static_cast<FrameSink&>(sink));
  }

 private:
  OffloadResult complete_checksum(std::span<const std::byte> frame, const IpPacket& packet, FrameSink& sink);
  OffloadResult cut_to_mtu(std::span<const std::byte> frame, const IpPacket& packet, std::uint32_t mtu,
                           FrameSink& sink);

  std::vector<std::byte> scratch_;  // kMaxFrameBytes: the copy with a completed checksum, or one segment
};

}  // namespace splitnic::frame
