#include "iounit/vlan_membership.h"

#include "common/check.h"

namespace splitnic::iounit {

namespace {

/// A priority tag of 802.1Q alone. A tag behind it would become the outermost one where a hop or the receiver removes
/// it, and the frame would be in that VLAN.
bool is_priority_tag(const frame::EthernetHeader& header) {
  return header.vlan_id == 0 && header.vlan_tags == 1 && header.outer_tpid == frame::kEtherTypeVlan;
}

}  // namespace

VlanMembership::VlanMembership(std::optional<std::uint16_t> access, const std::vector<std::uint16_t>& trunk)
    : limited_(access || !trunk.empty()), access_(access) {
  if (access) SPLITNIC_CHECK_OP(*access, <=, 4094);
  for (const std::uint16_t vlan : trunk) {
    SPLITNIC_CHECK_OP(vlan, <=, 4094);
    trunk_.set(vlan);
  }
}

VlanMembership::Inward VlanMembership::inward(const frame::EthernetHeader& header) const {
  if (!limited_) return Inward::unchanged;
  if (header.vlan_id != 0) {
    const bool member = header.outer_tpid == frame::kEtherTypeVlan && trunk_.test(header.vlan_id & 0xfffU);
    return member ? Inward::unchanged : Inward::refuse;
  }
  if (!access_) return Inward::refuse;
  const bool tagged = header.vlan_tags != 0;
  if (tagged && !is_priority_tag(header)) return Inward::refuse;
  if (*access_ == 0) return Inward::unchanged;
  return tagged ? Inward::retag : Inward::tag;
}

std::optional<std::uint16_t> VlanMembership::outward(const frame::EthernetHeader& header) const {
  if (!limited_) return header.vlan_id;
  if (header.vlan_id == 0) {
    const bool untagged = header.vlan_tags == 0 || is_priority_tag(header);
    return access_ == 0 && untagged ? std::optional<std::uint16_t>(0) : std::nullopt;
  }
  if (untags(header)) return 0;
  const bool member = header.outer_tpid == frame::kEtherTypeVlan && trunk_.test(header.vlan_id & 0xfffU);
  return member ? std::optional(header.vlan_id) : std::nullopt;
}

}  // namespace splitnic::iounit
