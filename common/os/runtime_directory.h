#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace splitnic::os {

/// Where daemons keep their sockets, best first: $RUNTIME_DIRECTORY (a service of systemd), /run/splitnic for root,
/// $XDG_RUNTIME_DIR/splitnic, /tmp/splitnic-UID. Sockets that hosts connect to lie in such a folder (mode 0755),
/// control sockets in the folder `control` inside it (mode 0700).
std::vector<std::string> runtime_directories();

/// Makes the first of `candidates` that can be made, with its folder for control sockets, and returns the latter. What
/// is there already must be this user's: the outer folder with no right to write for others, the inner one closed to
/// others. Anything else is an error: somebody may be waiting there for us.
Result<std::string> make_control_directory(const std::vector<std::string>& candidates = runtime_directories());

/// Makes the folder of a socket that others connect to, with mode 0755, where it is missing and the folder around it is
/// there. One that is there already stays as it is. Errors: it can't be made.
Result<void> make_socket_directory(const std::string& socket_path);

/// Whether users beside the owner can reach a socket at this path, as far as the socket's own folder decides.
bool others_can_reach(const std::string& socket_path);

/// DIRECTORY/ROLE-PID.sock in the directory that make_control_directory found.
std::string default_control_path(const std::string& directory, std::string_view role);

/// The control sockets of all living daemons of this user in the folders that `candidates` have for them, sorted. Root
/// finds those of services with users of their own in /run/splitnic, too. Stale sockets of this user are removed.
std::vector<std::string> find_control_sockets(const std::vector<std::string>& candidates = runtime_directories());

}  // namespace splitnic::os
