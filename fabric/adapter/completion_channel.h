#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "fabric/adapter/work.h"

namespace splitnic::fabric {

/// What a completion queue is armed for: one completion of the kind notifies its channel, and disarms.
enum class Arm : std::uint8_t {
  nothing,
  next,       ///< any completion
  solicited,  ///< a receive whose sender asked for attention, or any failure
};

/// What happens to a completion for which there is no room.
enum class CompletionRoom : std::uint8_t {
  reserved,    ///< there is none: a post that finds no place for its completion is refused
  unreserved,  ///< it is lost, the queue fails with an event, and then the queue pairs that use it, as in the verbs
};

/// Where armed completion queues report. The channel has no descriptor. It calls `wake` for each
/// notification; a user who waits on a descriptor makes it readable there. Thread: the adapter's owner; the
/// adapter's verbs and polls call `wake`.
class CompletionChannel {
 public:
  explicit CompletionChannel(std::function<void()> wake) : wake_(std::move(wake)) {}

  /// Nothing is allocated: a queue that is armed again before its notification was taken has one entry for all.
  void notify(CqNumber queue) {
    const auto same = std::ranges::find(waiting_, queue, &Waiting::queue);
    if (same != waiting_.end()) {
      ++same->times;
    } else {
      waiting_.push_back({queue, 1});
    }
    if (wake_) wake_();
  }
  /// One notification for each call of notify(). Those of one queue come in a row, where the oldest of them would.
  [[nodiscard]] std::optional<CqNumber> take() {
    if (waiting_.empty()) return std::nullopt;
    const CqNumber queue = waiting_.front().queue;
    if (--waiting_.front().times == 0) waiting_.erase(waiting_.begin());
    return queue;
  }
  [[nodiscard]] bool empty() const { return waiting_.empty(); }

  /// A completion queue reports here from now on.
  void attach() { waiting_.reserve(++users_); }
  void detach(CqNumber queue) {
    --users_;
    std::erase_if(waiting_, [queue](const Waiting& each) { return each.queue == queue; });
  }
  [[nodiscard]] bool in_use() const { return users_ != 0; }

 private:
  struct Waiting {
    CqNumber queue{};
    std::uint64_t times = 0;
  };

  std::function<void()> wake_;
  std::vector<Waiting> waiting_;  // by queue, so no more than users_
  std::size_t users_ = 0;
};

}  // namespace splitnic::fabric
