#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "fabric/adapter/context.h"
#include "fabric/adapter/placements.h"

namespace splitnic::fabric {

/// Carries out writes and reads by AdapterOptions::placements. Such a request has no packet number, and ends when its
/// bytes are in place. It waits for all requests before it: what they carry must not land later. Where nobody
/// acknowledges them, it does not wait, but goes another way until they have landed. A request that is longer than
/// AdapterContext::to_place waits in the send queue, and is placed in parts; SendQueue::next_offset says how far.
/// Thread: the adapter's owner.
class Placer {
 public:
  explicit Placer(AdapterContext& context) : context_(context) {}

  /// Posts and ends requests from the first on, up to the first that goes another way; returns how many.
  std::size_t post(QueuePair& queue_pair, std::span<const WorkRequest> requests) {
    const bool none = context_.options.placements == nullptr || requests.empty() || !may_be_placed(requests.front());
    return none ? 0 : post_all(queue_pair, requests);
  }
  /// As far as the request alone shows.
  [[nodiscard]] static bool may_be_placed(const WorkRequest& request) {
    const bool moves = request.operation == Operation::rdma_write || request.operation == Operation::rdma_read;
    return moves && request.memory == nullptr && request.placed_bytes == 0;
  }

  /// The request will be placed, but not by this post: too many bytes have been since the last poll.
  [[nodiscard]] bool defers(const QueuePair& queue_pair, const WorkRequest& request) const {
    return context_.options.placements != nullptr && may_be_placed(request) && exceeds_turn(queue_pair, request);
  }

  enum class Turn {
    general,  ///< it goes the general way
    wait,     ///< for the requests before it, or for the next poll
    part,     ///< some more of it is in place
    done,
  };
  /// The turn of a posted request has come, of which nothing has left.
  [[nodiscard]] Turn turn(QueuePair& queue_pair, SendEntry& entry);

 private:
  struct Pieces {
    std::array<iovec, kMaxSegments> parts;  ///< the first `count`; nothing fills the others
    std::size_t count = 0;
    std::uint64_t bytes = 0;

    void keep(std::uint64_t offset, std::uint64_t most);
  };
  [[nodiscard]] Turn take_turn(QueuePair& queue_pair, SendEntry& entry);
  [[nodiscard]] std::size_t post_all(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  [[nodiscard]] bool exceeds_turn(const QueuePair& queue_pair, const WorkRequest& request) const;
  [[nodiscard]] bool serves(const QueuePair& queue_pair) const;
  [[nodiscard]] bool find_piece(const QueuePair& queue_pair, const WorkRequest& request, Pieces& pieces) const;
  [[nodiscard]] bool find_pieces(const QueuePair& queue_pair, const WorkRequest& request, Pieces& pieces) const;
  [[nodiscard]] bool move(const QueuePair& queue_pair, const WorkRequest& request, const Pieces& pieces,
                          std::uint32_t offset = 0);
  void count(Operation operation);

  AdapterContext& context_;
};

/// A connected queue pair's request of so many bytes waits for those before it, rather than go another way.
[[nodiscard]] bool is_worth_waiting(const AdapterContext& context, const QueuePair& queue_pair,
                                    const WorkRequest& request, std::uint64_t bytes);
/// The request that is to be posted next is done, and nothing before it is under way. bytes: of its completion.
void end_at_post(AdapterContext& context, QueuePair& queue_pair, const WorkRequest& request, std::uint64_t bytes);
/// Tells the path's peer whether it may store directly through the queue pair, and pull what it reads; to be called
/// when an epoch begins.
void publish_admission(AdapterContext& context, const QueuePair& queue_pair);
/// Tells the path's peer and the placements; to be called whenever the queue pair's connection may have changed.
void publish_connection(AdapterContext& context, const QueuePair& queue_pair);

}  // namespace splitnic::fabric
