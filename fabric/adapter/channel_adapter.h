#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "common/random.h"
#include "common/time.h"
#include "fabric/adapter/adapter_options.h"
#include "fabric/adapter/completion_channel.h"
#include "fabric/adapter/events.h"
#include "fabric/adapter/queue_pair_state.h"
#include "fabric/adapter/work.h"
#include "fabric/link/cell_link.h"
#include "fabric/memory/rights.h"

namespace splitnic::fabric {

class CompletionQueue;
struct QueuePair;

/// What deregister() of placeable memory waits for.
enum class DirectWrites : std::uint8_t {
  drain,  ///< the peer's answer; the range stays in quarantine until then
  over,   ///< nothing: the users on both sides have agreed already that no write is under way
};

/// The numbers that an adapter with these options takes of its node, for AdapterOptions::numbers. The well-known
/// numbers of queue pairs (below 16) are each adapter's own. Null: the node has too few left. Thread: any.
[[nodiscard]] std::shared_ptr<const Node::Numbers> take_numbers(Node& node, const AdapterOptions& options);

/// What ChannelAdapter::take_turn() did.
struct AdapterTurn {
  std::size_t moved = 0;       ///< as poll_links() and poll()
  bool links_changed = false;  ///< poll_links() was not 0
  bool rested = false;         ///< nothing was to be done, not even links to be polled
};

/// A channel adapter (HCA or TCA): queue pairs, completion queues, registered memory, and a path to each of its peers;
/// segments messages into cells with header and CRCs, reassembles and places them, acknowledges, retries. Thread: the
/// owner; driven by poll(). When a path's epoch changes, its queue pairs go to error, their requests in flight end as
/// outcome_unknown, and the regions of that bridge's memory are void. Other paths, their queue pairs, and every tag of
/// the process's memory are unaffected. Source: S1 III, IV.A, Fig. 8; design, "Node, adapters, ports, paths".
///
/// Where a verb takes a path, PathNumber{} means the only one that is attached.
class ChannelAdapter {
 public:
  ChannelAdapter(const AdapterOptions& options, RandomSource& random);
  /// With one path, on `link`.
  ChannelAdapter(CellLink& link, const AdapterOptions& options, RandomSource& random);
  ~ChannelAdapter();
  ChannelAdapter(const ChannelAdapter&) = delete;
  ChannelAdapter& operator=(const ChannelAdapter&) = delete;

  [[nodiscard]] AdapterLimits limits() const;

  /// A path on this link, which outlives the path, and whose owner polls it. nullopt: there are max_paths already.
  [[nodiscard]] std::optional<PathNumber> attach(CellLink& link);
  /// Says that two paths are the ends of one loop-back link, so that both lead to this adapter. A queue pair that sends
  /// on the first path then also accepts what arrives on the second. Errors: bad_argument (no such paths).
  Status pair(PathNumber first, PathNumber second);
  /// The path's epoch ends, as if its peer had died, and the link is not used any more. Errors: bad_argument.
  Status detach(PathNumber path);

  [[nodiscard]] ProtectionDomain allocate_domain();
  /// Errors: bad_argument, in_use (tags, queue pairs, shared receive queues).
  Status deallocate_domain(ProtectionDomain domain);

  /// Memory of the process; peers reach it segmented, the adapter copies. The caller keeps it valid until deregistered;
  /// a request that meets memory that is gone fails, and an event says so.
  [[nodiscard]] std::optional<Stag> register_memory(ProtectionDomain domain, std::span<std::byte> memory,
                                                    Rights rights);
  /// A range of DirectAccess::buffers of the path's link (offsets within local memory). Remote addresses are offsets
  /// from the range's start plus `address`, an opaque base that is drawn (see region_address). placeable: granted to
  /// the peer for direct writes (pushed to its MPT). queue_pair: the only one that may use it; 0: any of the domain.
  /// nullopt also where the path is down or has no such memory, or the range in quarantine (see deregister).
  [[nodiscard]] std::optional<Stag> register_bridge_memory(ProtectionDomain domain, MemoryRange range, Rights rights,
                                                           bool placeable, PathNumber path = {},
                                                           QpNumber queue_pair = {});
  /// The address that a peer uses for byte 0 of the region.
  [[nodiscard]] std::uint64_t region_address(Stag tag) const;
  /// The tag is void at once. The peer may still finish writes into placeable memory that it had begun, and pulls out
  /// of it: the range stays in quarantine until the peer reports that none is under way (event memory_drained), or the
  /// epoch ends.
  /// Errors: bad_tag, in_use (windows are bound).
  Status deregister(Stag tag, DirectWrites writes = DirectWrites::drain);
  [[nodiscard]] bool in_quarantine(MemoryRange range, PathNumber path = {}) const;
  /// The queue pair has left its connection, or lost the right to be written through, while memory of its domain was
  /// placeable: the peer may still finish direct writes through it that it had begun. Until the peer reports that none
  /// is under way (event queue_pair_drained), or the epoch ends. The number may be of a queue pair that is destroyed.
  [[nodiscard]] bool in_quarantine(QpNumber queue_pair) const;
  /// For everything else about tags: regions of pages, windows, domain rules. Valid as long as the adapter; placeable
  /// regions are registered and deregistered above.
  [[nodiscard]] ProtectionTable& table();
  /// As table().at(): of a region, for the price of a look at its own path.
  [[nodiscard]] const ProtectionEntry* entry_at(std::uint32_t index);

