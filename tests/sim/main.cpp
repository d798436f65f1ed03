// splitnic_sim: a host driver core, an I/O-unit core and the messaging between them, unchanged, in a world drawn from a
// seed: simulated bridges that delay, tear and lose, cores that die, stop and sleep, a LAN, traffic. See world.h.
//
//   splitnic_sim --seed 42           one seed: what was drawn, what came of it
//   splitnic_sim --seed 42 --trace   the same with every event
//   splitnic_sim --seeds 1-2000      many; each one that fails with the command that replays it
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
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
  bool trace = false;
  bool replay = false;
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

// A failed CHECK aborts: what was under way is said from the signal handler, out of a buffer made before.
std::array<char, 512> last_words;

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

Summary run_seed(const Options& options, std::uint64_t seed, bool verbose) {
  note_seed(options, seed);
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
  std::uint64_t failed = 0;
  Duration slowest{};
  std::uint64_t deliveries = 0;
  for (std::uint64_t seed = options.first; seed <= options.last; ++seed) {
    Summary summary = run_seed(options, seed, false);
    if (options.replay && summary.violation.empty()) {
      const Summary again = run_seed(options, seed, false);
      if (again.trace_hash != summary.trace_hash) summary.violation = "two runs of this seed differ";
    }
    slowest = std::max(slowest, summary.converged_in);
    deliveries += summary.deliveries;
    if (!summary.violation.empty()) {
      ++failed;
      report_violation(options, seed, summary.violation);
    }
    const std::uint64_t done = seed - options.first + 1;
    if (done % 100 == 0) {
      fmt::print("{} seeds, {} failed\n", done, failed);
      std::fflush(stdout);
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("seeds {}-{}: {} failed, {} frames delivered, slowest to converge {:.1f} ms, {:.1f} s\n", options.first,
             options.last, failed, deliveries, milliseconds_of(slowest), seconds);
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
  CLI::App app("Deterministic simulation of the split network driver. Exit: 0 clean, 1 violation, 2 usage.");
  auto* seed = app.add_option("--seed", options.seed, "run one seed, with its options printed first");
  app.add_option("--seeds", options.seeds, "run seeds A-B")->excludes(seed);
  app.add_flag("--trace", options.trace, "print every event");
  app.add_flag("--replay", options.replay, "with --seeds: run each seed twice and compare");
  app.add_option("--plant", options.plant, "plant a fault that the verdicts must find")->check(CLI::IsMember(kPlants));
  app.add_option("--steps", options.limits.steps, "moments of simulated time before a run counts as spinning");
  app.add_option("--sim-seconds", options.limits.fault_seconds, "time of faults, instead of the drawn one");
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
