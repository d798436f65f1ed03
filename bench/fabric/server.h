#pragma once

#include "bench/fabric/end.h"
#include "bench/fabric/measurement.h"
#include "common/result.h"

namespace splitnic::bench {

/// The other side of Client: takes part in the measurements that the client requests, and checks the bytes that arrive.
/// Returns only with an error, at the latest when the client is gone. end: has come up.
Result<void> serve(End& end, const Plan& plan);

}  // namespace splitnic::bench
