#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace splitnic::os {

/// Where daemons without --control put their control sockets, best first: /run/splitnic for root, then
/// $XDG_RUNTIME_DIR/splitnic, then /tmp/splitnic-UID.
std::vector<std::string> runtime_directories();

/// Makes the first of `candidates` that can be made, with mode 0700, and returns it. One that is there already must be
/// a directory, ours, and closed to others; else it is an error: somebody may be waiting for us there.
Result<std::string> make_runtime_directory(const std::vector<std::string>& candidates = runtime_directories());

/// DIRECTORY/ROLE-PID.sock in the directory that make_runtime_directory found.
std::string default_control_path(const std::string& directory, std::string_view role);

/// The control sockets of all daemons of this user that are alive, sorted. Stale ones are removed.
std::vector<std::string> find_control_sockets(const std::vector<std::string>& directories = runtime_directories());

}  // namespace splitnic::os
