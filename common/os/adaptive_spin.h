#pragma once

#include <algorithm>

#include "common/time.h"

namespace splitnic::os {

/// How long a loop that ran out of work looks on before it sleeps. A wake-up costs several microseconds, so looking on
/// pays when the next work is near, and wastes a core that the peer may need when it isn't. Learns from the pauses
/// seen: spins while at least about one in three was short, because a conversation's pauses alternate: a short one for
/// the answer, a long one until the next question.
class AdaptiveSpin {
 public:
  /// max: the longest spin; zero means never to spin.
  explicit AdaptiveSpin(Duration max) : max_(max) {}

  [[nodiscard]] Duration current() const { return credit_ > 0 ? max_ : Duration(0); }

  /// Work turned up after a pause of this length, slept through or not.
  void observe_pause(Duration pause) {
    credit_ = pause <= max_ ? std::min(credit_ + kShortPauseEarns, kMostCredit) : std::max(credit_ - 1, 0);
  }

 private:
  static constexpr int kShortPauseEarns = 2;
  static constexpr int kMostCredit = 8;  // so many spins in vain end it
  Duration max_;
  int credit_ = 0;
};

}  // namespace splitnic::os
