#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/fabric/placement.h"
#include "bench/nic/laboratory.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::bench::nic {

/// What is measured, in the order of the report.
enum class Metric : std::uint8_t {
  tcp_to_lan,
  tcp_to_host,
  tcp_four_to_lan,
  tcp_to_lan_cpu,
  tcp_to_host_cpu,
  requests,
  requests_p99,
  requests_cpu,
  udp_to_lan,
  udp_to_lan_lost,
  udp_to_host,
  udp_to_host_lost,
  ping,
  ping_each_millisecond,
  ping_after_pause,
};
inline constexpr std::size_t kMetrics = 15;

struct MetricFacts {
  const char* key;    ///< in JSON
  const char* title;  ///< in the table
  const char* unit;
  double per_unit;  ///< of the value measured
  int decimals;
  bool less_is_better;
  bool compared = true;  ///< a ratio says something
};
const MetricFacts& facts_of(Metric metric);
/// Their keys, in the order of the report.
std::vector<std::string> metric_names();

/// The programs, or the part of the kernel, that carry frames between lan0 and tap0.
enum class Contender : std::uint8_t {
  split,        ///< the split driver
  forwarder,    ///< one process: bench-forwarder
  small_split,  ///< two processes and a ring of bytes in each direction: bench-small-split
  bridge,       ///< the kernel's bridge, between lan0 and a veth whose other end is tap0
  testpmd,      ///< DPDK's, with its packet socket and its TAP; only where it is installed
};
inline constexpr std::array<Contender, 5> kContenders{Contender::split, Contender::forwarder, Contender::small_split,
                                                      Contender::bridge, Contender::testpmd};
const char* to_string(Contender contender);
/// Of those beside the split driver.
std::vector<std::string> contender_names();

/// What the ends of the connections leave to the contender.
enum class Condition : std::uint8_t {
  plain,     ///< nothing: their offloads are off. Split driver and forwarder use libpcap
  offloads,  ///< checksums and segments. Split driver and forwarder use packet sockets with virtio-net headers
};
inline constexpr std::array<Condition, 2> kConditions{Condition::plain, Condition::offloads};
const char* to_string(Condition condition);
/// The small split has no way without virtio-net headers, and testpmd's drivers take no unfinished frames.
bool takes_part(Contender contender, Condition condition);

/// A least ratio of the split driver to another contender: 1 is equal, more is better.
struct Goal {
  Metric metric;
  Condition condition;
  Contender against;
  double least;
  std::optional<double> aim{};  ///< what would be better still
};
const std::vector<Goal>& goals();

struct Contestant {
  Contender contender{};
  Condition condition{};
  std::vector<std::vector<std::string>> programs{};  ///< none: the kernel's bridge
  /// What the program says when its TAP may be moved from the unit's namespace to the host's; empty: it makes it there.
  std::string gives_tap_after{};
};

/// One value, measured while the two cores of the machine lay as `placement` says.
struct Sample {
  Contender contender{};
  Condition condition{};
  Metric metric{};
  Placement placement{};
  double value = 0;
};

struct Samples {
  std::vector<Sample> taken{};
  std::size_t moved = 0;  ///< measurements that were discarded because the cores moved meanwhile

  [[nodiscard]] std::vector<double> values(Contender contender, Condition condition, Metric metric,
                                           Placement placement) const;
  [[nodiscard]] std::optional<double> median(Contender contender, Condition condition, Metric metric,
                                             Placement placement) const;
  /// How much better the split driver does than `against`; nullopt: one of them has no sample in this placement, or a
  /// ratio says nothing.
  [[nodiscard]] std::optional<double> ratio(Metric metric, Condition condition, Contender against,
                                            Placement placement) const;
  [[nodiscard]] bool any(Placement placement) const;
};

/// Starts the contestant, measures once what `rows` names, and what is measured together with that, stops it, and adds
/// the samples. A measurement during which the cores move is made again, at most twice. Errors: it did not start,
/// ended, or let nothing through.
Result<void> measure_once(Laboratory& laboratory, LineGauge& gauge, const Contestant& contestant, Duration length,
                          const std::vector<std::string>& rows, Samples& samples);

}  // namespace splitnic::bench::nic
