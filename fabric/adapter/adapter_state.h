#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fabric/adapter/channel_adapter.h"
#include "fabric/adapter/context.h"
#include "fabric/adapter/requester.h"
#include "fabric/adapter/responder.h"

namespace splitnic::fabric {

inline constexpr std::size_t kWellKnownNumbers = 16;
inline constexpr std::size_t kMaxQueueDepth = std::size_t{1} << 16U;
inline constexpr std::size_t kMaxCompletionDepth = std::size_t{1} << 20U;
inline constexpr std::size_t kMaxReads = 256;

/// What a ChannelAdapter is made of. A queue pair's slot is the low bits of its number: the first sixteen are those of
/// the well-known numbers, and a drawn number is random above its slot's bits.
struct ChannelAdapter::State {
  State(const AdapterOptions& options, RandomSource& randomness);

  [[nodiscard]] QueuePair* find(QpNumber number) const {
    QueuePair* candidate = slots[number.value & (slots.size() - 1)].get();
    return candidate != nullptr && candidate->number == number ? candidate : nullptr;
  }
  [[nodiscard]] std::optional<QpNumber> draw_number();
  void begin_epoch(Path& path);
  void end_epoch(Path& path);
  /// Notices that the path's link went down or through an epoch; true while it is up.
  bool follow(Path& path);
  /// The same for every path.
  void follow_all();
  std::size_t receive_cells(Path& path, VirtualLane lane);
  void take_cell(Path& path, const ReceivedCell& received);
  void dispatch(QueuePair& queue_pair, const ReceivedCell& received);
  void take_datagram(Path& path, const ReceivedCell& received);
  void take_ended_transfers();
  std::size_t send_cells();
  /// Answers to the peer's reads and atomics, at most `budget` cells, and what waits for them; returns how many cells.
  std::size_t answer(QueuePair& queue_pair, std::size_t budget);
  /// Reports a queue pair whose drain is complete.
  void check_drained(QueuePair& queue_pair);

  RandomSource& random;
  AdapterContext context;
  Requester requester;
  Responder responder;
  std::vector<std::unique_ptr<QueuePair>> slots;
  std::vector<QueuePair*> active;
  std::size_t turn = 0;              // 2 x position in `active`, + 1: of its requests rather than its answers
  std::vector<bool> domains{false};  // by number: allocated and not given back; 0 never is
};

}  // namespace splitnic::fabric
