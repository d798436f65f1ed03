#include "iounit/receive_filter.h"

#include <algorithm>

namespace splitnic::iounit {

bool ReceiveFilter::set_unicast(std::span<const MacAddress> own) {
  const auto unusable = [](const MacAddress& mac) { return mac.is_multicast() || mac.is_zero(); };
  if (own.size() > kMaxUnicast || std::any_of(own.begin(), own.end(), unusable)) return false;
  unicast_.clear();
  for (const MacAddress& mac : own) unicast_.insert(mac.as_number());
  return true;
}

bool ReceiveFilter::set_multicast(std::span<const MacAddress> groups) {
  const auto unusable = [](const MacAddress& mac) { return !mac.is_multicast(); };
  if (groups.size() > kMaxMulticast || std::any_of(groups.begin(), groups.end(), unusable)) return false;
  multicast_.clear();
  for (const MacAddress& mac : groups) multicast_.insert(mac.as_number());
  return true;
}

bool ReceiveFilter::set_vlans(std::optional<std::span<const std::uint16_t>> vlans) {
  if (vlans) {
    const auto unusable = [](std::uint16_t vlan) { return vlan == 0 || vlan > 4094; };
    if (std::any_of(vlans->begin(), vlans->end(), unusable)) return false;
    vlans_.reset();
    for (const std::uint16_t vlan : *vlans) vlans_.set(vlan);
  }
  filter_vlans_ = vlans.has_value();
  return true;
}

}  // namespace splitnic::iounit