  /// capacity: completions. channel: where the queue reports when armed, or none. nullopt: no resources, no such
  /// channel.
  [[nodiscard]] std::optional<CqNumber> make_completion_queue(std::size_t capacity, ChannelNumber channel = {},
                                                              CompletionRoom room = CompletionRoom::reserved);
  /// The same where there can be no failure: CHECKs.
  [[nodiscard]] CqNumber create_completion_queue(std::size_t capacity);
  /// What is in the queue stays. Errors: bad_argument, bad_length (0, beyond limits()), in_use (more completions than
  /// that wait, have reserved places, or will come of signalled requests under way).
  Status resize_completion_queue(CqNumber queue, std::size_t capacity);
  /// Errors: bad_argument, in_use (queue pairs).
  Status destroy_completion_queue(CqNumber queue);
  /// One completion of the kind notifies the queue's channel, and disarms. Then poll once more: what is in the queue
  /// already notifies nobody. Errors: bad_argument (also: no channel).
  Status arm(CqNumber queue, Arm what);
  /// wake: called from within verbs and polls when a notification can be taken where none could before.
  [[nodiscard]] std::optional<ChannelNumber> create_completion_channel(std::function<void()> wake);
  [[nodiscard]] std::optional<CqNumber> take_notification(ChannelNumber channel);
  /// take_notification() would return one.
  [[nodiscard]] bool has_notification(ChannelNumber channel) const;
  /// Errors: bad_argument, in_use (completion queues).
  Status destroy_completion_channel(ChannelNumber channel);

  /// verbs_rules: see QueuePairAttributes. xrc: both of its numbers, or none. Nullopt: no number is left, or the
  /// options contradict each other.
  [[nodiscard]] std::optional<SrqNumber> create_shared_receive_queue(ProtectionDomain domain, std::size_t depth,
                                                                     bool verbs_rules = false,
                                                                     const XrcReceives& xrc = {});
  Status post_shared_receive(SrqNumber queue, const ReceiveRequest& request);
  /// An event, once, when fewer than `receives` are left. 0 disarms. Errors: bad_argument (also: beyond the depth).
  Status arm_limit(SrqNumber queue, std::size_t receives);
  /// 0: not armed.
  [[nodiscard]] std::size_t armed_limit(SrqNumber queue) const;
  /// What is posted stays. Errors: bad_argument, bad_length (0, beyond limits()), in_use (more is posted).
  Status resize_shared_receive_queue(SrqNumber queue, std::size_t depth);
  /// Forgets what is posted. Errors: bad_argument, in_use (queue pairs).
  Status destroy_shared_receive_queue(SrqNumber queue);

