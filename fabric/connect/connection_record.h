#pragma once

#include <cstdint>
#include <optional>

#include "fabric/connect/connection_manager.h"

namespace splitnic::fabric {

/// One connection, or the memory of a peer's request.
struct ConnectionManager::Record {
  ConnectionNumber number{};
  ConnectionState state = ConnectionState::connecting;
  PathNumber path{};
  ServiceNumber service{};
  ConnectionNumber peer{};  ///< 0: it has not said it yet
  bool passive = false;     ///< made by the peer's request
  bool held = true;         ///< by the program, or by a listener
  bool waits = false;       ///< for take_request()
  ConnectionEnd own{};
  ConnectionEnd theirs{};

  ConnectionMessage last{};  ///< what is repeated, or answers a repeated request
  Duration wait{};           ///< until the next repetition
  Duration limit{};          ///< for all of them
  Time repeat_at = kNever;
  Time give_up_at = kNever;  ///< ended: when the peer's request is forgotten
  bool clock_starts = false;

  std::optional<ConnectionEventKind> ending{};
  RejectReason reason = RejectReason::none;
  PrivateData data{};

  [[nodiscard]] bool awaits_answer() const {
    return state == ConnectionState::connecting || state == ConnectionState::accepting ||
           state == ConnectionState::disconnecting;
  }
};

}  // namespace splitnic::fabric
