#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>

namespace splitnic::sim {

/// What both simulations can be asked: one seed told in full, or a range of them.
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

/// One seed of a range.
struct SeedResult {
  std::uint64_t trace_hash = 0;
  std::string violation{};  ///< empty: none
};

/// Runs the range, the progress and each violation told on standard output; returns how many seeds failed.
/// report: tells of the seed's violation.
std::uint64_t run_range(const SeedOptions& options, const std::function<SeedResult(std::uint64_t seed)>& run,
                        const std::function<void(std::uint64_t seed, const std::string& violation)>& report);

}  // namespace splitnic::sim
