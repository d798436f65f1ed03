#pragma once

#include <bitset>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/mac_address.h"

namespace splitnic::iounit {

/// Decides which frames of the LAN and of other hosts one host receives, as its NIC's receive filter would. Initially
/// it accepts only broadcast. accepts() takes constant time and allocates nothing; the setters replace a whole list and
/// allocate. Thread: the driver's owner. Source: S1 CfgUtil; virtio 1.2, 5.1.6.5.1 (packet receive filtering).
class ReceiveFilter {
 public:
  static constexpr std::size_t kMaxUnicast = 256;
  static constexpr std::size_t kMaxMulticast = 1024;

  /// Sets the host's own addresses. False, and no change: too many, or one is multicast or zero.
  [[nodiscard]] bool set_unicast(std::span<const MacAddress> own);
  /// Sets the joined groups. False, and no change: too many (set all-multicast instead), or one is unicast.
  [[nodiscard]] bool set_multicast(std::span<const MacAddress> groups);
  void set_all_multicast(bool on) { all_multicast_ = on; }
  /// Accepts every address; the VLAN filter still applies.
  void set_promiscuous(bool on) { promiscuous_ = on; }

  /// Limits tagged frames to these VLANs (1..4094). nullopt, the initial value: no limit. Untagged and priority-tagged
  /// (0) frames always pass. False, and no change: a number out of range.
  [[nodiscard]] bool set_vlans(std::optional<std::span<const std::uint16_t>> vlans);

  /// vlan: of the frame's outermost tag, 0 without one.
  [[nodiscard]] bool accepts_vlan(std::uint16_t vlan) const {
    return vlan == 0 || !filter_vlans_ || vlans_.test(vlan & 0xfffU);
  }
  /// vlan: as above.
  [[nodiscard]] bool accepts(const MacAddress& destination, std::uint16_t vlan) const {
    if (!accepts_vlan(vlan)) return false;
    if (promiscuous_ || destination.is_broadcast()) return true;
    if (destination.is_multicast()) return all_multicast_ || multicast_.contains(destination.as_number());
    return unicast_.contains(destination.as_number());
  }

 private:
  using Addresses = boost::unordered_flat_set<std::uint64_t>;
  Addresses unicast_;
  Addresses multicast_;
  std::bitset<4096> vlans_;
  bool filter_vlans_ = false;
  bool all_multicast_ = false;
  bool promiscuous_ = false;
};

}  // namespace splitnic::iounit
