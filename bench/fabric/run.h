#pragma once

#include <vector>

#include "bench/fabric/client.h"
#include "bench/fabric/end.h"
#include "bench/fabric/measurement.h"
#include "bench/fabric/tables.h"
#include "bench/fabric/yardstick.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::bench {

/// Everything measured once, one after the other.
struct FabricRun {
  Yardsticks yardsticks;
  std::vector<Figures> figures;    ///< as many as the plan's measurements
  std::vector<TableCosts> tables;  ///< empty, or of kTableSizes
};

/// A core for each of the two processes, if this one may use two.
struct Cores {
  int client = -1;  ///< -1: not moved
  int server = -1;

  [[nodiscard]] bool apart() const { return client != server; }
};
Cores choose_cores();

/// Starts another process on the other core, brings up a bridge in shared memory between the two, measures. The other
/// process ends with this one, however this one ends; neither creates a name that could stay. length: of each
/// measurement. Call without threads. Errors: those of Client, no resources for a process or a bridge.
Result<FabricRun> run_fabric(const Plan& plan, const EndOptions& options, const Cores& cores, Duration length);

/// One measurement alone, between two new processes at real-time priority where `realtime`. Errors: as run_fabric.
Result<Figures> run_measurement(const Measurement& what, EndOptions options, const Cores& cores, bool realtime,
                                Duration length);

}  // namespace splitnic::bench
