// splitnic_sim: a host driver core, an I/O-unit core and the messaging between them, unchanged, in a world drawn from a
// seed: simulated bridges that delay, tear and lose, cores that die, stop and sleep, a LAN, traffic. See world.h.
//
//   splitnic_sim --seed 42           one seed: what was drawn, what came of it
//   splitnic_sim --seed 42 --trace   the same with every event
//   splitnic_sim --seeds 1-2000      many; each one that fails with the command that replays it
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>

#include "seed_runs.h"
#include "world.h"

namespace {

using namespace splitnic;
using namespace splitnic::sim;

struct Options : SeedOptions {
  std::string plant = "none";
  Limits limits;
};

const std::map<std::string, Plant> kPlants{
    {"none", Plant::none},       {"drop", Plant::drop},     {"duplicate", Plant::duplicate},
    {"corrupt", Plant::corrupt}, {"swap", Plant::swap},     {"misdeliver", Plant::misdeliver},
    {"deaf", Plant::deaf},       {"absent", Plant::absent}, {"sleepless", Plant::sleepless}};

std::string program_name;

std::string replay_command(const Options& options, std::uint64_t seed) {
  std::string command = fmt::format("{} --seed {}", program_name, seed);
  if (options.plant != "none") command += " --plant " + options.plant;
  if (options.limits.fault_seconds > 0) command += fmt::format(" --sim-seconds {}", options.limits.fault_seconds);
  return command;
}

Summary run_seed(const Options& options, std::uint64_t seed, bool verbose) {
  note_seed(seed, replay_command(options, seed));
  Scenario scenario = draw_scenario(seed);
  scenario.plant = kPlants.at(options.plant);
  if (verbose) {
    std::fputs(to_text(scenario).c_str(), stdout);
    std::fflush(stdout);
  }
  World world(scenario, options.limits, options.trace);
  return world.run();
}

void report_violation(const Options& options, std::uint64_t seed, const std::string& what) {
  fmt::print("violation: seed {}: {}; replay: {}\n", seed, what, replay_command(options, seed));
  std::fflush(stdout);
}

double milliseconds_of(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

int run_one(const Options& options) {
  const Summary summary = run_seed(options, options.seed, true);
  fmt::print(
      "{:.0f} ms simulated in {} steps: {} frames, {} deliveries, {} doorbells lost, converged {:.1f} ms after "
      "the heal, at most {:.1f} idle wake-ups a second\ntrace hash {:016x} of {} events\n",
      milliseconds_of(summary.simulated), summary.steps, summary.frames, summary.deliveries, summary.doorbells_lost,
      milliseconds_of(summary.converged_in), summary.idle_wakes_per_second, summary.trace_hash, summary.events);
  if (summary.violation.empty()) return 0;
  report_violation(options, options.seed, summary.violation);
  return 1;
}

int run_many(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  Duration slowest{};
  std::uint64_t deliveries = 0;
  const auto run = [&](std::uint64_t seed) {
    const Summary summary = run_seed(options, seed, false);
    slowest = std::max(slowest, summary.converged_in);
    deliveries += summary.deliveries;
    return SeedResult{summary.trace_hash, summary.violation};
  };
  const std::uint64_t failed = run_range(options, run, [&](std::uint64_t seed, const std::string& violation) {
    report_violation(options, seed, violation);
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("seeds {}-{}: {} failed, {} frames delivered, slowest to converge {:.1f} ms, {:.1f} s\n", options.first,
             options.last, failed, deliveries, milliseconds_of(slowest), seconds);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  program_name = argv[0];
  CLI::App app("Deterministic simulation of the split network driver. Exit: 0 clean, 1 violation, 2 usage.");
  add_options(app, options);
  app.add_option("--plant", options.plant, "plant a fault that the verdicts must find")->check(CLI::IsMember(kPlants));
  app.add_option("--steps", options.limits.steps, "moments of simulated time before a run counts as spinning");
  app.add_option("--sim-seconds", options.limits.fault_seconds, "time of faults, instead of the drawn one");
  if (const int code = parse(app, options, argc, argv); code >= 0) return code;
  return options.range.empty() ? run_one(options) : run_many(options);
}
