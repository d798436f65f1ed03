#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

namespace splitnic::test {

/// Whether a process may fork beside a thread that allocates, and its child allocate, too. Not under AddressSanitizer,
/// whose allocator may stay locked for ever in the child: tests then fork without such a thread.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kForksBesideThreads = false;
#else
inline constexpr bool kForksBesideThreads = true;
#endif

/// A thread that does something again and again while the process forks. Where kForksBesideThreads is false there is no
/// thread at all: one that only begins allocates, too.
class ThreadBesideForks {
 public:
  explicit ThreadBesideForks(std::function<void()> again) : again_(std::move(again)) {
    if (!kForksBesideThreads) return;
    thread_ = std::thread([this] {
      while (!stop_) again_();
    });
  }
  ~ThreadBesideForks() {
    if (maker_ != ::getpid()) {  // a forked child does not have the thread
      thread_.detach();
      return;
    }
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  ThreadBesideForks(const ThreadBesideForks&) = delete;
  ThreadBesideForks& operator=(const ThreadBesideForks&) = delete;

 private:
  std::function<void()> again_;
  const pid_t maker_ = ::getpid();
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace splitnic::test
