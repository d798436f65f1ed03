#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "common/time.h"

namespace splitnic::fabric {

/// When a receiver looks again at a lane that it has emptied. At once, a message has the shortest way. But in a stream,
/// each look takes the line of the next slot from the sender, who is about to store into it, and a receiver at the
/// sender's heels fetches each line from the sender's cache. One that looks away for a moment finds several messages,
/// and both ends go on without each other. How much that moves depends on where the cores lie, and on how many messages
/// the sender keeps under way: one that waits after a few of them would wait longer. So a habit measures stretches of
/// both, and keeps the better one. Conversations, where this end sends as well, are left alone. Thread: the adapter's
/// owner.
class LookHabit {
 public:
  /// The longest time that a message waits because of this.
  static constexpr Duration kAway = std::chrono::microseconds(2);
  static constexpr Duration kStretch = std::chrono::microseconds(100);
  /// Lines taken since this end has sent something on the lane, before that is a stream.
  static constexpr std::uint64_t kStreamLines = 16;
  /// Fewer in a stretch are no stream.
  static constexpr std::uint64_t kLeastLines = 100;
  /// One stretch in so many tries the other way.
  static constexpr unsigned kTryOneIn = 16;

  /// The lane is empty, after something was taken. consumed, sent: all lines of the epoch, in either direction. The
  /// first stretch of a new epoch may be measured wrongly.
  void emptied(Time now, std::uint64_t consumed, std::uint64_t sent);
  [[nodiscard]] bool looks_away(Time now) const { return now < until_; }

 private:
  void begin_stretch(Time now, std::uint64_t consumed);
  void choose(Time now, std::uint64_t consumed);

  Time until_{};
  bool away_ = false;  // in this stretch
  std::uint64_t sent_ = 0;
  std::uint64_t stream_from_ = 0;   // consumed when this end had sent last
  Time begun_{};                    // the stretch
  std::uint64_t begun_at_ = 0;      // consumed then
  std::array<double, 2> speeds_{};  // lines per second, of the last stretch without and with looking away; 0: none yet
  unsigned stretches_ = 0;
};

}  // namespace splitnic::fabric
