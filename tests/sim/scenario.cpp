#include "scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace splitnic::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

template <class T, std::size_t N>
T pick(RandomSource& random, const std::array<T, N>& from) {
  return from[random.below(N)];
}

messaging::SessionOptions draw_session(RandomSource& random, std::string name, std::uint32_t max_mtu) {
  messaging::SessionOptions options;
  options.name = std::move(name);
  options.mode = one_in(random, 3) ? messaging::wire::Mode::send : messaging::wire::Mode::rdma;
  options.data_channel = !one_in(random, 6);
  options.max_mtu = max_mtu;
  options.pool_elements = static_cast<std::uint32_t>(one_in(random, 3)   ? between(random, 4, 16)
                                                     : one_in(random, 3) ? between(random, 250, 300)
                                                                         : between(random, 16, 256));
  options.cell_bytes = pick(random, std::array<std::uint32_t, 6>{64, 256, 256, 512, 1024, 4096});
  options.link.payload_bytes = {
      pick(random, std::array<std::size_t, 4>{4U << 10U, 8U << 10U, 32U << 10U, 64U << 10U}),
      pick(random, std::array<std::size_t, 4>{4U << 10U, 16U << 10U, 64U << 10U, 128U << 10U})};
  options.link.slot_bytes = options.link.payload_bytes;
  if (one_in(random, 3)) {
    options.moderation = {.entries = static_cast<std::uint32_t>(random.below(32)),
                          .bytes = one_in(random, 2) ? 0U : 16384U,
                          .time = between(random, microseconds(20), milliseconds(2))};
  }
  return options;
}

fabric::SimBridgeOptions draw_bridge(RandomSource& random) {
  fabric::SimBridgeOptions options;
  for (auto& bytes : options.local_bytes) {
    bytes = pick(random, std::array<std::size_t, 3>{256U << 10U, 512U << 10U, 1U << 20U});
  }
  options.write_delay_max =
      pick(random, std::array<microseconds, 3>{microseconds(0), microseconds(5), microseconds(40)});
  options.scratchpad_delay_max = microseconds(random.below(200));
  options.doorbell_delay_max = microseconds(random.below(200));
  options.torn_permille = static_cast<unsigned>(random.below(400));
  options.doorbell_lost_permille = one_in(random, 3) ? 0U : static_cast<unsigned>(random.below(300));
  options.doorbell_spurious_permille = one_in(random, 2) ? 0U : 1U;
  options.memory_scribbled = !one_in(random, 3);
  return options;
}

HostScenario draw_host(RandomSource& random, std::size_t index, std::uint32_t lan_mtu) {
  HostScenario host;
  const std::uint32_t mtu = one_in(random, 4) ? 9000U : std::max(lan_mtu, 1500U);
  host.session = draw_session(random, fmt::format("host{}", index), mtu);
  host.bridge = draw_bridge(random);
  host.asks_for_mac = one_in(random, 2);
  host.restricted = one_in(random, 3);
  for (std::uint8_t number = 0; number < 3; ++number) {
    host.macs.push_back({{0x02, 0x10, 0, 0, static_cast<std::uint8_t>(index), number}});
  }
  if (!host.asks_for_mac && !host.restricted) host.macs[0] = stable_mac_for(host.session.name);
  host.promiscuous_at_end = one_in(random, 8);
  for (std::size_t group = 0; group < kGroups; ++group) {
    if (one_in(random, 3)) host.joined.push_back(group_mac(group));
  }
  return host;
}

}  // namespace

std::uint64_t between(RandomSource& random, std::uint64_t low, std::uint64_t high) {
  return low + random.below(high - low + 1);
}

Duration between(RandomSource& random, Duration low, Duration high) {
  return Duration(static_cast<Duration::rep>(
      between(random, static_cast<std::uint64_t>(low.count()), static_cast<std::uint64_t>(high.count()))));
}

bool one_in(RandomSource& random, std::uint64_t n) { return random.below(n) == 0; }

MacAddress lan_station_mac(std::size_t station) { return {{0x02, 0x20, 0, 0, 0, static_cast<std::uint8_t>(station)}}; }

MacAddress group_mac(std::size_t group) { return {{0x01, 0x00, 0x5e, 0, 1, static_cast<std::uint8_t>(group)}}; }

