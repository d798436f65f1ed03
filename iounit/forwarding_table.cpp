#include "iounit/forwarding_table.h"

#include <algorithm>
#include <bit>

#include "common/bit_mix.h"
#include "common/check.h"

namespace splitnic::iounit {
namespace {

std::uint64_t key_of(const MacAddress& mac, std::uint16_t vlan) { return mac.as_number() << 12U | (vlan & 0xfffU); }

}  // namespace

ForwardingTable::ForwardingTable(ForwardingTableLimits limits, std::uint64_t seed)
    : limits_(limits), seed_(seed), entries_(std::bit_ceil(std::max(limits.entries, kWays))) {
  per_host_.reserve(64);
}

bool ForwardingTable::pin(const MacAddress& mac, ForwardingTarget target) {
  const auto [at, added] = pinned_.try_emplace(mac.as_number(), target);
  if (!added) return at->second == target;
  for (Entry& entry : entries_) {
    if (entry.key != 0 && entry.key >> 12U == mac.as_number()) free_entry(entry);
  }
  return true;
}

bool ForwardingTable::unpin(const MacAddress& mac, ForwardingTarget target) {
  const auto at = pinned_.find(mac.as_number());
  if (at == pinned_.end() || at->second != target) return false;
  pinned_.erase(at);
  return true;
}

std::size_t ForwardingTable::set_of(std::uint64_t key) const {
  return (mix(key ^ seed_) & (entries_.size() / kWays - 1)) * kWays;
}

std::size_t& ForwardingTable::count_of(ForwardingTarget target) {
  if (target == kLanTarget) return lan_entries_;
  if (target.value >= per_host_.size()) per_host_.resize(target.value + 1U);
  return per_host_[target.value];
}

bool ForwardingTable::may_add(ForwardingTarget target) const {
  if (target == kLanTarget || target.value >= per_host_.size()) return true;
  return per_host_[target.value] < limits_.entries_per_host;
}

void ForwardingTable::free_entry(Entry& entry) {
  std::size_t& count = count_of(entry.target);
  SPLITNIC_CHECK_OP(count, >, 0U);
  --count;
  --used_;
  entry.key = 0;
}

/// Returns a free entry of the set; without one, frees the entry that was silent longest.
ForwardingTable::Entry& ForwardingTable::victim(std::size_t set, Time now) {
  Entry* oldest = &entries_[set];
  for (std::size_t way = 0; way < kWays; ++way) {
    Entry& entry = entries_[set + way];
    if (entry.key != 0 && aged(entry, now)) free_entry(entry);
    if (entry.key == 0) return entry;
    if (entry.heard < oldest->heard) oldest = &entry;
  }
  free_entry(*oldest);
  return *oldest;
}

ForwardingTable::Learned ForwardingTable::learn(const MacAddress& source, std::uint16_t vlan, ForwardingTarget target,
                                                Time now) {
  if (source.is_multicast() || source.is_zero()) return Learned::kNoAddress;
  if (const auto pin = pinned_.find(source.as_number()); pin != pinned_.end()) {
    return pin->second == target ? Learned::kKnown : Learned::kPinned;
  }
  const std::uint64_t key = key_of(source, vlan);
  const std::size_t set = set_of(key);
  for (std::size_t way = 0; way < kWays; ++way) {
    Entry& entry = entries_[set + way];
    if (entry.key != key) continue;
    if (entry.target == target) {
      entry.hear(now);
      return Learned::kKnown;
    }
    if (!may_add(target)) return Learned::kTargetFull;
    --count_of(entry.target);
    ++count_of(target);
    entry.target = target;
    entry.hear(now);
    return Learned::kMoved;
  }
  if (!may_add(target)) return Learned::kTargetFull;
  Entry& entry = victim(set, now);
  entry = Entry{.key = key, .target = target};
  entry.hear(now);
  ++count_of(target);
  ++used_;
  return Learned::kAdded;
}

void ForwardingTable::Entry::hear(Time now) {
  heard = now;
  if (target == kLanTarget) return;
  user = target;
  heard_from_user = now;
}

std::optional<ForwardingTarget> ForwardingTable::find(const MacAddress& destination, std::uint16_t vlan,
                                                      Time now) const {
  if (const auto pin = pinned_.find(destination.as_number()); pin != pinned_.end()) return pin->second;
  const std::uint64_t key = key_of(destination, vlan);
  const std::size_t set = set_of(key);
  for (std::size_t way = 0; way < kWays; ++way) {
    const Entry& entry = entries_[set + way];
    if (entry.key == key && !aged(entry, now)) return entry.target;
  }
  return std::nullopt;
}

bool ForwardingTable::is_in_use(const MacAddress& address, std::uint16_t vlan, ForwardingTarget host, Time now) const {
  const std::uint64_t key = key_of(address, vlan);
  const auto set = entries_.begin() + static_cast<std::ptrdiff_t>(set_of(key));
  return std::any_of(set, set + kWays, [&](const Entry& entry) {
    return entry.key == key && entry.user == host && now - entry.heard_from_user <= kInUse;
  });
}

bool ForwardingTable::is_behind_another_host(const MacAddress& address, ForwardingTarget host, Time now,
                                             Duration age) const {
  const auto is_there = [&](const Entry& entry) {
    return entry.key != 0 && entry.key >> 12U == address.as_number() && entry.target != kLanTarget &&
           entry.target != host && now - entry.heard <= std::min(age, limits_.age);
  };
  return std::any_of(entries_.begin(), entries_.end(), is_there);
}

std::size_t ForwardingTable::forget(ForwardingTarget target) {
  std::size_t forgotten = 0;
  for (Entry& entry : entries_) {
    if (entry.user == target) entry.user = kLanTarget;
    if (entry.key == 0 || entry.target != target) continue;
    free_entry(entry);
    ++forgotten;
  }
  return forgotten;
}

void ForwardingTable::sweep(Time now, std::size_t budget) {
  for (std::size_t visited = 0; visited < std::min(budget, entries_.size()); ++visited) {
    Entry& entry = entries_[sweep_at_];
    sweep_at_ = (sweep_at_ + 1) & (entries_.size() - 1);
    if (entry.key != 0 && aged(entry, now)) free_entry(entry);
  }
}

}  // namespace splitnic::iounit
