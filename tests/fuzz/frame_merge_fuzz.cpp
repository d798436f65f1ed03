// Whatever frames come, a merger loses none and invents none: what it gives is what it got, but for padding behind a
// packet; and a super-frame is one that a hop may get whole, and is cut into the segments that it was made of.
// Input: MTU, 16 bits little-endian, then frames, each behind its length, 16 bits little-endian, and a byte that says
// whether its checksum was left to the NIC (1), is complete (2), or nobody knows.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/frame/frame_merger.h"
#include "common/frame/headers.h"
#include "common/frame/ip.h"
#include "common/frame/software_offload.h"

namespace {

using splitnic::frame::FrameOffload;
using Frame = std::vector<std::byte>;

/// Without padding, and with zeros in what cutting makes anew: IPv4's identification and both checksums.
Frame comparable(std::span<const std::byte> bytes) {
  Frame frame(bytes.begin(), bytes.end());
  const auto packet = splitnic::frame::parse_whole_ip(frame);
  SPLITNIC_CHECK(packet.has_value());
  frame.resize(packet->end);
  const auto zero = [&](std::size_t at) {
    std::fill_n(frame.begin() + static_cast<std::ptrdiff_t>(at), 2, std::byte{});
  };
  if (packet->version == splitnic::frame::IpVersion::v4) {
    zero(packet->offset + offsetof(splitnic::frame::Ipv4Header, identification));
    zero(packet->offset + offsetof(splitnic::frame::Ipv4Header, checksum));
  }
  zero(packet->transport_offset + offsetof(splitnic::frame::TcpHeader, checksum));
  return frame;
}

struct Client final : splitnic::frame::MergerClient {
  bool wants_merged(const splitnic::frame::EthernetHeader&, splitnic::frame::SegmentKind) override { return true; }
  void on_kept_frame(std::span<const std::byte> frame, const FrameOffload* offload, std::size_t segments,
                     std::size_t received_bytes) override {
    SPLITNIC_CHECK(segments >= 1);
    given += segments;
    SPLITNIC_CHECK(segments == 1 ? frame.size() == received_bytes : frame.size() < received_bytes);
    if (segments == 1) return take(comparable(frame));
    SPLITNIC_CHECK(offload != nullptr && splitnic::frame::judge_unfinished(frame, *offload, mtu).whole);
    static splitnic::frame::SoftwareOffload software;
    std::size_t cut = 0;
    software.complete(frame, *offload, mtu, [&](std::span<const std::byte> segment) {
      ++cut;
      take(comparable(segment));
    });
    SPLITNIC_CHECK_OP(cut, ==, segments);
  }
  /// It is one of those that were kept.
  void take(const Frame& frame) {
    const auto one = std::ranges::find(kept, frame);
    SPLITNIC_CHECK(one != kept.end());
    kept.erase(one);
  }

  std::uint32_t mtu = 0;
  std::deque<Frame> kept;
  std::size_t given = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static splitnic::frame::FrameMerger merger;
  Client client;
  client.mtu = data[0] | static_cast<std::uint32_t>(data[1]) << 8U;
  auto left = std::as_bytes(std::span(data + 2, size - 2));
  std::size_t kept = 0;
  while (left.size() >= 3) {
    const auto length = std::to_integer<std::size_t>(left[0]) | std::to_integer<std::size_t>(left[1]) << 8U;
    const auto knows = std::to_integer<unsigned>(left[2]);
    const Frame frame(left.begin() + 3,
                      left.begin() + 3 + static_cast<std::ptrdiff_t>(std::min(length, left.size() - 3)));
    left = left.subspan(3 + frame.size());
    FrameOffload offload;
    if (const auto packet = splitnic::frame::parse_whole_ip(frame); knows == 1 && packet) {
      offload = {.partial_checksum = true,
                 .checksum_start = static_cast<std::uint16_t>(packet->transport_offset),
                 .checksum_offset = offsetof(splitnic::frame::TcpHeader, checksum)};
    }
    // A frame that ends a burst is given within the call, so it is noted before.
    const bool comparable_frame = [&] {
      const auto packet = splitnic::frame::parse_whole_ip(frame);
      return packet && packet->transport_offset + sizeof(splitnic::frame::TcpHeader) <= packet->end;
    }();
    if (comparable_frame) client.kept.push_back(comparable(frame));
    if (merger.keep(frame, knows == 0 ? nullptr : &offload, client.mtu, client)) {
      SPLITNIC_CHECK(comparable_frame);
      ++kept;
    } else if (comparable_frame) {
      client.kept.pop_back();
    }
  }
  merger.flush(client);
  SPLITNIC_CHECK_OP(client.given, ==, kept);
  SPLITNIC_CHECK(client.kept.empty());
  return 0;
}
