#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <variant>

#include "common/strong_id.h"
#include "common/time.h"
#include "fabric/ids.h"
#include "fabric/memory/protection_table.h"
#include "fabric/wire/datagram.h"

namespace splitnic::fabric {

/// Which shared receive queues the peers of a queue pair may name: those with the same number. The caller chooses it; 0
/// is none. Source: the verbs (XRC domain).
using XrcDomain = StrongId<struct XrcDomainTag, std::uint32_t>;
/// A completion channel; 0 is never one.
using ChannelNumber = StrongId<struct ChannelNumberTag, std::uint32_t>;

/// What a verb answers at once. Everything else comes as a completion.
enum class [[nodiscard]] Status : std::uint8_t{
    ok,
    queue_full,
    bad_queue_pair,
    bad_state,
    bad_tag,     ///< a segment's tag is unknown, stale, of another domain or lacks the right
    bad_length,  ///< a segment reaches beyond what its tag opens; a size or count is beyond its limit
    link_down,
    no_resources,
    bad_argument,   ///< an unknown object, or values that contradict each other
    not_permitted,  ///< the queue pair was not made for this operation
    in_use,         ///< others still refer to the object
};
const char* to_string(Status status);

/// What a work request does. From bind_window on nothing goes over the wire. Source: S4 (work-queue elements), S3.
enum class Operation : std::uint8_t {
  send,
  send_with_immediate,
  rdma_write,
  rdma_write_with_immediate,
  send_with_invalidate,  ///< the peer's `invalidate` tag ends when the send has arrived
  rdma_read,             ///< from `remote` into the segments
  compare_swap,          ///< on the 8 bytes at `remote`; what they held goes into the one segment, in host order
  fetch_add,
  bind_window,
  register_memory,
  local_invalidate,  ///< of the tag `invalidate`, once everything before it is complete
  delay,             ///< the queue goes on when `delay` has passed
};
const char* to_string(Operation operation);

/// How a work request ended. Names after the verbs.
enum class CompletionStatus : std::uint8_t {
  success,
  local_length_error,  ///< a message longer than the posted receive
  local_protection_error,
  remote_access_error,  ///< the owner's table refused
  remote_operation_error,
  receiver_not_ready,            ///< retries exhausted, no receive was posted
  retry_exceeded,                ///< no acknowledgement
  flushed,                       ///< queue pair in error
  outcome_unknown,               ///< an epoch went by, or the stream ended, while it was in flight
  memory_request_error,          ///< a bind, registration or invalidation that the table refused
  remote_invalid_request_error,  ///< the peer could make nothing of it
};
const char* to_string(CompletionStatus status);

/// Memory of this process, inside a region with the rights that the use calls for. Lent to the adapter until
/// completion.
struct LocalSegment {
  std::byte* address = nullptr;
  std::uint32_t bytes = 0;
  Stag tag{};

  /// By the address that peers would use: for bridge memory and memory registered as pages, which have no other.
  static LocalSegment at(std::uint64_t address, std::uint32_t bytes, Stag tag) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): never dereferenced; check_segment() looks at the number
    return {reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address)), bytes, tag};
  }
  /// What at() was given.
  [[nodiscard]] std::uint64_t as_number() const { return reinterpret_cast<std::uintptr_t>(address); }
};
/// Of one request's gather or scatter list.
inline constexpr std::size_t kMaxSegments = 16;
/// The segments of a request: most have one or two, so copies take the used ones alone.
using SegmentList = std::array<LocalSegment, kMaxSegments>;

struct RemoteAddress {
  std::uint64_t address = 0;
  Stag tag{};
};

/// An address handle; 0 is never one.
using AddressHandleNumber = StrongId<struct AddressHandleNumberTag, std::uint32_t>;

/// What an address handle says. Source: the verbs (ibv_ah_attr).
struct AddressHandleOptions {
  PathNumber path{};               ///< to a peer; 0: the adapter's only one
  Gid group{};                     ///< or to a multicast group; all zero: none
  std::uint8_t service_level = 0;  ///< 0 .. 15
  std::uint8_t traffic_class = 0;  ///< of the route header, as is the rest
  std::uint32_t flow_label = 0;    ///< 20 bits
  std::uint8_t hop_limit = 64;
};

