#include "iounit/shared_places.h"

#include <algorithm>
#include <bit>

#include "common/bit_mix.h"
#include "common/check.h"

namespace splitnic::iounit {

namespace {

constexpr std::uint64_t kGone = 1;  // no address
constexpr std::size_t kLearned = 4096;
constexpr unsigned kUnitBits = 16;

std::uint64_t pin_of(const MacAddress& address, UnitNumber unit) {
  return address.as_number() << kUnitBits | (unit.value + 1U);
}
UnitNumber unit_in(std::uint64_t pin) { return UnitNumber{static_cast<std::uint16_t>((pin & 0xffffU) - 1)}; }

}  // namespace

SharedPlaces::SharedPlaces(std::size_t units, std::size_t hosts, Duration age, std::uint64_t seed, std::size_t further)
    : seed_(mix(seed)),
      age_(age),
      most_pins_(std::max<std::size_t>(hosts, 1) + further),
      most_with_further_(further),
      pins_(std::bit_ceil(4 * most_pins_)),
      learned_(kLearned, seed) {
  SPLITNIC_CHECK_OP(units, <=, kMaxUnits);
}

std::size_t SharedPlaces::slot_of(std::uint64_t address) const { return mix(address ^ seed_) & (pins_.size() - 1); }

std::size_t SharedPlaces::slot_with(std::uint64_t address) const {
  std::size_t slot = slot_of(address);
  for (std::size_t probes = 0; probes < pins_.size(); ++probes, slot = (slot + 1) & (pins_.size() - 1)) {
    // P1 (acquire): pairs with P1 in pin(). What the unit did before it pinned the address has happened.
    const std::uint64_t pin = pins_[slot].load(std::memory_order_acquire);
    if (pin == 0) break;
    if (pin >> kUnitBits == address) return slot;
  }
  return pins_.size();
}

bool SharedPlaces::pin(const MacAddress& address, UnitNumber unit, Pin pin) {
  const std::lock_guard lock(writing_);
  const std::uint64_t number = address.as_number();
  if (const std::size_t slot = slot_with(number); slot != pins_.size()) {
    return unit_in(pins_[slot].load(std::memory_order_relaxed)) == unit;
  }
  if (pins_used_ >= (pin == Pin::used ? most_pins_ : most_with_further_)) return false;
  std::size_t slot = slot_of(number);
  while (pins_[slot].load(std::memory_order_relaxed) > kGone) slot = (slot + 1) & (pins_.size() - 1);
  pins_[slot].store(pin_of(address, unit), std::memory_order_release);  // P1
  ++pins_used_;
  return true;
}

void SharedPlaces::unpin(const MacAddress& address, UnitNumber unit) {
  const std::lock_guard lock(writing_);
  std::size_t slot = slot_with(address.as_number());
  if (slot == pins_.size() || unit_in(pins_[slot].load(std::memory_order_relaxed)) != unit) return;
  const auto next = [&](std::size_t of) { return (of + 1) & (pins_.size() - 1); };
  pins_[slot].store(kGone, std::memory_order_release);
  --pins_used_;
  // Where no probe goes on, none needs to come: so long lists of slots without a pin don't stay.
  if (pins_[next(slot)].load(std::memory_order_relaxed) != 0) return;
  for (; pins_[slot].load(std::memory_order_relaxed) == kGone; slot = (slot - 1) & (pins_.size() - 1)) {
    pins_[slot].store(0, std::memory_order_release);
  }
}

void SharedPlaces::set_bit(std::atomic<UnitSet>& set, UnitNumber unit, bool on) {
  if (on) {
    set.fetch_or(just(unit), std::memory_order_relaxed);
  } else {
    set.fetch_and(~just(unit), std::memory_order_relaxed);
  }
}

void SharedPlaces::set_wants(UnitNumber unit, const Wants& wants) {
  set_bit(want_groups_, unit, wants.groups);
  set_bit(want_unicast_, unit, wants.unicast);
  set_bit(want_unknown_, unit, wants.unknown || wants.unicast);
}

std::optional<UnitNumber> SharedPlaces::host_at(const MacAddress& address) const {
  const std::uint64_t number = address.as_number();
  const std::size_t slot = slot_with(number);
  if (slot == pins_.size()) return std::nullopt;
  // The slot may be another address's by now.
  const std::uint64_t pin = pins_[slot].load(std::memory_order_acquire);
  return pin >> kUnitBits == number ? std::optional(unit_in(pin)) : std::nullopt;
}

std::optional<Side> SharedPlaces::find(const MacAddress& address, std::uint16_t vlan, Time now) const {
  if (const auto unit = host_at(address)) return side_of(*unit);
  return learned_.find(address, vlan, now, age_);
}

SharedPlaces::Receivers SharedPlaces::receivers(const frame::EthernetHeader& header, UnitNumber from, Time now) const {
  const UnitSet others = ~just(from);
  const auto want = [&](const std::atomic<UnitSet>& set) { return set.load(std::memory_order_relaxed) & others; };
  if (header.destination.is_multicast()) return {.lan = true, .units = want(want_groups_)};
  const auto side = find(header.destination, header.vlan_id, now);
  if (side == kLanSide) return {.lan = true, .units = want(want_unicast_)};
  // The address of a host here, in a VLAN that the host is not in, may be anybody's.
  if (!side || side == side_of(from)) return {.lan = true, .units = want(want_unknown_)};
  const UnitNumber unit{side->value};
  return {.units = want(want_unicast_) | just(unit), .addressed = unit};
}

SharedPlaces::Receivers SharedPlaces::receivers_of_lan(const frame::EthernetHeader& header, UnitNumber from,
                                                       Time now) const {
  Receivers receivers = this->receivers(header, from, now);
  receivers.lan = false;
  const bool wanted_here = (want_unicast_.load(std::memory_order_relaxed) & just(from)) != 0;
  if (!receivers.addressed || wanted_here) receivers.units |= just(from);
  return receivers;
}

}  // namespace splitnic::iounit