  /// nullopt: an unknown or foreign object, a number that is taken, or beyond limits().
  [[nodiscard]] std::optional<QpNumber> create_queue_pair(const QueuePairAttributes& options);
  /// Binds the queue pair to the peer's: messages flow. From then on until destroyed or in error.
  Status connect(QpNumber queue_pair, const QueuePairPeer& peer);
  /// One step of the state machine (queue_pair_state.h). peer: with ready_to_receive and connect. Errors: bad_state
  /// (forbidden by the table), bad_queue_pair, link_down.
  Status modify(QpNumber queue_pair, QueuePairEvent event, const QueuePairPeer& peer = {});
  /// Errors: bad_queue_pair, bad_state, bad_argument; nothing is changed then.
  Status configure(QpNumber queue_pair, const QueuePairSettings& settings);
  [[nodiscard]] std::optional<QueuePairState> state(QpNumber queue_pair) const;
  /// nullopt: no such queue pair.
  [[nodiscard]] std::optional<QueuePairCounts> counts(QpNumber queue_pair) const;
  /// Flushes what is posted (completions with `flushed`) and forgets the queue pair.
  Status destroy_queue_pair(QpNumber queue_pair);
  [[nodiscard]] bool in_error(QpNumber queue_pair) const;
  /// In sq_drained: whether the event that the last request has finished is still to come.
  [[nodiscard]] bool is_draining(QpNumber queue_pair) const;
  /// How many more requests post_send would take now; 0 for an unknown queue pair.
  [[nodiscard]] std::size_t send_room(QpNumber queue_pair) const;
  /// Whether it would take so many: for each packet, where send_room() would search.
  [[nodiscard]] bool has_send_room(QpNumber queue_pair, std::size_t requests) const;

  /// Where datagrams can be sent: to a port of a peer, or to the members of a group. It outlives the peer's epochs, but
  /// not the path. nullopt: no such path, a group with a path, values out of range, no resources.
  [[nodiscard]] std::optional<AddressHandleNumber> create_address_handle(const AddressHandleOptions& options);
  /// Datagrams that were posted with it go where it said, as long as the path is there and the group has members.
  /// Errors: bad_argument.
  Status destroy_address_handle(AddressHandleNumber handle);
  /// Whether such datagrams have not left: the path, or the group's members, are needed until they have.
  [[nodiscard]] bool datagrams_outlive_handle(PathNumber path);
  [[nodiscard]] bool datagrams_outlive_handle(const Gid& group);
  /// The queue pair takes the group's datagrams. Errors: bad_queue_pair, bad_argument (not a group), not_permitted (no
  /// datagram queue pair), in_use (attached already), no_resources.
  Status attach_to_group(QpNumber queue_pair, const Gid& group);
  /// Errors: bad_argument (not attached).
  Status detach_from_group(QpNumber queue_pair, const Gid& group);
  /// A copy of every datagram that is sent to the group goes out on the path, until it is detached. Queue pairs of this
  /// adapter get one only by a loop-back path. Errors: bad_argument (not a group, no such path), in_use (a member
  /// already), no_resources.
  Status add_group_member(const Gid& group, PathNumber path);
  /// Errors: bad_argument (not a member).
  Status remove_group_member(const Gid& group, PathNumber path);

  /// Queues a request; bytes leave at once or in poll(), and it is the next poll() that wakes a sleeping peer.
  /// Errors: queue_full (also: no place left in the completion queue), bad_*, not_permitted, link_down.
  Status post_send(QpNumber queue_pair, const WorkRequest& request);
  /// A list in order, up to the first that is refused, whose status is returned. posted: how many were taken. They
  /// leave a few at a time, so that the peer begins before the last is posted. Source: the verbs (ibv_post_send).
  Status post_send(QpNumber queue_pair, std::span<const WorkRequest> requests, std::size_t& posted);
  /// For callers who post often: the adapter's own object, valid until destroy_queue_pair() or the adapter's end; null:
  /// there is none. With it, post_send() and post_receive() of lists are as with its number.
  [[nodiscard]] QueuePair* find(QpNumber queue_pair) const;
  Status post_send(QueuePair& queue_pair, std::span<const WorkRequest> requests, std::size_t& posted);
  Status post_receive(QueuePair& queue_pair, std::span<const ReceiveRequest> requests, std::size_t& posted);
  /// What post_send() would say about the request itself: its shape, lengths and objects, not whether there is room.
  [[nodiscard]] Status check_send(QpNumber queue_pair, const WorkRequest& request) const;
  /// A receive for writes with immediate alone may have an empty segment without a tag.
  Status post_receive(QpNumber queue_pair, const ReceiveRequest& request);
  /// A list in order, as post_send.
  Status post_receive(QpNumber queue_pair, std::span<const ReceiveRequest> requests, std::size_t& posted);
  /// goes_on: see CompletionQueue::poll().
  [[nodiscard]] std::size_t poll_completions(CqNumber queue, std::span<Completion> out, bool goes_on = false);
  /// For callers who poll often, likewise until destroy_completion_queue().
  [[nodiscard]] CompletionQueue* find(CqNumber queue) const;
  [[nodiscard]] std::size_t poll_completions(CompletionQueue& queue, std::span<Completion> out, bool goes_on = false);
  /// Asynchronous events, oldest first; returns how many.
  [[nodiscard]] std::size_t poll_events(std::span<AsyncEvent> out);
  [[nodiscard]] bool has_events() const;
  /// wake: called from within verbs and polls when an event comes in while none waits.
  void set_event_wake(std::function<void()> wake);

