#pragma once

#include <algorithm>

#include "common/time.h"

namespace splitnic::os {

/// How long a loop without work spins before it sleeps. A wake-up costs several microseconds. Spinning pays if the next
/// work comes soon; otherwise it wastes a core that the peer may need. The object learns from the pauses that it
/// observes. The loop spins while at least about one pause in three is short, because the pauses of a conversation
/// alternate: a short one before the answer, a long one before the next question.
class AdaptiveSpin {
 public:
  /// max: the longest spin; zero means never to spin.
  explicit AdaptiveSpin(Duration max) : max_(max) {}

  [[nodiscard]] Duration current() const { return credit_ > 0 ? max_ : Duration(0); }

  /// Work arrived after a pause of this length, whether the loop slept through it or not.
  void observe_pause(Duration pause) {
    credit_ = pause <= max_ ? std::min(credit_ + kShortPauseEarns, kMostCredit) : std::max(credit_ - 1, 0);
  }

 private:
  static constexpr int kShortPauseEarns = 2;
  static constexpr int kMostCredit = 8;  // after this many spins without work the loop no longer spins
  Duration max_;
  int credit_ = 0;
};

}  // namespace splitnic::os
