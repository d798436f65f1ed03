#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "common/time.h"
#include "fabric/bridge/bridge_source.h"
#include "iounit/shared_addresses.h"

namespace splitnic::iounit {

/// Gives each new bridge to one of several I/O units: a host's first bridge to the unit with the fewest bridges, and
/// the bridge of a further queue to the unit that has its host's first one.
class BridgeSpread {
 public:
  /// source: lent; outlives this and every bridge. units: at least 1. wake(unit): called when a bridge waits for a
  /// unit, which may be asleep.
  BridgeSpread(fabric::BridgeSource& source, std::size_t units, std::function<void(UnitNumber)> wake);
  ~BridgeSpread();
  BridgeSpread(const BridgeSpread&) = delete;
  BridgeSpread& operator=(const BridgeSpread&) = delete;

  /// Takes a bridge of the source and gives it to a unit. Returns whether there was one. Thread: the source's.
  bool poll(Time now);
  /// The bridges for one unit. Thread: that unit's.
  [[nodiscard]] fabric::BridgeSource& of(UnitNumber unit);
  /// Bridges that a unit has or will get. Any thread.
  [[nodiscard]] std::size_t bridges_of(UnitNumber unit) const;

 private:
  class Inbox;
  struct Ledger;
  struct Entry;

  fabric::BridgeSource& source_;
  std::function<void(UnitNumber)> wake_;
  std::shared_ptr<Ledger> ledger_;  // the bridges' as well: each one says when it ends
  std::vector<std::unique_ptr<Inbox>> inboxes_;
};

}  // namespace splitnic::iounit
