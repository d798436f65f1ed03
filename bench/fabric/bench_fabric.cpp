// `splitnic-bench fabric`: what the verbs cost between two processes, beside what the machine does without them.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "bench/commands.h"
#include "bench/fabric/comparison_report.h"
#include "bench/fabric/report.h"
#include "bench/fabric/run.h"
#include "bench/programs.h"
#include "common/os/errno_text.h"
#include "common/result.h"

namespace splitnic::bench {

namespace {

int complain(const std::string& message) {
  fmt::print(stderr, "splitnic-bench: {}\n", message);
  return 1;
}

Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

/// The peers wait by spinning, and so does splitnic beside them.
Result<Comparison> compare_with_peers(const FabricCommand& command, const std::string& peers,
                                      const FabricReport& report, const Cores& cores) {
  ComparisonOptions options;
  options.end = report.options;
  options.end.sleep = false;
  options.cores = cores;
  options.peers = peers;
  options.rounds = command.rounds;
  options.rows = command.rows;
  options.length = duration_of(command.seconds);
  options.load = report.machine.load;
  return compare(options);
}

std::string unwritable(const std::string& path) {
  return fmt::format("{} can't be written: {}", path, os::errno_text());
}

}  // namespace

int run_fabric_command(const FabricCommand& command) {
  auto plan = plan_of(command);
  if (!plan) throw UsageError{plan.error().message};
  if (!command.svg.empty() && !plan->peers)
    throw UsageError{"--svg draws the comparison with peers, which is left out"};
  if (!command.rows.empty() && !plan->peers)
    throw UsageError{"--rows names rows of the comparison with peers, which is left out"};
  const std::string peers = peers_folder(command.peers);
  std::ofstream picture;  // before anything is measured
  if (!command.svg.empty()) {
    picture.open(command.svg);
    if (!picture) return complain(unwritable(command.svg));
  }
  const Cores cores = choose_cores();
  FabricReport report;
  report.version = SPLITNIC_VERSION;
  report.machine = describe_machine();
  report.plan = std::move(*plan);
  report.options.sleep = !command.spin;
  report.options.shares_core = !cores.apart();
  report.options.cell_bytes = command.cell_bytes;
  report.seconds = command.seconds;
  const bool runs = !report.plan.measurements.empty() || report.plan.tables;
  while (runs && report.runs.size() < command.runs) {
    fmt::print(stderr, "run {} of {}\n", report.runs.size() + 1, command.runs);
    auto run = run_fabric(report.plan, report.options, cores, duration_of(command.seconds));
    if (!run) return complain(run.error().message);
    report.runs.push_back(std::move(*run));
  }
  if (report.plan.peers) {
    auto comparison = compare_with_peers(command, peers, report, cores);
    if (!comparison) return complain(comparison.error().message);
    report.comparison = std::move(*comparison);
  }
  fmt::print("{}\n", command.json ? to_json(report) : to_text(report));
  if (command.svg.empty()) return 0;
  picture << to_svg(*report.comparison, to_text(report.machine));
  return picture.flush() ? 0 : complain(unwritable(command.svg));
}

}  // namespace splitnic::bench
