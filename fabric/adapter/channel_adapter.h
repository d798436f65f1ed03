#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "common/random.h"
#include "common/time.h"
#include "fabric/adapter/work.h"
#include "fabric/bridge/link.h"
#include "fabric/memory/rights.h"

namespace splitnic::fabric {

struct AdapterOptions {
  std::uint32_t cell_payload_bytes =
      256;  ///< 64 .. 65520, multiple of 16; the smaller of both ends' is used (set_cell_payload)
  std::uint32_t max_message_bytes = 1U << 20U;
  std::size_t max_queue_pairs = 64;
  std::size_t max_regions = 256;
  Duration ack_timeout = std::chrono::milliseconds(200);
  unsigned retry_count = 7;
  Duration receiver_not_ready_delay = std::chrono::milliseconds(1);
  unsigned receiver_not_ready_retries = 7;
};

/// A queue pair's shape for its life. Of S1's two channel attributes the caller chooses acknowledged or not; every
/// queue pair is connected. Depths in work requests. Source: S1 III.
struct QueuePairOptions {
  ProtectionDomain domain{};
  CqNumber send_completions{};
  CqNumber receive_completions{};
  std::size_t send_depth = 64;
  std::size_t receive_depth = 64;
  bool acknowledged = true;
  VirtualLane lane = VirtualLane::data;
  /// A number of the caller's choice (well-known services, 1 .. 15); 0: drawn.
  QpNumber number{};
};

struct QueuePairPeer {
  QpNumber number{};
  std::uint32_t first_psn_to_send = 0;   ///< 32 bits, this end's
  std::uint32_t first_psn_expected = 0;  ///< the peer's
};

/// Event counts of an adapter since its creation; every drop has one.
struct AdapterCounters {
  std::uint64_t cells_sent = 0;
  std::uint64_t cells_received = 0;
  std::uint64_t acknowledgements_sent = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t dropped_bad_cell = 0;  ///< version, length, flags or CRC made no sense
  std::uint64_t dropped_wrong_address = 0;
  std::uint64_t dropped_unknown_queue_pair = 0;
  std::uint64_t dropped_out_of_sequence = 0;
  std::uint64_t dropped_duplicate = 0;
  std::uint64_t dropped_no_receive = 0;      ///< unacknowledged channel, nothing posted
  std::uint64_t dropped_unacknowledged = 0;  ///< unacknowledged message lost or refused otherwise
  std::uint64_t direct_writes = 0;
  std::uint64_t segmented_writes = 0;
  std::uint64_t access_refused = 0;  ///< the protection table refused a peer's request
};

/// A channel adapter (HCA or TCA) on one link: queue pairs, completion queues, registered memory; segments messages
/// into cells with header and CRCs, reassembles and places them, acknowledges, retries. Thread: the owner; driven by
/// poll(). When the link's epoch changes every queue pair goes to error, requests in flight end as outcome_unknown, and
/// every tag is void: the owner of the queue pairs destroys them and starts anew. Source: S1 III, IV.A, Fig. 8.
class ChannelAdapter {
 public:
  ChannelAdapter(FabricLink& link, const AdapterOptions& options, RandomSource& random);
  ~ChannelAdapter();
  ChannelAdapter(const ChannelAdapter&) = delete;
  ChannelAdapter& operator=(const ChannelAdapter&) = delete;

  [[nodiscard]] ProtectionDomain allocate_domain();

  /// Memory of the process; peers reach it segmented, the adapter copies. Must stay valid until deregistered.
  [[nodiscard]] std::optional<Stag> register_memory(ProtectionDomain domain, std::span<std::byte> memory,
                                                    Rights rights);
  /// A range of link.buffers() (offsets within local memory). Remote addresses are offsets from the range's start plus
  /// `address`, an opaque base that is drawn (see region_address). placeable: granted to the peer for direct writes
  /// (pushed to its MPT).
  [[nodiscard]] std::optional<Stag> register_bridge_memory(ProtectionDomain domain, MemoryRange range, Rights rights,
                                                           bool placeable);
  /// The address that a peer uses for byte 0 of the region.
  [[nodiscard]] std::uint64_t region_address(Stag tag) const;
  Status deregister(Stag tag);

  [[nodiscard]] CqNumber create_completion_queue(std::size_t capacity);
  [[nodiscard]] std::optional<QpNumber> create_queue_pair(const QueuePairOptions& options);
  /// Binds the queue pair to the peer's: messages flow. From then on until destroyed or in error.
  Status connect(QpNumber queue_pair, const QueuePairPeer& peer);
  /// Flushes what is posted (completions with `flushed`) and forgets the queue pair.
  Status destroy_queue_pair(QpNumber queue_pair);
  [[nodiscard]] bool in_error(QpNumber queue_pair) const;
  /// How many more requests post_send would take now; 0 for an unknown queue pair.
  [[nodiscard]] std::size_t send_room(QpNumber queue_pair) const;

  /// Queues a request; bytes leave at once or in poll(), and it is the next poll() that wakes a sleeping peer.
  /// Errors: queue_full (also: no place left in the completion queue), bad_*, link_down.
  Status post_send(QpNumber queue_pair, const WorkRequest& request);
  /// A receive for writes with immediate alone may have an empty segment without a tag.
  Status post_receive(QpNumber queue_pair, const ReceiveRequest& request);
  [[nodiscard]] std::size_t poll_completions(CqNumber queue, std::span<Completion> out);

  /// Where [address, address + bytes) of the peer's region may be stored directly: its offset in the peer window,
  /// checked against the pushed table copy and the own mapping. nullopt: not placeable, write segmented.
  [[nodiscard]] std::optional<std::size_t> claim_direct(RemoteAddress remote, std::uint32_t bytes);

  /// Bounded work: cells in, cells out, acknowledgements, retries. Returns how many cells moved.
  std::size_t poll(Time now);
  /// poll() in two steps, for a user who handles what came in before acknowledgements leave, and who calls
  /// link().notify() when all that it had to say is written.
  std::size_t receive(Time now);
  std::size_t send();
  [[nodiscard]] Time next_deadline() const;
  /// Something is posted or unacknowledged.
  [[nodiscard]] bool outstanding() const;

  void set_cell_payload(std::uint32_t bytes);
  [[nodiscard]] const AdapterCounters& counters() const;
  [[nodiscard]] FabricLink& link();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace splitnic::fabric
