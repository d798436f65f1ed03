#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/os/peer_socket.h"
#include "common/os/unique_fd.h"
#include "fabric/rdmacm/bindings.h"
#include "fabric/rdmacm/record.h"

/// The sockets of connection management: a listener has a SOCK_SEQPACKET socket in the fabric's folder, and each
/// connection has one for its life. None of them blocks, whatever the other end sends.
namespace splitnic::rdmacm {

/// A listener's socket. binding: held, so what is at its path was left over. None with errno: no descriptors, or the
/// path is too long.
[[nodiscard]] os::PeerSocket listen_at(const std::string& path);

/// The end of a conversation.
struct Line {
  os::PeerSocket socket;
  os::UniqueFd process;  ///< pidfd of the process at the other end; none: it can't be seen from here

  [[nodiscard]] bool send(const Record& record) const;
};

/// The next caller of a listener's socket, of this user. errno if there is none: EAGAIN, EPROTO (a caller was refused,
/// there may be more), or no descriptors.
[[nodiscard]] std::optional<Line> accept_from(int listener);

enum class Call : std::uint8_t {
  made,
  busy,    ///< the listener has more callers than it takes: try again
  nobody,  ///< no process listens there
  failed,  ///< errno says why: no descriptors
};
/// Calls the listener of a destination: the one of exactly this address, or else one of all addresses.
[[nodiscard]] Call call(const Bindings& bindings, Space space, const Address& destination, Line& line);

enum class Heard : std::uint8_t {
  nothing,
  record,
  garbage,  ///< something that no end sends; it may be still there
  ended,    ///< the other end has closed its socket
};
[[nodiscard]] Heard hear(const Line& line, Record& record);

}  // namespace splitnic::rdmacm
