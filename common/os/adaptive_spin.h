#pragma once

#include <algorithm>

#include "common/time.h"

namespace splitnic::os {

/// How long a loop that ran out of work looks on before it sleeps. A wake-up costs several microseconds, so looking on
/// pays when the next work is near, and wastes a core that the peer may need when it isn't. Learns from the pauses
/// seen.
class AdaptiveSpin {
 public:
  /// max: the longest spin; zero means never to spin.
  explicit AdaptiveSpin(Duration max) : max_(max) {}

  [[nodiscard]] Duration current() const { return current_; }

  /// Work turned up after a pause of this length, slept through or not.
  void observe_pause(Duration pause) {
    if (pause <= current_) return;  // spinning found it
    if (pause <= max_) {            // a longer spin would have
      current_ = std::min(max_, std::max(current_ * 2, kFirst));
    } else {
      current_ = current_ / 2 < kFirst ? Duration(0) : current_ / 2;
    }
  }

 private:
  static constexpr Duration kFirst = std::chrono::microseconds(5);
  Duration max_;
  Duration current_{0};
};

}  // namespace splitnic::os
