#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"
#include "fabric/bridge/link.h"
#include "fabric/link/cell_link.h"
#include "fabric/verbs/memory.h"
#include "fabric/verbs/path.h"
#include "fabric/verbs/queues.h"

namespace splitnic::verbs {

/// Limits and their defaults: docs/verbs.md, "Limits".
struct ContextOptions {
  static constexpr std::size_t kMaxQueuePairs = std::size_t{1} << 19U;
  static constexpr std::size_t kMaxTags = std::size_t{1} << 22U;
  static constexpr std::size_t kMaxEvents = std::size_t{1} << 20U;
  static constexpr std::size_t kMaxMptEntries = std::size_t{1} << 20U;
  static constexpr Duration kLongestTimeout = std::chrono::hours(1);

  fabric::AdapterOptions adapter{};
  PortAddress port_address{};  ///< 48 bits; 0: drawn at random
  /// Tags and the numbers of queue pairs are unique among the contexts that were opened with the same node, which may
  /// belong to different threads. Lent for open() alone. Null: the context is alone in its node.
  fabric::Node* node = nullptr;
  /// The source of tags, numbers and epochs; lent. Null: the kernel's generator. Only tests give another one.
  RandomSource* random = nullptr;
};

/// An open channel adapter with one port and a path to each of its peers; all other objects are made from it. The
/// context has no thread: its owner polls it, and sleeps in a loop of its own or in wait() (wait.h).
class Context : public Handle<detail::ContextObject> {
 public:
  using Handle::Handle;

  /// Errors: bad_argument (impossible options), no_resources (the node has too few numbers left).
  [[nodiscard]] static Expected<Context> open(const ContextOptions& options = {});

  /// The address of the context's port, the same on all paths; 0 in a null handle.
  [[nodiscard]] PortAddress port_address() const;
  /// Takes one end of a bridge and begins the handshake with the peer at its other end. link.port_address: 0, or
  /// port_address(). Errors: bad_argument (no bridge, impossible options), no_resources (max_paths).
  [[nodiscard]] Expected<Path> add_path(std::shared_ptr<fabric::Bridge> bridge, const fabric::LinkOptions& link = {});
  /// A path over any other link, for example fabric::UdpLink; the context polls the link. It must have been made with
  /// port_address(), and everything that the link itself uses must outlive the path. Errors: bad_argument,
  /// no_resources.
  [[nodiscard]] Expected<Path> add_path(std::shared_ptr<fabric::CellLink> link);
  /// A link from the context to itself: of two queue pairs that talk to each other, one connects over each of the two
  /// paths. Errors: bad_argument, no_resources.
  [[nodiscard]] Expected<std::array<Path, 2>> add_loopback(const fabric::LinkOptions& link = {});
  /// A link to another context of this process: a path of this context, and one of the other. Each context is polled by
  /// its own thread afterwards; during the call neither is. When a context ends, the other's path goes down.
  /// link.port_address: 0. Errors: bad_argument (also: the same context), no_resources.
  [[nodiscard]] Expected<std::array<Path, 2>> add_loopback(Context& other, const fabric::LinkOptions& link = {});

  /// Does a bounded amount of work on every path: handshake, cells in and out, responses, retries. Returns how much it
  /// did. A peer that sleeps may be rung by the next poll only: poll until it returns 0.
  std::size_t poll(Time now);
  /// When poll() must run next, even if no peer rings.
  [[nodiscard]] Time next_deadline(Time now) const;
  /// Call it before sleeping on descriptor(), when poll() returns 0: arms the doorbells, and polls once more. False: do
  /// not sleep, because something came in or a link has no descriptor.
  [[nodiscard]] bool prepare_sleep();
  /// Readable when a peer has rung. It may change with the paths: ask after each prepare_sleep(). -1: no peer can ring
  /// any more; wait for next_deadline() only.
  [[nodiscard]] int descriptor() const;
  /// Call it after sleeping, whatever ended the sleep.
  void disarm();
  /// Events since the last call, oldest first; returns how many.
  [[nodiscard]] std::size_t poll_events(std::span<AsyncEvent> out);

  /// The adapter's limits; constant while the context is open. All 0 in a null handle.
  [[nodiscard]] AdapterLimits limits() const;
  /// Counters since the context was opened.
  [[nodiscard]] AdapterCounters counters() const;
  /// Datagrams to the group go to the path's peer, or no longer. Errors: bad_argument (not a group, not a member, not a
  /// path of this context), in_use (a member already), no_resources.
  Status add_group_member(const Gid& group, const Path& path);
  Status remove_group_member(const Gid& group, const Path& path);

  /// rules: strict means S3's rules, with regions for local use and windows for remote use. Errors: bad_argument.
  [[nodiscard]] Expected<ProtectionDomain> allocate_domain(DomainRules rules = DomainRules::verbs);
  /// wake: called from within verbs and poll() when the empty channel gets a notification, for example to make a
  /// descriptor readable. It must not call verbs. May be empty. Errors: bad_argument, no_resources.
  [[nodiscard]] Expected<CompletionChannel> create_completion_channel(std::function<void()> wake = {});
  /// capacity: completions. channel: where the queue reports when armed, or null. room: unreserved means the verbs'
  /// rule, by which the queue fails when a completion finds no room. Errors: bad_argument, bad_length, no_resources.
  [[nodiscard]] Expected<CompletionQueue> create_completion_queue(std::size_t capacity,
                                                                  const CompletionChannel* channel = nullptr,
                                                                  CompletionRoom room = CompletionRoom::reserved);
};

}  // namespace splitnic::verbs
