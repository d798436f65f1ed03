#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "fabric/bridge/bridge_source.h"

namespace splitnic::fabric {

/// The bridges of a driver that has one for its whole life: an end of shm_pair(), or a device of an appliance. The
/// bridge goes to the first poll(). A driver lets go of a bridge only when that is down for good, and waits for another
/// one then, which never comes. Thread: the driver's owner.
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
