#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/fabric/comparison.h"
#include "bench/fabric/run.h"
#include "bench/machine.h"

namespace splitnic::bench {

/// Of the JSON. It grows when a field changes its meaning or goes; fields may be added.
inline constexpr int kReportFormat = 2;

/// Everything that one `splitnic-bench fabric` found out.
struct FabricReport {
  std::string version;
  Machine machine;
  Plan plan;
  EndOptions options;
  double seconds = 0;           ///< per measurement
  std::vector<FabricRun> runs;  ///< at least one, unless only peers are compared
  std::optional<Comparison> comparison;
};

std::string to_text(const FabricReport& report);
std::string to_json(const FabricReport& report);

}  // namespace splitnic::bench
