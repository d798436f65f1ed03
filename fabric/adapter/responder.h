#pragma once

#include <cstddef>
#include <span>

#include "fabric/adapter/context.h"

namespace splitnic::fabric {

/// The receiving half of an adapter: puts cells in order, checks and places them, consumes posted receives, answers.
/// Thread: the adapter's owner.
class Responder {
 public:
  explicit Responder(AdapterContext& context) : context_(context) {}

  Status post(QueuePair& queue_pair, const ReceiveRequest& request);
  /// A cell of a message, addressed to queue_pair by its peer. bytes: what `cell` was decoded from.
  void take(QueuePair& queue_pair, const Cell& cell, std::span<const std::byte> bytes);
  /// Sends what is owed, if anything; true if a cell went out. Never waits for requests.
  bool push_acknowledgement(QueuePair& queue_pair);

 private:
  /// What became of a cell that came in order.
  enum class Verdict {
    good,
    not_ready,        ///< no receive is posted
    damaged,          ///< the packet CRC does not fit
    access_refused,   ///< the table said no
    nonsense,         ///< lengths that contradict each other
    too_long,         ///< for the posted receive
    receive_is_void,  ///< the posted receive's memory was deregistered
  };

  [[nodiscard]] bool in_order_acknowledged(QueuePair& queue_pair, const Cell& cell);
  [[nodiscard]] bool in_order_unacknowledged(QueuePair& queue_pair, const Cell& cell);
  [[nodiscard]] Verdict accept(QueuePair& queue_pair, const Cell& cell, std::span<const std::byte> bytes);
  [[nodiscard]] Verdict begin(QueuePair& queue_pair, const Cell& cell);
  [[nodiscard]] Verdict place(QueuePair& queue_pair, const Cell& cell);
  [[nodiscard]] Verdict place_send(QueuePair& queue_pair, const Cell& cell);
  [[nodiscard]] Verdict place_write(QueuePair& queue_pair, const Cell& cell);
  void finish(QueuePair& queue_pair, const Cell& cell);
  void refuse(QueuePair& queue_pair, Verdict why);
  void refuse_unacknowledged(QueuePair& queue_pair, Verdict why);
  void refuse_for_good(QueuePair& queue_pair, Syndrome syndrome);

  AdapterContext& context_;
};

}  // namespace splitnic::fabric
