#include "fabric/bridge/attested_peer.h"

#include <sys/socket.h>

namespace splitnic::fabric {

std::optional<BridgePeer> attested_peer(int socket) {
  ucred who{};
  socklen_t bytes = sizeof who;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0) return std::nullopt;
  return BridgePeer{who.pid, who.uid, who.gid};
}

}  // namespace splitnic::fabric
