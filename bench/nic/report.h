#pragma once

#include <optional>
#include <string>

#include "bench/machine.h"
#include "bench/nic/contest.h"
#include "bench/nic/crowd.h"

namespace splitnic::bench::nic {

/// Of the JSON. It grows when a field changes its meaning or goes; fields may be added.
inline constexpr int kReportFormat = 4;

/// Everything that one `splitnic-bench nic` found out.
struct Report {
  std::string version;
  Machine machine;
  double seconds = 0;  ///< per measurement
  unsigned runs = 0;
  std::string forwarder;
  std::string small_split;
  bool has_testpmd = false;  ///< installed, and so measured
  Samples samples{};
  std::optional<Crowd> crowd{};  ///< none: it was not asked for
};

std::string to_text(const Report& report);
std::string to_json(const Report& report);
/// A picture (SVG), beside the kernel's bridge.
std::string to_svg(const Report& report);

}  // namespace splitnic::bench::nic
