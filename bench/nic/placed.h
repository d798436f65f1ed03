#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>

#include "bench/fabric/placement.h"
#include "common/result.h"

namespace splitnic::bench::nic {

/// Where the two cores are now. Thread: the gauge's; it may run afterwards where it might before.
Result<Placement> placement_now(LineGauge& gauge);

/// What was measured while the two cores of the machine lay as `placement` says.
template <class Value>
struct Placed {
  Placement placement{};
  Value value{};
};

/// Calls measure(), and again if the cores have moved meanwhile: at most three times. nullopt: they moved each time.
/// moved: counts the measurements that are discarded. Errors: those of measure() and of the gauge.
template <class Value>
Result<std::optional<Placed<Value>>> measure_placed(LineGauge& gauge, std::size_t& moved,
                                                    const std::function<Result<Value>()>& measure) {
  constexpr int kTries = 3;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const auto before = placement_now(gauge);
    if (!before) return tl::unexpected(before.error());
    auto value = measure();
    if (!value) return tl::unexpected(value.error());
    const auto after = placement_now(gauge);
    if (!after) return tl::unexpected(after.error());
    if (*before == *after) return Placed<Value>{*before, *std::move(value)};
    ++moved;
  }
  return std::nullopt;
}

}  // namespace splitnic::bench::nic
