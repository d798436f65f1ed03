#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/frame/ethernet.h"

namespace splitnic::iounit {

/// The VLANs that one host belongs to, as a port of a switch does. Frames of the access VLAN are untagged at the host
/// and tagged on the LAN; frames of trunk VLANs are tagged at both. Only tags of 802.1Q (0x8100) count. Without access
/// VLAN and trunk VLANs the host is in every VLAN, and its frames stay as they are. Thread: the unit's. Source: IEEE
/// 802.1Q-2018, 6.9 (tagging and untagging).
class VlanMembership {
 public:
  VlanMembership() = default;
  /// access: 0 is the LAN's untagged network; nullopt: the host's untagged frames are refused. Each at most 4094.
  VlanMembership(std::optional<std::uint16_t> access, const std::vector<std::uint16_t>& trunk);

  /// What the unit does with a frame of the host.
  enum class Inward : std::uint8_t {
    unchanged,
    tag,     ///< insert the tag of the access VLAN
    retag,   ///< put the access VLAN into its priority tag
    refuse,  ///< the host is not in this VLAN
  };
  [[nodiscard]] Inward inward(const frame::EthernetHeader& header) const;
  /// The VLAN of a frame of the LAN (or of another host after inward()) as the host sees it, 0 for untagged; nullopt:
  /// the host is not in the frame's VLAN.
  [[nodiscard]] std::optional<std::uint16_t> outward(const frame::EthernetHeader& header) const;
  /// Whether the frame's tag is the access VLAN's, which the host does not see.
  [[nodiscard]] bool untags(const frame::EthernetHeader& header) const {
    return limited_ && access_.value_or(0) != 0 && is_tag_of(header, *access_);
  }
  [[nodiscard]] std::uint16_t access() const { return access_.value_or(0); }

 private:
  [[nodiscard]] static bool is_tag_of(const frame::EthernetHeader& header, std::uint16_t vlan) {
    return header.vlan_id == vlan && header.outer_tpid == frame::kEtherTypeVlan;
  }

  bool limited_ = false;
  std::optional<std::uint16_t> access_;
  std::bitset<4096> trunk_;
};

}  // namespace splitnic::iounit
