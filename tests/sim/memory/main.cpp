// memory_sim: protected memory against a plain model of it. An owner, two initiators, millions of random operations;
// every allowed access must succeed with the right bytes, every other one fail by the model's code, and no byte outside
// a granted range ever change. See world.h.
//
//   memory_sim --seed 42 --operations 10000000   one seed: what was drawn, what came of it
//   memory_sim --seeds 1-100                     many; each one that fails with the command that replays it
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

MemorySummary run_seed(const Options& options, std::uint64_t seed, bool verbose) {
  note_seed(seed, replay_command(options, seed));
  const MemoryScenario scenario = draw_memory_scenario(seed);
  if (verbose) {
    std::fputs(to_text(scenario).c_str(), stdout);
    std::fflush(stdout);
  }
  MemoryWorld world(scenario, options.trace);
  return world.run(options.operations);
}

void report_violation(const Options& options, std::uint64_t seed, const MemorySummary& summary) {
  fmt::print("violation: seed {}: {}; replay: {}\n", seed, summary.violation, replay_command(options, seed));
  for (const std::string& operation : summary.last_operations) fmt::print("  {}\n", operation);
  std::fflush(stdout);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run_one(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  const MemorySummary summary = run_seed(options, options.seed, true);
  const double seconds = seconds_since(begin);
  std::uint64_t allowed = 0;
  std::uint64_t all = 0;
  for (const auto& [what, count] : summary.verdicts) {
    fmt::print("  {:<55} {:>10}\n", what, count);
    all += count;
    if (what.ends_with(": ok")) allowed += count;
  }
  fmt::print(
      "{} operations in {:.1f} s ({:.0f}/s), {} of {} allowed, {} kinds of verdict, {} crashes; all memory compared {} "
      "times; {} direct, {} retransmissions, {} cells out of sequence, {} duplicates\ntrace hash {:016x}\n",
      summary.operations, seconds, static_cast<double>(summary.operations) / seconds, allowed, all,
      summary.verdicts.size(), summary.crashes, summary.comparisons, summary.direct, summary.retransmissions,
      summary.out_of_sequence, summary.duplicates, summary.trace_hash);
  if (summary.violation.empty()) return 0;
  report_violation(options, options.seed, summary);
  return 1;
}

int run_many(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  MemorySummary summary;
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
  CLI::App app("Random operations on protected memory beside a plain model. Exit: 0 clean, 1 violation, 2 usage.");
  add_options(app, options);
  app.add_option("--operations", options.operations, "of each seed");
  if (const int code = parse(app, options, argc, argv); code >= 0) return code;
  return options.range.empty() ? run_one(options) : run_many(options);
}
