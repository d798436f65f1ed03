#pragma once

#include <string>

#include "common/time.h"
#include "messaging/session.h"

namespace splitnic::messaging {

/// Tells the peer's people that frames of theirs get lost at this end: a StatusReport a second after the first loss,
/// and every ten seconds while it goes on. Thread: the session's.
class LossReport {
 public:
  /// Call with each loss. say: the report's text, called when one is due.
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
