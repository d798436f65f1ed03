#pragma once

#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

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

/// Ends a listener's socket and rejects the callers that it has not accepted, also while a forked child keeps a copy.
/// Callers for whom there is no descriptor stay until the last copy is closed. Only in the process that listens.
void end_listener(os::PeerSocket listener);

/// The end of a conversation. Its destruction tells the other end, unless this is a forked child with a copy of it.
struct Line {
  Line() = default;
  Line(os::PeerSocket to, os::UniqueFd of) : socket(std::move(to)), process(std::move(of)) {}
  ~Line();
  Line(Line&&) noexcept = default;
  Line& operator=(Line&& other) noexcept {
    std::swap(socket, other.socket);
    std::swap(process, other.process);
    std::swap(maker, other.maker);
    return *this;
  }

  os::PeerSocket socket;
  os::UniqueFd process;  ///< pidfd of the process at the other end; none: it can't be seen from here
  pid_t maker = ::getpid();

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
