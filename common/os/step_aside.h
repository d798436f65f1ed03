#pragma once

#include "common/time.h"

namespace splitnic::os {

/// When a loop leaves its core to the peer that it converses with. While both run on one core, neither can spin: each
/// message costs a wake-up and a change of tasks, while other cores may be idle. Linux does not part them: where the
/// cores are more than half busy, it wakes a task on the core where that ran last.
///
/// A loop that works for long between its pauses, as one that moves long frames does, stays: for it a wake-up matters
/// less than what the peer has left in the core's caches. Thread: the loop's.
class StepAside {
 public:
  /// A pause begins. worked: since the one before. peer_waits: for this core. True: leave the core now.
  [[nodiscard]] bool begin_pause(Time now, Duration worked, bool peer_waits);

 private:
  static constexpr Duration kConversation = std::chrono::microseconds(15);  // a loop that converses works no longer
  static constexpr int kEvidence = 8;                                       // pauses
  /// Where the peer, or the kernel, brings both together again and again, the loop leaves seldom.
  static constexpr Duration kShortestStay = std::chrono::milliseconds(2);
  static constexpr Duration kLongestStay = std::chrono::milliseconds(64);

  int evidence_ = 0;
  Time left_{};
  Duration stay_ = kShortestStay;  // after left_
};

}  // namespace splitnic::os
