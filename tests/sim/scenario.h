#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/mac_address.h"
#include "common/random.h"
#include "common/time.h"
#include "iounit/io_unit.h"
#include "messaging/session.h"
#include "tests/sim_bridge/sim_bridge.h"

namespace splitnic::sim {

/// A fault built into the simulation itself, to test its verdicts.
enum class Plant { none, drop, duplicate, corrupt, swap, misdeliver, deaf, absent, sleepless };

struct HostScenario {
  std::vector<MacAddress> macs;  ///< what its system sets, the first at start
  bool asks_for_mac = false;     ///< else the unit gives it macs[0]
  bool restricted = false;       ///< the unit allows it all of macs but the last
  bool promiscuous_at_end = false;
  std::vector<MacAddress> joined;
  messaging::SessionOptions session;
  fabric::SimBridgeOptions bridge;  ///< end 0 is the host's
  std::size_t queues = 1;           ///< at most; where the mode has further ones
};

/// Everything that a seed decides before the first event.
struct Scenario {
  std::uint64_t seed = 0;
  Plant plant = Plant::none;
  std::vector<HostScenario> hosts;
  iounit::IoUnitOptions unit;
  std::uint32_t lan_mtu = 1500;
  std::uint32_t lan_mtu_meanwhile = 1500;  ///< what it may be set to before the heal
  Duration fault_time{};                   ///< from the start to the heal
  Duration fault_gap{};                    ///< mean time between faults
  Duration traffic_gap{};                  ///< mean time between bursts
  std::uint64_t burst_max = 1;             ///< frames
  Duration poll_cost_max{};
  unsigned idle_polls = 1;  ///< before a core goes to sleep
  bool unit_watches_doorbells = false;
};

inline constexpr std::size_t kMaxHosts = 4;
inline constexpr std::size_t kMaxQueues = 4;
inline constexpr std::size_t kLanStations = 3;
inline constexpr std::size_t kGroups = 6;

MacAddress lan_station_mac(std::size_t station);
MacAddress group_mac(std::size_t group);

Scenario draw_scenario(std::uint64_t seed);
/// Several lines.
std::string to_text(const Scenario& scenario);

/// Uniform in [low, high].
std::uint64_t between(RandomSource& random, std::uint64_t low, std::uint64_t high);
Duration between(RandomSource& random, Duration low, Duration high);
bool one_in(RandomSource& random, std::uint64_t n);

}  // namespace splitnic::sim
