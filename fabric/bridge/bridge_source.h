#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/time.h"
#include "fabric/bridge/bridge.h"

namespace splitnic::fabric {

/// Provides a driver with bridges: from a socket that hosts connect to, from a connector that always tries again, or
/// from the simulation. Thread: the driver's owner.
class BridgeSource {
 public:
  virtual ~BridgeSource() = default;
  /// A bridge that is ready for use, or null if there is none now. Bounded work, never blocks.
  virtual std::shared_ptr<Bridge> poll(Time now) = 0;
  /// For a source of further queues' bridges: the session that they belong to from now on, by its cookie. 0: none, and
  /// poll() provides no bridge. Other sources ignore it.
  virtual void belong_to(std::uint64_t /*cookie*/) {}
  /// When poll() must run next, even if no descriptor is readable.
  [[nodiscard]] virtual Time next_deadline() const = 0;
  virtual void collect_descriptors(std::vector<int>& out) const = 0;
};

}  // namespace splitnic::fabric
