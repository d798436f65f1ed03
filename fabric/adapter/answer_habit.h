#pragma once

#include <cstdint>

#include "fabric/adapter/channel_adapter.h"
#include "fabric/adapter/counted_poll.h"

namespace splitnic::fabric {

/// Whether the caller answers what a poll brings before it polls again, as far as the last time shows. If so, a poll
/// that brings something, and leaves nothing to send, tells the peer what was taken, and leaves all else to the next
/// one: the caller has its messages first. Where each question is one message, such a poll brings one, the short way
/// (ChannelAdapter::State::take_one), and those behind it come with the next. The completions of the requests that
/// these messages answer come with the next poll, as the look at the peer's doorbell does, which has to wait for this
/// end's stores. And while the peer's next message is expected, a poll looks for it several times. Thread: the
/// adapter's owner.
class AnswerHabit {
 public:
  /// So many polls after one that has brought something, the peer's next message is expected.
  static constexpr std::uint64_t kPolls = 16;
  /// Each of them looks at so many paths, or at one as often.
  static constexpr std::size_t kLooks = 16;

  /// A poll has taken cells, or found none; whether it has.
  [[nodiscard]] bool note_received(const AdapterCounters& counters, const CountedPoll& poll) {
    brought_ = counters.cells_received != received_;
    received_ = counters.cells_received;
    if (brought_) brought_at_ = poll.number;
    return brought_;
  }
  /// The caller is likely to answer them.
  [[nodiscard]] bool answers() const { return answers_; }
  /// The peer is likely to answer soon.
  [[nodiscard]] bool expects(const CountedPoll& poll) const { return answers_ && poll.number - brought_at_ < kPolls; }
  /// When the caller posted last, one cell had come since it had posted before.
  [[nodiscard]] bool answers_one() const { return answers_ && question_ == 1; }
  /// The next poll begins.
  void note_posts(const AdapterCounters& counters) {
    const bool posted = counters.cells_sent != sent_;
    if (brought_) answers_ = posted;
    brought_ = false;
    if (!posted || counters.cells_received == answered_) return;
    question_ = counters.cells_received - answered_;
    answered_ = counters.cells_received;
  }
  /// A poll ends.
  void note_sent(const AdapterCounters& counters) { sent_ = counters.cells_sent; }

 private:
  std::uint64_t received_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t brought_at_ = 0;
  std::uint64_t answered_ = 0;  // cells received before the caller posted last
  std::uint64_t question_ = 0;  // and how many of them since it had posted before
  bool brought_ = false;
  bool answers_ = false;
};

}  // namespace splitnic::fabric
