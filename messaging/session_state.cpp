#include "messaging/session_state.h"

namespace splitnic::messaging {

std::string_view to_string(SessionState state) {
  static constexpr std::array<std::string_view, kSessionStates> kNames{
      "down", "bridge up", "anchor read", "control connected", "negotiated", "pools exchanged", "up"};
  return kNames[static_cast<std::size_t>(state)];
}

namespace {

constexpr SessionMove kYes{true, ""};
constexpr SessionMove kSame{false, "a session is in one state once"};
constexpr SessionMove kBack{false,
                            "what a later state relies on is never taken away piecemeal: go down, and start anew"};
constexpr SessionMove kEpochs{false, "without both epochs nothing in memory can be told from an earlier life"};
constexpr SessionMove kAnchor{false, "without the anchor there is no place for cells"};
constexpr SessionMove kHello{false, "limits are unknown before the hello is answered"};
constexpr SessionMove kPools{false, "a mode with pools has nowhere to write before they are advertised"};
constexpr SessionMove kReady{false, "frames may flow only when both ends have said so"};

// Rows: from; columns: to, in the order of SessionState.
constexpr std::array<std::array<SessionMove, kSessionStates>, kSessionStates> kTable{{
    /* down              */ {kSame, kYes, kEpochs, kEpochs, kEpochs, kEpochs, kEpochs},
    /* bridge_up         */ {kYes, kSame, kYes, kAnchor, kAnchor, kAnchor, kAnchor},
    /* anchor_read       */ {kYes, kBack, kSame, kYes, kHello, kHello, kHello},
    /* control_connected */ {kYes, kBack, kBack, kSame, kYes, kPools, kPools},
    /* negotiated        */ {kYes, kBack, kBack, kBack, kSame, kYes, kReady},
    /* pools_exchanged   */ {kYes, kBack, kBack, kBack, kBack, kSame, kYes},
    /* up                */ {kYes, kBack, kBack, kBack, kBack, kBack, kSame},
}};

}  // namespace

SessionMove session_move(SessionState from, SessionState to) {
  return kTable[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

}  // namespace splitnic::messaging
