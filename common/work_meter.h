#pragma once

#include <chrono>
#include <cstddef>

#include "common/time.h"

namespace splitnic {

/// Measures what the pieces of a core's work cost in processor time. Cores never read a clock; their owner passes them
/// a meter. Thread: the core's.
class WorkMeter {
 public:
  virtual ~WorkMeter() = default;
  /// The core starts its work. now: as passed to its poll().
  virtual void start(Time now) = 0;
  /// The cost of the work since start() or since the last lap. work: how much the core counts it as.
  virtual Duration lap(std::size_t work) = 0;
};

/// For the simulation and tests: every unit of work costs one microsecond.
class CountedWork final : public WorkMeter {
 public:
  void start(Time /*now*/) override {}
  Duration lap(std::size_t work) override { return std::chrono::microseconds(static_cast<Duration::rep>(work)); }
};

}  // namespace splitnic
