#pragma once

#include <string>

#include "common/time.h"
#include "messaging/session.h"

namespace splitnic::messaging {

/// Reports to the peer's operator that this end loses the peer's frames. Sends a StatusReport one second after the
/// first loss, then every ten seconds while losses continue. Thread: the session's.
class LossReport {
 public:
  /// Call for each loss. say: returns the report's text; called when a report is due.
  template <class Say>
  void lost(Session& session, Time now, Say say) {
    constexpr Duration kFirst = std::chrono::seconds(1);
    constexpr Duration kInterval = std::chrono::seconds(10);
    if (due_ == kNever) due_ = now + kFirst;
    if (now < due_) return;
    due_ = now + kInterval;
    session.request(wire::StatusReport{wire::kFramesLost, say()});
  }

 private:
  Time due_ = kNever;
};

}  // namespace splitnic::messaging
