#pragma once

#include <string>

#include "common/os/daemon_status.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::os {

/// How long a daemon has to answer. One that runs answers in milliseconds; who asks does not wait long for one that is
/// stopped.
inline constexpr Duration kAnswerLimit = std::chrono::milliseconds(1200);

/// Asks the daemon behind a control socket (request: see ControlRequest). Blocks for at most timeout. Errors name the
/// path: nobody there, no permission, no answer, a malformed one. The texts in the answer are the daemon's and its
/// peers'. Any thread.
Result<DaemonStatus> query_status(const std::string& path, ControlRequest request = ControlRequest::status,
                                  Duration timeout = kAnswerLimit);

}  // namespace splitnic::os
