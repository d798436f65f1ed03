#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/link/cell_link.h"
#include "fabric/threads/shared_adapter.h"

namespace splitnic::fabric {

/// Who drives an adapter and its links: its callers, or a thread that otherwise sleeps on descriptor(). Everything here
/// is called under one lock, except callers_go_on().
///
///   driver    means                                          ends
///   asleep    every link is armed, nothing is left to do,    a doorbell, the timer or kick() wakes the thread: thread;
///             and the timer is set to the next deadline      callers that poll or post again and again: callers
///   thread    the thread is awake, or has been kicked        nothing left to do: asleep; callers poll: callers
///   callers   callers poll, no link is armed, and a timer    the timer finds that nobody has polled: thread;
///             is set to the end of the takeover time         a caller is about to sleep: asleep
///
/// No wake-up is lost, because whenever the lock is free one of the three lines holds, and each of them ends in time:
/// asleep by the rule of the links (armed, fenced, polled once more: CellLink::prepare_sleep), thread because the wake
/// of the descriptor precedes the unlock, callers by the timer. What a caller adds while the thread is asleep is
/// announced and armed for before the caller gives the lock back (announce()). The lock orders everything between
/// callers and thread; the only fences are those of the links.
class Progress {
 public:
  /// adapter: lent. Errors: no descriptors.
  [[nodiscard]] static Result<std::unique_ptr<Progress>> make(ChannelAdapter& adapter,
                                                              const SharedAdapterOptions& options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// An epoll, to which others may add descriptors with tokens of their own (epoll_data.u64, below kOwnTokens). For its
  /// other events call fired(), and then thread_turn().
  [[nodiscard]] int descriptor() const { return descriptors_.epoll.get(); }
  static constexpr std::uint64_t kOwnTokens = std::uint64_t{1} << 63U;

  /// Errors: the kernel cannot watch the descriptor. The link is lent until remove().
  [[nodiscard]] Result<void> add(PathNumber path, CellLink& link);
  void remove(PathNumber path);
  /// Null: no such path.
  [[nodiscard]] CellLink* find(PathNumber path) const;

  /// Polls links and adapter; returns how much was done.
  std::size_t drive(Time now);
  /// A caller has found no completion. True: it has driven the adapter, and may look again. False: nothing has come in
  /// since the last poll a moment ago; or the thread serves, and nothing can have come in that does not wake it.
  [[nodiscard]] bool poll_for_caller(Time now);
  /// The same without the excuse that the thread serves; returns how much was done.
  std::size_t drive_for_caller(Time now);
  /// A caller polls another adapter in vain. Counts as its poll if callers drive this one; otherwise does nothing.
  void drive_beside(Time now);
  /// A caller that has changed something is to call announce() before it gives the lock back.
  [[nodiscard]] bool wants_announcement() const { return driver_ == Driver::asleep || options_.single_threaded; }
  void announce(Time now);
  /// The same for requests, which a caller may post many of.
  void announce_post(Time now);
  /// The caller is about to sleep.
  void hand_over(Time now);
  /// The thread has got this token of the epoll. True: it tells nothing but that time has passed, callers have polled
  /// meanwhile, and the thread looks again later: fired() and thread_turn() are not needed. So the lock stays with
  /// those who poll.
  [[nodiscard]] bool callers_go_on(std::uint64_t token);
  /// The epoll has returned this token. It will not return it again before the next sleep.
  void fired(std::uint64_t token);
  /// The thread has woken. True: call it again, after others had a chance to take the lock.
  [[nodiscard]] bool thread_turn(Time now);
  /// Wakes the thread.
  void kick();

  /// For a sleep without a thread. Arms everything; false: there is work. The sleep may last until `until`.
  [[nodiscard]] bool prepare_sleep(Time now, Time& until);
  void disarm();

  /// Callers have polled in vain many times. The caller then yields the processor, because the peer may need it.
  [[nodiscard]] bool should_yield() const {
    return empty_polls_ >= kEmptyPollsBeforeYield && empty_polls_ % kEmptyPollsPerYield == 0;
  }
  /// The caller then serves the other adapters that it polls: what it waits for may need them.
  [[nodiscard]] bool should_look_around() const {
    return empty_polls_ != 0 && empty_polls_ % kEmptyPollsPerLookAround == 0;
  }
  void found_completions() { empty_polls_ = 0; }
  [[nodiscard]] SharedAdapterCounters counters() const;

 private:
  enum class Driver : std::uint8_t { asleep, thread, callers };
  struct Attached {
    PathNumber path{};
    CellLink* link = nullptr;
    int descriptor = -1;
  };
  // A caller that polls or posts so often while the thread sleeps means to go on.
  static constexpr unsigned kPollsBeforeTakeover = 16;
  static constexpr unsigned kPostsBeforeTakeover = 8;
  static constexpr std::uint64_t kEmptyPollsBeforeYield = 256;
  static constexpr std::uint64_t kEmptyPollsPerYield = 64;
  static constexpr std::uint64_t kEmptyPollsPerLookAround = 32;

  struct Descriptors {
    os::UniqueFd epoll;
    os::UniqueFd timer;
    os::UniqueFd glances;  ///< a timer of callers_go_on() alone
    os::UniqueFd bell;
  };
  Progress(ChannelAdapter& adapter, const SharedAdapterOptions& options, Descriptors descriptors);

  [[nodiscard]] Time next_deadline(Time now) const;
  [[nodiscard]] bool try_sleep(Time now);
  void stay_asleep(Time now);
  void give_to_thread();
  void give_to_callers(Time now);
  void set_timer(Time at);
  void count_poll() { polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t polls() const { return polls_.load(std::memory_order_relaxed); }
  void note_polls_seen() { polls_seen_.store(polls(), std::memory_order_relaxed); }
  [[nodiscard]] bool polled_unseen() const { return polls() != polls_seen_.load(std::memory_order_relaxed); }
  [[nodiscard]] Driver driver() const { return driver_.load(std::memory_order_relaxed); }
  void drives_now(Driver driver) { driver_.store(driver, std::memory_order_relaxed); }

  ChannelAdapter& adapter_;
  const SharedAdapterOptions options_;
  const Descriptors descriptors_;
  std::vector<Attached> links_;
  std::vector<int> fired_;               // descriptors of links, to be watched again
  bool any_without_descriptor_ = false;  // of links, at any time

  std::atomic<Driver> driver_{Driver::callers};  // changed under the lock, as is the next
  std::atomic<std::uint64_t> polls_{0};          // of callers
  std::atomic<std::uint64_t> polls_seen_{0};     // when the thread last looked
  Duration next_glance_;                         // of the thread alone
  Time timer_at_ = kNever;                       // kNever: off, or gone off
  Duration takeover_;                            // the present time
  unsigned polls_asleep_ = 0;                    // of callers, since the thread fell asleep
  unsigned posts_asleep_ = 0;
  std::uint64_t empty_polls_ = 0;     // of callers, in a row, that moved nothing either
  SharedAdapterCounters counters_{};  // without polls
};

}  // namespace splitnic::fabric
