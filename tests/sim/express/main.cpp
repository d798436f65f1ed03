// express_sim: two adapters with memory in common, so that messages go the short way; see world.h for what must hold.
//
//   express_sim --seed 42 --operations 100000   one seed: what was drawn, what was counted
//   express_sim --seeds 1-100                   many; each one that fails with the command that replays it
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "../seed_runs.h"
#include "world.h"

namespace {

using namespace splitnic;
using namespace splitnic::sim;

const std::map<std::string, ExpressPlant> kPlants{{"none", ExpressPlant::none},
                                                  {"byte", ExpressPlant::byte},
                                                  {"swallow", ExpressPlant::swallow},
                                                  {"swap", ExpressPlant::swap}};

struct Simulation {
  struct Options : OperationOptions {
    std::string plant = "none";
  };
  using Scenario = ExpressScenario;
  using Summary = ExpressSummary;
  static constexpr const char* kAbout =
      "Two adapters in one thread with memory in common: random lists of sends, writes, reads and additions, resets. "
      "Checked beside a plain model: each request that succeeds completes once and in order, each message arrives "
      "once, "
      "in order and whole, each read returns bytes that were there while it was under way, and at rest each word of "
      "memory is as the last write left it.";

  void add_options(CLI::App& app, Options& options) {
    app.add_option("--operations", options.operations, "of each seed");
    app.add_option("--plant", options.plant, "plant a fault that the checks must find")->check(CLI::IsMember(kPlants));
  }
  std::string replay_options(const Options& options) {
    std::string text = fmt::format(" --operations {}", options.operations);
    if (options.plant != "none") text += " --plant " + options.plant;
    return text;
  }
  Scenario draw(std::uint64_t seed, const Options& options) {
    Scenario scenario = draw_express_scenario(seed);
    scenario.plant = kPlants.at(options.plant);
    return scenario;
  }
  Summary run(const Scenario& scenario, const Options& options) {
    Summary summary = ExpressWorld(scenario, options.trace).run(options.operations);
    counters_ += summary.counters;
    resets_ += summary.resets;
    return summary;
  }
  void print(const Summary& summary, double seconds) {
    const fabric::AdapterCounters& counters = summary.counters;
    fmt::print(
        "{} messages arrived, {} direct writes, {} in cells, {} direct reads, {} in cells, {} additions, {} receivers "
        "not ready, {} resets in {:.1f} s\ntrace hash {:016x}\n",
        summary.arrived, counters.direct_writes, counters.segmented_writes, counters.direct_reads,
        counters.segmented_reads, counters.atomics, counters.not_ready_sent, summary.resets, seconds,
        summary.trace_hash);
  }
  void print_more(const Summary&) {}
  std::string totals(const Options& options) {
    return fmt::format("{} operations each, {} direct writes, {} direct reads, {} resets", options.operations,
                       counters_.direct_writes, counters_.direct_reads, resets_);
  }

 private:
  fabric::AdapterCounters counters_{};
  std::uint64_t resets_ = 0;
};

}  // namespace

int main(int argc, char** argv) { return SeedProgram<Simulation>().run(argc, argv); }
