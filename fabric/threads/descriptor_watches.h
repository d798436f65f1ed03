#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "common/result.h"
#include "fabric/threads/shared_adapter.h"

namespace splitnic::fabric {

/// Descriptors in an epoll, each with a function that is called while it is readable; the token of its events is its
/// number. Thread: any, except ready(), which one thread calls.
class DescriptorWatches {
 public:
  /// epoll: lent.
  explicit DescriptorWatches(int epoll) : epoll_(epoll) {}

  /// SharedAdapter::watch, unwatch.
  [[nodiscard]] Result<WatchNumber> add(int descriptor, std::function<void()> ready);
  [[nodiscard]] Status remove(WatchNumber number);
  /// Takes no lock.
  [[nodiscard]] bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
  /// The epoll has returned this token. Calls its function, with no lock held.
  void ready(std::uint64_t token);

 private:
  struct Watch {
    int descriptor = -1;
    std::function<void()> ready;
  };

  const int epoll_;
  std::atomic<std::size_t> count_{0};  // of watches_; changes under the mutex
  std::mutex mutex_;                   // protects the rest
  std::condition_variable returned_;
  std::map<std::uint64_t, std::shared_ptr<const Watch>> watches_;
  std::uint64_t last_number_ = 0;
  std::uint64_t running_ = 0;  // whose function runs; 0: none
  std::thread::id runs_in_{};
};

}  // namespace splitnic::fabric
