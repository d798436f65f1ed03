#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/frame/ethernet.h"
#include "common/frame/frame_offload.h"
#include "common/frame/ip.h"
#include "common/zeroed_memory.h"

namespace splitnic::frame {

/// Whom a FrameMerger serves: what would get the frames without it. Thread: the merger's, during its calls.
class MergerClient {
 public:
  virtual ~MergerClient() = default;
  /// Whether it is worth keeping such a frame: who gets it takes super-frames of this kind.
  [[nodiscard]] virtual bool wants_merged(const EthernetHeader& header, SegmentKind kind) = 0;
  /// The turn of a frame that was kept has come. segments: how many received frames it is made of; received_bytes: of
  /// all of them. If it is one, the frame and its metadata are as they were received (null: it came without metadata).
  /// frame: valid during the call.
  virtual void on_kept_frame(std::span<const std::byte> frame, const FrameOffload* offload, std::size_t segments,
                             std::size_t received_bytes) = 0;
};

/// Puts consecutive segments of a TCP connection together into one super-frame, and datagrams of a UDP flow (the
/// kernel's GRO, a NIC's LRO). A receiver that pays for each frame pays once. Cutting the super-frame gives the same
/// frames again, except for two things. Padding behind a packet is lost. The identifications of IPv4 are new; they mean
/// nothing in packets that must not be fragmented (RFC 6864), and no others are merged. A frame with a wrong checksum
/// is not merged, because the super-frame's checksum would hide it.
///
/// Frames of a flow stay in order; a frame of another one may pass those that are kept. Nothing is kept for longer than
/// until flush(), which the caller calls after each batch. Never allocates after construction. Thread: the owner's.
/// Source: Linux, Documentation/networking/segmentation-offloads.rst, "Generic Receive Offload".
class FrameMerger {
 public:
  FrameMerger();

  /// True: keeps a copy of the frame, until its flow ends a burst, another flow needs its place, or flush(). False: the
  /// frame is the caller's. Before that, the client has got what came earlier in the same flow. frame: private bytes,
  /// lent for the call; offload: null where its metadata is unknown; mtu: layer-3 bytes of the frame's medium.
  [[nodiscard]] bool keep(std::span<const std::byte> frame, const FrameOffload* offload, std::uint32_t mtu,
                          MergerClient& client);
  /// The client gets everything that is kept.
  void flush(MergerClient& client) {
    while (kept_ != 0) give(0, client);
  }

 private:
  /// Ethernet, tags, IPv6 and TCP, without extension headers and with all options of TCP.
  static constexpr std::size_t kMaxHeaderBytes = kEthernetHeaderBytes + kMaxVlanTags * kVlanTagBytes + 40 + 60;
  /// More flows than these at a time have few frames each in a batch.
  static constexpr std::size_t kFlows = 8;

  /// What the segments of one super-frame have in common: their headers, with zeros where they may differ.
  struct CommonHeaders {
    std::array<std::byte, kMaxHeaderBytes> bytes;
    std::size_t size = 0;
  };
  /// A received frame that may be a part of a burst: a TCP segment or a UDP datagram.
  struct Segment {
    std::span<const std::byte> received;
    std::span<const std::byte> frame;  // without what follows the packet
    const FrameOffload* offload = nullptr;
    IpPacket packet{};
    SegmentKind kind{};
    std::size_t payload_offset = 0;
    std::uint32_t sequence = 0;  // of TCP, and so the next two
    std::uint8_t flags = 0;

    [[nodiscard]] std::size_t payload_bytes() const { return frame.size() - payload_offset; }
    [[nodiscard]] std::uint32_t next_sequence() const {
      return is_udp() ? 0 : sequence + static_cast<std::uint32_t>(payload_bytes());
    }
    [[nodiscard]] bool is_udp() const { return kind == SegmentKind::udp; }
    [[nodiscard]] bool is_super_frame() const { return offload != nullptr && offload->kind != SegmentKind::none; }
  };
  struct Burst {
    std::span<std::byte> memory;  // kMaxFrameBytes
    std::size_t bytes = 0;        // of the frame there, without what followed the packet
    std::size_t received_bytes = 0;
    std::size_t segments = 0;
    std::size_t segment_bytes = 0;
    std::uint32_t next_sequence = 0;
    SegmentKind kind{};
    IpPacket packet{};  // of the first segment
    CommonHeaders headers{};
    std::optional<FrameOffload> offload{};  // of the first segment

    [[nodiscard]] std::span<std::byte> frame() const { return memory.first(bytes); }
    [[nodiscard]] std::size_t payload_offset() const { return headers.size; }
  };

  [[nodiscard]] static std::optional<Segment> segment_of(std::span<const std::byte> frame, const FrameOffload* offload,
                                                         const IpPacket& packet);
  [[nodiscard]] static CommonHeaders common_headers(const Segment& segment);
  [[nodiscard]] static bool has_good_checksums(const Segment& segment);
  [[nodiscard]] static bool may_begin(const Segment& segment, std::uint32_t mtu);
  [[nodiscard]] static bool continues(const Burst& burst, const Segment& segment);
  [[nodiscard]] static bool is_good(const Burst& burst);
  [[nodiscard]] static bool is_full(const Burst& burst);
  [[nodiscard]] static std::optional<FrameOffload> finish(Burst& burst);
  static void append(Burst& burst, const Segment& segment);
  [[nodiscard]] std::size_t find(const Segment& segment) const;
  void begin(const Segment& segment);
  void give(std::size_t place, MergerClient& client);

  ZeroedMemory memory_;
  std::array<Burst, kFlows> bursts_;
  std::size_t kept_ = 0;  // the first ones of bursts_
};

}  // namespace splitnic::frame
