#pragma once

#include <cstddef>
#include <memory>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/bridge_source.h"
#include "tests/sim_bridge/sim_bridge.h"

namespace splitnic::sim {

/// The bridge of a further queue, as shared memory does it: the host connects, the unit takes what has connected, and
/// when one of them lets go, the other one finds that it has hung up. end 0 is the host's.
class QueueLink {
 public:
  QueueLink(const fabric::SimBridgeOptions& options, RandomSource& random);

  [[nodiscard]] fabric::SimBridgePair& pair() { return pair_; }
  [[nodiscard]] const fabric::SimBridgePair& pair() const { return pair_; }
  /// Host: null while a connection is still there, or shortly after the last one.
  [[nodiscard]] std::shared_ptr<fabric::Bridge> connect(Time now);
  [[nodiscard]] bool may_connect(Time now) const { return !held_[0] && !held_[1] && now >= retry_at_; }
  /// When the host looks again; while the unit has not let go of the last connection, after a while.
  [[nodiscard]] Time retry_at() const;
  /// Unit: null if nobody has connected.
  [[nodiscard]] std::shared_ptr<fabric::Bridge> accept();
  [[nodiscard]] bool offered() const { return offered_; }
  [[nodiscard]] bool held(std::size_t end) const { return held_[end]; }
  void hang_up();

 private:
  [[nodiscard]] std::shared_ptr<fabric::Bridge> hold(std::size_t end);

  fabric::SimBridgePair pair_;
  bool held_[2] = {false, false};
  bool offered_ = false;
  Time now_{};
  Time retry_at_{};
};

/// The host's source of one such bridge.
class QueueSource final : public fabric::BridgeSource {
 public:
  explicit QueueSource(QueueLink& link) : link_(link) {}
  std::shared_ptr<fabric::Bridge> poll(Time now) override { return cookie_ == 0 ? nullptr : link_.connect(now); }
  void belong_to(std::uint64_t cookie) override { cookie_ = cookie; }
  [[nodiscard]] Time next_deadline() const override { return cookie_ == 0 ? kNever : link_.retry_at(); }
  void collect_descriptors(std::vector<int>&) const override {}

 private:
  QueueLink& link_;
  std::uint64_t cookie_ = 0;
};

}  // namespace splitnic::sim
