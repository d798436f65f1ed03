#include "iounit/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace splitnic::iounit {

namespace {

bool contains(const std::vector<MacAddress>& list, const MacAddress& address) {
  return std::ranges::find(list, address) != list.end();
}

std::optional<uid_t> user_of(const std::optional<fabric::BridgePeer>& process) {
  return process ? std::optional(process->uid) : std::nullopt;
}

constexpr std::size_t kStations = 4096;
// How many addresses the unit tries for a host that requests none.
constexpr unsigned kDerivedAddresses = 16;

}  // namespace

void PolicyRules::allow(const std::string& name, const MacAddress& address) {
  auto at = std::ranges::find(hosts, name, &HostRule::name);
  if (at == hosts.end()) {
    at = hosts.insert(hosts.end(), HostRule{.name = name, .user = {}, .group = {}, .rights = others});
  }
  if (std::exchange(at->inherits_foreign_sources, false)) at->rights.foreign_sources = false;
  if (!contains(at->rights.addresses, address)) at->rights.addresses.push_back(address);
}

Policy::Known::Known(PolicyRules of) : rules(std::move(of)) {
  for (const HostRule& rule : rules.hosts) {
    by_name.try_emplace(rule.name, &rule);
    for (const MacAddress& address : rule.rights.addresses) by_address[address.as_number()].push_back(&rule);
  }
}

Policy::Policy(PolicyRules rules, std::uint64_t seed)
    : known_(std::make_shared<const Known>(std::move(rules))),
      stations_(std::make_shared<SharedAddresses>(kStations, seed)) {}

void Policy::set_rules(PolicyRules rules) {
  ++changes_;
  known_ = std::make_shared<const Known>(std::move(rules));
}

const HostRule* Policy::rule_of(const std::string& name) const {
  const auto at = known_->by_name.find(name);
  return at == known_->by_name.end() ? nullptr : at->second;
}

const HostRights& Policy::rights_of(const std::string& name) const {
  const HostRule* const rule = rule_of(name);
  return rule != nullptr ? rule->rights : rules().others;
}

std::optional<std::string> Policy::why_not_name(const std::string& name,
                                                const std::optional<fabric::BridgePeer>& process) const {
  const HostRule* const rule = rule_of(name);
  if (rule == nullptr && rules().listed_only) return "the policy does not list this host";
  if (rule != nullptr && (rule->user || rule->group)) {
    const bool theirs =
        process && ((rule->user && *rule->user == process->uid) || (rule->group && *rule->group == process->gid));
    if (theirs) return std::nullopt;
    return "the policy gives this name to another user";
  }
  const OwnedName* const owned = ownership_.find(name);
  if (owned == nullptr || owned->user == user_of(process)) {
    return std::nullopt;
  }
  return owned->user ? fmt::format("the name belongs to user {}", *owned->user) : "the name belongs to another host";
}

const HostRule* Policy::configured_for_another(const MacAddress& address, const std::string& name) const {
  const auto owners = known_->by_address.find(address.as_number());
  if (owners == known_->by_address.end()) return nullptr;
  const auto at = std::ranges::find_if(owners->second, [&](const HostRule* rule) { return rule->name != name; });
  return at == owners->second.end() ? nullptr : *at;
}

std::optional<std::string> Policy::why_not_address(const std::string& name, const MacAddress& address, Time now,
                                                   const UsedBehindAnother& behind_another) const {
  const std::string what = "address " + to_string(address);
  const auto& own = rights_of(name).addresses;
  const bool configured = contains(own, address);
  if (!configured && !own.empty()) return fmt::format("it may not use {}", what);
  const OwnedName* const holder = ownership_.holder_of(address, now);
  const bool another = holder != nullptr && holder->name != name;
  const bool in_use = holder != nullptr && holder->held_until == kNever && holder->address == address;
  if (another && in_use) return what + fmt::format(" is host {}'s", holder->name);
  if (configured) return std::nullopt;
  if (is_lan_address(address)) return what + " is configured for a station of the LAN";
  if (const HostRule* const rule = configured_for_another(address, name)) {
    return what + fmt::format(" is configured for host {}", rule->name);
  }
  if (another) return what + fmt::format(" is held for host {}, which used it last", holder->name);
  if (holder != nullptr) return std::nullopt;  // its own, before a restart of the host
  const OwnedName* const derived = ownership_.derived_from(address);
  if (derived != nullptr && derived->name != name) return what + fmt::format(" is kept for host {}", derived->name);
  if (is_lan_stations(address, now)) return what + " is in use by a station of the LAN";
  if (derived == nullptr && behind_another && behind_another(address)) return what + " is in use behind another host";
  return std::nullopt;
}

std::optional<MacAddress> Policy::address_for(const std::string& name, Time now,
                                              const UsedBehindAnother& behind_another) const {
  const auto& own = rights_of(name).addresses;
  if (!own.empty()) return own.front();
  std::string salted = name;
  for (unsigned tries = 0; tries < kDerivedAddresses; ++tries, salted += '+') {
    const MacAddress address = stable_mac_for(salted);
    if (!why_not_address(name, address, now, behind_another)) return address;
  }
  return std::nullopt;
}

bool Policy::is_another_hosts(const MacAddress& address, const std::string& name, Time now) const {
  const OwnedName* const holder = ownership_.holder_of(address, now);
  return (holder != nullptr && holder->name != name) || configured_for_another(address, name) != nullptr;
}

bool Policy::is_lan_address(const MacAddress& address) const { return contains(rules().lan_addresses, address); }

bool Policy::is_lan_stations(const MacAddress& address, Time now) const {
  return is_lan_address(address) || (rules().station_memory > Duration::zero() &&
                                     stations_->find(address, 0, now, rules().station_memory).has_value());
}

void Policy::attach(const std::string& name, const std::optional<fabric::BridgePeer>& process,
                    const MacAddress& address, Time now, UnitNumber unit) {
  ++changes_;
  ownership_.attach(name, user_of(process), address, unit, now + rules().address_hold);
}

bool Policy::is_attached_elsewhere(const std::string& name, UnitNumber unit) const {
  const OwnedName* const owned = ownership_.find(name);
  return owned != nullptr && owned->held_until == kNever && owned->attached_to != unit;
}

}  // namespace splitnic::iounit
