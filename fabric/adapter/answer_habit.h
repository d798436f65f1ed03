#pragma once

#include <cstdint>

#include "fabric/adapter/channel_adapter.h"

namespace splitnic::fabric {

/// Whether the caller answers what a poll brings before it polls again, as far as the last time shows. If so, the poll
/// tells the peer only in passing what was taken, and leaves the peer's doorbell to the next one: the caller has its
/// messages first, and the look at the doorbell, which has to wait for this end's stores, is taken once for what was
/// taken and for the answer. Thread: the adapter's owner.
class AnswerHabit {
 public:
  /// A poll has taken cells, or found none; whether it has.
  [[nodiscard]] bool note_received(const AdapterCounters& counters) {
    brought_ = counters.cells_received != received_;
    received_ = counters.cells_received;
    return brought_;
  }
  /// The caller is likely to answer them.
  [[nodiscard]] bool answers() const { return answers_; }
  /// The next poll begins.
  void note_posts(const AdapterCounters& counters) {
    if (brought_) answers_ = counters.cells_sent != sent_;
    brought_ = false;
  }
  /// A poll ends.
  void note_sent(const AdapterCounters& counters) { sent_ = counters.cells_sent; }

 private:
  std::uint64_t received_ = 0;
  std::uint64_t sent_ = 0;
  bool brought_ = false;
  bool answers_ = false;
};

}  // namespace splitnic::fabric
