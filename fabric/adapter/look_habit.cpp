#include "fabric/adapter/look_habit.h"

#include <utility>

namespace splitnic::fabric {

void LookHabit::emptied(Time now, std::uint64_t consumed, std::uint64_t sent) {
  if (sent != std::exchange(sent_, sent)) {  // a conversation
    stream_from_ = consumed;
    until_ = now;
    return begin_stretch(now, consumed);
  }
  if (consumed - stream_from_ < kStreamLines) return;
  if (now - begun_ >= kStretch) choose(now, consumed);
  if (away_) until_ = now + kAway;
}

void LookHabit::begin_stretch(Time now, std::uint64_t consumed) {
  begun_ = now;
  begun_at_ = consumed;
}

/// How the next stretch looks, after this one.
void LookHabit::choose(Time now, std::uint64_t consumed) {
  const std::uint64_t lines = consumed - begun_at_;
  const Duration took = now - begun_;
  begin_stretch(now, consumed);
  if (lines < kLeastLines || took > 2 * kStretch) {
    away_ = false;
    speeds_ = {};
    return;
  }
  speeds_[away_ ? 1 : 0] = static_cast<double>(lines) / std::chrono::duration<double>(took).count();
  const bool better_away = speeds_[1] > speeds_[0];
  const bool tries = ++stretches_ % kTryOneIn == 0;
  away_ = better_away != tries;
}

}  // namespace splitnic::fabric
