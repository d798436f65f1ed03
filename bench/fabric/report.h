#pragma once

#include <string>
#include <vector>

#include "bench/fabric/run.h"
#include "bench/machine.h"

namespace splitnic::bench {

/// Everything that one `splitnic-bench fabric` found out.
struct FabricReport {
  std::string version;
  Machine machine;
  Plan plan;
  EndOptions options;
  double seconds = 0;           ///< per measurement
  std::vector<FabricRun> runs;  ///< at least one
};

std::string to_text(const FabricReport& report);
std::string to_json(const FabricReport& report);

}  // namespace splitnic::bench
