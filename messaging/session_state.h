#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace splitnic::messaging {

/// Where a session stands. Source: design, "Session".
enum class SessionState : std::uint8_t {
  down,               ///< nothing held; waiting for the bridge, or for the end of the pause after a fault
  bridge_up,          ///< epochs being shaken
  anchor_read,        ///< the peer's memory is known, lanes run
  control_connected,  ///< control channel there, hello under way
  negotiated,         ///< features, mode and limits agreed, data channel connected
  pools_exchanged,    ///< this end's pools advertised and the peer's accepted, where the mode has pools
  up,                 ///< frames flow
};
inline constexpr std::size_t kSessionStates = 7;

std::string_view to_string(SessionState state);

/// The table that drives the session and its test: a move is legal, or there is a reason why not.
/// Every state may fall back to down: any fault, or a new epoch of the peer, releases everything.
struct SessionMove {
  bool legal = false;
  std::string_view reason;
};
SessionMove session_move(SessionState from, SessionState to);

}  // namespace splitnic::messaging
