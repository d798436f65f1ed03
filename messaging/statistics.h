#pragma once

#include <string>
#include <utility>
#include <vector>

#include "messaging/session.h"
#include "messaging/wire/cfgutil.h"

namespace splitnic::messaging {

/// The two flows of a session, as this end counts them: from_peer and to_peer, since the session object was made.
/// Frames lost or refused by the session itself are among the errors and drops; the driver adds its own.
[[nodiscard]] wire::Statistics session_statistics(const Session& session);

/// What was counted since `before`, an earlier report of the same counters by the same names; counted_for is now's.
[[nodiscard]] wire::Statistics since(const wire::Statistics& now, const wire::Statistics& before);

/// What the answer to a StatisticsReport or StatisticsClear says of the time after it: that of a clear reports the
/// values before it, and everything is zero now.
[[nodiscard]] wire::Statistics as_of_now(wire::CfgRequest request, const wire::Statistics& answer);

/// A report as counters for people, each name behind `prefix`: frames, bytes and the time counted (milliseconds) in
/// `counts`; errors, drops and the causes by name in `losses`.
struct NamedStatistics {
  std::vector<std::pair<std::string, std::uint64_t>> counts;
  std::vector<std::pair<std::string, std::uint64_t>> losses;
};
[[nodiscard]] NamedStatistics named(const wire::Statistics& statistics, const std::string& prefix);

}  // namespace splitnic::messaging
