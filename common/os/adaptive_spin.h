#pragma once

#include <array>
#include <boost/describe/class.hpp>
#include <cstddef>
#include <cstdint>

#include "common/long_frames.h"
#include "common/moved_frames.h"
#include "common/time.h"

namespace splitnic::os {

/// What spinning gave and what it cost, since the start.
struct SpinCounters {
  std::uint64_t spins_paid = 0;       ///< work came, so a sleep and its wake-up were saved
  std::uint64_t spins_in_vain = 0;    ///< the loop slept after all
  std::uint64_t spin_us_paid = 0;     ///< processor time of the former, in microseconds
  std::uint64_t spin_us_in_vain = 0;  ///< of the latter
  std::uint64_t cores_left = 0;       ///< the loop left its core to its peer (StepAside)

  SpinCounters& operator+=(const SpinCounters& other);
};
/// The counters' names, as `splitnic stats` reports them.
BOOST_DESCRIBE_STRUCT(SpinCounters, (), (spins_paid, spins_in_vain, spin_us_paid, spin_us_in_vain, cores_left))

/// How long a loop without work spins before it sleeps. A wake-up costs several microseconds. Spinning pays if the next
/// work comes soon; otherwise it wastes a core that the peer may need. The object learns from the last pauses what each
/// length would have gained, and takes the best one: a saved wake-up is worth three of the longest spins, and a spin in
/// vain costs its length. So the longest spins go on while one pause in four is short, as in a conversation, whose
/// pauses alternate: a short one before the answer, a long one before the next question. Where work comes within a few
/// microseconds or not at all, short spins suffice, and go on for longer.
///
/// Where one frame in four is long, as in a stream with offloads, the loop sleeps at once: who moves such frames works
/// for longer than a wake-up takes, and needs the core that a spin would take from it.
///
/// Spins in vain have a budget, a part of the time that passes. If it is used up, the loop sleeps at once until some is
/// there again. Thread: the loop's.
class AdaptiveSpin {
 public:
  /// max: the longest spin; zero means never to spin. budget: how many percent of the time spins in vain may take, 0 to
  /// 100.
  explicit AdaptiveSpin(Duration max, unsigned budget) : max_(max), budget_(budget) {}

  /// A pause begins: how long to spin at most. moved: all frames so far. Zero: sleep at once.
  [[nodiscard]] Duration begin_pause(Time now, const MovedFrames& moved = {});
  /// The loop spun for so long, and sleeps now.
  void spun_in_vain(Duration time);
  /// Work arrived after a pause of this length, whether the loop slept through it or not.
  void end_pause(Duration pause);

 private:
  static constexpr std::size_t kLengths = 5;     // each twice as long as the one before
  static constexpr int kWorthOfWakeUp = 3;       // in longest spins
  static constexpr std::int64_t kWeight = 1024;  // of a new pause
  static constexpr std::int64_t kMemory = 16;    // older ones lose a sixteenth with each
  /// A budget that was not used lasts for so many of the longest spins.
  static constexpr int kMostSpinsAhead = 40;

  [[nodiscard]] Duration length(std::size_t index) const { return max_ / (1 << (kLengths - 1 - index)); }
  /// The one with the most gain; zero: none has any.
  [[nodiscard]] Duration best_length() const;

  Duration max_;
  unsigned budget_;
  /// By the shortest length that covers them; the last: those that none covers.
  std::array<std::int64_t, kLengths + 1> pauses_{};
  Duration best_{};
  Duration allowance_ = max_ * kMostSpinsAhead;  // for spins in vain
  Time allowance_of_{};
  LongFrames long_frames_;
};

}  // namespace splitnic::os
