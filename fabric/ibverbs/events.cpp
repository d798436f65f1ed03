#include "fabric/ibverbs/events.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/os/uncancelled.h"
#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {
namespace {

/// Of an event about a queue pair, a completion queue or a shared receive queue; null: about the port or the device.
const void* element_of(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq;
    default:
      return nullptr;
  }
}

/// Of a queue pair that failed. A request of the program that failed has told it by its completion; the peer's requests
/// that were refused, and a path that ended, are news.
std::optional<ibv_event_type> event_of_failure(const fabric::AsyncEvent& event) {
  if (event.from_peer) return std::nullopt;
  if (event.reason == fabric::TerminateReason{}) return IBV_EVENT_QP_FATAL;
  const bool protection = event.reason.layer <= 1 && event.reason.type == 1;
  return protection ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR;
}

void report(Context& context, QueuePair& queue_pair, ibv_event_type type) {
  for (QueuePair* handle : queue_pair.connection->handles) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.qp = handle->base();
    context.events->push(event);
  }
}

void take_queue_pair_event(Context& context, const fabric::AsyncEvent& event) {
  const auto found = context.objects.queue_pairs.find(event.queue_pair.value);
  if (found == context.objects.queue_pairs.end()) return;
  QueuePair& queue_pair = *found->second;
  if (event.kind == fabric::AsyncEventKind::send_queue_drained) {
    if (queue_pair.connection->attributes.en_sqd_async_notify != 0) report(context, queue_pair, IBV_EVENT_SQ_DRAINED);
    return;
  }
  if (const auto type = event_of_failure(event)) report(context, queue_pair, *type);
  if (queue_pair.base()->srq != nullptr) report(context, queue_pair, IBV_EVENT_QP_LAST_WQE_REACHED);
}

void take_event(Context& context, const fabric::AsyncEvent& from) {
  ibv_async_event event{};
  switch (from.kind) {
    case fabric::AsyncEventKind::queue_pair_fatal:
    case fabric::AsyncEventKind::send_queue_drained:
      return take_queue_pair_event(context, from);
    case fabric::AsyncEventKind::shared_receive_limit: {
      const auto found = context.objects.shared_receives.find(from.shared_receives.value);
      if (found == context.objects.shared_receives.end()) return;
      event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
      event.element.srq = &found->second->srq;
      return context.events->push(event);
    }
    case fabric::AsyncEventKind::completion_queue_overrun: {
      const auto found = context.objects.completion_queues.find(from.completions.value);
      if (found == context.objects.completion_queues.end()) return;
      event.event_type = IBV_EVENT_CQ_ERR;
      event.element.cq = found->second->base();
      return context.events->push(event);
    }
    // The queue pairs of the path, and the requests that met memory that is gone, have said it.
    case fabric::AsyncEventKind::path_down:
    case fabric::AsyncEventKind::memory_gone:
    case fabric::AsyncEventKind::memory_drained:
    case fabric::AsyncEventKind::queue_pair_drained:
      return;
  }
}

/// Counts an event that the program got, so that destroying its element waits for the acknowledgement.
void count_reported(const ibv_async_event& event) {
  if (element_of(event) == nullptr) return;
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      ++CompletionQueue::of(event.element.cq).events_reported;
      return;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      ++SharedReceives::of(event.element.srq).events_reported;
      return;
    default:
      ++QueuePair::of(event.element.qp).events_reported;
  }
}

template <class Object>
void acknowledge(Object& object, std::uint32_t& acknowledged) {
  pthread_mutex_lock(&object.mutex);
  ++acknowledged;
  pthread_cond_signal(&object.cond);
  pthread_mutex_unlock(&object.mutex);
}

}  // namespace

Events::Events() : descriptor_(eventfd(0, EFD_CLOEXEC)) {}

Events::~Events() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Events::push(const ibv_async_event& event) {
  const std::lock_guard guard(lock_);
  const auto same = [&event](const ibv_async_event& other) {
    return other.event_type == event.event_type && element_of(other) == element_of(event);
  };
  if (std::ranges::any_of(waiting_, same)) return;
  const os::Uncancelled whole;
  waiting_.push_back(event);
  eventfd_write(descriptor_, 1);  // each event is an edge for those who watch with EPOLLET
}

bool Events::take(ibv_async_event& event) {
  const std::lock_guard guard(lock_);
  if (waiting_.empty()) return false;
  event = waiting_.front();
  waiting_.pop_front();
  drain_if_empty();
  return true;
}

/// The descriptor is readable exactly while events wait, so the read never blocks.
void Events::drain_if_empty() {
  const os::Uncancelled whole;
  eventfd_t count = 0;
  if (waiting_.empty()) eventfd_read(descriptor_, &count);
}

bool Events::wait() const {
  pollfd readable{descriptor_, POLLIN, 0};
  return poll(&readable, 1, -1) >= 0 || errno != EINTR;
}

void Events::forget(const void* object) {
  const std::lock_guard guard(lock_);
  const auto about = [object](const ibv_async_event& event) { return element_of(event) == object; };
  if (std::erase_if(waiting_, about) != 0) drain_if_empty();
}

void take_adapter_events(Context& context) {
  const std::lock_guard guard(context.lock);
  take_adapter_events_locked(context);
}

void take_adapter_events_locked(Context& context) {
  std::array<fabric::AsyncEvent, 16> events;
  for (;;) {
    const std::size_t count = context.adapter->poll_events(events);
    for (std::size_t i = 0; i < count; ++i) take_event(context, events[i]);
    if (count < events.size()) return;
  }
}

extern "C" {

int ibv_get_async_event(ibv_context* device, ibv_async_event* event) {
  Context& context = Context::of(device);
  for (;;) {
    take_adapter_events(context);
    {
      const std::lock_guard guard(context.lock);
      if (context.events->take(*event)) {
        count_reported(*event);
        return 0;
      }
    }
    if ((fcntl(device->async_fd, F_GETFL) & O_NONBLOCK) != 0) {
      errno = EAGAIN;
      return -1;
    }
    if (!context.events->wait()) return -1;
  }
}

void ibv_ack_async_event(ibv_async_event* event) {
  if (element_of(*event) == nullptr) return;
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      return acknowledge(*event->element.cq, event->element.cq->async_events_completed);
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return acknowledge(*event->element.srq, event->element.srq->events_completed);
    default:
      return acknowledge(*event->element.qp, event->element.qp->events_completed);
  }
}

}  // extern "C"

}  // namespace splitnic::ibverbs
