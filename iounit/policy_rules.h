#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/mac_address.h"
#include "common/time.h"
#include "iounit/ip_guard.h"

namespace splitnic::iounit {

/// Limits in one direction, per second; 0: no limit. At most TokenBucket::kMaxRate.
struct RateLimits {
  std::uint64_t bytes = 0;
  std::uint64_t frames = 0;
  friend bool operator==(const RateLimits&, const RateLimits&) = default;
};

/// What one host may do.
struct HostRights {
  /// The addresses of its NIC; the first one is for a host that requests none. Nobody else may use them. Empty: any
  /// address that is free.
  std::vector<MacAddress> addresses;
  /// May send from addresses that are not its own, for a bridge behind it. An address that belongs to another host or
  /// that a station of the LAN uses stays refused.
  bool foreign_sources = false;
  bool promiscuous = false;  ///< may receive the unicast frames of all others
  bool multicast = true;     ///< may send to groups and receive from them; broadcast is no group here
  /// See VlanMembership.
  std::optional<std::uint16_t> access_vlan{};
  std::vector<std::uint16_t> trunk_vlans{};
  RateLimits send{};     ///< from the host
  RateLimits receive{};  ///< to the host
  /// Frames per second that it may send to all and to groups, because each is copied to many; 0: no limit.
  std::uint64_t broadcasts = 1000;
  std::uint64_t multicasts = 0;
  /// Frames per second to groups that are copied to other hosts; others go to the LAN alone. 0: no limit.
  std::uint64_t multicast_copies = 1000;
  IpGuard ip{};
  friend bool operator==(const HostRights&, const HostRights&) = default;
};

/// The rights of the host that comes with this name, and who may bring the name. With neither user nor group, the name
/// belongs to the user who brought it first.
struct HostRule {
  std::string name;
  std::optional<uid_t> user;
  std::optional<gid_t> group;  ///< the primary group of the process that brings it
  HostRights rights;
  /// rights.foreign_sources is that of the others: neither the host's table nor an address of its own says otherwise.
  bool inherits_foreign_sources = true;
  friend bool operator==(const HostRule&, const HostRule&) = default;
};

/// Everything that the configuration says about hosts. The default is safe without any configuration.
struct PolicyRules {
  HostRights others;            ///< of hosts without a rule
  std::vector<HostRule> hosts;  ///< names differ
  bool listed_only = false;     ///< refuse hosts without a rule
  /// Addresses of stations of the LAN, for example the gateway's. No host gets them.
  std::vector<MacAddress> lan_addresses;
  /// A host does not get an address that a station of the LAN has used within this time. 0: it may.
  Duration station_memory = std::chrono::seconds(60);
  /// An address stays its last owner's for this long after the owner has hung up.
  Duration address_hold = std::chrono::seconds(300);

  /// Allows the host this address, and only addresses that are listed for it (--allow-mac).
  void allow(const std::string& name, const MacAddress& address);
  friend bool operator==(const PolicyRules&, const PolicyRules&) = default;
};

}  // namespace splitnic::iounit
