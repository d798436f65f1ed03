#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/os/event_bell.h"
#include "common/random.h"
#include "iounit/frame_ring.h"
#include "iounit/policy_rules.h"
#include "iounit/shared_places.h"
#include "iounit/shared_policy.h"

namespace splitnic::iounit {

struct UnitGroupOptions {
  std::size_t units = 2;                           ///< 2 .. kMaxUnits
  std::size_t hosts = 64;                          ///< maximum of all units together
  std::size_t ring_bytes = std::size_t{1} << 20U;  ///< of each ring; see FrameRing
  Duration age = std::chrono::seconds{300};        ///< how long a learned address is known
  PolicyRules policy{};
};

/// What the I/O units of one daemon share: where addresses are, the policy, and rings of frames, one from each unit to
/// each other. Thread: see each member.
class UnitGroup {
 public:
  /// Throws StartupError if the process has no descriptor left.
  UnitGroup(const UnitGroupOptions& options, RandomSource& random);

  [[nodiscard]] std::uint16_t units() const { return static_cast<std::uint16_t>(members_.size()); }
  [[nodiscard]] SharedPlaces& places() { return places_; }
  [[nodiscard]] const SharedPlaces& places() const { return places_; }
  [[nodiscard]] SharedPolicy& policy() { return policy_; }
  /// The ring that `from` fills and `to` empties. They differ.
  [[nodiscard]] FrameRing& ring(UnitNumber from, UnitNumber to) {
    return *rings_[from.value * members_.size() + to.value];
  }

  /// Shows the other units what `from` has added to its rings, and wakes those of them that sleep. Thread: that of
  /// `from`.
  void publish(UnitNumber from);
  /// Before `unit` sleeps: from now on publish() wakes it. False: there are frames for it, so it must not sleep.
  /// Thread: that of `unit`, as for the next two.
  [[nodiscard]] bool prepare_sleep(UnitNumber unit);
  /// After each prepare_sleep().
  void awake(UnitNumber unit);
  /// Readable when publish() wakes the unit.
  [[nodiscard]] int descriptor(UnitNumber unit) const { return members_[unit.value]->bell.descriptor(); }

 private:
  struct alignas(64) Member {
    std::atomic<bool> asleep{false};
    os::EventBell bell;
  };
  SharedPlaces places_;
  SharedPolicy policy_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::unique_ptr<FrameRing>> rings_;  // by from * units + to; null where both are the same
};

}  // namespace splitnic::iounit
