#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/adapter/context.h"
#include "fabric/adapter/responder.h"
#include "fabric/link/slot_ring.h"

namespace splitnic::fabric {

/// The short way of the most frequent messages: those of connected, acknowledged queue pairs that are one slot, from
/// and into one piece of remembered memory; sends, and writes that go through the peer window. Requester and Responder
/// do the same for all messages, and everything that is more than this: what waits, what is refused or retried. So each
/// function here first makes sure that nothing else is to be done, then does all of it, and otherwise changes nothing.
/// Thread: the adapter's owner. Source: design, "Slots and a payload ring", "Consumption is acknowledgement", "Check
/// once".
class Express {
 public:
  Express(AdapterContext& context, Responder& responder) : context_(context), responder_(responder) {}

  /// Posts and sends requests from the first on, up to the first that is the requester's; returns how many.
  std::size_t post(QueuePair& queue_pair, std::span<const WorkRequest> requests);

  enum class Taken {
    nothing_there,  ///< the lane has no slot
    taken,
    left,     ///< as it was: it is for CellLink::front()
    refused,  ///< by the responder; refused() says which
  };
  /// Takes the lane's oldest slot, and consumes it if it was taken or refused. The path is open.
  [[nodiscard]] Taken take(Path& path, VirtualLane lane);
  /// The message that take() has refused.
  [[nodiscard]] const Cell& refused() const { return refused_.cell; }

 private:
  /// The extended headers of the messages that go this way.
  struct Headers {
    Stag tag{};
    std::uint64_t address = 0;
    std::uint32_t bytes = 0;
    std::uint32_t immediate = 0;
  };

  [[nodiscard]] bool sends_at_once(const QueuePair& queue_pair) const;
  [[nodiscard]] bool post(QueuePair& queue_pair, SlotLane& slots, CompletionQueue& completions,
                          const WorkRequest& request);
  [[nodiscard]] std::uint64_t send(const QueuePair& queue_pair, SlotLane& slots, const WorkRequest& request,
                                   const std::byte* from) const;
  [[nodiscard]] std::uint64_t write(const QueuePair& queue_pair, SlotLane& slots, const WorkRequest& request,
                                    const std::byte* from) const;
  [[nodiscard]] QueuePair* expects(const Path& path, const ReceivedSlot& slot) const;
  [[nodiscard]] Taken take_send(QueuePair& queue_pair, const ReceivedSlot& slot);
  [[nodiscard]] Taken take_write(QueuePair& queue_pair, const ReceivedSlot& slot);
  [[nodiscard]] bool may_write(QueuePair& queue_pair, const Headers& headers, std::uint32_t psn) const;
  [[nodiscard]] ReceivedCell as_cell(const ReceivedSlot& slot, const Headers& headers) const;
  void finish(QueuePair& queue_pair, const ReceivedSlot& slot, const Headers& headers, std::uint32_t bytes);

  AdapterContext& context_;
  Responder& responder_;
  ReceivedCell refused_{};
};

}  // namespace splitnic::fabric
