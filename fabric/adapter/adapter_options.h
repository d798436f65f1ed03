#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "common/time.h"
#include "fabric/adapter/queue_pair_state.h"
#include "fabric/adapter/work.h"
#include "fabric/memory/rights.h"
#include "fabric/node/node.h"
#include "fabric/wire/cell.h"

namespace splitnic::fabric {

class DmaProvider;
class Placements;
class TransportFaults;

struct AdapterOptions {
  /// 64 .. 65520, multiple of 16; the smaller of both ends' is used (set_cell_payload), or less where a lane has less.
  std::uint32_t cell_payload_bytes = kDefaultCellPayload;
  std::uint32_t max_message_bytes = 1U << 20U;
  /// Of a datagram's message, which also has to fit into one cell.
  std::uint32_t max_datagram_bytes = std::numeric_limits<std::uint32_t>::max();
  std::size_t max_paths = 1024;
  std::size_t max_queue_pairs = 64;
  std::size_t max_regions = 256;  ///< tags: regions and windows
  std::size_t max_completion_queues = 256;
  std::size_t max_shared_receive_queues = 64;
  std::size_t max_completion_channels = 64;
  std::size_t max_address_handles = 1024;
  std::size_t max_groups = 64;   ///< multicast groups that the adapter sends to or takes datagrams of
  std::size_t max_events = 256;  ///< asynchronous events not yet polled; more are counted and lost
  Duration ack_timeout = std::chrono::milliseconds(200);
  unsigned retry_count = 7;
  Duration receiver_not_ready_delay = std::chrono::milliseconds(1);
  unsigned receiver_not_ready_retries = 7;
  /// Moves the bytes of direct writes and of reads answered directly; pulls those of own reads, if it says that it can
  /// (DmaProvider::puller); lent. Null: this processor moves, and pulls nothing.
  DmaProvider* dma = nullptr;
  /// Tags and queue pairs get numbers out of these ranges, see take_numbers(). Null: any numbers, as if the adapter
  /// were alone in its node.
  std::shared_ptr<const Node::Numbers> numbers{};
  /// Faults for the connected queue pairs; lent. Null: none are injected.
  TransportFaults* faults = nullptr;
  /// Ways into peers' memory past the fabric; lent. Null: there are none.
  Placements* placements = nullptr;
};

/// What an adapter takes at most. Source: the verbs (ibv_query_device).
struct AdapterLimits {
  std::size_t queue_pairs = 0;
  std::size_t completion_queues = 0;
  std::size_t shared_receive_queues = 0;
  std::size_t completion_channels = 0;
  std::size_t tags = 0;
  std::size_t queue_depth = 0;       ///< of a send, receive or shared receive queue
  std::size_t completion_depth = 0;  ///< of a completion queue
  std::size_t segments = 0;
  std::size_t inline_bytes = 0;
  std::size_t reads_in = 0;   ///< of a queue pair: a peer's reads and atomics that await their answer
  std::size_t reads_out = 0;  ///< of a queue pair: own ones
  std::uint32_t message_bytes = 0;
  Duration delay{};
};

/// What the queue pair does when the table refuses a registration or bind of its send queue. Source: S3 (option 1 is
/// reactive, option 2 anticipatory).
enum class MemoryRequestFailure : std::uint8_t {
  fail_sends,  ///< to sq_error: the rest is flushed, receiving goes on, sends can be resumed
  fail,        ///< to error, with a terminate message
};

/// The verbs' extended reliable connections. An initiator only sends requests; each of them names a shared receive
/// queue at the peer. A target only takes them; it has no completion queues and no protection domain of its own, but
/// those of the queue that a request names. Both are acknowledged. Source: the verbs (IBV_QPT_XRC_SEND,
/// IBV_QPT_XRC_RECV).
enum class XrcRole : std::uint8_t { none, initiator, target };

/// What a shared receive queue needs so that XRC targets may take receives out of it.
struct XrcReceives {
  XrcDomain domain{};      ///< 0: it is for the queue pairs that name it
  CqNumber completions{};  ///< where its receives report
};

/// A queue pair's shape for its life. The caller chooses both of S1's channel attributes: acknowledged or not,
/// connected or not; there are no acknowledged datagrams. Depths in work requests. Source: S1 III.
struct QueuePairAttributes {
  ProtectionDomain domain{};
  CqNumber send_completions{};
  CqNumber receive_completions{};
  std::size_t send_depth = 64;
  std::size_t receive_depth = 64;
  bool acknowledged = true;
  /// Not connected: every send names its destination (WorkRequest::datagram), and messages fit one cell. Not
  /// acknowledged.
  bool datagram = false;
  /// Datagrams that name another key are dropped. Source: the verbs (Q_Key).
  std::uint32_t queue_key = 0;
  VirtualLane lane = VirtualLane::data;
  /// A number of the caller's choice (well-known services, 1 .. 15); 0: drawn.
  QpNumber number{};
  /// Where receives come from; 0: from a queue of its own.
  SrqNumber shared_receives{};
  XrcRole xrc = XrcRole::none;
  XrcDomain xrc_domain{};     ///< of a target
  std::size_t reads_out = 4;  ///< reads and atomics that may await their answer, if the peer takes as many
  std::size_t reads_in = 4;   ///< the peer's likewise
  std::size_t max_inline_bytes = 0;
  /// Registrations of physical pages through the send queue are allowed. Binds and invalidations need no permission.
  /// Source: S3 Fig. 11 (enabled per queue pair).
  bool memory_requests = false;
  /// What is posted in error, and sent in sq_error, completes as flushed. False: the post is refused (bad_state).
  bool flush_posts = false;
  MemoryRequestFailure on_memory_request_failure = MemoryRequestFailure::fail_sends;
  /// As the C verbs have it: a request whose segments the table refuses is taken and ends with local_protection_error;
  /// messages of no bytes name no memory; a binding of type 2 names its window by the index alone; a reset drops the
  /// completions that wait. Else the post is refused, and the tags of such messages and windows must be current.
  bool verbs_rules = false;
  /// What peers may do through the queue pair, where their tags allow it, too.
  Rights remote_rights = Right::remote_read | Right::remote_write | Right::remote_atomic;
  /// A receive without memory that stays posted, by the id of its completions: writes with immediate use it again and
  /// again, and leave those that are posted to sends. Each use takes a place in the completion queue; where there is
  /// none, the receiver is not ready. It ends with the queue pair, without a completion. Neither datagrams nor XRC.
  std::optional<std::uint64_t> standing_receive{};
};

/// What changes in a queue pair's life; fields without a value stay. Source: the verbs (ibv_modify_qp).
struct QueuePairSettings {
  /// For receiver_not_ready_retries: it is retried until the receiver is ready.
  static constexpr unsigned kWithoutEnd = ~0U;

