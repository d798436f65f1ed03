#include "iounit/policy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "common/os/account.h"
#include "common/os/read_file.h"
#include "common/os/toml_config.h"
#include "iounit/token_bucket.h"
#include "messaging/wire/cfgutil.h"

namespace splitnic::iounit {

namespace {

using os::ConfigEntry;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20U;
constexpr std::uint64_t kMaxVlan = 4094;
constexpr std::uint64_t kMaxSeconds = 365ULL * 24 * 3600;

Result<bool> to_flag(const ConfigEntry& entry) {
  if (entry.kind == ConfigEntry::Kind::kFlag) return entry.value == "true";
  return fail("must be true or false");
}

template <class Number = std::uint64_t>
Result<Number> to_number(const ConfigEntry& entry, std::uint64_t least, std::uint64_t most) {
  std::uint64_t number = 0;
  const char* const end = entry.value.data() + entry.value.size();
  const auto [at, error] = std::from_chars(entry.value.data(), end, number);
  if (error != std::errc{} || at != end || number < least || number > most) {
    return fail("{} is no number from {} to {}", entry.value, least, most);
  }
  return static_cast<Number>(number);
}

Result<MacAddress> to_station(const ConfigEntry& entry) {
  const auto mac = parse_mac(entry.value);
  if (!mac || mac->is_multicast() || mac->is_zero()) return fail("{} is not the address of a station", entry.value);
  return *mac;
}

Result<IpAddress> to_ip_address(const ConfigEntry& entry) {
  const auto address = parse_ip_address(entry.value);
  if (!address) return fail("{} is not an IP address", entry.value);
  return *address;
}

/// Assigns a converted value. Errors: those of the conversion.
template <class Target, class Value>
Result<void> assign(Target& target, Result<Value> value) {
  if (!value) return tl::unexpected(value.error());
  target = static_cast<Target>(std::move(*value));
  return {};
}

template <class Value>
Result<void> append(std::vector<Value>& list, Result<Value> value) {
  if (!value) return tl::unexpected(value.error());
  list.push_back(std::move(*value));
  return {};
}

bool is_list(std::string_view key) {
  return key == "addresses" || key == "lan-addresses" || key == "trunk-vlans" || key == "ip-addresses";
}

bool is_empty_list(const ConfigEntry& entry) {
  return entry.kind == ConfigEntry::Kind::kEmptyList && is_list(entry.key);
}

/// nullopt: not the name of a right.
std::optional<Result<void>> set_right(HostRights& rights, const ConfigEntry& entry) {
  if (entry.key == "foreign-sources") return assign(rights.foreign_sources, to_flag(entry));
  if (entry.key == "promiscuous") return assign(rights.promiscuous, to_flag(entry));
  if (entry.key == "multicast") return assign(rights.multicast, to_flag(entry));
  if (entry.key == "ip-addresses") return append(rights.ip.addresses, to_ip_address(entry));
  if (entry.key == "dhcp-server") return assign(rights.ip.dhcp_server, to_flag(entry));
  if (entry.key == "router") return assign(rights.ip.router, to_flag(entry));
  if (entry.key == "access-vlan") return assign(rights.access_vlan, to_number<std::uint16_t>(entry, 0, kMaxVlan));
  if (entry.key == "trunk-vlans") return append(rights.trunk_vlans, to_number<std::uint16_t>(entry, 1, kMaxVlan));
  const std::pair<std::string_view, std::uint64_t*> rates[] = {{"send-bytes", &rights.send.bytes},
                                                               {"send-frames", &rights.send.frames},
                                                               {"receive-bytes", &rights.receive.bytes},
                                                               {"receive-frames", &rights.receive.frames},
                                                               {"broadcast-frames", &rights.broadcasts},
                                                               {"multicast-frames", &rights.multicasts},
                                                               {"multicast-copies", &rights.multicast_copies}};
  for (const auto& [key, rate] : rates) {
    if (entry.key == key) return assign(*rate, to_number(entry, 0, TokenBucket::kMaxRate));
  }
  return std::nullopt;
}

Result<void> set_seconds(Duration& duration, const ConfigEntry& entry) {
  const auto seconds = to_number(entry, 0, kMaxSeconds);
  if (!seconds) return tl::unexpected(seconds.error());
  duration = std::chrono::seconds(*seconds);
  return {};
}

Result<void> set_common(PolicyRules& rules, const ConfigEntry& entry) {
  if (entry.key == "listed-only") return assign(rules.listed_only, to_flag(entry));
  if (entry.key == "lan-addresses") return append(rules.lan_addresses, to_station(entry));
  if (entry.key == "station-memory") return set_seconds(rules.station_memory, entry);
  if (entry.key == "address-hold") return set_seconds(rules.address_hold, entry);
  if (const auto done = set_right(rules.others, entry)) return *done;
  return fail("no such key in [policy]");
}

/// What the tables before this one have taken. A file may have thousands.
struct Taken {
  boost::unordered_flat_set<std::string> names;
  boost::unordered_flat_map<std::uint64_t, std::string> addresses;  ///< whose they are
};

Result<void> set_name(HostRule& rule, const ConfigEntry& entry, const Taken& taken) {
  if (!messaging::wire::is_valid_name(entry.value)) return fail("{} is not a host's name", entry.value);
  if (taken.names.contains(entry.value)) return fail("there is another [[host]] named {}", entry.value);
  rule.name = entry.value;
  return {};
}

/// An address is one host's or one station's.
Result<MacAddress> to_own_address(const ConfigEntry& entry, const PolicyRules& rules, const Taken& taken) {
  auto address = to_station(entry);
  if (!address) return address;
  if (std::ranges::find(rules.lan_addresses, *address) != rules.lan_addresses.end()) {
    return fail("{} is among lan-addresses", entry.value);
  }
  const auto owner = taken.addresses.find(address->as_number());
  if (owner != taken.addresses.end()) return fail("{} belongs to host {}", entry.value, owner->second);
  return address;
}

Result<void> set_host(HostRule& rule, const ConfigEntry& entry, const PolicyRules& rules, const Taken& taken,
                      const AccountLookup& accounts) {
  if (entry.key == "user") return assign(rule.user, accounts.user(entry.value));
  if (entry.key == "group") return assign(rule.group, accounts.group(entry.value));
  if (entry.key == "addresses") {
    // A host with addresses uses these alone, unless its own table says more.
    if (std::exchange(rule.inherits_foreign_sources, false)) rule.rights.foreign_sources = false;
    return append(rule.rights.addresses, to_own_address(entry, rules, taken));
  }
  if (entry.key == "foreign-sources") rule.inherits_foreign_sources = false;
  if (const auto done = set_right(rule.rights, entry)) return *done;
  return fail("no such key in [[host]]");
}

/// Turns the entries of a file into rules.
class Reader {
 public:
  Reader(const std::vector<ConfigEntry>& entries, const std::string& path, const PolicyRules& base,
         const AccountLookup& accounts)
      : entries_(entries), path_(path), accounts_(accounts), rules_(base) {}

