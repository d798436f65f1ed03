#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "common/random.h"
#include "common/result.h"
#include "common/strong_id.h"
#include "common/time.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/link/cell_link.h"

namespace splitnic::fabric {

struct SharedAdapterOptions {
  /// No lock and no thread: one thread at a time uses the object, and progress happens only in its calls.
  bool single_threaded = false;
  /// The progress thread takes over when no caller has polled for so long, or for up to twice as long. The time doubles
  /// from the minimum to the maximum while callers poll, so they have polled for longer than it. Each look whether they
  /// do costs them a switch of threads. minimum: at least 1 us; maximum: at least the minimum.
  Duration takeover_min = std::chrono::microseconds(50);
  Duration takeover_max = std::chrono::microseconds(1600);
};

/// Since the creation.
struct SharedAdapterCounters {
  std::uint64_t contended = 0;         ///< verbs that found the lock held
  std::uint64_t biases = 0;            ///< times that the lock became biased to a caller
  std::uint64_t revocations = 0;       ///< times that another thread took it from that one
  std::uint64_t polls = 0;             ///< of callers, that drove the adapter
  std::uint64_t thread_polls = 0;      ///< of the progress thread, likewise
  std::uint64_t thread_takeovers = 0;  ///< because no caller had polled for the takeover time
  std::uint64_t caller_takeovers = 0;  ///< callers that polled again and again, while the thread served
  std::uint64_t hand_overs = 0;        ///< of callers to the thread: they armed a completion queue, or wait
};

/// A descriptor that the progress thread watches; 0 is never one.
using WatchNumber = StrongId<struct WatchNumberTag, std::uint64_t>;

/// How a wait ended.
enum class Waited : std::uint8_t { ready, timeout, interrupted };

/// A channel adapter and its links for programs with many threads: a lock, and a thread that makes progress while no
/// caller polls. So a program that only watches its memory, or sleeps on a completion channel, gets everything; and a
/// program that spins in poll_completions() has the adapter to itself, because its polls keep the thread asleep.
///
/// Thread: any, several at once, unless single_threaded. A call takes the lock once: two atomic operations while nobody
/// contends, and none of a caller that takes it again and again (BiasedLock). After a fork only the parent uses the
/// object; see forked().
///
/// Source: design, "Node, adapters, ports, paths" (Threads). docs/node.md has the rule by which no wake-up is lost.
class SharedAdapter {
 public:
  /// random: lent; the adapter draws from it under the lock. Errors: no descriptors, no thread.
  [[nodiscard]] static Result<std::unique_ptr<SharedAdapter>> create(const AdapterOptions& adapter,
                                                                     RandomSource& random,
                                                                     const SharedAdapterOptions& options = {});
  /// Ends the thread, then adapter and links. Nobody else may use the object any more. Not from a watch's callback. In
  /// a forked child it leaves all of it as it is, because the parent uses what both map, and the thread is not there.
  ~SharedAdapter();
  SharedAdapter(const SharedAdapter&) = delete;
  SharedAdapter& operator=(const SharedAdapter&) = delete;

  // Data path. No allocation, and no system call while callers poll.

  /// As ChannelAdapter::post_send; a sleeping peer is woken by the next poll, of a caller or of the thread.
  Status post_send(QpNumber queue_pair, const WorkRequest& request);
  /// A list in order, up to the first that is refused, whose status is returned. posted: how many were taken. Takes the
  /// lock once, and announces once.
  Status post_send(QpNumber queue_pair, std::span<const WorkRequest> requests, std::size_t& posted);
  Status post_receive(QpNumber queue_pair, const ReceiveRequest& request);
  Status post_receive(QpNumber queue_pair, std::span<const ReceiveRequest> requests, std::size_t& posted);
  Status post_shared_receive(SrqNumber queue, const ReceiveRequest& request);
  Status post_shared_receive(SrqNumber queue, std::span<const ReceiveRequest> requests, std::size_t& posted);
  /// Takes the oldest completions; returns how many. A call that finds none polls the links and the adapter, and looks
  /// again, unless the thread does so at present. goes_on: continues a poll that took out some; see
  /// CompletionQueue::poll(). It only looks.
  [[nodiscard]] std::size_t poll_completions(CqNumber queue, std::span<Completion> out, bool goes_on = false);
  /// As ChannelAdapter::arm. The caller is about to sleep, so the thread serves from now on.
  Status arm(CqNumber queue, Arm what);