  std::optional<std::uint32_t> queue_key{};
  std::optional<Rights> remote_rights{};
  std::optional<std::size_t> reads_out{};            ///< at most QueuePairAttributes::reads_out
  std::optional<bool> answers_reads{};               ///< and atomics; at first it does
  std::optional<std::uint32_t> first_psn_to_send{};  ///< before ready_to_send alone
  std::optional<Duration> ack_timeout{};             ///< these four: of the adapter's options at first
  std::optional<unsigned> retry_count{};
  std::optional<unsigned> receiver_not_ready_retries{};
  std::optional<Duration> receiver_not_ready_delay{};  ///< that the peer is asked to wait for
};

struct QueuePairPeer {
  QpNumber number{};
  std::uint32_t first_psn_to_send = 0;   ///< 32 bits, this end's
  std::uint32_t first_psn_expected = 0;  ///< the peer's
  std::size_t reads_in = 4;              ///< the peer's QueuePairAttributes::reads_in
  PathNumber path{};                     ///< the way to it; 0: the adapter's only one
};

/// What a queue pair has done since it was made; reads_answered: since it was last reset.
struct QueuePairCounts {
  QueuePairState state = QueuePairState::reset;
  std::uint64_t requests_posted = 0;
  std::uint64_t requests_completed = 0;
  std::uint64_t receives_posted = 0;  ///< of a shared receive queue: those that were taken
  std::uint64_t receives_taken = 0;
  std::uint64_t reads_answered = 0;   ///< the peer's reads and atomics
  std::uint64_t retransmissions = 0;  ///< requests that were sent again
};

/// Event counts of an adapter since its creation; every drop has one.
struct AdapterCounters {
  std::uint64_t cells_sent = 0;
  std::uint64_t cells_received = 0;
  std::uint64_t bytes_sent = 0;  ///< payload of cells; without what direct transfers move
  std::uint64_t bytes_received = 0;
  std::uint64_t acknowledgements_sent = 0;
  std::uint64_t not_taken_sent = 0;  ///< a peer's messages were consumed, and are not acknowledged by that
  std::uint64_t terminates_sent = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t timeouts = 0;              ///< of requests that wait for their acknowledgement
  std::uint64_t not_ready_sent = 0;        ///< a peer's messages that were answered with "receiver not ready"
  std::uint64_t not_ready_received = 0;    ///< such answers
  std::uint64_t sequence_errors_sent = 0;  ///< a peer's messages that were asked for again
  std::uint64_t sequence_errors_received = 0;
  std::uint64_t retries_exceeded = 0;    ///< queue pairs that ended because their requests were not acknowledged
  std::uint64_t not_ready_exceeded = 0;  ///< likewise, because the receiver was not ready
  std::uint64_t dropped_bad_cell = 0;    ///< version, length, flags or CRC made no sense
  std::uint64_t dropped_wrong_address = 0;
  std::uint64_t dropped_unknown_queue_pair = 0;
  std::uint64_t dropped_out_of_sequence = 0;
  std::uint64_t dropped_duplicate = 0;
  std::uint64_t placed_early = 0;            ///< writes into one-touch entries that overtook an earlier packet
  std::uint64_t dropped_no_receive = 0;      ///< unacknowledged channel, nothing posted
  std::uint64_t dropped_unacknowledged = 0;  ///< unacknowledged message lost or refused otherwise
  std::uint64_t dropped_events = 0;          ///< asynchronous events that did not fit the queue of events
  std::uint64_t dropped_completions = 0;     ///< a completion queue that reserves no places had no room, or has failed
  std::uint64_t dropped_drains = 0;          ///< a peer's drain requests that found no place; the peer repeats them
  std::uint64_t direct_writes = 0;
  std::uint64_t segmented_writes = 0;
  std::uint64_t direct_reads = 0;     ///< a peer's reads that were answered through the window
  std::uint64_t segmented_reads = 0;  ///< likewise in cells
  std::uint64_t placed_writes = 0;    ///< own ones that went past the fabric (Placements)
  std::uint64_t placed_reads = 0;
  std::uint64_t pulled_reads = 0;    ///< own ones whose bytes the DMA provider took out of the peer window
  std::uint64_t atomics = 0;         ///< of a peer, executed
  std::uint64_t access_refused = 0;  ///< the protection table refused a peer's request
  std::uint64_t touched_twice = 0;   ///< of these, because a second message ended in a one-touch entry
  std::uint64_t drains_completed = 0;
  std::uint64_t datagrams_sent = 0;  ///< one for each member that a copy was sent to
  std::uint64_t datagrams_received = 0;
  std::uint64_t dropped_wrong_queue_key = 0;    ///< of a peer's datagram
  std::uint64_t dropped_no_group_member = 0;    ///< no queue pair here is attached to the datagram's group
  std::uint64_t dropped_datagram_too_long = 0;  ///< for the posted receive, or for the path
  std::uint64_t dropped_datagram_no_path = 0;   ///< own ones: the path was down, or is gone
  std::uint64_t dropped_datagram_no_room = 0;   ///< own ones: the lane was full for too long
};

BOOST_DESCRIBE_STRUCT(AdapterCounters, (),
                      (cells_sent, cells_received, bytes_sent, bytes_received, acknowledgements_sent, not_taken_sent,
                       terminates_sent, retransmissions, timeouts, not_ready_sent, not_ready_received,
                       sequence_errors_sent, sequence_errors_received, retries_exceeded, not_ready_exceeded,
                       dropped_bad_cell, dropped_wrong_address, dropped_unknown_queue_pair, dropped_out_of_sequence,
                       dropped_duplicate, placed_early, dropped_no_receive, dropped_unacknowledged, dropped_events,
                       dropped_completions, dropped_drains, direct_writes, segmented_writes, direct_reads,
                       segmented_reads, placed_writes, placed_reads, pulled_reads, atomics, access_refused,
                       touched_twice, drains_completed, datagrams_sent, datagrams_received, dropped_wrong_queue_key,
                       dropped_no_group_member, dropped_datagram_too_long, dropped_datagram_no_path,
                       dropped_datagram_no_room))
inline AdapterCounters& operator+=(AdapterCounters& sum, const AdapterCounters& more) {
  using Members = boost::describe::describe_members<AdapterCounters, boost::describe::mod_public>;
  boost::mp11::mp_for_each<Members>([&](auto member) { sum.*member.pointer += more.*member.pointer; });
  return sum;
}

}  // namespace splitnic::fabric
