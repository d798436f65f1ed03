#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/verbs/address_handle.h"
#include "fabric/verbs/memory.h"
#include "fabric/verbs/path.h"
#include "fabric/verbs/queues.h"
#include "fabric/verbs/remote.h"
#include "fabric/verbs/types.h"

namespace splitnic::verbs {

/// The properties of a queue pair, constant for its life; depths in work requests. The pointers are read during the
/// call.
struct QueuePairOptions {
  const CompletionQueue* send_completions = nullptr;
  const CompletionQueue* receive_completions = nullptr;
  const SharedReceiveQueue* shared_receives = nullptr;  ///< null: a queue of its own
  std::size_t send_depth = 64;
  std::size_t receive_depth = 64;
  bool acknowledged = true;     ///< reliable connection; false: unreliable connection
  bool datagram = false;        ///< unreliable datagrams, with any peer; then not acknowledged
  std::uint32_t queue_key = 0;  ///< datagrams that name another key are dropped
  VirtualLane lane = VirtualLane::data;
  QpNumber number{};  ///< 2 .. 15: a number that both ends know; 0: drawn at random. 1 is the context's own
  std::size_t reads_out = 4;
  std::size_t reads_in = 4;
  std::size_t max_inline_bytes = 0;
  bool memory_requests = false;  ///< registrations through the send queue are allowed
  bool flush_posts = false;      ///< what is posted in error completes as flushed; false: bad_state
  MemoryRequestFailure on_memory_request_failure = MemoryRequestFailure::fail_sends;
  /// A receive without memory that stays posted for writes with immediate, by the id of its completions; they leave the
  /// posted receives to sends. One that finds no place in receive_completions waits, as where no receive is posted. Not
  /// of datagram queue pairs. nullopt: each such write uses up a posted receive.
  std::optional<std::uint64_t> standing_receive{};
};

/// What a bind opens: [offset, offset + bytes) of the region, with these rights and options.
struct Binding {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  Rights rights{};  ///< remote rights
  TouchControl touch = TouchControl::unlimited;
  std::uint8_t key = 0;       ///< type 2: the lower 8 bits of the tag
  bool zero_based = false;    ///< type 2: peers address the first byte as 0
  bool invalidatable = true;  ///< type 2: a peer's send may invalidate the tag
};

/// What a registration through the send queue opens.
struct Registration {
  PageList pages{};  ///< lent until completion
  std::uint8_t key = 0;
  Rights rights{};
  std::uint64_t base = 0;  ///< the address that peers use for byte 0
  TouchControl touch = TouchControl::unlimited;
  bool invalidatable = false;
};

/// The id and flags of a memory request.
struct RequestOptions {
  std::uint64_t id = 0;
  bool signalled = true;
  bool fence = false;
};

/// One end of a connection, or of none that takes and sends datagrams: a send queue for requests, and receives for the
/// peer's sends. A datagram's receive begins with 40 bytes for the RouteHeader. Errors of a post:
/// bad_argument, bad_state, queue_full (the queue, or the completion queue for the result), bad_tag, bad_length,
/// not_permitted, link_down. Later errors are completions.
class QueuePair : public Handle<detail::QueuePairObject> {
 public:
  using Handle::Handle;

  /// The address that the peer's queue pair needs; a reset changes it. Queue pair 0 in a null handle.
  [[nodiscard]] QueuePairAddress address() const;
  /// The state; error in a null handle.
  [[nodiscard]] QueuePairState state() const;
  /// One step of the state machine. peer: for ready_to_receive, the source of the packets; the path is the one that
  /// leads to its port. Errors: bad_argument (no peer, no path or more than one leads to it), bad_state (no such step),
  /// in_use (sq_error while requests are in flight), link_down (also: no path leads to the peer now, but some are
  /// down).
  Status modify(QueuePairState to, const QueuePairAddress* peer = nullptr);
  /// All steps from reset to ready_to_send.
  Status connect(const QueuePairAddress& peer);
  /// The same two over this path. Errors, besides the above: bad_argument (a path of another context, or to another
  /// port than the peer's).
  Status modify(QueuePairState to, const Path& path, const QueuePairAddress& peer);
  Status connect(const Path& path, const QueuePairAddress& peer);
  /// All steps from reset to ready_to_send, of a datagram queue pair, which has no peer. Errors: bad_argument (not a
  /// datagram queue pair), bad_state.
  Status start();
  /// Over the path of an address handle. Errors, besides the above: link_down (the handle is not valid() any more),
  /// bad_argument (the handle belongs to another domain, or to another port than the peer's).
  Status modify(QueuePairState to, const AddressHandle& way, const QueuePairAddress& peer);
  Status connect(const AddressHandle& way, const QueuePairAddress& peer);

  /// Posts a request made by the functions of requests.h. Binds and registrations have their own functions below.
  Status post_send(const WorkRequest& request);
  /// Errors, besides the above: not_permitted (the queue pair uses a shared receive queue).
  Status post_receive(const ReceiveRequest& request);
  /// Posts a list, in order, up to the first request that is refused; its status is returned. posted: how many requests
  /// were taken. Source: the verbs (ibv_post_send and its bad_wr).
  Status post_send(std::span<const WorkRequest> requests, std::size_t& posted);
  Status post_receive(std::span<const ReceiveRequest> requests, std::size_t& posted);
  /// From now on, or no longer, takes the datagrams of the multicast group. Errors: bad_argument (not a group, not
  /// attached), not_permitted (not a datagram queue pair), in_use (attached already), no_resources.
  Status attach(const Gid& group);
  Status detach(const Gid& group);
  /// Number of requests that post_send() can still take.
  [[nodiscard]] std::size_t send_room() const;

  /// Opens part of the region to the peer when the request is carried out. Requests posted after it can use
  /// window.remote_key(). If the table refuses, the request completes as memory_request_error. Binds of one window in
  /// flight on several queue pairs have no order. Errors, besides the above: bad_argument (also: other domains, the
  /// process may not access the memory), bad_length (no bytes).
  Status post_bind(MemoryWindow& window, const MemoryRegion& region, const Binding& binding,
                   const RequestOptions& options = {});
  /// Unbinds the window.
  Status post_unbind(MemoryWindow& window, const RequestOptions& options = {});
  /// Makes a region of allocate_region() valid when the request is carried out. Requests posted after it can use
  /// region.tag(), segment() and remote_key().
  Status post_register(MemoryRegion& region, const Registration& registration, const RequestOptions& options = {});
  /// Registers and sends in one request, with the id and flags of `send`. Source: S3 (combined).
  Status post_register_and_send(MemoryRegion& region, const Registration& registration, const WorkRequest& send);
};

}  // namespace splitnic::verbs
