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

  fabric::LinkOptions link{};  ///< port_address 0: drawn
  fabric::AdapterOptions adapter{};
  /// Where tags, numbers and epochs come from; lent. Null: the kernel's generator. Tests alone give another.
  RandomSource* random = nullptr;
};

/// An open channel adapter on one end of a bridge: where everything begins. The core has no thread: whoever owns the
/// context polls it, and sleeps in a loop of its own or by wait() (wait.h).
class Context : public Handle<detail::ContextObject> {
 public:
  using Handle::Handle;

  /// Takes the bridge over and begins the handshake with the peer. Errors: bad_argument (no bridge, impossible
  /// options).
  [[nodiscard]] static Expected<Context> open(std::shared_ptr<fabric::Bridge> bridge,
                                              const ContextOptions& options = {});

  /// Moves everything on: handshake, cells in and out, answers, retries. Bounded; returns how much moved.
  std::size_t poll(Time now);
  /// When poll() wants to run although the peer did not ring.
  [[nodiscard]] Time next_deadline(Time now) const;
  /// Before sleeping on descriptor(), when nothing moves any more: tells the peer to ring, and looks again. False: do
  /// not sleep, something came in (or there is no descriptor at all).
  [[nodiscard]] bool prepare_sleep();
  /// Readable when the peer has rung. -1: there is nobody to ring any more, time alone is left to wait for.
  [[nodiscard]] int descriptor() const;
  /// After sleeping, for whatever reason it ended.
  void disarm();
  /// The peer is there. An epoch that ends is the event path_down: every queue pair has failed and every region and
  /// window is void; reset the former, register the latter anew.
  [[nodiscard]] bool up() const;
  /// Events since the last call, oldest first; returns how many.
  [[nodiscard]] std::size_t poll_events(std::span<AsyncEvent> out);

  /// The most that one may ask for; constant while it is open. Of a null handle all are 0.
  [[nodiscard]] AdapterLimits limits() const;
  /// Of everything since it was opened.
  [[nodiscard]] AdapterCounters counters() const;
  /// Bytes of the bridge's memory that can be registered, addressed from 0; 0 while the peer is not there.
  [[nodiscard]] std::size_t bridge_bytes() const;

  /// rules: strict is S3's, regions for local use and windows for remote. Errors: bad_argument.
  [[nodiscard]] Expected<ProtectionDomain> allocate_domain(DomainRules rules = DomainRules::verbs);
  /// wake: called from within verbs and poll() when a notification can be taken where none could before: the place to
  /// make a descriptor readable; it calls no verbs. May be empty. Errors: bad_argument, no_resources.
  [[nodiscard]] Expected<CompletionChannel> create_completion_channel(std::function<void()> wake = {});
  /// capacity: completions. channel: where the queue reports when armed, or null. Errors: bad_argument, bad_length,
  /// no_resources.
  [[nodiscard]] Expected<CompletionQueue> create_completion_queue(std::size_t capacity,
                                                                  const CompletionChannel* channel = nullptr);
};

}  // namespace splitnic::verbs
