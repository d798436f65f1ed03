#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "common/time.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/adapter/completion_queue.h"
#include "fabric/adapter/ring.h"
#include "fabric/wire/cell.h"

namespace splitnic::fabric {

/// reset: receives may be posted, nothing moves. ready: connected. error: everything posted has been flushed; nothing
/// is taken any more, and a peer that goes on is told the refusal again. The verbs' further states come with their
/// users.
enum class QueuePairState : std::uint8_t { reset, ready, error };
enum class QueuePairEvent : std::uint8_t { connect, fail };
inline constexpr std::size_t kQueuePairStates = 3;
inline constexpr std::size_t kQueuePairEvents = 2;

struct QueuePairMove {
  bool legal = false;
  QueuePairState to = QueuePairState::error;
  const char* why = "";  ///< a forbidden move's reason
};
/// The state machine.
inline constexpr std::array<std::array<QueuePairMove, kQueuePairEvents>, kQueuePairStates> kQueuePairMoves{{
    /* reset */ {{{true, QueuePairState::ready, ""}, {true, QueuePairState::error, ""}}},
    /* ready */
    {{{false, QueuePairState::ready, "connected already: numbers in flight would be misread"},
      {true, QueuePairState::error, ""}}},
    /* error */
    {{{false, QueuePairState::error, "what was flushed can't be resumed: make a new queue pair"},
      {true, QueuePairState::error, ""}}},
}};
[[nodiscard]] constexpr const QueuePairMove& queue_pair_move(QueuePairState from, QueuePairEvent event) {
  return kQueuePairMoves[static_cast<std::size_t>(from)][static_cast<std::size_t>(event)];
}

/// One request of a send queue.
struct SendEntry {
  WorkRequest request{};
  std::uint32_t bytes = 0;
  bool direct = false;  ///< the bytes are in the peer's memory: the closing cell alone is sent, also when retried
};

/// A send queue. Positions: done <= next <= posted, done <= sent <= posted; the packet sequence number of position p is
/// first_psn + p.
struct SendQueue {
  explicit SendQueue(std::size_t requests) : entries(requests), depth(requests) {}

  Ring<SendEntry> entries;
  std::size_t depth;
  std::uint64_t posted = 0;
  std::uint64_t next = 0;  ///< being put on the wire
  std::uint64_t sent = 0;  ///< beyond the last that was on the wire whole, at any time
  std::uint64_t done = 0;  ///< acknowledged, or sent on an unacknowledged channel
  std::uint32_t first_psn = 0;
  std::uint32_t next_offset = 0;  ///< of `next`: bytes on the wire
  std::uint16_t next_cell = 0;
  std::uint32_t packet_crc = kPacketCrcStart;
  unsigned retries_left = 0;
  unsigned receiver_not_ready_left = 0;
  Time acknowledge_by = kNever;   ///< kNever: nothing awaited, or not yet started by a poll
  Time hold_until = Time::min();  ///< receiver not ready

  [[nodiscard]] std::uint32_t psn(std::uint64_t position) const {
    return first_psn + static_cast<std::uint32_t>(position);
  }
  /// Positions of which at least a cell has been on the wire, from done.
  [[nodiscard]] std::uint64_t started() const { return std::max(sent, next + (next_cell != 0 ? 1U : 0U)) - done; }
  void rewind_to(std::uint64_t position) {
    next = position;
    next_offset = 0;
    next_cell = 0;
    packet_crc = kPacketCrcStart;
  }
};

/// What the responder owes the peer: one cumulative state, sent when the lane has room.
struct PendingAcknowledgement {
  bool wanted = false;
  Syndrome syndrome = Syndrome::ok;
  std::uint32_t psn = 0;
};

struct ReceiveQueue {
  explicit ReceiveQueue(std::size_t requests) : entries(requests), depth(requests) {}

  Ring<ReceiveRequest> entries;
  std::size_t depth;
  std::uint64_t posted = 0;
  std::uint64_t taken = 0;
  [[nodiscard]] bool empty() const { return posted == taken; }
};

/// The message that is coming in.
struct Reassembly {
  bool active = false;
  MessageKind kind = MessageKind::none;
  std::uint16_t next_cell = 0;
  std::uint32_t offset = 0;  ///< bytes placed
  std::uint32_t packet_crc = kPacketCrcStart;
  Stag tag{};  ///< of a write
  std::uint64_t address = 0;
  std::uint32_t message_bytes = 0;
};

/// Thread: the adapter's owner.
struct QueuePair {
  QueuePair(QpNumber own, const QueuePairOptions& with)
      : number(own), options(with), send(with.send_depth), receive(with.receive_depth) {}

  QpNumber number;
  QueuePairOptions options;
  QueuePairState state = QueuePairState::reset;
  QpNumber peer{};

  SendQueue send;

  ReceiveQueue receive;
  std::uint32_t expected_psn = 0;
  Reassembly incoming{};
  bool silent = false;  ///< a packet was refused for now: nothing is said until it comes again
  PendingAcknowledgement acknowledgement{};
};

}  // namespace splitnic::fabric
