#pragma once

#include <cstddef>
#include <string>

#include "bench/nic/laboratory.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::bench {

/// What several hosts of one unit cost each other.
struct Crowd {
  std::size_t idle_hosts = 0;
  double one_stream = 0;         ///< bits per second of a TCP connection of one host, to the LAN
  double four_streams = 0;       ///< the same of four hosts together, one connection each
  double requests_alone = 0;     ///< TCP round trips per second of a host that is alone
  double requests_in_crowd = 0;  ///< the same beside the idle hosts
  double idle_unit = 0;          ///< processor time of the unit while all hosts are idle, as a share of one core

  [[nodiscard]] double share_of_four() const { return four_streams / one_stream; }
  [[nodiscard]] double share_in_crowd() const { return requests_in_crowd / requests_alone; }
};

inline constexpr double kLeastShareOfFour = 0.9;
inline constexpr double kLeastShareInCrowd = 0.9;
inline constexpr double kMostIdleUnit = 0.01;

/// Starts a unit and its hosts, measures in turn, ends them. program: splitnic. Medians of three measurements of
/// `length`; the candidates are measured in turn. Errors: a daemon did not start or ended; nothing came through.
Result<Crowd> measure_crowd(Laboratory& laboratory, const std::string& program, std::size_t idle_hosts,
                            Duration length);

}  // namespace splitnic::bench
