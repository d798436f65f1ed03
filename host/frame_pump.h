#pragma once

#include <cstddef>

#include "common/moved_frames.h"
#include "common/time.h"
#include "host/host_counters.h"
#include "host/virtual_nic.h"
#include "messaging/loss_report.h"
#include "messaging/session.h"

namespace splitnic::host {

/// Moves frames between one queue of the NIC and its session, both ways. Thread: the queue's.
class FramePump {
 public:
  /// nic: lent, outlives this.
  explicit FramePump(NicQueue& nic) : nic_(nic) {}

  /// Pushes frames from the host's stack into the unit's elements, while there are both. session: up. Bounded; returns
  /// how many.
  std::size_t push(messaging::Session& session);
  /// A frame from the unit, for the host's stack.
  void deliver(const messaging::ReceivedFrame& frame, messaging::Session& session, Time now);
  /// The NIC has frames, and the unit no element for them: the NIC's descriptor says nothing new.
  [[nodiscard]] bool waits_for_elements() const { return waits_; }
  [[nodiscard]] const HostCounters& counters() const { return counters_; }
  /// Both ways, since the start.
  [[nodiscard]] const MovedFrames& moved() const { return moved_; }

 private:
  NicQueue& nic_;
  HostCounters counters_;
  messaging::LossReport losses_;  // of frames that the NIC refuses
  MovedFrames moved_;
  bool waits_ = false;
};

}  // namespace splitnic::host
