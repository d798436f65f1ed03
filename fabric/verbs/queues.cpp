#include "fabric/verbs/queues.h"

#include "fabric/verbs/objects.h"

namespace splitnic::verbs {

std::optional<CqNumber> CompletionChannel::take() {
  return object_ ? object_->context->adapter.take_notification(object_->number) : std::nullopt;
}

std::size_t CompletionQueue::poll(std::span<Completion> out) {
  return object_ ? object_->adapter.poll_completions(object_->own, out) : 0;
}

Status CompletionQueue::arm(Arm what) {
  if (!object_ || what > Arm::solicited) return Status::bad_argument;
  return object_->context->adapter.arm(object_->number, what);
}

Status CompletionQueue::resize(std::size_t capacity) {
  return object_ ? object_->context->adapter.resize_completion_queue(object_->number, capacity) : Status::bad_argument;
}

CqNumber CompletionQueue::number() const { return object_ ? object_->number : CqNumber{}; }

Status SharedReceiveQueue::post_receive(const ReceiveRequest& request) {
  if (!object_) return Status::bad_argument;
  return object_->domain->context->adapter.post_shared_receive(object_->number, request);
}

Status SharedReceiveQueue::post_receive(std::span<const ReceiveRequest> requests, std::size_t& posted) {
  return detail::post_list(requests, posted, [this](const ReceiveRequest& request) { return post_receive(request); });
}

Status SharedReceiveQueue::resize(std::size_t depth) {
  if (!object_) return Status::bad_argument;
  return object_->domain->context->adapter.resize_shared_receive_queue(object_->number, depth);
}

Status SharedReceiveQueue::arm_limit(std::size_t receives) {
  if (!object_) return Status::bad_argument;
  return object_->domain->context->adapter.arm_limit(object_->number, receives);
}

SrqNumber SharedReceiveQueue::number() const { return object_ ? object_->number : SrqNumber{}; }

}  // namespace splitnic::verbs
