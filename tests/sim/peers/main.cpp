// peers_sim: one owner of memory, three peers, every service; see world.h for what must hold.
//
//   peers_sim --seed 42 --operations 10000000   one seed: what was drawn, what came of it
//   peers_sim --seeds 1-100                     many; each one that fails with the command that replays it
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>

#include "../seed_runs.h"
#include "world.h"

namespace {

using namespace splitnic;
using namespace splitnic::sim;

struct Options : SeedOptions {
  std::uint64_t operations = 100'000;
};

std::string program_name;

std::string replay_command(const Options& options, std::uint64_t seed) {
  return fmt::format("{} --seed {} --operations {}", program_name, seed, options.operations);
}

PeersSummary run_seed(const Options& options, std::uint64_t seed, bool verbose) {
  note_seed(seed, replay_command(options, seed));
  const PeersScenario scenario = draw_peers_scenario(seed);
  if (verbose) {
    std::fputs(to_text(scenario).c_str(), stdout);
    std::fflush(stdout);
  }
  PeersWorld world(scenario, options.trace);
  return world.run(options.operations);
}

void report_violation(const Options& options, std::uint64_t seed, const PeersSummary& summary) {
  fmt::print("violation: seed {}: {}; replay: {}\n", seed, summary.violation, replay_command(options, seed));
  std::fflush(stdout);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run_one(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  const PeersSummary summary = run_seed(options, options.seed, true);
  const double seconds = seconds_since(begin);
  for (const auto& [what, count] : summary.counts) fmt::print("  {:<45} {:>10}\n", what, count);
  fmt::print("{} operations in {:.1f} s ({:.0f}/s)\ntrace hash {:016x}\n", summary.operations, seconds,
             static_cast<double>(summary.operations) / seconds, summary.trace_hash);
  if (summary.violation.empty()) return 0;
  report_violation(options, options.seed, summary);
  return 1;
}

int run_many(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  PeersSummary summary;
  const auto run = [&](std::uint64_t seed) {
    summary = run_seed(options, seed, false);
    return SeedResult{summary.trace_hash, summary.violation};
  };
  const std::uint64_t failed = run_range(options, run, [&](std::uint64_t seed, const std::string& violation) {
    summary.violation = violation;
    report_violation(options, seed, summary);
  });
  fmt::print("seeds {}-{}, {} operations each: {} failed, {:.1f} s\n", options.first, options.last, options.operations,
             failed, seconds_since(begin));
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  program_name = argv[0];
  CLI::App app(
      "One owner of memory, three peers, every service, against invariants. Exit: 0 clean, 1 violation, 2 usage.");
  add_options(app, options);
  app.add_option("--operations", options.operations, "of each seed");
  if (const int code = parse(app, options, argc, argv); code >= 0) return code;
  return options.range.empty() ? run_one(options) : run_many(options);
}
