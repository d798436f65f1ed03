#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/mac_address.h"

namespace splitnic::frame {

inline constexpr std::size_t kEthernetHeaderBytes = 14;
inline constexpr std::size_t kVlanTagBytes = 4;
/// Tags that are parsed; deeper tags are opaque payload. This bounds the work that a hostile frame can cause.
inline constexpr std::size_t kMaxVlanTags = 4;
/// A medium's smallest frame, without FCS. The sender to the wire pads shorter frames.
inline constexpr std::size_t kMinFrameBytes = 60;

inline constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr std::uint16_t kEtherTypeArp = 0x0806;
inline constexpr std::uint16_t kEtherTypeVlan = 0x8100;
inline constexpr std::uint16_t kEtherTypeIpv6 = 0x86dd;
inline constexpr std::uint16_t kEtherTypeServiceVlan = 0x88a8;
inline constexpr std::uint16_t kVlanIdMask = 0x0fff;

/// Whether a VLAN tag follows this EtherType.
[[nodiscard]] constexpr bool is_vlan(std::uint16_t ethertype) {
  return ethertype == kEtherTypeVlan || ethertype == kEtherTypeServiceVlan;
}

/// The kind of receivers that a destination address selects.
enum class Audience : std::uint8_t { unicast, multicast, broadcast };

/// A validated Ethernet header with the 802.1Q and 802.1ad tags after it.
struct EthernetHeader {
  MacAddress destination;
  MacAddress source;
  std::uint8_t vlan_tags = 0;
  std::uint16_t outer_tpid = 0;    ///< the EtherType of the first (outermost) tag; 0 without a tag
  std::uint16_t vlan_id = 0;       ///< of the first (outermost) tag; 0 without a tag or in a priority tag
  std::uint16_t ethertype = 0;     ///< after the tags, or is_vlan() of one more; below 0x600 it is an 802.3 length
  std::size_t payload_offset = 0;  ///< bytes of header and tags, which don't count in an MTU

  [[nodiscard]] bool is_ip() const { return ethertype == kEtherTypeIpv4 || ethertype == kEtherTypeIpv6; }
  [[nodiscard]] Audience audience() const {
    if (!destination.is_multicast()) return Audience::unicast;
    return destination.is_broadcast() ? Audience::broadcast : Audience::multicast;
  }
};

/// frame: private bytes (nobody changes them during the call) that begin with the destination address and contain at
/// least the headers. nullopt: shorter than its header and tags.
[[nodiscard]] std::optional<EthernetHeader> parse_ethernet(std::span<const std::byte> frame);

}  // namespace splitnic::frame
