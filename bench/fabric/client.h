#pragma once

#include <cstddef>
#include <vector>

#include "bench/fabric/end.h"
#include "bench/fabric/flow.h"
#include "bench/fabric/measurement.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::bench {

/// The result of one measurement, in seconds. A latency is half the round trip of a ping-pong, or the time of a read or
/// an atomic from its post to its completion.
struct Figures {
  double median = 0;
  double percentile_99 = 0;
  double per_second = 0;  ///< messages; of a rate
};

/// Does the plan's measurements with the other end's help (server.h). end: has come up.
class Client {
 public:
  Client(End& end, const Plan& plan);

  /// Measures for `length` after a warm-up of a fifth of it; then both ends compare every byte with the expected
  /// content. Errors also: a request failed, or the bytes are not those that were sent.
  Result<Figures> measure(std::uint32_t row, Duration length);

 private:
  struct Exchange;
  Result<Figures> measure_one(std::uint32_t row, Duration length);
  /// Connects each of `with` with one of the other end; message: a draft that has the row.
  Result<void> connect(DataQueuePairs& with, ControlMessage& message);
  Result<ControlMessage> ask(const ControlMessage& message);
  Result<Figures> measure_latency(Exchange& exchange, Time from, Time until);
  Result<Figures> measure_rate(Exchange& exchange, Time from, Time until);
  Result<void> drain(Exchange& exchange);

  End& end_;
  const Plan& plan_;
  std::vector<double> samples_;
};

}  // namespace splitnic::bench
