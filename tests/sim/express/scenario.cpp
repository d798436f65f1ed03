#include <fmt/format.h>

#include "../first_psn.h"
#include "world.h"

namespace splitnic::sim {

using namespace fabric;

ExpressScenario draw_express_scenario(std::uint64_t seed) {
  SeededRandom random(seed);
  ExpressScenario scenario;
  scenario.seed = seed;
  scenario.slot_bytes = {512U << random.below(3), 512U << random.below(4)};
  scenario.payload_bytes = {1024U << random.below(2), 2048U << random.below(5)};
  scenario.cell_payload = 64U << random.below(6);
  scenario.polls_links = random.below(2) == 0;
  scenario.verbs_rules = random.below(2) == 0;
  scenario.connections.resize(1 + random.below(kMostConnections));
  for (ExpressConnection& connection : scenario.connections) {
    connection.depth = 1 + random.below(24);
    connection.reads = 1 + random.below(6);
    connection.lane = random.below(4) == 0 ? VirtualLane::control : VirtualLane::data;
    connection.shared_receives = random.below(2) == 0;
    for (std::size_t end = 0; end < 2; ++end) {
      connection.psn[end] = draw_first_psn(random);
      connection.target_in_bridge[end] = random.below(2) == 0;
      connection.sinks_in_bridge[end] = random.below(2) == 0;
    }
  }
  return scenario;
}

std::string to_text(const ExpressScenario& scenario) {
  std::string text =
      fmt::format("seed {}: slots {} and {} bytes, payload {} and {}, {}-byte cells, {}{}\n", scenario.seed,
                  scenario.slot_bytes[0], scenario.slot_bytes[1], scenario.payload_bytes[0], scenario.payload_bytes[1],
                  scenario.cell_payload, scenario.polls_links ? "the adapters poll their links" : "links polled apart",
                  scenario.verbs_rules ? ", verbs' rules" : "");
  const auto where = [](bool in_bridge) { return in_bridge ? "bridge" : "private"; };
  for (const ExpressConnection& connection : scenario.connections) {
    text += fmt::format(
        "  {} requests deep, {} reads, {} lane, {} receives, PSNs {:08x} {:08x}, targets {} {}, sinks {} {}\n",
        connection.depth, connection.reads, connection.lane == VirtualLane::control ? "control" : "data",
        connection.shared_receives ? "shared" : "own", connection.psn[0], connection.psn[1],
        where(connection.target_in_bridge[0]), where(connection.target_in_bridge[1]),
        where(connection.sinks_in_bridge[0]), where(connection.sinks_in_bridge[1]));
  }
  return text;
}

}  // namespace splitnic::sim
