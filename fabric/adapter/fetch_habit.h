#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "common/time.h"

namespace splitnic::fabric {

/// When an end that answers asks for the lines of its answer's slot, which the peer looks at all the time: with the
/// post alone, or as soon as the message is there that it will answer. The latter is earlier by what the caller does in
/// between. Between distant cores that is what fetching the lines takes; between near ones, the peer has taken them
/// back by the time the answer is stored. So a habit counts the messages in stretches of both, and keeps the better
/// way. Thread: the adapter's owner.
class FetchHabit {
 public:
  static constexpr Duration kStretch = std::chrono::microseconds(100);
  /// Fewer messages in a stretch are no conversation.
  static constexpr std::uint64_t kLeastMessages = 40;
  /// One stretch in so many tries the other way.
  static constexpr unsigned kTryOneIn = 16;
  /// To ask at once has to be better by so much.
  static constexpr double kClearly = 1.03;

  /// So many messages have come in for a caller who answers such. Whether to ask for the lines now.
  [[nodiscard]] bool came(std::uint64_t messages, Time now) {
    messages_ += messages;
    if (now - begun_ >= kStretch) end_stretch(now);
    return at_once_;
  }

 private:
  void end_stretch(Time now) {
    const Duration took = now - begun_;
    if (messages_ >= kLeastMessages && took <= 2 * kStretch) {
      choose(static_cast<double>(messages_) / std::chrono::duration<double>(took).count());
    } else {
      at_once_ = false;
      speeds_ = last_ = {};
    }
    messages_ = 0;
    begun_ = now;
  }
  void choose(double speed) {
    const std::size_t way = at_once_ ? 1 : 0;
    // An interrupt makes a stretch slow, and nothing makes one fast: of two, the better one tells.
    speeds_[way] = std::max(last_[way], speed);
    last_[way] = speed;
    const bool tries = ++stretches_ % kTryOneIn == 0;
    at_once_ = (speeds_[1] > kClearly * speeds_[0]) != tries;
  }

  bool at_once_ = false;            // in this stretch
  std::uint64_t messages_ = 0;      // likewise
  Time begun_{};                    // the stretch
  std::array<double, 2> speeds_{};  // messages per second, asked for with the post and at once; 0: none yet
  std::array<double, 2> last_{};    // likewise, of the last stretch alone
  unsigned stretches_ = 0;
};

}  // namespace splitnic::fabric
