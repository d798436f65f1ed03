#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "common/frame/software_offload.h"
#include "tests/unit/common/packet_builder.h"

namespace splitnic::test {

/// What the offload made of one frame.
struct OffloadRun {
  frame::OffloadResult result{};
  std::vector<Bytes> frames;
  bool same_memory = false;  ///< the first frame handed out lies where the input does: nothing was copied
};

inline OffloadRun in_software(const Bytes& input, std::uint32_t mtu) {
  static frame::SoftwareOffload offload;
  OffloadRun run;
  run.result = offload.complete(input, mtu, [&](std::span<const std::byte> frame) {
    if (run.frames.empty()) run.same_memory = frame.data() == input.data();
    run.frames.emplace_back(frame.begin(), frame.end());
  });
  return run;
}

/// The same with the frame's metadata. What judge_unfinished() says beforehand must come true.
inline OffloadRun in_software(const Bytes& input, const frame::FrameOffload& asked, std::uint32_t mtu) {
  static frame::SoftwareOffload offload;
  OffloadRun run;
  run.result = offload.complete(input, asked, mtu, [&](std::span<const std::byte> frame) {
    if (run.frames.empty()) run.same_memory = frame.data() == input.data();
    run.frames.emplace_back(frame.begin(), frame.end());
  });
  const auto judged = frame::judge_unfinished(input, asked, mtu);
  std::size_t longest = 0;
  for (const Bytes& made : run.frames) longest = std::max(longest, made.size());
  if (judged.result != run.result || judged.longest_bytes != longest) throw std::logic_error("judged otherwise");
  return run;
}

/// The segments of a TCP frame with at most `room` bytes of payload: each one built anew with the packet builder.
inline std::vector<Bytes> tcp_segments(const Below& below, const Tcp& tcp, const Bytes& payload, std::size_t room) {
  constexpr unsigned kFin = 0x01, kPsh = 0x08, kCwr = 0x80;
  std::vector<Bytes> segments;
  for (std::size_t begin = 0; begin < payload.size(); begin += room) {
    const std::size_t bytes = std::min(room, payload.size() - begin);
    Below segment_below = below;
    segment_below.ipv4_identification = static_cast<std::uint16_t>(below.ipv4_identification + segments.size());
    Tcp segment_tcp = tcp;
    segment_tcp.sequence = tcp.sequence + static_cast<std::uint32_t>(begin);
    unsigned flags = tcp.flags;
    if (begin > 0) flags &= 0xffU ^ kCwr;
    if (begin + bytes < payload.size()) flags &= 0xffU ^ (kFin | kPsh);
    segment_tcp.flags = static_cast<std::uint8_t>(flags);
    segments.push_back(tcp_frame(segment_below, segment_tcp, std::span(payload).subspan(begin, bytes)));
  }
  return segments;
}

/// The same for a UDP frame: its datagrams have `room` bytes of payload each, except for the last.
inline std::vector<Bytes> udp_segments(const Below& below, const Bytes& payload, std::size_t room,
                                       Fill fill = Fill::complete) {
  std::vector<Bytes> segments;
  for (std::size_t begin = 0; begin < payload.size(); begin += room) {
    Below segment_below = below;
    segment_below.ipv4_identification = static_cast<std::uint16_t>(below.ipv4_identification + segments.size());
    const std::size_t bytes = std::min(room, payload.size() - begin);
    segments.push_back(udp_frame(segment_below, std::span(payload).subspan(begin, bytes), fill));
  }
  return segments;
}

inline Below below_with(int ip_version, std::size_t vlans, std::size_t ip_options = 0) {
  Below below;
  below.ip_version = ip_version;
  below.vlans.resize(vlans, {0x8100, 7});
  if (ip_version == 4) below.ipv4_options = pattern(ip_options, 3);
  if (ip_version == 6 && ip_options > 0) below.ipv6_extensions = {{0, Bytes(6)}, {60, Bytes(14)}};
  return below;
}

}  // namespace splitnic::test
