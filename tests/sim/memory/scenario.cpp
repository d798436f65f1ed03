#include <fmt/format.h>

#include "world.h"

namespace splitnic::sim {

using std::chrono::microseconds;

MemoryScenario draw_memory_scenario(std::uint64_t seed) {
  SeededRandom random(seed);
  const auto between = [&random](std::uint64_t low, std::uint64_t high) { return low + random.below(high - low + 1); };
  MemoryScenario scenario;
  scenario.seed = seed;
  for (std::size_t path = 0; path < kPaths; ++path) {
    PathOptions& options = scenario.paths[path];
    options.bridge.local_bytes = {32U << 10U, 32U << 10U};
    options.bridge.write_delay_max = microseconds(between(0, 4));
    options.bridge.scratchpad_delay_max = microseconds(between(0, 20));
    options.bridge.doorbell_delay_max = microseconds(between(0, 10));
    options.bridge.torn_permille = static_cast<unsigned>(between(0, 200));
    options.bridge.doorbell_lost_permille = static_cast<unsigned>(between(0, 500));
    options.bridge.doorbell_spurious_permille = 0;
    options.link.payload_bytes = {1U << 10U, between(0, 1) == 0 ? 2U << 10U : 4U << 10U};
    options.link.slot_bytes = {1U << 10U, options.link.payload_bytes[1] / 2};
    options.link.mpt_entries = static_cast<std::size_t>(between(1, 16));
    // The second initiator is mostly beyond a relay or a network.
    if (path == 1) options.kind = static_cast<PathKind>(between(0, 2));
    options.lost_permille = static_cast<unsigned>(between(0, 20));
    options.doubled_permille = static_cast<unsigned>(between(0, 20));
    scenario.cell_payload[path] = static_cast<std::uint32_t>(64U << between(0, 3));
  }
  for (bool& engine : scenario.engine) engine = between(0, 1) == 0;
  scenario.in_flight_max = between(1, 24);
  scenario.crash_gap = between(500, 4000);
  for (PathOptions& options : scenario.paths) {
    if (options.kind == PathKind::bridge) continue;
    if (between(0, 1) == 0) options.late_permille = static_cast<unsigned>(between(1, 60));
    options.damaged_permille = static_cast<unsigned>(between(0, 10));
  }
  return scenario;
}

std::string to_text(const MemoryScenario& scenario) {
  std::string text = fmt::format("seed {}: up to {} requests in flight, a crash every {} operations\n", scenario.seed,
                                 scenario.in_flight_max, scenario.crash_gap);
  for (std::size_t path = 0; path < kPaths; ++path) {
    const PathOptions& options = scenario.paths[path];
    text += fmt::format(
        "  initiator {}: {}-byte cells, payload rings {}+{}, {} MPT slots, writes late by up to {} us, torn {}",
        path + 1, scenario.cell_payload[path], options.link.payload_bytes[0], options.link.payload_bytes[1],
        options.link.mpt_entries, options.bridge.write_delay_max.count() / 1000, options.bridge.torn_permille);
    text += faults_text(options);
    const bool owners = scenario.engine[2 * path];
    const bool own = scenario.engine[2 * path + 1];
    if (owners || own)
      text += fmt::format("; slow engines: {}{}{}", owners ? "the owner's" : "", owners && own ? " and " : "",
                          own ? "its own" : "");
    text += '\n';
  }
  return text;
}

}  // namespace splitnic::sim
