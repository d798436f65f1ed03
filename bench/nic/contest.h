#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "bench/nic/laboratory.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::bench {

/// The metrics, in the order of the report.
struct Metric {
  const char* key;    ///< in JSON
  const char* title;  ///< in the table
  const char* unit;
  double per_unit;  ///< of the value measured
  int decimals;
  bool less_is_better;
  double goal;               ///< least ratio to the forwarder; 0: none
  double offloads_goal = 0;  ///< the same with offloads
  bool compared = true;      ///< the ratio says something
};

inline constexpr std::array<Metric, 9> kMetrics{{
    {"tcp_to_lan", "TCP, host to LAN", "Gbit/s", 1e9, 3, false, 0.95, 0.9},
    {"tcp_to_host", "TCP, LAN to host", "Gbit/s", 1e9, 3, false, 0.95, 0.9},
    {"tcp_request_response", "TCP request/response", "1000/s", 1e3, 2, false, 0.8},
    {"udp_to_lan", "UDP 64-byte, host to LAN", "1000/s", 1e3, 1, false, 0.95},
    {"udp_to_lan_lost", "  lost of what was sent", "%", 1e-2, 1, true, 0, 0, false},
    {"udp_to_host", "UDP 64-byte, LAN to host", "1000/s", 1e3, 1, false, 0.95},
    {"udp_to_host_lost", "  lost of what was sent", "%", 1e-2, 1, true, 0, 0, false},
    {"ping", "back-to-back ping", "us", 1, 1, true, 0.8},
    {"ping_after_pause", "ping, one each millisecond", "us", 1, 1, true, 0},
}};
inline constexpr std::size_t kRequestResponse = 2;
inline constexpr std::size_t kPing = 7;

/// One value per metric.
using Run = std::array<double, kMetrics.size()>;

/// The programs that carry frames between lan0 and tap0.
struct Contestant {
  std::string name;
  bool offloads = false;  ///< it carries frames with virtio-net headers; the LAN's peer then has its offloads on
  std::vector<std::vector<std::string>> programs;
};

/// Starts the contestant, measures everything once, stops it. Errors: it did not start, ended, or let nothing through.
Result<Run> measure_once(Laboratory& laboratory, const Contestant& contestant, Duration length);

/// How much better the contender does than the yardstick: 1 is equal, more is better.
double ratio_of(const Metric& metric, double contender, double yardstick);

/// Index of a run that is several times faster than its fellows, as happens when the scheduler by chance puts all
/// processes on one core, or a virtual machine's cores share one; runs.size() if there is none.
std::size_t find_outlier(const std::vector<Run>& runs);

}  // namespace splitnic::bench
