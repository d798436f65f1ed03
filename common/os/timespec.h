#pragma once

#include <ctime>

#include "common/time.h"

namespace splitnic::os {

/// As the kernel's calls take it. Not for Duration::max(), which would be 292 years.
[[nodiscard]] inline timespec timespec_of(Duration time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((time - seconds).count())};
}

}  // namespace splitnic::os
