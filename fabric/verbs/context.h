#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"
#include "fabric/bridge/link.h"
#include "fabric/verbs/memory.h"
#include "fabric/verbs/queues.h"

namespace splitnic::verbs {

/// Limits and their defaults: docs/verbs.md, "Limits".
struct ContextOptions {
  static constexpr std::size_t kMaxQueuePairs = std::size_t{1} << 19U;
  static constexpr std::size_t kMaxTags = std::size_t{1} << 22U;
  static constexpr std::size_t kMaxEvents = std::size_t{1} << 20U;
  static constexpr std::size_t kMaxMptEntries = std::size_t{1} << 20U;
  static constexpr Duration kLongestTimeout = std::chrono::hours(1);

  fabric::LinkOptions link{};  ///< port_address 0: drawn at random
  fabric::AdapterOptions adapter{};
  /// The source of tags, numbers and epochs; lent. Null: the kernel's generator. Only tests give another one.
  RandomSource* random = nullptr;
};

/// An open channel adapter on one end of a bridge; all other objects are made from it. The context has no thread: its
/// owner polls it, and sleeps in a loop of its own or in wait() (wait.h).
class Context : public Handle<detail::ContextObject> {
 public:
  using Handle::Handle;

  /// Takes the bridge and begins the handshake with the peer. Errors: bad_argument (no bridge, impossible options).
  [[nodiscard]] static Expected<Context> open(std::shared_ptr<fabric::Bridge> bridge,
                                              const ContextOptions& options = {});

  /// Does a bounded amount of work: handshake, cells in and out, responses, retries. Returns how much it did.
  std::size_t poll(Time now);
  /// When poll() must run next, even if the peer does not ring.
  [[nodiscard]] Time next_deadline(Time now) const;
  /// Call it before sleeping on descriptor(), when poll() returns 0: arms the doorbell, and polls once more. False: do
  /// not sleep, because something came in or the bridge has no descriptor.
  [[nodiscard]] bool prepare_sleep();
  /// Readable when the peer has rung. -1: no peer can ring any more; wait for next_deadline() only.
  [[nodiscard]] int descriptor() const;
  /// Call it after sleeping, whatever ended the sleep.
  void disarm();
  /// True: the peer is connected. The end of an epoch is the event path_down: every queue pair has failed, and every
  /// region of the bridge's memory is void. Reset the queue pairs; register bridge memory again. Other regions stay.
  [[nodiscard]] bool up() const;
  /// Events since the last call, oldest first; returns how many.
  [[nodiscard]] std::size_t poll_events(std::span<AsyncEvent> out);

  /// The adapter's limits; constant while the context is open. All 0 in a null handle.
  [[nodiscard]] AdapterLimits limits() const;
  /// Counters since the context was opened.
  [[nodiscard]] AdapterCounters counters() const;
  /// Bytes of the bridge's memory that can be registered, addressed from 0; 0 while up() is false.
  [[nodiscard]] std::size_t bridge_bytes() const;

  /// Datagrams to the group go to the peer, or no longer. Errors: bad_argument (not a group, not a member), in_use (a
  /// member already), no_resources.
  Status add_group_member(const Gid& group);
  Status remove_group_member(const Gid& group);

  /// rules: strict means S3's rules, with regions for local use and windows for remote use. Errors: bad_argument.
  [[nodiscard]] Expected<ProtectionDomain> allocate_domain(DomainRules rules = DomainRules::verbs);
  /// wake: called from within verbs and poll() when the empty channel gets a notification, for example to make a
  /// descriptor readable. It must not call verbs. May be empty. Errors: bad_argument, no_resources.
  [[nodiscard]] Expected<CompletionChannel> create_completion_channel(std::function<void()> wake = {});
  /// capacity: completions. channel: where the queue reports when armed, or null. Errors: bad_argument, bad_length,
  /// no_resources.
  [[nodiscard]] Expected<CompletionQueue> create_completion_queue(std::size_t capacity,
                                                                  const CompletionChannel* channel = nullptr);
};

}  // namespace splitnic::verbs
