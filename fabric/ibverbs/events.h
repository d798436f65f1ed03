#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

namespace splitnic::ibverbs {

/// Asynchronous events that wait for ibv_get_async_event(), with a descriptor that is readable while there are any.
/// Thread: any.
class Events {
 public:
  /// Errors: descriptor() is -1 if there is none to be had.
  Events();
  ~Events();
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  /// The program may set and clear O_NONBLOCK.
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// One of this type about this object that waits already stands for both, so there is a place for each event.
  void push(const ibv_async_event& event);
  /// False: there is none.
  [[nodiscard]] bool take(ibv_async_event& event);
  /// Sleeps until there may be one. False: a signal came.
  [[nodiscard]] bool wait() const;
  /// The object is being destroyed: nothing about it is reported any more.
  void forget(const void* object);

 private:
  void drain_if_empty();

  int descriptor_;
  std::mutex lock_;
  std::deque<ibv_async_event> waiting_;
};

struct Context;
/// Translates the adapter's events; the progress thread calls it.
void take_adapter_events(Context& context);
/// The same for one who holds Context::lock.
void take_adapter_events_locked(Context& context);

}  // namespace splitnic::ibverbs