  /// Where [address, address + bytes) of the peer's region may be stored directly for a write of this queue pair: its
  /// offset in the peer window, checked against the pushed table copy and the own mapping. nullopt: not placeable, or
  /// not by this queue pair; write segmented. Valid until the next receive() or poll(), which may answer the peer that
  /// no write is under way. Users who agree on the memory's end between themselves (DirectWrites::over) may keep it
  /// longer.
  [[nodiscard]] std::optional<std::size_t> claim_direct(QpNumber queue_pair, RemoteAddress remote, std::uint32_t bytes);

  /// Bounded work: cells in, cells out, acknowledgements, retries. Returns how many cells moved, requests ended, also
  /// those that were done at their post since the last poll, and times that the peer was told of what this end
  /// consumed. A caller who answers messages before the next poll has them first (AnswerHabit): the poll tells the peer
  /// that they were taken, and returns. The next poll rings doorbells, and completes the requests that these messages
  /// answer. next_deadline() asks for it at once, and until then prepare_sleep() and rearm() return false. Timers may
  /// be 10 us late.
  std::size_t poll(Time now);
  /// poll() in two steps, for a user who handles incoming messages before acknowledgements leave. The user then calls
  /// CellLink::notify() for each path when it has written everything.
  std::size_t receive(Time now);
  std::size_t send();
  /// When to poll again although nothing came in; without the links' own deadlines.
  [[nodiscard]] Time next_deadline() const;
  /// Something is posted, unacknowledged or in quarantine.
  [[nodiscard]] bool outstanding() const;

  /// With so few paths every poll looks at all of them.
  static constexpr std::size_t kAlwaysPolledPaths = 16;

  // For an owner who leaves the links of all paths to the adapter. Neither polls nor sleeps then do work for paths
  // where nothing happens (path_turns.h).

  /// poll_links() and poll(). With at most kAlwaysPolledPaths paths it looks first whether anything has come in: if so,
  /// links that were polled less than 4 us ago wait for a later turn. It looks several times where the peer is likely
  /// to answer at once, and then may leave alone for some turns what says that the peer has taken requests (TailHabit).
  /// To a caller who has answered each message by itself it brings one, and all else with the next turn.
  AdapterTurn take_turn(Time now);
  /// Whether take_turn(now) would do nothing.
  [[nodiscard]] bool rests(Time now) const;
  /// Polls the links whose turn it is, before poll() or receive(); returns how much happened.
  std::size_t poll_links(Time now);
  /// Flushes and announces what was released: CellLink::notify().
  void notify();
  /// A poll has something to do, or to announce: not after a post whose requests were all placed (Placements).
  [[nodiscard]] bool has_unannounced() const;
  /// CellLink::prepare_sleep() for all links. The links of idle paths stay armed from then on. False: something came
  /// in; poll again.
  [[nodiscard]] bool prepare_sleep();
  /// CellLink::rearm() likewise. False: something came in; disarm() comes before it is dealt with.
  [[nodiscard]] bool rearm();
  /// Back from sleep; attend() comes next, for what has woken this end.
  void disarm();
  /// The descriptor of the path's link is readable: the next polls look at the path.
  void attend(PathNumber path);
  /// The path's link goes on over another bridge, or over none, and this was no poll's doing. Call it before anything
  /// else is done with the adapter: it may remember where the lanes of the epoch that is over were.
  void follow(PathNumber path);
  [[nodiscard]] Time next_link_deadline(Time now) const;
  /// Changes when an epoch of some path begins or ends.
  [[nodiscard]] std::uint64_t path_epochs() const;

  /// What both ends of the path have agreed on, at most AdapterOptions::cell_payload_bytes. Errors: bad_argument.
  Status set_cell_payload(std::uint32_t bytes, PathNumber path = {});
  [[nodiscard]] const AdapterCounters& counters() const;

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace splitnic::fabric
