// peers_sim: one owner of memory, three peers, every service; see world.h for what must hold.
//
//   peers_sim --seed 42 --operations 10000000   one seed: what was drawn, what was counted
//   peers_sim --seeds 1-100                     many; each one that fails with the command that replays it
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "../seed_runs.h"
#include "world.h"

namespace {

using namespace splitnic;
using namespace splitnic::sim;

struct Simulation : OperationSimulation<PeersWorld, PeersScenario, PeersSummary> {
  static constexpr const char* kAbout = "One owner of memory, three peers, every service, against invariants.";

  Scenario draw(std::uint64_t seed, const Options&) { return draw_peers_scenario(seed); }
  Summary run(const Scenario& scenario, const Options& options) {
    Summary summary = OperationSimulation::run(scenario, options);
    placed_early_ += summary.counts.at(kPlacedEarly);
    touched_twice_ += summary.counts.at(kTouchedTwice);
    return summary;
  }
  std::string totals(const Options& options) {
    return fmt::format("{}, {} {}, {} {}", OperationSimulation::totals(options), placed_early_, kPlacedEarly,
                       touched_twice_, kTouchedTwice);
  }

  void print(const Summary& summary, double seconds) {
    for (const auto& [what, count] : summary.counts) fmt::print("  {:<45} {:>10}\n", what, count);
    fmt::print("{} operations in {:.1f} s ({:.0f}/s)\ntrace hash {:016x}\n", summary.operations, seconds,
               static_cast<double>(summary.operations) / seconds, summary.trace_hash);
  }

 private:
  std::uint64_t placed_early_ = 0;
  std::uint64_t touched_twice_ = 0;
};

}  // namespace

int main(int argc, char** argv) { return SeedProgram<Simulation>().run(argc, argv); }
