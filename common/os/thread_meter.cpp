#include "common/os/thread_meter.h"

#include <ctime>

#include <algorithm>
#include <utility>

namespace splitnic::os {

namespace {

// A shorter lap is believed: the error is small, and to ask the kernel costs a system call.
constexpr Duration kLongLap = std::chrono::microseconds(200);
// The thread may have slept since the last look. A long lap must not be excused by more sleep than this. A look takes 1
// to 3 us.
constexpr Duration kLookAge = std::chrono::milliseconds(4);

}  // namespace

Duration thread_processor_time() {
  timespec time{};
  static_cast<void>(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time));
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void ThreadMeter::start(Time now) {
  lap_start_ = now;
  if (now - looked_at_ >= kLookAge) look(now);
}

Duration ThreadMeter::lap(std::size_t /*work*/) {
  const Time now = clock_();
  const Duration passed = now - std::exchange(lap_start_, now);
  if (passed < kLongLap) return passed;
  return passed - std::clamp(look(now), Duration::zero(), passed);
}

Duration ThreadMeter::look(Time now) {
  const Duration used = processor_time_();
  return (now - std::exchange(looked_at_, now)) - (used - std::exchange(used_, used));
}

}  // namespace splitnic::os
