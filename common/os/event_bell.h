#pragma once

#include <atomic>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// Wakes a thread that sleeps on descriptors: an eventfd, and a flag that says whether it is worth a system call to
/// empty it.
class EventBell {
 public:
  /// Throws StartupError if the process has no descriptor left.
  EventBell();
  EventBell(const EventBell&) = delete;
  EventBell& operator=(const EventBell&) = delete;

  /// Readable after each ring(), until heard().
  [[nodiscard]] int descriptor() const { return bell_.get(); }
  /// Any thread. Never blocks.
  void ring();
  /// Makes the descriptor unreadable again. True if somebody has rung. Thread: the one that sleeps. Costs one load
  /// while nobody has rung.
  bool heard();

 private:
  UniqueFd bell_;
  std::atomic<bool> rung_{false};
};

}  // namespace splitnic::os
