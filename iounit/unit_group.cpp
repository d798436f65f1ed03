#include "iounit/unit_group.h"

#include "common/check.h"
#include "fabric/bridge/full_fence.h"

namespace splitnic::iounit {

namespace {

/// The policy may be read again, with more addresses.
std::size_t further_pins(const UnitGroupOptions& options) {
  constexpr std::size_t kAtLeast = 256;
  std::size_t configured = 0;
  for (const HostRule& rule : options.policy.hosts) configured += rule.rights.addresses.size();
  return options.hosts + 2 * configured + kAtLeast;
}

}  // namespace

UnitGroup::UnitGroup(const UnitGroupOptions& options, RandomSource& random)
    : places_(options.units, options.hosts, options.age, random.next(), further_pins(options)),
      policy_(options.policy, random.next()) {
  SPLITNIC_CHECK_OP(options.units, >=, 2U);
  for (std::size_t unit = 0; unit < options.units; ++unit) {
    members_.push_back(std::make_unique<Member>());
    for (std::size_t to = 0; to < options.units; ++to) {
      rings_.push_back(to == unit ? nullptr : std::make_unique<FrameRing>(options.ring_bytes));
    }
  }
}

void UnitGroup::publish(UnitNumber from) {
  UnitSet news = 0;
  for (std::uint16_t to = 0; to < units(); ++to) {
    if (to != from.value && ring(from, UnitNumber{to}).publish()) news |= just(UnitNumber{to});
  }
  if (news == 0) return;
  // U1: the frames are published before the flag is read; pairs with U1 in prepare_sleep(), which sets the flag before
  // it looks at the rings. Without both fences each side could miss the other, and the frames would wait for the next
  // deadline.
  fabric::full_fence();
  for (std::uint16_t to = 0; to < units(); ++to) {
    Member& member = *members_[to];
    if ((news & just(UnitNumber{to})) == 0 || !member.asleep.load(std::memory_order_relaxed)) continue;
    // One of those that publish rings, and the flag is set again before the next sleep.
    if (member.asleep.exchange(false, std::memory_order_relaxed)) member.bell.ring();
  }
}

bool UnitGroup::prepare_sleep(UnitNumber unit) {
  members_[unit.value]->asleep.store(true, std::memory_order_relaxed);
  fabric::full_fence();  // U1
  for (std::uint16_t from = 0; from < units(); ++from) {
    if (from != unit.value && !ring(UnitNumber{from}, unit).empty()) return false;
  }
  return true;
}

void UnitGroup::awake(UnitNumber unit) {
  members_[unit.value]->asleep.store(false, std::memory_order_relaxed);
  members_[unit.value]->bell.heard();
}

}  // namespace splitnic::iounit
