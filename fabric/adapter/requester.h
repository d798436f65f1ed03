#pragma once

#include <cstddef>

#include "fabric/adapter/context.h"

namespace splitnic::fabric {

/// The sending half of an adapter: cuts messages into cells or stores them through the peer window, awaits
/// acknowledgements, retries. Thread: the adapter's owner.
class Requester {
 public:
  explicit Requester(AdapterContext& context) : context_(context) {}

  Status post(QueuePair& queue_pair, const WorkRequest& request);
  /// Puts at most `budget` cells on the wire; returns how many. Stops where the lane is full: nothing blocks.
  std::size_t pump(QueuePair& queue_pair, std::size_t budget);
  /// The peer's answer. Numbers that can't be are ignored.
  void take_acknowledgement(QueuePair& queue_pair, const Cell& cell);
  /// Timeouts by context.now.
  void check_time(QueuePair& queue_pair);
  /// When check_time or pump wants to run next, without anything coming in.
  [[nodiscard]] Time next_deadline(const QueuePair& queue_pair) const;

  /// What a cell may carry on this lane now.
  [[nodiscard]] std::size_t cell_payload(VirtualLane lane);

 private:
  [[nodiscard]] bool check_segments(const QueuePair& queue_pair, const WorkRequest& request) const;
  [[nodiscard]] Status measure(const QueuePair& queue_pair, const WorkRequest& request, std::uint32_t& bytes) const;
  bool store_directly(const WorkRequest& request, std::uint32_t bytes);
  [[nodiscard]] bool send_cell(QueuePair& queue_pair, SendEntry& entry);
  void message_sent(QueuePair& queue_pair);
  void retry(QueuePair& queue_pair);

  AdapterContext& context_;
};

}  // namespace splitnic::fabric
