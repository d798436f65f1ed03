#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/os/unix_listener.h"
#include "common/result.h"

namespace splitnic::os {

/// $XDG_RUNTIME_DIR/splitnic. Empty: the variable is not set, or names something else than a directory that is this
/// user's alone (mode 0700), for example that of another user after `sudo -E`, who could exchange what is made in it.
std::string session_directory();

/// The folders where daemons keep their sockets, best first: $RUNTIME_DIRECTORY (a service of systemd), /run/splitnic
/// for root, session_directory(), /tmp/splitnic-UID. Sockets that hosts connect to are in such a folder (mode
/// 0755), control sockets in the folder `control` inside it (mode 0700).
std::vector<std::string> runtime_directories();

/// A folder of one user inside a runtime directory.
struct PrivateDirectory {
  std::string name{};         ///< of the folder; no path
  std::string_view holds{};   ///< "the control socket": for errors
  std::string_view remedy{};  ///< what the user can do about an error
};

/// Creates the first of `candidates` that can be created (mode 0755), and in it the private folder (mode 0700), and
/// returns the latter. A candidate that belongs to another user counts as one that can't be created. Others must have
/// no right to write to the outer folder and no access to the inner one, which must belong to this user. Anything else
/// is an error, because another user may have prepared the folder.
Result<std::string> make_private_directory(const PrivateDirectory& what, const std::vector<std::string>& candidates);

/// The same for the folder `control`, with the daemons' control sockets.
Result<std::string> make_control_directory(const std::vector<std::string>& candidates = runtime_directories());

/// Creates the folder of a socket that others connect to, with mode 0755, if it is missing and its parent exists. An
/// existing folder stays unchanged. Errors: it can't be created.
Result<void> make_socket_directory(const std::string& socket_path);

/// Whether other users than the owner can reach a socket at this path, judged by the socket's own folder alone.
bool others_can_reach(const std::string& socket_path);

/// The mode of a socket for everybody who can reach its folder: 0600 where that is this user alone, else 0666.
mode_t socket_mode(const std::string& socket_path);

/// Listens at DIRECTORY/ROLE-PID.sock, in the directory that make_control_directory found. Daemons in several PID
/// namespaces may share the directory and have the same pid: where somebody listens there, it takes ROLE-PID-2.sock,
/// and so on up to kMostWithOnePid. Errors: as UnixListener::listen.
Result<UnixListener> listen_at_default_path(const std::string& directory, std::string_view role);
inline constexpr unsigned kMostWithOnePid = 256;

/// The control sockets of all running daemons of this user in the control folders of `candidates`, sorted. Root also
/// finds the sockets in /run/splitnic of services that run as other users. Removes stale sockets of this user. A socket
/// of which nobody can say whether somebody listens (no descriptor is free) is among them: asking it gives the reason.
/// Errors: a folder can't be read.
Result<std::vector<std::string>> find_control_sockets(
    const std::vector<std::string>& candidates = runtime_directories());

}  // namespace splitnic::os
