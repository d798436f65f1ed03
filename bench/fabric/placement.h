#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>

#include "bench/fabric/run.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "fabric/bridge/bridge.h"

namespace splitnic::bench {

/// Where the two cores of the measurement lie. On a virtual machine this changes while it runs.
enum class Placement : std::uint8_t {
  apart,       ///< two real cores without a common cache
  neighbours,  ///< two real cores with a common last-level cache: a cache line arrives several times faster
  sharing,     ///< two halves of one real core: twice as fast again, but each half has about half of the speed
};
inline constexpr std::array<Placement, 3> kPlacements{Placement::apart, Placement::neighbours, Placement::sharing};
const char* to_string(Placement placement);
/// In JSON, and where a table has no room.
const char* key_of(Placement placement);

/// Spins until the word that the other process stores at the start of this end's memory is `value`. False: the value
/// does not come. yield: both may be on one core.
[[nodiscard]] bool await_word(fabric::Bridge& bridge, std::uint64_t value, bool yield);

/// line: seconds one way.
[[nodiscard]] Placement placement_of(double line);
/// Seconds one way: below, the cores share one real core.
inline constexpr double kSharingBelow = 0.037e-6;
/// Seconds one way: below, they have a common cache.
inline constexpr double kNeighboursBelow = 0.13e-6;

/// Bounds of a ratio: for two real cores, and for two halves of one.
struct Bounds {
  double apart = 0;
  double sharing = 0;

  [[nodiscard]] constexpr double of(Placement placement) const {
    return placement == Placement::sharing ? sharing : apart;
  }
};

/// Measures how long a cache line takes from core to core, between this process and another one that sleeps meanwhile.
/// Thread: one; this process moves to cores.client.
class LineGauge {
 public:
  /// Forks: call without threads. Errors: no resources.
  static Result<LineGauge> start(const Cores& cores);
  LineGauge(LineGauge&& other) noexcept;
  LineGauge& operator=(LineGauge&&) = delete;
  ~LineGauge();

  /// Seconds one way; takes less than a millisecond. Errors: the other process is gone.
  Result<double> measure();
  /// Where this process has to be meanwhile; -1: anywhere.
  [[nodiscard]] int core() const { return cores_.client; }

 private:
  LineGauge(pid_t pid, os::UniqueFd channel, std::unique_ptr<fabric::Bridge> bridge, const Cores& cores);

  pid_t pid_ = -1;
  os::UniqueFd channel_;
  std::unique_ptr<fabric::Bridge> bridge_;
  Cores cores_;
  std::uint64_t word_ = 0;
};

/// Real-time priority for this process while it lives, so that other programs take neither core during a sample. Does
/// nothing if the process has it already, if the user may not, or if the two processes share the only core, where one
/// of them would wait for ever. Processes that this one forks inherit it.
class RaisedPriority {
 public:
  explicit RaisedPriority(const Cores& cores, bool wanted = true);
  RaisedPriority(const RaisedPriority&) = delete;
  RaisedPriority& operator=(const RaisedPriority&) = delete;
  ~RaisedPriority();

  [[nodiscard]] bool raised() const { return raised_; }

 private:
  bool raised_ = false;
};
/// Does nothing for core -1.
void move_to_core(int core);

}  // namespace splitnic::bench
