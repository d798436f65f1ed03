#pragma once

#include <string>
#include <utility>
#include <vector>

#include "messaging/session_counters.h"
#include "messaging/wire/cfgutil.h"

namespace splitnic::messaging {

/// A session's two flows as this end counts them, from_peer and to_peer. Errors and drops include the frames that the
/// session itself lost or refused; the driver adds its own.
[[nodiscard]] wire::Statistics session_statistics(const SessionCounters& counters);

/// The increase since `before`, an earlier report of the same counters, which only grow. counted_for is that of `now`.
[[nodiscard]] wire::Statistics since(const wire::Statistics& now, const wire::Statistics& before);

/// The peer's counters after it answered `request`. The answer to StatisticsClear carries the values before the clear,
/// so the result is all zero; the answer to StatisticsReport is itself the result.
[[nodiscard]] wire::Statistics as_of_now(wire::CfgRequest request, const wire::Statistics& answer);

/// A report as counters for display, with `prefix` in front of each name: frames, bytes and the time counted
/// (milliseconds) in `counts`; errors, drops and the causes by name in `losses`.
struct NamedStatistics {
  std::vector<std::pair<std::string, std::uint64_t>> counts;
  std::vector<std::pair<std::string, std::uint64_t>> losses;
};
[[nodiscard]] NamedStatistics named(const wire::Statistics& statistics, const std::string& prefix);

}  // namespace splitnic::messaging
