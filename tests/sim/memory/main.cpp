// memory_sim: protected memory against a plain model of it. An owner, two initiators, millions of random operations;
// every allowed access must succeed with the right bytes, every other one fail by the model's code, and no byte outside
// a granted range ever change. See world.h.
//
//   memory_sim --seed 42 --operations 10000000   one seed: what was drawn, what came of it
//   memory_sim --seeds 1-100                     many; each one that fails with the command that replays it
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "world.h"

namespace {

using namespace splitnic;
using namespace splitnic::sim;

struct Options {
  std::uint64_t seed = 1;
  std::string seeds;
  std::uint64_t first = 1;
  std::uint64_t last = 1;
  std::uint64_t operations = 100'000;
  bool trace = false;
  bool replay = false;
};

std::string program_name;
// A failed CHECK aborts: what was under way is said from the signal handler, out of a buffer made before.
std::array<char, 512> last_words;

std::string replay_command(const Options& options, std::uint64_t seed) {
  return fmt::format("{} --seed {} --operations {}", program_name, seed, options.operations);
}

void note_seed(const Options& options, std::uint64_t seed) {
  const std::string words =
      fmt::format("violation: seed {}: the process was killed by a signal (a failed CHECK?)\n  replay: {}\n", seed,
                  replay_command(options, seed));
  last_words.fill('\0');
  std::copy_n(words.begin(), std::min(words.size(), last_words.size() - 1), last_words.begin());
}

extern "C" void say_last_words(int) {
  static_cast<void>(!write(STDERR_FILENO, last_words.data(), std::strlen(last_words.data())));
  _exit(1);
}

MemorySummary run_seed(const Options& options, std::uint64_t seed, bool verbose) {
  note_seed(options, seed);
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
      "times; {} direct, {} retransmissions\ntrace hash {:016x}\n",
      summary.operations, seconds, static_cast<double>(summary.operations) / seconds, allowed, all,
      summary.verdicts.size(), summary.crashes, summary.comparisons, summary.direct, summary.retransmissions,
      summary.trace_hash);
  if (summary.violation.empty()) return 0;
  report_violation(options, options.seed, summary);
  return 1;
}

int run_many(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t failed = 0;
  for (std::uint64_t seed = options.first; seed <= options.last; ++seed) {
    MemorySummary summary = run_seed(options, seed, false);
    if (options.replay && summary.violation.empty() &&
        run_seed(options, seed, false).trace_hash != summary.trace_hash) {
      summary.violation = "two runs of this seed differ";
    }
    if (summary.violation.empty()) continue;
    ++failed;
    report_violation(options, seed, summary);
  }
  fmt::print("seeds {}-{}, {} operations each: {} failed, {:.1f} s\n", options.first, options.last, options.operations,
             failed, seconds_since(begin));
  return failed == 0 ? 0 : 1;
}

bool parse_range(Options& options) {
  if (options.seeds.empty()) return true;
  char rest = 0;
  unsigned long long first = 0;
  unsigned long long last = 0;
  if (std::sscanf(options.seeds.c_str(), "%llu-%llu%c", &first, &last, &rest) != 2 || last < first) return false;
  options.first = first;
  options.last = last;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  program_name = argv[0];
  CLI::App app("Random operations on protected memory beside a plain model. Exit: 0 clean, 1 violation, 2 usage.");
  auto* seed = app.add_option("--seed", options.seed, "run one seed, with what it drew and what came of it");
  app.add_option("--seeds", options.seeds, "run seeds A-B")->excludes(seed);
  app.add_option("--operations", options.operations, "of each seed");
  app.add_flag("--trace", options.trace, "print every event");
  app.add_flag("--replay", options.replay, "with --seeds: run each seed twice and compare");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!parse_range(options)) {
    std::fputs("--seeds wants A-B, two numbers with A <= B\n", stderr);
    return 2;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, say_last_words);
  return options.seeds.empty() ? run_one(options) : run_many(options);
}
