#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "trace.h"

namespace splitnic::sim {

/// The options of every simulation: one seed printed in full, or a range of them.
struct SeedOptions {
  std::uint64_t seed = 1;
  std::string range;  ///< "A-B"; empty: seed alone
  std::uint64_t first = 1;
  std::uint64_t last = 1;
  bool trace = false;
  bool replay = false;  ///< run each seed of the range twice and compare
};

void add_options(CLI::App& app, SeedOptions& options);
/// Parses the command line. Returns -1, or the exit code with which the program ends at once: 0 after --help, 2 usage.
int parse(CLI::App& app, SeedOptions& options, int argc, const char* const* argv);

/// From now on a SPLITNIC_CHECK that fails, or a signal that ends the process, says the command that replays the seed.
void note_seed(std::uint64_t seed, const std::string& replay_command);

/// Runs the range, and prints the progress. Returns how many seeds failed. report: prints the seed's violation.
std::uint64_t run_range(const SeedOptions& options, const std::function<SeedResult(std::uint64_t seed)>& run,
                        const std::function<void(std::uint64_t seed, const std::string& violation)>& report);

/// Returns what run() returns, or 3, with a line on standard error, if not all of the output could be written: a
/// violation may be missing from it, and its failure is none.
int run_and_finish_output(const std::function<int()>& run);

/// A simulation's program. Simulation has:
///
///   using Options, Scenario, Summary;                      derived from SeedOptions; with to_text(); from SeedResult
///   static constexpr const char* kAbout;                   for --help
///   void add_options(CLI::App&, Options&);                 its own
///   std::string replay_options(const Options&);            its own, as in a command line, with a blank before each
///   Scenario draw(std::uint64_t seed, const Options&);
///   Summary run(const Scenario&, const Options&);
///   void print(const Summary&, double seconds);            of one seed
///   void print_more(const Summary&);                       below its violation
///   std::string totals(const Options&);                    of all runs so far, for the last line of a range
template <class Simulation>
class SeedProgram {
 public:
  /// main(). Returns the exit code: 0 clean, 1 violation, 2 usage, 3 output that can't be written.
  int run(int argc, char** argv) {
    return run_and_finish_output([&] { return parse_and_run(argc, argv); });
  }

 private:
  using Summary = typename Simulation::Summary;

  int parse_and_run(int argc, char** argv) {
    program_name_ = argv[0];
    CLI::App app(
        fmt::format("{} Exit: 0 clean, 1 violation, 2 usage, 3 output that can't be written.", Simulation::kAbout));
    sim::add_options(app, options_);
    simulation_.add_options(app, options_);
    if (const int code = parse(app, options_, argc, argv); code >= 0) return code;
    return options_.range.empty() ? run_one() : run_many();
  }

  [[nodiscard]] std::string replay_command(std::uint64_t seed) {
    return fmt::format("{} --seed {}{}", program_name_, seed, simulation_.replay_options(options_));
  }

  Summary run_seed(std::uint64_t seed, bool verbose) {
    note_seed(seed, replay_command(seed));
    const typename Simulation::Scenario scenario = simulation_.draw(seed, options_);
    if (verbose) {
      std::fputs(to_text(scenario).c_str(), stdout);
      std::fflush(stdout);
    }
    return simulation_.run(scenario, options_);
  }

  void report(std::uint64_t seed, const Summary& summary) {
    fmt::print("violation: seed {}: {}; replay: {}\n", seed, summary.violation, replay_command(seed));
    simulation_.print_more(summary);
    std::fflush(stdout);
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

  int run_one() {
    const Summary summary = run_seed(options_.seed, true);
    simulation_.print(summary, seconds());
    if (summary.violation.empty()) return 0;
    report(options_.seed, summary);
    return 1;
  }

  int run_many() {
    Summary last;
    const auto run = [&](std::uint64_t seed) -> SeedResult { return last = run_seed(seed, false); };
    const std::uint64_t failed = run_range(options_, run, [&](std::uint64_t seed, const std::string& violation) {
      last.violation = violation;
      report(seed, last);
    });
    fmt::print("seeds {}-{}: {} failed, {}, {:.1f} s\n", options_.first, options_.last, failed,
               simulation_.totals(options_), seconds());
    return failed == 0 ? 0 : 1;
  }

  Simulation simulation_;
  typename Simulation::Options options_;
  std::string program_name_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// The options of simulations that are counted in operations.
struct OperationOptions : SeedOptions {
  std::uint64_t operations = 100'000;  ///< of each seed
};

/// What such simulations share of what SeedProgram asks for. World: made of a scenario and of whether to trace.
template <class World, class DrawnScenario, class RunSummary>
struct OperationSimulation {
  using Options = OperationOptions;
  using Scenario = DrawnScenario;
  using Summary = RunSummary;

  void add_options(CLI::App& app, Options& options) {
    app.add_option("--operations", options.operations, "of each seed");
  }
  std::string replay_options(const Options& options) { return fmt::format(" --operations {}", options.operations); }
  Summary run(const Scenario& scenario, const Options& options) {
    return World(scenario, options.trace).run(options.operations);
  }
  void print_more(const Summary&) {}
  std::string totals(const Options& options) { return fmt::format("{} operations each", options.operations); }
};

}  // namespace splitnic::sim
