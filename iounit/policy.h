#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/bridge/bridge.h"
#include "iounit/ownership.h"
#include "iounit/policy_rules.h"
#include "iounit/shared_addresses.h"

namespace splitnic::iounit {

/// Decides who may come with which name and use which address: from the rules, from who owns names and addresses, and
/// from the stations that the LAN has shown. The unit asks it at every hello and every change of an address, and for
/// every frame whose source is not the sender's own address. It remembers at most 4096 stations of the LAN; if there
/// are more, it forgets those that were silent longest. Copies share these stations, which may be heard and asked for
/// by several threads, each with its copy; all else of a policy or of a copy is for one thread at a time.
class Policy {
 public:
  /// seed: unpredictable to hosts and LAN.
  Policy(PolicyRules rules, std::uint64_t seed);

  [[nodiscard]] const PolicyRules& rules() const { return known_->rules; }
  void set_rules(PolicyRules rules);
  /// Whether both have the rules of the same set_rules(): one is a copy of the other.
  [[nodiscard]] bool has_rules_of(const Policy& other) const { return known_ == other.known_; }
  [[nodiscard]] const HostRights& rights_of(const std::string& name) const;

  /// Why this process may not bring a host of this name; nullopt: it may. process: nullopt if nobody attests it.
  [[nodiscard]] std::optional<std::string> why_not_name(const std::string& name,
                                                        const std::optional<fabric::BridgePeer>& process) const;
  /// Whether somebody behind another host's bridge uses the address: the unit's forwarding table knows.
  using UsedBehindAnother = std::function<bool(const MacAddress&)>;
  /// Why the host of this name may not use this address (of one station); nullopt: it may. behind_another: asked for
  /// addresses that are neither configured for the host, nor held for it, nor derived from its known name. Empty: none
  /// is used so.
  [[nodiscard]] std::optional<std::string> why_not_address(const std::string& name, const MacAddress& address, Time now,
                                                           const UsedBehindAnother& behind_another = {}) const;
  /// The address for a host that requests none; nullopt: none is free.
  [[nodiscard]] std::optional<MacAddress> address_for(const std::string& name, Time now,
                                                      const UsedBehindAnother& behind_another = {}) const;

  /// Whether the address is another host's: in use, held or configured.
  [[nodiscard]] bool is_another_hosts(const MacAddress& address, const std::string& name, Time now) const;
  /// Whether the configuration gives the address to a host of another name.
  [[nodiscard]] bool is_configured_for_another(const MacAddress& address, const std::string& name) const {
    return configured_for_another(address, name) != nullptr;
  }
  /// Whether the address is configured for a station of the LAN.
  [[nodiscard]] bool is_lan_address(const MacAddress& address) const;
  /// Whether the address is a LAN station's: configured, or heard there recently.
  [[nodiscard]] bool is_lan_stations(const MacAddress& address, Time now) const;

  /// A frame with this source has come from the LAN. All copies know it then.
  void heard_on_lan(const MacAddress& source, Time now) const { stations_->learn(source, 0, kLanSide, now); }
  /// The host is admitted, or has changed its address; the last one is held for it. unit: where it is attached.
  void attach(const std::string& name, const std::optional<fabric::BridgePeer>& process, const MacAddress& address,
              Time now, UnitNumber unit = {});
  /// Whether a host of this name is attached to another unit than this one.
  [[nodiscard]] bool is_attached_elsewhere(const std::string& name, UnitNumber unit) const;
  /// The host has hung up.
  void detach(const std::string& name, Time now) {
    ++changes_;
    ownership_.detach(name, now + rules().address_hold);
  }
  /// Grows whenever a copy may no longer answer as this policy does, stations apart.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

  /// Counts as a change: the caller may make one.
  [[nodiscard]] Ownership& ownership() {
    ++changes_;
    return ownership_;
  }
  [[nodiscard]] const Ownership& ownership() const { return ownership_; }

 private:
  /// Rules, and where names and addresses stand in them: they are looked up for frames, and a policy may have thousands
  /// of hosts. Nobody changes them.
  struct Known {
    explicit Known(PolicyRules of);
    Known(const Known&) = delete;
    Known& operator=(const Known&) = delete;
    PolicyRules rules;
    boost::unordered_flat_map<std::string_view, const HostRule*> by_name;
    boost::unordered_flat_map<std::uint64_t, std::vector<const HostRule*>> by_address;
  };
  /// Null: the name has no rule.
  [[nodiscard]] const HostRule* rule_of(const std::string& name) const;
  [[nodiscard]] const HostRule* configured_for_another(const MacAddress& address, const std::string& name) const;

  std::shared_ptr<const Known> known_;
  Ownership ownership_;
  std::uint64_t changes_ = 0;
  std::shared_ptr<SharedAddresses> stations_;  ///< of the LAN, in any VLAN
};

}  // namespace splitnic::iounit
