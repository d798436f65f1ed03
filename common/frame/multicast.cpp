#include "common/frame/multicast.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "common/frame/ethernet.h"
#include "common/frame/ip.h"

namespace splitnic::frame {
namespace {

constexpr std::array<std::uint8_t, 4> kIgmpTypes{0x12, 0x16, 0x17, 0x22};  // reports v1, v2; leave; report v3
constexpr std::array<std::uint8_t, 3> kMldTypes{131, 132, 143};            // report v1; done; report v2

template <class Types>
bool contains(const Types& types, std::uint8_t type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

}  // namespace

bool is_membership_report(std::span<const std::byte> frame) {
  const auto ethernet = parse_ethernet(frame);
  // Both are sent to groups, so the destination address rules out nearly all other frames.
  if (!ethernet || ethernet->audience() != Audience::multicast || !ethernet->is_ip()) return false;
  const auto packet = parse_ip(frame, *ethernet);
  if (!packet || packet->fragment || packet->transport_offset >= std::min(packet->end, frame.size())) return false;
  const auto type = std::to_integer<std::uint8_t>(frame[packet->transport_offset]);
  if (packet->version == IpVersion::v4) return packet->protocol == IpProtocol::igmp && contains(kIgmpTypes, type);
  return packet->protocol == IpProtocol::icmpv6 && contains(kMldTypes, type);
}

}  // namespace splitnic::frame
