#pragma once

#include <memory>
#include <vector>

#include "common/time.h"
#include "fabric/bridge/bridge.h"

namespace splitnic::fabric {

/// Where a driver gets its bridges from: a socket that hosts connect to, a connector that tries for ever, the
/// simulation. Thread: the driver's owner.
class BridgeSource {
 public:
  virtual ~BridgeSource() = default;
  /// A bridge that is ready for use, or null when there is none now. Bounded work, never blocks.
  virtual std::shared_ptr<Bridge> poll(Time now) = 0;
  /// When poll wants to run next, beside its descriptors.
  [[nodiscard]] virtual Time next_deadline() const = 0;
  virtual void collect_descriptors(std::vector<int>& out) const = 0;
};

}  // namespace splitnic::fabric
