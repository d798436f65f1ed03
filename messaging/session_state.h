#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace splitnic::messaging {

/// The state of a session. Source: design, "Session".
enum class SessionState : std::uint8_t {
  down,               ///< holds nothing; waits for the bridge, or for the end of the pause after a fault
  bridge_up,          ///< the two ends exchange epochs
  anchor_read,        ///< the peer's memory is known and the lanes work
  control_connected,  ///< the control channel is connected, the hello is in progress
  negotiated,         ///< the ends agreed on features, mode and limits; the data channel is connected
  pools_exchanged,    ///< this end's pools advertised and the peer's accepted, where the mode has pools
  up,                 ///< the session carries frames
};
inline constexpr std::size_t kSessionStates = 7;

std::string_view to_string(SessionState state);

/// An entry of the transition table that the session and its test use. reason: why an illegal move is illegal. Every
/// state may move to down, because any fault or new epoch of the peer releases everything.
struct SessionMove {
  bool legal = false;
  std::string_view reason;
};
SessionMove session_move(SessionState from, SessionState to);

}  // namespace splitnic::messaging
