#include "fabric/connect/connection_endpoint.h"

#include "common/check.h"

namespace splitnic::fabric {

std::unique_ptr<ConnectionEndpoint> ConnectionEndpoint::make(ChannelAdapter& adapter) {
  std::unique_ptr<ConnectionEndpoint> made(new ConnectionEndpoint(adapter));
  return made->create() ? std::move(made) : nullptr;
}

ConnectionEndpoint::ConnectionEndpoint(ChannelAdapter& adapter) : adapter_(adapter), memory_(kDepth * kReceiveBytes) {}

bool ConnectionEndpoint::create() {
  domain_ = adapter_.allocate_domain();
  const auto completions = adapter_.make_completion_queue(2 * kDepth);
  if (!completions) return false;
  completions_ = *completions;
  const auto tag = adapter_.register_memory(domain_, memory_, Right::local_read | Right::local_write);
  if (!tag) return false;
  tag_ = *tag;
  QueuePairAttributes attributes;
  attributes.domain = domain_;
  attributes.send_completions = attributes.receive_completions = completions_;
  attributes.send_depth = attributes.receive_depth = kDepth;
  attributes.acknowledged = false;
  attributes.datagram = true;
  attributes.queue_key = kConnectionQueueKey;
  attributes.lane = VirtualLane::control;
  attributes.number = kConnectionQueuePair;
  attributes.max_inline_bytes = kMaxConnectionMessage;
  const auto queue_pair = adapter_.create_queue_pair(attributes);
  if (!queue_pair) return false;
  queue_pair_ = *queue_pair;
  SPLITNIC_CHECK(adapter_.connect(queue_pair_, {}) == Status::ok);
  for (std::size_t place = 0; place < kDepth; ++place) post_receive(place);
  return true;
}

ConnectionEndpoint::~ConnectionEndpoint() {
  for (const auto& [path, handle] : handles_) static_cast<void>(adapter_.destroy_address_handle(handle));
  if (queue_pair_.value != 0) static_cast<void>(adapter_.destroy_queue_pair(queue_pair_));
  if (tag_ != Stag{}) static_cast<void>(adapter_.deregister(tag_));
  if (completions_.value != 0) static_cast<void>(adapter_.destroy_completion_queue(completions_));
  static_cast<void>(adapter_.deallocate_domain(domain_));
}

void ConnectionEndpoint::post_receive(std::size_t place) {
  ReceiveRequest request;
  request.id = place;
  request.segment = {memory_.data() + place * kReceiveBytes, static_cast<std::uint32_t>(kReceiveBytes), tag_};
  SPLITNIC_CHECK(adapter_.post_receive(queue_pair_, request) == Status::ok);
}

Status ConnectionEndpoint::send(PathNumber path, std::span<std::byte> message) {
  auto handle = handles_.find(path.value);
  if (handle == handles_.end()) {
    AddressHandleOptions to;
    to.path = path;
    const auto made = adapter_.create_address_handle(to);
    if (!made) return Status::no_resources;
    handle = handles_.emplace(path.value, *made).first;
  }
  WorkRequest request;
  request.operation = Operation::send;
  request.signalled = false;
  request.inline_data = true;
  request.segments[0] = {message.data(), static_cast<std::uint32_t>(message.size()), Stag{}};
  request.segment_count = 1;
  request.datagram = {handle->second, kConnectionQueuePair, kConnectionQueueKey};
  return adapter_.post_send(queue_pair_, request);
}

void ConnectionEndpoint::forget(PathNumber path) {
  const auto handle = handles_.find(path.value);
  if (handle == handles_.end()) return;
  static_cast<void>(adapter_.destroy_address_handle(handle->second));
  handles_.erase(handle);
}

}  // namespace splitnic::fabric
