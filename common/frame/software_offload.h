#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/frame/ethernet.h"

namespace splitnic::frame {

struct IpPacket;

/// Header and tags, and the largest IP packet: 40 bytes of IPv6 header before 65535 of payload.
inline constexpr std::size_t kMaxFrameBytes = kEthernetHeaderBytes + kMaxVlanTags * kVlanTagBytes + 40 + 65535;

enum class OffloadResult : std::uint8_t {
  unchanged,             ///< the sink got the frame itself
  finished,              ///< one frame: its checksum completed, or what followed an IP packet that fits cut off
  segmented,             ///< two TCP segments or more
  dropped_udp_oversize,  ///< UDP beyond the MTU: the size that it was to be cut to is lost
  dropped_malformed,     ///< no Ethernet header, or beyond the MTU with headers that can't be followed
  dropped_oversize,      ///< beyond the MTU and nothing that can be cut, or the MTU leaves no room to cut it
};

/// Takes frames: destination address first, valid during the call.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual void on_frame(std::span<const std::byte> frame) = 0;
};

/// Makes frames fit for a medium that offers no offloads. What libpcap captures from a veth or a TAP was perhaps meant
/// for an offloading NIC: its TCP or UDP checksum field holds only the folded sum of the pseudo-header (a partial
/// checksum), and a TCP frame may be larger than the MTU, to be cut by the NIC.
///
/// Complete frames within the MTU cost a look at the headers. A wrong checksum, IP fragments, other protocols and
/// malformed packets within the MTU pass as they are: a bridge doesn't repair. Never allocates after construction.
/// Thread: the owner's.
class SoftwareOffload {
 public:
  SoftwareOffload();

  /// Hands sink the frames that `frame` comes to, in order; none if dropped.
  /// frame: private bytes, lent for the call. mtu: layer-3 bytes, so that Ethernet header and VLAN tags come on top.
  OffloadResult complete(std::span<const std::byte> frame, std::uint32_t mtu, FrameSink& sink);

  /// The same with a callable of span<const byte>.
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

  std::vector<std::byte> scratch_;  // kMaxFrameBytes: the copy that is patched, or one segment
};

}  // namespace splitnic::frame
