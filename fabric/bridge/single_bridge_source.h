#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "fabric/bridge/bridge_source.h"

namespace splitnic::fabric {

/// Provides a driver with one bridge for its whole life: an end of shm_pair(), or a device of an appliance. The first
/// poll() returns the bridge, every later one returns null. A driver releases a bridge only when the bridge is down for
/// good; from then on it has none. Thread: the driver's owner.
class SingleBridgeSource final : public BridgeSource {
 public:
  explicit SingleBridgeSource(std::shared_ptr<Bridge> bridge) : bridge_(std::move(bridge)) {}

  std::shared_ptr<Bridge> poll(Time /*now*/) override { return std::exchange(bridge_, nullptr); }
  [[nodiscard]] Time next_deadline() const override { return bridge_ == nullptr ? kNever : Time::min(); }
  void collect_descriptors(std::vector<int>& /*out*/) const override {}

 private:
  std::shared_ptr<Bridge> bridge_;
};

}  // namespace splitnic::fabric
