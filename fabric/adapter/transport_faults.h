#pragma once

#include <cstdint>

#include "common/time.h"
#include "fabric/adapter/work.h"
#include "fabric/ids.h"
#include "fabric/wire/cell.h"

namespace splitnic::fabric {

/// A request of a send queue.
struct SendingRequest {
  QpNumber queue_pair{};
  PathNumber path{};           ///< to its peer
  std::uint64_t position = 0;  ///< in its send queue, from 0 on, for the queue pair's life
  std::uint64_t id = 0;        ///< WorkRequest::id
  Operation operation = Operation::send;
  bool datagram = false;
};

/// A message that comes in, in order. A message that comes again has the same packet sequence number. Of a datagram it
/// is its sender's, and there may be several senders.
struct ArrivingMessage {
  QpNumber queue_pair{};
  std::uint32_t psn = 0;
  MessageKind kind = MessageKind::none;
};

/// What a request meets at its turn.
struct RequestTurn {
  enum class What : std::uint8_t {
    go,
    hold,  ///< nothing of it leaves before `until`; then it is asked about again
    fail,  ///< it ends with `status`, as if the adapter had found that itself
  };
  What what = What::go;
  Time until{};  ///< of the clock that drives the adapter
  CompletionStatus status = CompletionStatus::success;
};

/// Faults that are injected below an adapter's queue pairs. Of a datagram to a group, each copy is a cell. The adapter
/// does for each what it does for the real fault. Called from within verbs and polls; must not call the adapter.
/// Thread: the adapter's owner.
class TransportFaults {
 public:
  virtual ~TransportFaults() = default;

  /// The request's turn has come, and nothing of it has left. Asked again while there is no room for it.
  [[nodiscard]] virtual RequestTurn turn(const SendingRequest& request) = 0;
  /// A cell of the request, counted from 0, is lost on its way; also of one that is sent again.
  [[nodiscard]] virtual bool loses(const SendingRequest& request, std::uint16_t cell) = 0;
  /// The cell, which is not lost, arrives twice; the second one only if there is room for it.
  [[nodiscard]] virtual bool duplicates(const SendingRequest& request, std::uint16_t cell) = 0;
  /// The acknowledgement of the request, or its answer, is lost on its way, also of one that is sent again.
  [[nodiscard]] virtual bool loses_answer(const SendingRequest& request) = 0;
  /// The first cell of the message has come in damaged.
  [[nodiscard]] virtual bool damages(const ArrivingMessage& message) = 0;
  /// The receiver is not ready for the message, which would take the receive with this identifier.
  [[nodiscard]] virtual bool not_ready(const ArrivingMessage& message, std::uint64_t receive) = 0;
};

}  // namespace splitnic::fabric
