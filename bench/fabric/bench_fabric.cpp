// `splitnic-bench fabric`: what the verbs cost between two processes, beside what the machine does without them.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "bench/commands.h"
#include "bench/fabric/report.h"
#include "bench/fabric/run.h"
#include "common/result.h"

namespace splitnic::bench {

int run_fabric_command(const FabricCommand& command) {
  auto plan = plan_of(command);
  if (!plan) throw UsageError{plan.error().message};
  const Cores cores = choose_cores();
  FabricReport report;
  report.version = SPLITNIC_VERSION;
  report.machine = describe_machine();
  report.plan = std::move(*plan);
  report.options.sleep = !command.spin;
  report.options.shares_core = !cores.apart();
  report.options.cell_bytes = command.cell_bytes;
  report.seconds = command.seconds;
  const auto length = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(command.seconds));
  while (report.runs.size() < command.runs) {
    fmt::print(stderr, "run {} of {}\n", report.runs.size() + 1, command.runs);
    auto run = run_fabric(report.plan, report.options, cores, length);
    if (!run) {
      fmt::print(stderr, "splitnic-bench: {}\n", run.error().message);
      return 1;
    }
    report.runs.push_back(std::move(*run));
  }
  fmt::print("{}\n", command.json ? to_json(report) : to_text(report));
  return 0;
}

}  // namespace splitnic::bench
