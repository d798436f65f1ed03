// Whatever metadata comes with a frame: what the offload hands out fits the MTU, keeps the addresses, tags and ports
// that were judged before, and metadata that does not fit its frame yields nothing. A frame passes whole only with
// metadata that fits it.
// Input: MTU, 16 bits little-endian, a virtio-net header of 10 bytes, then the frame.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "common/check.h"
#include "common/frame/ethernet.h"
#include "common/frame/frame_offload.h"
#include "common/frame/ip.h"
#include "common/frame/software_offload.h"

namespace {

using splitnic::frame::IpVersion;
using splitnic::frame::OffloadResult;

struct CheckingSink final : splitnic::frame::FrameSink {
  void on_frame(std::span<const std::byte> finished) override {
    ++frames;
    const auto header = splitnic::frame::parse_ethernet(finished);
    SPLITNIC_CHECK(header.has_value());
    SPLITNIC_CHECK_OP(finished.size(), <=, header->payload_offset + mtu);
    SPLITNIC_CHECK_OP(finished.size(), <=, frame.size());
    const auto packet = splitnic::frame::parse_whole_ip(frame);
    // Without an IP packet the frame itself comes out.
    const std::size_t ip = packet ? packet->offset : frame.size();
    // Inside of a tunnel, the IP header is of each segment, too.
    const std::size_t ports = packet && !splitnic::frame::is_tunnel(packet->protocol) ? 4 : 0;
    const std::size_t judged = packet ? std::min(packet->transport_offset + ports, finished.size()) : finished.size();
    for (std::size_t at = 0; at < judged; ++at) {
      const std::size_t in_ip = at - ip;
      const bool may =
          at >= ip && (packet->version == IpVersion::v4 ? (in_ip >= 2 && in_ip < 6) || in_ip == 10 || in_ip == 11
                                                        : in_ip == 4 || in_ip == 5);
      SPLITNIC_CHECK(may || finished[at] == frame[at]);
    }
  }

  std::span<const std::byte> frame;
  std::uint32_t mtu = 0;
  std::size_t frames = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  splitnic::frame::VirtioNetHeader header;
  if (size < 2 + sizeof header) return 0;
  CheckingSink sink;
  sink.mtu = data[0] | static_cast<std::uint32_t>(data[1]) << 8U;
  std::memcpy(&header, data + 2, sizeof header);
  sink.frame = std::as_bytes(std::span(data + 2 + sizeof header, size - 2 - sizeof header));
  const auto offload = splitnic::frame::parse_virtio_net_header(header);
  if (!offload) return 0;

  // A hop that gets the frame whole gets metadata that fits it, and segments within the MTU.
  const auto judged = splitnic::frame::judge_unfinished(sink.frame, *offload, sink.mtu);
  if (judged.whole) {
    SPLITNIC_CHECK(!why_not_offload(sink.frame, judged.offload));
    const auto again = splitnic::frame::judge_unfinished(sink.frame, judged.offload, sink.mtu);
    SPLITNIC_CHECK(again.whole && again.result == judged.result && again.offload == judged.offload);
    SPLITNIC_CHECK_OP(judged.longest_bytes, <=, splitnic::frame::parse_ethernet(sink.frame)->payload_offset + sink.mtu);
  }

  static splitnic::frame::SoftwareOffload software;
  const auto result = software.complete(sink.frame, *offload, sink.mtu, sink);
  SPLITNIC_CHECK(result == judged.result);
  switch (result) {
    case OffloadResult::unchanged:
    case OffloadResult::finished:
      SPLITNIC_CHECK_OP(sink.frames, ==, 1U);
      break;
    case OffloadResult::segmented:
      SPLITNIC_CHECK_OP(sink.frames, >=, 2U);
      break;
    case OffloadResult::dropped_bad_offload:
      SPLITNIC_CHECK(why_not_offload(sink.frame, *offload).has_value());
      [[fallthrough]];
    default:
      SPLITNIC_CHECK_OP(sink.frames, ==, 0U);
  }
  return 0;
}
