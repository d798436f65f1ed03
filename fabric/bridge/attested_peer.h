#pragma once

#include <optional>

#include "fabric/bridge/bridge.h"

namespace splitnic::fabric {

/// The process at the other end of a connected Unix socket, as the kernel attests it (SO_PEERCRED): the one that called
/// connect(2) or listen(2). pid: 0 if it is in a PID namespace that this process does not see. nullopt: no such socket.
[[nodiscard]] std::optional<BridgePeer> attested_peer(int socket);

}  // namespace splitnic::fabric