  Result<PolicyRules> read() {
    // Hosts inherit from [policy], wherever it stands.
    for (const auto& entry : entries_) {
      if (entry.section == "policy" && entry.table == 0) {
        if (!once(entry, is_list(entry.key))) return twice(entry);
        if (is_empty_list(entry) && entry.key != "addresses") continue;
        if (const auto done = set_common(rules_, entry); !done) return wrong(entry, done.error());
      } else if (entry.section != "host" || entry.table == 0) {
        if (entry.kind == ConfigEntry::Kind::kTable) {
          return fail("{}:{}: [[{}]] is not [policy] or [[host]]", path_, entry.line, entry.section);
        }
        return fail("{}:{}: {} is not in [policy] or [[host]]", path_, entry.line, entry.key);
      }
    }
    for (auto at = entries_.begin(); at != entries_.end();) {
      if (at->table == 0) {
        ++at;
        continue;
      }
      const auto end = std::find_if(at, entries_.end(), [&](const auto& entry) { return entry.table != at->table; });
      if (const auto done = read_host({at, end}); !done) return tl::unexpected(done.error());
      at = end;
    }
    return std::move(rules_);
  }

 private:
  Result<void> read_host(const std::vector<ConfigEntry>& table) {
    HostRule rule;
    rule.rights = rules_.others;
    seen_.clear();
    // What addresses imply must not override what the table says.
    for (const bool addresses : {true, false}) {
      for (const auto& entry : table) {
        if (entry.kind == ConfigEntry::Kind::kTable || (entry.key == "addresses") != addresses) continue;
        const bool list = is_list(entry.key);
        const bool first = std::ranges::find(seen_, entry.key) == seen_.end();
        // A list replaces the inherited one.
        if (first && entry.key == "trunk-vlans") rule.rights.trunk_vlans.clear();
        if (first && entry.key == "ip-addresses") rule.rights.ip.addresses.clear();
        if (!once(entry, list)) return tl::unexpected(twice(entry).error());
        if (is_empty_list(entry) && entry.key != "lan-addresses") continue;
        const auto done =
            entry.key == "name" ? set_name(rule, entry, taken_) : set_host(rule, entry, rules_, taken_, accounts_);
        if (!done) return tl::unexpected(wrong(entry, done.error()).error());
      }
    }
    if (rule.name.empty()) return fail("{}:{}: this [[host]] has no name", path_, table.front().line);
    taken_.names.insert(rule.name);
    for (const MacAddress& address : rule.rights.addresses) taken_.addresses.emplace(address.as_number(), rule.name);
    rules_.hosts.push_back(std::move(rule));
    return {};
  }

