#pragma once

#include "common/result.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"

namespace splitnic::bench {

/// What the machine can do without the fabric, measured in the same two processes over a bridge that nothing uses yet.
struct Yardsticks {
  double line = 0;    ///< seconds; half the round trip of a cache line that both spin on, in the bridge's memory
  double socket = 0;  ///< seconds; half the round trip of 8 bytes over a Unix socket that both sleep on
  double copy = 0;    ///< bytes per second; memcpy of 1 MiB into the bridge's memory
};

/// channel: a SOCK_SEQPACKET socket to the other process, which calls serve_yardsticks() meanwhile. length: of each.
/// yield: the two share a core. Errors: the other process is gone.
Result<Yardsticks> measure_yardsticks(fabric::Bridge& bridge, int channel, Duration length, bool yield);
/// Serves until the other process has measured everything. While the two exchange words, this process does not notice
/// the other's end; run_fabric() ensures that it ends with the other.
Result<void> serve_yardsticks(fabric::Bridge& bridge, int channel, bool yield);

}  // namespace splitnic::bench
