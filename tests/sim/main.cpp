// splitnic_sim: a host driver core, an I/O-unit core and the messaging between them, unchanged, in a world drawn from a
// seed: simulated bridges that delay, tear and lose, cores that die, stop and sleep, a LAN, traffic. See world.h.
//
//   splitnic_sim --seed 42           one seed: what was drawn, what was counted
//   splitnic_sim --seed 42 --trace   the same with every event
//   splitnic_sim --seeds 1-2000      many; each one that fails with the command that replays it
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <string>

#include "seed_runs.h"
#include "world.h"

namespace {

using namespace splitnic;
using namespace splitnic::sim;

const std::map<std::string, Plant> kPlants{
    {"none", Plant::none},       {"drop", Plant::drop},     {"duplicate", Plant::duplicate},
    {"corrupt", Plant::corrupt}, {"swap", Plant::swap},     {"misdeliver", Plant::misdeliver},
    {"deaf", Plant::deaf},       {"absent", Plant::absent}, {"sleepless", Plant::sleepless}};

double milliseconds_of(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

struct Simulation {
  struct Options : SeedOptions {
    std::string plant = "none";
    Limits limits;
  };
  using Scenario = sim::Scenario;
  using Summary = sim::Summary;
  static constexpr const char* kAbout = "Deterministic simulation of the split network driver.";

  void add_options(CLI::App& app, Options& options) {
    app.add_option("--plant", options.plant, "plant a fault that the verdicts must find")
        ->check(CLI::IsMember(kPlants));
    app.add_option("--steps", options.limits.steps, "moments of simulated time before a run counts as spinning");
    app.add_option("--sim-seconds", options.limits.fault_seconds, "time of faults, instead of the drawn one");
  }
  std::string replay_options(const Options& options) {
    std::string text;
    if (options.plant != "none") text += " --plant " + options.plant;
    if (options.limits.steps != Limits{}.steps) text += fmt::format(" --steps {}", options.limits.steps);
    if (options.limits.fault_seconds > 0) text += fmt::format(" --sim-seconds {}", options.limits.fault_seconds);
    return text;
  }

  Scenario draw(std::uint64_t seed, const Options& options) {
    Scenario scenario = draw_scenario(seed);
    scenario.plant = kPlants.at(options.plant);
    return scenario;
  }
  Summary run(const Scenario& scenario, const Options& options) {
    Summary summary = World(scenario, options.limits, options.trace).run();
    slowest_ = std::max(slowest_, summary.converged_in);
    deliveries_ += summary.deliveries;
    return summary;
  }

  void print(const Summary& summary, double /*seconds*/) {
    fmt::print(
        "{:.0f} ms simulated in {} steps: {} frames, {} deliveries, {} doorbells lost, converged {:.1f} ms after "
        "the heal, at most {:.1f} idle wake-ups a second\ntrace hash {:016x} of {} events\n",
        milliseconds_of(summary.simulated), summary.steps, summary.frames, summary.deliveries, summary.doorbells_lost,
        milliseconds_of(summary.converged_in), summary.idle_wakes_per_second, summary.trace_hash, summary.events);
  }
  void print_more(const Summary&) {}
  std::string totals(const Options&) {
    return fmt::format("{} frames delivered, slowest to converge {:.1f} ms", deliveries_, milliseconds_of(slowest_));
  }

 private:
  Duration slowest_{};
  std::uint64_t deliveries_ = 0;
};

}  // namespace

int main(int argc, char** argv) { return SeedProgram<Simulation>().run(argc, argv); }