  /// False: a second value of a key that is no list.
  bool once(const ConfigEntry& entry, bool list) {
    if (std::ranges::find(seen_, entry.key) != seen_.end()) return list;
    seen_.push_back(entry.key);
    return true;
  }
  Result<PolicyRules> twice(const ConfigEntry& entry) const {
    return fail("{}:{}: {}: takes one value", path_, entry.line, entry.key);
  }
  Result<PolicyRules> wrong(const ConfigEntry& entry, const Error& error) const {
    return fail("{}:{}: {}: {}", path_, entry.line, entry.key, error.message);
  }

  const std::vector<ConfigEntry>& entries_;
  const std::string& path_;
  const AccountLookup& accounts_;
  PolicyRules rules_;
  Taken taken_;
  std::vector<std::string> seen_;
};

template <class Address>
std::string list_of(const std::vector<Address>& addresses) {
  std::string text;
  for (const auto& address : addresses) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", to_string(address));
  return "[" + text + "]";
}

std::string foreign_sources(const HostRights& rights) {
  return fmt::format("foreign-sources = {}\n", rights.foreign_sources);
}

/// The rights without foreign_sources, which a host may inherit.
std::string to_toml(const HostRights& rights) {
  std::string text = fmt::format("promiscuous = {}\nmulticast = {}\n", rights.promiscuous, rights.multicast);
  if (rights.access_vlan) text += fmt::format("access-vlan = {}\n", *rights.access_vlan);
  text += fmt::format("ip-addresses = {}\ndhcp-server = {}\nrouter = {}\n", list_of(rights.ip.addresses),
                      rights.ip.dhcp_server, rights.ip.router);
  text += fmt::format("trunk-vlans = [{}]\n", fmt::join(rights.trunk_vlans, ", "));
  text += fmt::format("send-bytes = {}\nsend-frames = {}\nreceive-bytes = {}\nreceive-frames = {}\n", rights.send.bytes,
                      rights.send.frames, rights.receive.bytes, rights.receive.frames);
  return text + fmt::format("broadcast-frames = {}\nmulticast-frames = {}\nmulticast-copies = {}\n", rights.broadcasts,
                            rights.multicasts, rights.multicast_copies);
}

std::uint64_t whole_seconds(Duration duration) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(duration).count());
}

}  // namespace

