#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fabric/adapter/adapter_options.h"
#include "messaging/wire/layout.h"

namespace splitnic::messaging {

/// Event counts of a session, over all its epochs.
struct SessionCounters {
  std::uint64_t tx_frames = 0;
  std::uint64_t rx_frames = 0;
  std::uint64_t tx_bytes = 0;
  std::uint64_t rx_bytes = 0;
  std::uint64_t rx_before_up = 0;      ///< frames dropped because they arrived before the session was up
  std::uint64_t rx_bad_length = 0;     ///< frames dropped: shorter than an Ethernet header or longer than agreed
  std::uint64_t rx_bad_offload = 0;    ///< frames dropped: their virtio-net header has unknown flags or kind
  std::uint64_t lost_elements = 0;     ///< elements that the peer skipped; their frames were lost on the way
  std::uint64_t bad_messages = 0;      ///< messages that this end could not decode or use
  std::uint64_t stray_replies = 0;     ///< replies that match no request of this end
  std::uint64_t answers_not_sent = 0;  ///< answers dropped because the peer requests faster than it receives answers
  std::uint64_t pool_gets_refused = 0;
  std::uint64_t faults = 0;  ///< sessions that ended with a fault
  std::uint64_t ups = 0;
  std::array<std::uint64_t, wire::kFunctions.size()> messages_sent{};
  std::array<std::uint64_t, wire::kFunctions.size()> messages_received{};
  std::uint64_t writes_sent = 0;  ///< RDMA writes, announced by BufferRDMAIndicate
  std::uint64_t writes_with_immediate_sent = 0;
  std::uint64_t writes_with_immediate_received = 0;
  std::uint64_t data_sends_sent = 0;  ///< mode S
  std::uint64_t data_sends_received = 0;
};

SessionCounters& operator+=(SessionCounters& sum, const SessionCounters& more);

/// What a session and the layers below it have counted. A driver whose session object is replaced with its bridge keeps
/// the sum, so that its counters never go back.
struct SessionTotals {
  SessionCounters session;
  fabric::AdapterCounters adapter;
  std::uint64_t doorbells_left_out = 0;  ///< see FabricLink::doorbells_left_out()
};
SessionTotals& operator+=(SessionTotals& sum, const SessionTotals& more);

/// Named counters for display: frame drops by cause, and messages by type.
using NamedCounts = std::vector<std::pair<std::string, std::uint64_t>>;
[[nodiscard]] NamedCounts drop_counts(const SessionTotals& totals);
[[nodiscard]] NamedCounts message_counts(const SessionTotals& totals);

}  // namespace splitnic::messaging