/// Where a datagram goes. queue_pair: at the peer; of a group's handle it is not looked at. queue_key: must be that of
/// the receiver; with the highest bit set, the sender's own is used. Source: the verbs (ibv_send_wr, ud).
struct DatagramTarget {
  AddressHandleNumber handle{};
  QpNumber queue_pair{};
  std::uint32_t queue_key = 0;
};

/// What a memory request asks of the protection table. A page list is lent until completion.
using MemoryRequest = std::variant<Bind, FastRegister>;

/// What messages of connected queue pairs use comes first, in one line with the first segment, and is copied in one
/// piece (SendEntry).
/// What messages of connected queue pairs use comes first, in 64 bytes together with the first segment.
struct WorkRequest {
  std::uint64_t id = 0;  ///< the caller's, returned in the completion
  Operation operation = Operation::send;
  bool signalled = true;     ///< false: a completion only on failure
  bool fence = false;        ///< begins when all reads and atomics before it are complete
  bool solicited = false;    ///< sends and writes with immediate: wakes a peer who waits for such alone
  bool inline_data = false;  ///< sends and writes: the segments' bytes are copied now; no tags, nothing is lent
  RemoteAddress remote{};    ///< RDMA and atomics
  std::uint32_t immediate = 0;
  /// RDMA writes whose bytes the caller has stored through the peer window already (ChannelAdapter::claim_direct):
  /// their number; segments are empty then. 0: the adapter moves the segments. The caller answers for the order with
  /// what this queue pair has sent in cells: until that is complete, older bytes may land over those that are stored.
  std::uint32_t placed_bytes = 0;
  std::size_t segment_count = 0;
  SegmentList segments{};

  DatagramTarget datagram{};    ///< sends of datagram queue pairs
  SrqNumber remote_receives{};  ///< of XRC initiators: the peer's shared receive queue
  Stag invalidate{};
  Duration delay{};
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  /// bind_window, register_memory; with a send: registers first, then sends (S3, combined). Read during the post alone.
  const MemoryRequest* memory = nullptr;

  /// As WorkRequest{}, but for the segments: none of them counts, and they keep what they were.
  void start_over() {
    id = 0;
    operation = Operation::send;
    signalled = true;
    fence = solicited = inline_data = false;
    remote = {};
    immediate = placed_bytes = 0;
    segment_count = 0;
    datagram = {};
    remote_receives = {};
    invalidate = {};
    delay = {};
    swap_or_add = compare = 0;
    memory = nullptr;
  }
};
static_assert(std::is_trivially_copyable_v<WorkRequest> && std::is_standard_layout_v<WorkRequest>);

struct ReceiveRequest {
  std::uint64_t id = 0;
  LocalSegment segment{};
  std::span<const LocalSegment> more{};  ///< of the scatter list, at most kMaxSegments - 1; read during the post alone
};

struct Completion {
  std::uint64_t id = 0;
  QpNumber queue_pair{};
  CompletionStatus status = CompletionStatus::success;
  bool receive = false;                   ///< of a receive request (or of a write with immediate, which consumes one)
  bool has_immediate = false;             ///< a send or write with immediate arrived
  bool has_invalidated = false;           ///< a send with invalidate arrived, and ended `tag`
  bool solicited = false;                 ///< the sender asked for attention
  Operation operation = Operation::send;  ///< of a receive: send, or rdma_write_with_immediate
  std::uint32_t immediate = 0;
  std::uint32_t bytes = 0;  ///< received, or read
  Stag tag{};               ///< a bind's or registration's from now on; what was invalidated
  bool has_route = false;   ///< a datagram: the message is behind a RouteHeader; `bytes` counts both
  QpNumber source{};        ///< of a datagram: the sender's queue pair, and the path that it came by
  PathNumber path{};
};

}  // namespace splitnic::fabric
