#pragma once

#include <csignal>
#include <span>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// Signals that a thread reads instead of being interrupted (signalfd): while this lives, they are blocked in the
/// thread that made it, and in the threads that it creates. Other threads that exist already must block them, too.
/// Thread: the one that made it.
class SignalQueue {
 public:
  /// Throws StartupError if the kernel gives no descriptor.
  explicit SignalQueue(std::span<const int> numbers);
  ~SignalQueue() { stop(); }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// The number of the next signal; 0: none.
  [[nodiscard]] int take();
  /// The signals have their usual effect again, those that wait included. take() returns no more.
  void stop();
  /// Readable when take() has a signal.
  [[nodiscard]] int descriptor() const { return queue_.get(); }

 private:
  UniqueFd queue_;
  sigset_t before_{};
  bool stopped_ = false;
};

}  // namespace splitnic::os
