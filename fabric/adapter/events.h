#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "fabric/adapter/ring.h"
#include "fabric/adapter/work.h"
#include "fabric/wire/cell.h"

namespace splitnic::fabric {

/// An event at one of the adapter's objects that its user did not request.
enum class AsyncEventKind : std::uint8_t {
  queue_pair_fatal,          ///< queue_pair went to error; reason: of the terminate message, sent or received
  send_queue_drained,        ///< queue_pair, in sq_drained, has nothing in flight any more
  shared_receive_limit,      ///< fewer receives than armed for are left in shared_receives
  completion_queue_overrun,  ///< no room for a completion: `completions` has failed, and its queue pairs fail; with
                             ///< reserved places, only queue_pair, whose receive came out of a shared queue
  path_down,                 ///< the epoch of `path` is over: its queue pairs failed, its bridge's regions are void
  memory_gone,               ///< registered as tag, and since taken from the process
  memory_drained,            ///< deregistered as tag: the peer's direct writes are over, the range may be used anew
  queue_pair_drained,        ///< queue_pair had left its connection: the peer's direct writes through it are over
};
const char* to_string(AsyncEventKind kind);

struct AsyncEvent {
  AsyncEventKind kind = AsyncEventKind::path_down;
  PathNumber path{};  ///< path_down, memory_drained, queue_pair_drained
  QpNumber queue_pair{};
  CqNumber completions{};
  SrqNumber shared_receives{};
  Stag tag{};
  TerminateReason reason{};
  bool from_peer = false;  ///< reason: the peer's
};

/// Events in the order in which they happened, as many as fit. Thread: the adapter's owner.
class EventQueue {
 public:
  explicit EventQueue(std::size_t capacity) : ring_(capacity) {}

  /// wake: called when an event comes in while none waits.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }
  /// False: full, the event is lost.
  [[nodiscard]] bool push(const AsyncEvent& event) {
    if (pushed_ - polled_ == ring_.capacity()) return false;
    ring_[pushed_++] = event;
    if (pushed_ - polled_ == 1 && wake_) wake_();
    return true;
  }
  [[nodiscard]] bool empty() const { return pushed_ == polled_; }
  [[nodiscard]] std::size_t poll(std::span<AsyncEvent> out) {
    std::size_t count = 0;
    while (count < out.size() && polled_ != pushed_) out[count++] = ring_[polled_++];
    return count;
  }

 private:
  std::function<void()> wake_;
  Ring<AsyncEvent> ring_;
  std::uint64_t pushed_ = 0;
  std::uint64_t polled_ = 0;
};

}  // namespace splitnic::fabric
