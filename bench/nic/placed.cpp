#include "bench/nic/placed.h"

#include <sched.h>

namespace splitnic::bench::nic {

/// The gauge moves this process to a core of its own, where the traffic's threads must not stay.
Result<Placement> placement_now(LineGauge& gauge) {
  cpu_set_t before;
  const bool known = ::sched_getaffinity(0, sizeof before, &before) == 0;
  move_to_core(gauge.core());
  const auto line = gauge.measure();
  if (known) static_cast<void>(::sched_setaffinity(0, sizeof before, &before));
  if (!line) return tl::unexpected(line.error());
  return placement_of(*line);
}

}  // namespace splitnic::bench::nic
