#pragma once

#include <cstdint>
#include <vector>

#include "common/frame/software_offload.h"
#include "tests/unit/common/packet_builder.h"

namespace splitnic::test {

/// What a offload made of one frame.
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

inline Below below_with(int ip_version, std::size_t vlans, std::size_t ip_options = 0) {
  Below below;
  below.ip_version = ip_version;
  below.vlans.resize(vlans, {0x8100, 7});
  if (ip_version == 4) below.ipv4_options = pattern(ip_options, 3);
  if (ip_version == 6 && ip_options > 0) below.ipv6_extensions = {{0, Bytes(6)}, {60, Bytes(14)}};
  return below;
}

}  // namespace splitnic::test