  /// Everything else: calls verbs(ChannelAdapter&) under the lock, and returns what it returns. It may post and poll
  /// completions too. It must not call this object, block, or poll the adapter.
  template <class Verbs>
  decltype(auto) use(Verbs&& verbs) {
    const Use guard(*this);
    return std::forward<Verbs>(verbs)(adapter());
  }
  /// use() for posts: a caller that posts again and again while the thread sleeps drives the adapter from then on.
  template <class Verbs>
  decltype(auto) post(Verbs&& verbs) {
    const Use guard(*this, /*of_posts=*/true);
    return std::forward<Verbs>(verbs)(adapter());
  }
  /// Polls links and adapter once, also while the thread serves; returns how much was done.
  std::size_t progress();

  // Links.

  /// Attaches a link; it is polled from now on, under the lock. It has ended, or is nobody else's, when the last
  /// reference is gone; this object drops its own outside the lock. Errors: too many paths; the kernel cannot watch the
  /// link's descriptor.
  [[nodiscard]] Result<PathNumber> add_link(std::shared_ptr<CellLink> link);
  /// ChannelAdapter::detach. When it returns, nobody uses the link. Errors: bad_argument.
  Status remove_link(PathNumber path);
  /// Calls look(CellLink&) under the lock, as use() does. It may make the link go on over another bridge, or over none.
  /// False: there is no such path.
  bool with_link(PathNumber path, const std::function<void(CellLink&)>& look);

  // Completion channels with a descriptor, and asynchronous events.

  /// Errors: no descriptors, too many channels.
  [[nodiscard]] Result<ChannelNumber> create_completion_channel();
  /// Readable while the channel has a notification: for poll(2), select(2) and epoll. The program may set and clear
  /// O_NONBLOCK; it must not read, write or close it. -1: no such channel.
  [[nodiscard]] int channel_descriptor(ChannelNumber channel) const;
  /// Takes the oldest notification; nullopt: there is none.
  [[nodiscard]] std::optional<CqNumber> take_notification(ChannelNumber channel);
  /// Sleeps until the channel has a notification. Others may take it first: call take_notification() in a loop.
  /// interrupted: a signal was handled. timeout, at once: there is no such channel.
  [[nodiscard]] Waited wait_notification(ChannelNumber channel, Time until = kNever);
  /// ChannelAdapter::destroy_completion_queue. Its notification, if nobody has taken it, is gone, and the descriptor of
  /// its channel (0: it has none) is no longer readable for it.
  Status destroy_completion_queue(CqNumber queue, ChannelNumber channel);
  /// Errors: bad_argument, in_use (completion queues). Nobody may wait on it.
  Status destroy_completion_channel(ChannelNumber channel);

  /// Readable while there are asynchronous events; the same rules.
  [[nodiscard]] int event_descriptor() const;
  [[nodiscard]] std::size_t poll_events(std::span<AsyncEvent> out);
  [[nodiscard]] Waited wait_event(Time until = kNever);

  // Descriptors of others, which the progress thread serves.

  /// While the descriptor is readable, the progress thread calls ready(), again and again, without the lock: it may
  /// call everything here except the destructor. It should be short: nothing else makes progress meanwhile. The
  /// descriptor is lent until unwatch() returns. single_threaded: progress() and the waits call it. Errors: the kernel
  /// cannot watch the descriptor.
  [[nodiscard]] Result<WatchNumber> watch(int descriptor, std::function<void()> ready);
  /// When it returns, ready() does not run and never will; but when ready() itself calls this, it runs to its end.
  /// Errors: bad_argument.
  Status unwatch(WatchNumber number);

  /// This process is a fork of the one that made the object. Then only forked() and the destructor may be called. Costs
  /// one load.
  [[nodiscard]] bool forked() const;
  [[nodiscard]] SharedAdapterCounters counters() const;

 private:
  struct State;
  class Use {
   public:
    explicit Use(SharedAdapter& on, bool of_posts = false);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    SharedAdapter& on_;
    bool of_posts_;
  };

  explicit SharedAdapter(std::unique_ptr<State> state);
  [[nodiscard]] ChannelAdapter& adapter();

  std::unique_ptr<State> state_;
};

}  // namespace splitnic::fabric
