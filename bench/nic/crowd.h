#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/fabric/placement.h"
#include "bench/nic/laboratory.h"
#include "bench/nic/placed.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::bench::nic {

/// What is measured with several hosts of one unit.
enum class CrowdMetric : std::uint8_t {
  one_stream,         ///< bits per second of a TCP connection of one host, to the LAN
  four_streams,       ///< the same of four hosts together, one connection each
  requests_alone,     ///< TCP round trips per second of a host that is alone, before the idle ones come and after
  requests_in_crowd,  ///< the same beside the idle hosts
};
inline constexpr std::size_t kCrowdMetrics = 4;

/// What several hosts of one unit cost each other.
struct Crowd {
  std::size_t idle_hosts = 0;
  std::array<std::vector<Placed<double>>, kCrowdMetrics> taken{};  ///< by CrowdMetric
  std::size_t moved = 0;  ///< measurements that were discarded because the cores moved meanwhile
  double idle_unit = 0;   ///< processor time of the unit while all hosts are idle, as a share of one core

  [[nodiscard]] std::vector<double> values(CrowdMetric metric, Placement placement) const;
  /// Of the medians in one placement; nullopt: one of them has no sample there.
  [[nodiscard]] std::optional<double> ratio(CrowdMetric metric, CrowdMetric against, Placement placement) const;
};

/// A least ratio of one of these metrics to another one, and an aim.
struct CrowdGoal {
  CrowdMetric metric;
  CrowdMetric against;
  double least;
  double aim;
};
inline constexpr CrowdGoal kFourHosts{CrowdMetric::four_streams, CrowdMetric::one_stream, 0.9, 1};
inline constexpr CrowdGoal kBesideIdleHosts{CrowdMetric::requests_in_crowd, CrowdMetric::requests_alone, 0.9, 0.98};
inline constexpr double kMostIdleUnit = 0.01;

/// Starts a unit and its hosts, measures in turn, ends them. program: splitnic. Each metric is measured three times for
/// `length`, requests_alone six times. Errors: a daemon did not start or ended; nothing came through.
Result<Crowd> measure_crowd(Laboratory& laboratory, LineGauge& gauge, const std::string& program,
                            std::size_t idle_hosts, Duration length);

}  // namespace splitnic::bench::nic
