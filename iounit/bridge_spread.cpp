#include "iounit/bridge_spread.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <utility>

namespace splitnic::iounit {

/// Which unit has how many bridges, and which sessions.
struct BridgeSpread::Ledger {
  mutable std::mutex mutex;
  std::vector<std::size_t> bridges;                              // by unit
  boost::unordered_flat_map<std::uint64_t, UnitNumber> session;  // by the cookie of its first bridge

  UnitNumber enter(const fabric::BridgeGroup& group) {
    const std::lock_guard lock(mutex);
    const auto fewest = std::ranges::min_element(bridges) - bridges.begin();
    UnitNumber unit{static_cast<std::uint16_t>(fewest)};
    if (const auto known = session.find(group.cookie); group.further && known != session.end()) unit = known->second;
    if (!group.further && group.cookie != 0) session[group.cookie] = unit;
    ++bridges[unit.value];
    return unit;
  }
  void leave(const fabric::BridgeGroup& group, UnitNumber unit) {
    const std::lock_guard lock(mutex);
    --bridges[unit.value];
    if (!group.further) session.erase(group.cookie);
  }
};

/// A bridge in the ledger, as long as a unit has it.
struct BridgeSpread::Entry {
  Entry(std::shared_ptr<fabric::Bridge> its_bridge, std::shared_ptr<Ledger> its_ledger)
      : ledger(std::move(its_ledger)),
        bridge(std::move(its_bridge)),
        group(bridge->group()),
        unit(ledger->enter(group)) {}
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  ~Entry() { ledger->leave(group, unit); }

  std::shared_ptr<Ledger> ledger;
  std::shared_ptr<fabric::Bridge> bridge;
  fabric::BridgeGroup group;
  UnitNumber unit;
};

/// The bridges that wait for one unit.
class BridgeSpread::Inbox final : public fabric::BridgeSource {
 public:
  void put(std::shared_ptr<fabric::Bridge> bridge) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(bridge));
    // The lock protects the bridges; the flag only saves taking the lock.
    any_.store(true, std::memory_order_release);
  }
  std::shared_ptr<fabric::Bridge> poll(Time /*now*/) override {
    if (!any_.load(std::memory_order_acquire)) return nullptr;
    const std::lock_guard lock(mutex_);
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    any_.store(!waiting_.empty(), std::memory_order_relaxed);
    return next;
  }
  /// At once while a bridge waits.
  [[nodiscard]] Time next_deadline() const override { return any_.load(std::memory_order_relaxed) ? Time{} : kNever; }
  void collect_descriptors(std::vector<int>& /*out*/) const override {}

 private:
  std::mutex mutex_;
  std::deque<std::shared_ptr<fabric::Bridge>> waiting_;
  std::atomic<bool> any_{false};
};

BridgeSpread::BridgeSpread(fabric::BridgeSource& source, std::size_t units, std::function<void(UnitNumber)> wake)
    : source_(source), wake_(std::move(wake)), ledger_(std::make_shared<Ledger>()) {
  ledger_->bridges.resize(units);
  for (std::size_t unit = 0; unit < units; ++unit) inboxes_.push_back(std::make_unique<Inbox>());
}

BridgeSpread::~BridgeSpread() = default;

bool BridgeSpread::poll(Time now) {
  auto bridge = source_.poll(now);
  if (!bridge) return false;
  const auto entry = std::make_shared<Entry>(std::move(bridge), ledger_);
  inboxes_[entry->unit.value]->put({entry, entry->bridge.get()});
  wake_(entry->unit);
  return true;
}

fabric::BridgeSource& BridgeSpread::of(UnitNumber unit) { return *inboxes_[unit.value]; }

std::size_t BridgeSpread::bridges_of(UnitNumber unit) const {
  const std::lock_guard lock(ledger_->mutex);
  return ledger_->bridges[unit.value];
}

}  // namespace splitnic::iounit