AccountLookup system_accounts() { return {os::find_user, os::find_group}; }

Result<PolicyRules> parse_policy(std::string_view text, const std::string& path, const PolicyRules& base,
                                 const AccountLookup& accounts) {
  const auto entries = os::parse_config(text, path, os::ConfigTables::kRepeated);
  if (!entries) return tl::unexpected(entries.error());
  return Reader(*entries, path, base, accounts).read();
}

Result<PolicyRules> read_policy(const std::string& path, const PolicyRules& base, const AccountLookup& accounts) {
  const auto text = os::read_file(path, kMaxFileBytes);
  if (!text) return tl::unexpected(text.error());
  return parse_policy(*text, path, base, accounts);
}

std::string to_toml(const PolicyRules& rules) {
  std::string text = fmt::format(
      "[policy]\nlisted-only = {}\nlan-addresses = {}\nstation-memory = {}\naddress-hold = {}\n", rules.listed_only,
      list_of(rules.lan_addresses), whole_seconds(rules.station_memory), whole_seconds(rules.address_hold));
  text += foreign_sources(rules.others) + to_toml(rules.others);
  for (const auto& rule : rules.hosts) {
    text += fmt::format("\n[[host]]\nname = {}\n", os::toml_string(rule.name));
    if (rule.user) text += fmt::format("user = {}\n", *rule.user);
    if (rule.group) text += fmt::format("group = {}\n", *rule.group);
    text += fmt::format("addresses = {}\n", list_of(rule.rights.addresses));
    text += (rule.inherits_foreign_sources ? "# foreign-sources: as in [policy]\n" : foreign_sources(rule.rights));
    text += to_toml(rule.rights);
  }
  return text;
}

std::string to_toml(const std::vector<OwnedName>& names) {
  std::string text;
  for (const auto& owned : names) {
    text += fmt::format("[[name]]\nname = {}\nuser = {}\n", os::toml_string(owned.name), owned.user.value_or(0));
    if (!owned.address.is_zero()) text += fmt::format("address = \"{}\"\n", to_string(owned.address));
  }
  return text;
}

Result<std::vector<OwnedName>> parse_names(std::string_view text, const std::string& path) {
  const auto entries = os::parse_config(text, path, os::ConfigTables::kRepeated);
  if (!entries) return tl::unexpected(entries.error());
  std::vector<OwnedName> names;
  for (const auto& entry : *entries) {
    const auto wrong = [&](const std::string& why) { return fail("{}:{}: {}", path, entry.line, why); };
    if (entry.section != "name" || entry.table == 0) return wrong("only tables [[name]] are known");
    if (entry.kind == ConfigEntry::Kind::kTable) {
      names.emplace_back();
    } else if (entry.key == "name" && messaging::wire::is_valid_name(entry.value)) {
      names.back().name = entry.value;
    } else if (entry.key == "user") {
      const auto user = to_number(entry, 0, std::numeric_limits<uid_t>::max() - 1);
      if (!user) return wrong(user.error().message);
      names.back().user = static_cast<uid_t>(*user);
    } else if (entry.key == "address") {
      const auto address = to_station(entry);
      if (!address) return wrong(address.error().message);
      names.back().address = *address;
    } else {
      return wrong(fmt::format("{} = {} is wrong here", entry.key, entry.value));
    }
  }
  const auto incomplete = [](const OwnedName& owned) { return owned.name.empty() || !owned.user; };
  if (std::ranges::any_of(names, incomplete)) return fail("{}: a [[name]] without name or user", path);
  return names;
}

}  // namespace splitnic::iounit