Scenario draw_scenario(std::uint64_t seed) {
  SeededRandom random(seed);
  Scenario scenario;
  scenario.seed = seed;
  constexpr std::array<std::uint32_t, 6> kMtus{1500, 1500, 1500, 1280, 2000, 9000};
  scenario.lan_mtu = pick(random, kMtus);
  scenario.lan_mtu_meanwhile = one_in(random, 2) ? scenario.lan_mtu : pick(random, kMtus);
  const std::size_t hosts = between(random, 1, kMaxHosts);
  for (std::size_t index = 0; index < hosts; ++index) {
    scenario.hosts.push_back(draw_host(random, index, scenario.lan_mtu));
  }
  scenario.unit.session = draw_session(random, "unit", 0);
  scenario.unit.session.insist_on_mode = one_in(random, 5);
  auto& policy = scenario.unit.policy;
  policy.others.promiscuous = true;
  policy.others.broadcasts = policy.others.multicast_copies = 0;  // every judged frame must arrive
  // Stations of this LAN forge the addresses of hosts that are away, and a host must get its address back in time even
  // if the unit has restarted meanwhile.
  policy.station_memory = Duration::zero();
  for (const auto& host : scenario.hosts) {
    if (!host.restricted) continue;
    for (std::size_t index = 0; index + 1 < host.macs.size(); ++index) {
      policy.allow(host.session.name, host.macs[index]);
    }
  }
  scenario.fault_time = between(random, milliseconds(20), milliseconds(1200));
  scenario.fault_gap = between(random, milliseconds(5), milliseconds(150));
  scenario.traffic_gap = between(random, microseconds(100), milliseconds(3));
  scenario.burst_max = one_in(random, 4) ? 80 : 4;
  scenario.poll_cost_max = between(random, microseconds(1), microseconds(5));
  scenario.idle_polls = static_cast<unsigned>(between(random, 1, 8));
  scenario.unit_watches_doorbells = one_in(random, 2);
  // A source of its own: a seed without further queues is the same world as before there were any.
  SeededRandom of_queues(seed ^ 0x717565756573U);
  for (auto& host : scenario.hosts) {
    if (!one_in(of_queues, 4)) continue;
    host.queues = between(of_queues, 2, kMaxQueues);
    host.bridge.group.cookie = of_queues.next() | 1U;
  }
  return scenario;
}

std::string to_text(const Scenario& scenario) {
  const auto session = [](const messaging::SessionOptions& options) {
    return fmt::format(
        "mode {}{}, {} pool elements, {}-byte cells, payload rings {}+{} bytes, MTU up to {}, moderation {}/{}/{} us",
        options.mode == messaging::wire::Mode::rdma ? 'R' : 'S', options.data_channel ? "" : " without data channel",
        options.pool_elements, options.cell_bytes, options.link.payload_bytes[0], options.link.payload_bytes[1],
        options.max_mtu, options.moderation.entries, options.moderation.bytes, options.moderation.time.count() / 1000);
  };
  const auto micros = [](Duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); };
  std::string text = fmt::format(
      "seed {}: {} hosts, LAN MTU {} (meanwhile {}), faults for {:.0f} us every {:.0f} us, bursts of 1..{} every "
      "{:.0f} us, "
      "polls up to {:.1f} us, sleep after {} idle{}\n",
      scenario.seed, scenario.hosts.size(), scenario.lan_mtu, scenario.lan_mtu_meanwhile, micros(scenario.fault_time),
      micros(scenario.fault_gap), scenario.burst_max, micros(scenario.traffic_gap), micros(scenario.poll_cost_max),
      scenario.idle_polls, scenario.unit_watches_doorbells ? ", the unit watches doorbells" : "");
  text += fmt::format("  unit: {}{}\n", session(scenario.unit.session),
                      scenario.unit.session.insist_on_mode ? ", insists on its mode" : "");
  for (const auto& host : scenario.hosts) {
    const auto& bridge = host.bridge;
    text += fmt::format(
        "  {}: {}\n    {} queue{}, address {}{}{}, {} groups{}; bridge {}+{} KiB, delays {:.0f}/{:.0f}/{:.0f} us, torn "
        "{}, "
        "doorbells "
        "lost {}, spurious {} permille{}\n",
        host.session.name, session(host.session), host.queues, host.queues == 1 ? "" : "s", to_string(host.macs[0]),
        host.asks_for_mac ? " (asked for)" : "", host.restricted ? " (restricted)" : "", host.joined.size(),
        host.promiscuous_at_end ? ", promiscuous" : "", bridge.local_bytes[0] >> 10U, bridge.local_bytes[1] >> 10U,
        micros(bridge.write_delay_max), micros(bridge.scratchpad_delay_max), micros(bridge.doorbell_delay_max),
        bridge.torn_permille, bridge.doorbell_lost_permille, bridge.doorbell_spurious_permille,
        bridge.memory_scribbled ? ", memory scribbled" : "");
  }
  return text;
}

}  // namespace splitnic::sim
