// memory_sim: protected memory against a plain model of it. An owner, two initiators, millions of random operations;
// every allowed access must succeed with the right bytes, every other one fail by the model's code, and no byte outside
// a granted range ever change. See world.h.
//
//   memory_sim --seed 42 --operations 10000000   one seed: what was drawn, what was counted
//   memory_sim --seeds 1-100                     many; each one that fails with the command that replays it
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "../seed_runs.h"
#include "world.h"

namespace {

using namespace splitnic;
using namespace splitnic::sim;

struct Simulation : OperationSimulation<MemoryWorld, MemoryScenario, MemorySummary> {
  static constexpr const char* kAbout = "Random operations on protected memory beside a plain model.";

  Scenario draw(std::uint64_t seed, const Options&) { return draw_memory_scenario(seed); }
  Summary run(const Scenario& scenario, const Options& options) {
    Summary summary = OperationSimulation::run(scenario, options);
    placed_early_ += summary.placed_early;
    return summary;
  }
  std::string totals(const Options& options) {
    return fmt::format("{}, {} writes placed early", OperationSimulation::totals(options), placed_early_);
  }

  void print(const Summary& summary, double seconds) {
    std::uint64_t allowed = 0;
    std::uint64_t all = 0;
    for (const auto& [what, count] : summary.verdicts) {
      fmt::print("  {:<55} {:>10}\n", what, count);
      all += count;
      if (what.ends_with(": ok")) allowed += count;
    }
    fmt::print(
        "{} operations in {:.1f} s ({:.0f}/s), {} of {} allowed, {} kinds of verdict, {} crashes; all memory compared "
        "{} times; {} direct ({} pulled), {} retransmissions, {} cells out of sequence, {} duplicates, {} writes "
        "placed early\n"
        "trace hash {:016x}\n",
        summary.operations, seconds, static_cast<double>(summary.operations) / seconds, allowed, all,
        summary.verdicts.size(), summary.crashes, summary.comparisons, summary.direct, summary.pulled,
        summary.retransmissions, summary.out_of_sequence, summary.duplicates, summary.placed_early, summary.trace_hash);
  }

  void print_more(const Summary& summary) {
    for (const std::string& operation : summary.last_operations) fmt::print("  {}\n", operation);
  }

 private:
  std::uint64_t placed_early_ = 0;
};

}  // namespace

int main(int argc, char** argv) { return SeedProgram<Simulation>().run(argc, argv); }
