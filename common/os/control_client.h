#pragma once

#include <string>

#include "common/os/daemon_status.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::os {

/// The time limit for a daemon's answer. A running daemon answers in milliseconds. The limit is short, so that a
/// stopped daemon does not delay the asking process long.
inline constexpr Duration kAnswerLimit = std::chrono::milliseconds(1200);
/// The same for a request on which the daemon reads a file. The disk may be slow, and the daemon gives it 10 s
/// (UnitPolicy::reload).
inline constexpr Duration kFileAnswerLimit = std::chrono::seconds(15);

/// Queries the daemon behind a control socket (request: see ControlRequest). Blocks for at most timeout. Errors name
/// the path: no daemon, no socket, no permission, no answer, a malformed answer. The texts in the answer come from the
/// daemon and its peers. The pid is the one that the daemon has in the caller's PID namespace; where it has none there,
/// its own. Any thread.
Result<DaemonStatus> query_status(const std::string& path, ControlRequest request = ControlRequest::status,
                                  Duration timeout = kAnswerLimit);
/// The same for a request whose answer is a text.
Result<std::string> query_text(const std::string& path, ControlRequest request, Duration timeout = kAnswerLimit);

}  // namespace splitnic::os
