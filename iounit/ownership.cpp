#include "iounit/ownership.h"

#include <algorithm>

namespace splitnic::iounit {

const OwnedName* Ownership::find(const std::string& name) const {
  const auto at = names_.find(name);
  return at == names_.end() ? nullptr : &at->second.owned;
}

const OwnedName* Ownership::holder_of(const MacAddress& address, Time now) const {
  if (const auto at = by_address_.find(address.as_number()); at != by_address_.end()) {
    const OwnedName* const owned = find(at->second);
    return owned != nullptr && now < owned->held_until ? owned : nullptr;
  }
  const auto at = previous_.find(address.as_number());
  if (at == previous_.end()) return nullptr;
  const OwnedName* const owned = find(at->second);
  return owned != nullptr && now < owned->previous_until ? owned : nullptr;
}

const OwnedName* Ownership::derived_from(const MacAddress& address) const {
  const auto at = derived_.find(address.as_number());
  return at == derived_.end() ? nullptr : find(at->second);
}

void Ownership::attach(const std::string& name, std::optional<uid_t> user, const MacAddress& address, UnitNumber unit,
                       Time previous_until) {
  Entry& entry = entry_for(name, user);
  entry.last_use = ++uses_;
  if (entry.owned.address != address) {
    give_address(entry, address, previous_until);
    ++revision_;
  }
  entry.owned.held_until = kNever;
  entry.owned.attached_to = unit;
}

void Ownership::detach(const std::string& name, Time held_until) {
  if (const auto at = names_.find(name); at != names_.end()) at->second.owned.held_until = held_until;
}

Ownership::Entry& Ownership::entry_for(const std::string& name, std::optional<uid_t> user) {
  if (const auto at = names_.find(name); at != names_.end()) {
    if (at->second.owned.user != user) ++revision_;  // the configuration gives the name to another user
    at->second.owned.user = user;
    return at->second;
  }
  make_room(user);
  ++revision_;
  derived_[stable_mac_for(name).as_number()] = name;
  return names_.emplace(name, Entry{.owned = {.name = name, .user = user}}).first->second;
}

/// Forgets the longest unused name of a user that has too many. Names of attached hosts stay.
void Ownership::make_room(std::optional<uid_t> user) {
  std::size_t count = 0;
  auto oldest = names_.end();
  for (auto at = names_.begin(); at != names_.end(); ++at) {
    const auto& [owned, last_use] = at->second;
    if (owned.user != user) continue;
    ++count;
    if (owned.held_until == kNever) continue;
    if (oldest == names_.end() || last_use < oldest->second.last_use) oldest = at;
  }
  if (count < kNamesPerUser || oldest == names_.end()) return;
  by_address_.erase(oldest->second.owned.address.as_number());
  free_previous(oldest->second.owned);
  if (const auto derived = derived_.find(stable_mac_for(oldest->first).as_number());
      derived != derived_.end() && derived->second == oldest->first) {
    derived_.erase(derived);
  }
  names_.erase(oldest);
  ++revision_;
}

void Ownership::free_previous(OwnedName& owned) {
  if (!owned.previous.is_zero()) previous_.erase(owned.previous.as_number());
  owned.previous = {};
  owned.previous_until = Time::min();
}

/// One address is held besides the one in use, so a host can't collect addresses.
void Ownership::give_address(Entry& entry, const MacAddress& address, Time previous_until) {
  OwnedName& owned = entry.owned;
  free_previous(owned);
  if (!owned.address.is_zero()) {
    by_address_.erase(owned.address.as_number());
    previous_.emplace(owned.address.as_number(), owned.name);
    owned.previous = owned.address;
    owned.previous_until = previous_until;
  }
  owned.address = address;
  if (address.is_zero()) return;
  if (const auto held = previous_.find(address.as_number()); held != previous_.end()) {
    free_previous(names_.find(held->second)->second.owned);
  }
  const auto [at, added] = by_address_.try_emplace(address.as_number(), entry.owned.name);
  if (added) return;
  if (const auto before = names_.find(at->second); before != names_.end()) before->second.owned.address = {};
  at->second = entry.owned.name;
}

std::vector<OwnedName> Ownership::all() const {
  std::vector<OwnedName> names;
  names.reserve(names_.size());
  for (const auto& [name, entry] : names_) names.push_back(entry.owned);
  return names;
}

std::vector<OwnedName> Ownership::saved() const {
  std::vector<const Entry*> entries;
  for (const auto& [name, entry] : names_) {
    if (entry.owned.user) entries.push_back(&entry);
  }
  std::ranges::sort(entries, {}, [](const Entry* entry) { return entry->last_use; });
  std::vector<OwnedName> names;
  names.reserve(entries.size());
  for (const Entry* entry : entries) names.push_back(entry->owned);
  return names;
}

void Ownership::restore(const std::vector<OwnedName>& names, Time held_until) {
  // First all of them: a user with many hosts had more names than a user keeps of hosts that are gone.
  for (const OwnedName& owned : names) attach(owned.name, owned.user, owned.address);
  for (const OwnedName& owned : names) detach(owned.name, held_until);
}

}  // namespace splitnic::iounit
