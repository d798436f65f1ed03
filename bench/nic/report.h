#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "bench/nic/contest.h"

namespace splitnic::bench {

/// Of the JSON. It grows when a field changes its meaning or goes; fields may be added.
inline constexpr int kReportFormat = 1;

/// Everything that one `splitnic-bench nic` found out.
struct Report {
  std::string version;
  Machine machine;
  double seconds = 0;  ///< per measurement
  std::string forwarder;
  std::vector<Run> split_runs;        ///< at least one
  std::vector<Run> forwarder_runs;    ///< as many
  std::vector<std::string> repeated;  ///< why a pair of runs was discarded and repeated
};

/// Ratio of the medians, for each metric.
double median_ratio(const Report& report, std::size_t metric);
bool goal_met(const Report& report, std::size_t metric);

std::string to_text(const Report& report);
std::string to_json(const Report& report);

}  // namespace splitnic::bench
