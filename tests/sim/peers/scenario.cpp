#include <fmt/format.h>

#include "world.h"

namespace splitnic::sim {

PeersScenario draw_peers_scenario(std::uint64_t seed) {
  SeededRandom random(seed);
  const auto between = [&random](std::uint64_t low, std::uint64_t high) { return low + random.below(high - low + 1); };
  PeersScenario scenario;
  scenario.seed = seed;
  for (std::size_t peer = 0; peer < kPeers; ++peer) {
    PathOptions& options = scenario.paths[peer];
    options.kind = static_cast<PathKind>(peer);
    options.bridge.local_bytes = {32U << 10U, 32U << 10U};
    options.bridge.write_delay_max = std::chrono::microseconds(between(0, 4));
    options.bridge.torn_permille = static_cast<unsigned>(between(0, 200));
    options.bridge.doorbell_lost_permille = static_cast<unsigned>(between(0, 300));
    options.bridge.doorbell_spurious_permille = 0;
    options.link.slot_bytes = {1U << 10U, 1U << 10U};
    options.link.payload_bytes = {1U << 10U, 4U << 10U};
    options.lost_permille = static_cast<unsigned>(between(0, 30));
    options.doubled_permille = static_cast<unsigned>(between(0, 30));
    options.late_permille = static_cast<unsigned>(between(0, 60));
    options.damaged_permille = static_cast<unsigned>(between(0, 10));
  }
  scenario.cell_payload = static_cast<std::uint32_t>(128U << between(0, 2));
  scenario.in_flight_max = between(1, 8);
  scenario.crash_gap = between(300, 3000);
  return scenario;
}

std::string to_text(const PeersScenario& scenario) {
  std::string text = fmt::format("seed {}: {}-byte cells, up to {} requests in flight, a crash every {} operations",
                                 scenario.seed, scenario.cell_payload, scenario.in_flight_max, scenario.crash_gap);
  for (const PathOptions& options : scenario.paths) text += faults_text(options);
  return text + '\n';
}

}  // namespace splitnic::sim
