#pragma once

#include <cstddef>
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

/// Where armed completion queues report. Knows no descriptor: `wake` is called when the first notification comes in
/// after all were taken, and whoever waits on a descriptor makes it readable there. Thread: the adapter's owner; wake
/// is called from within its verbs.
class CompletionChannel {
 public:
  explicit CompletionChannel(std::function<void()> wake) : wake_(std::move(wake)) {}

  void notify(CqNumber queue) {
    waiting_.push_back(queue);  // at most once per queue: an armed queue notifies once, and is armed anew after
    if (waiting_.size() == 1 && wake_) wake_();
  }
  /// The oldest notification.
  [[nodiscard]] std::optional<CqNumber> take() {
    if (waiting_.empty()) return std::nullopt;
    const CqNumber queue = waiting_.front();
    waiting_.erase(waiting_.begin());
    return queue;
  }
  [[nodiscard]] bool empty() const { return waiting_.empty(); }

  /// A completion queue reports here from now on.
  void attach() { waiting_.reserve(++users_); }
  void detach(CqNumber queue) {
    --users_;
    std::erase(waiting_, queue);
  }
  [[nodiscard]] bool in_use() const { return users_ != 0; }

 private:
  std::function<void()> wake_;
  std::vector<CqNumber> waiting_;
  std::size_t users_ = 0;
};

}  // namespace splitnic::fabric
