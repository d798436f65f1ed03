#pragma once

#include <string>

#include "common/os/daemon_status.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::os {

/// Asks the daemon behind a control socket (request: see ControlRequest). Blocks for at most timeout. Errors name the
/// path: nobody there, no permission, no answer, a malformed one. The texts in the answer are the daemon's and its
/// peers'.
Result<DaemonStatus> query_status(const std::string& path, ControlRequest request = ControlRequest::status,
                                  Duration timeout = std::chrono::seconds(5));

}  // namespace splitnic::os
