#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "bench/nic/contest.h"

namespace splitnic::bench {

/// Of the JSON. It grows when a field changes its meaning or goes; fields may be added.
inline constexpr int kReportFormat = 2;

/// The runs of the split driver, and those of the forwarder that does the same job.
struct Pair {
  bool offloads = false;
  std::vector<Run> split_runs{};      ///< at least one
  std::vector<Run> forwarder_runs{};  ///< as many
};

/// Everything that one `splitnic-bench nic` found out.
struct Report {
  std::string version;
  Machine machine;
  double seconds = 0;  ///< per measurement
  std::string forwarder;
  Pair plain{};
  Pair offloads{.offloads = true};
  std::vector<std::string> repeated{};  ///< why a pair of runs was discarded and repeated
};

/// Ratio of the split driver's median to the forwarder's.
double median_ratio(const Pair& pair, std::size_t metric);
/// Ratio of the split driver's median with offloads to that without.
double gain_of_offloads(const Report& report, std::size_t metric);

std::string to_text(const Report& report);
std::string to_json(const Report& report);

}  // namespace splitnic::bench
