#include "messaging/channel.h"

#include <array>

namespace splitnic::messaging {

namespace {

// Writes that were only announced: they report a completion only on failure.
constexpr std::uint64_t kNoBuffer = ~std::uint64_t{0};
// The receive of writes with immediate, which stays posted.
constexpr std::uint64_t kStandingReceive = kNoBuffer;

}  // namespace

std::unique_ptr<Channel> Channel::open(fabric::ChannelAdapter& adapter, fabric::ProtectionDomain domain,
                                       const ChannelOptions& options) {
  std::unique_ptr<Channel> channel(new Channel(adapter, options));
  if (!channel->set_up(domain, options)) return nullptr;
  return channel;
}

Channel::Channel(fabric::ChannelAdapter& adapter, const ChannelOptions& options)
    : adapter_(adapter),
      message_bytes_(options.message_bytes),
      send_buffers_(options.send_buffers),
      send_depth_(options.send_buffers + options.writes),
      receive_buffers_(options.receive_buffers),
      reserved_sends_(options.writes > 0 ? options.send_buffers : 0),
      memory_((options.send_buffers + options.receive_buffers) * options.message_bytes) {
  free_.reserve(send_buffers_);
  for (std::size_t index = send_buffers_; index > 0; --index) free_.push_back(static_cast<std::uint32_t>(index - 1));
}

bool Channel::set_up(fabric::ProtectionDomain domain, const ChannelOptions& options) {
  const auto tag =
      adapter_.register_memory(domain, memory_.bytes(), fabric::Right::local_read | fabric::Right::local_write);
  if (!tag) return false;
  tag_ = *tag;
  registered_ = true;
  // As many immediates may wait as messages.
  const std::size_t immediates = options.writes > 0 ? options.receive_buffers : 0;
  const auto completions = adapter_.make_completion_queue(send_depth_ + options.receive_buffers + immediates);
  if (!completions) return false;
  completions_ = *completions;
  fabric::QueuePairAttributes attributes{.domain = domain,
                                         .send_completions = completions_,
                                         .receive_completions = completions_,
                                         .send_depth = send_depth_,
                                         .receive_depth = options.receive_buffers,
                                         .acknowledged = options.acknowledged,
                                         .lane = options.lane,
                                         .number = options.number};
  if (immediates > 0) attributes.standing_receive = kStandingReceive;
  const auto queue_pair = adapter_.create_queue_pair(attributes);
  if (!queue_pair) return false;
  queue_pair_ = *queue_pair;
  for (std::size_t index = 0; index < receive_buffers_; ++index) {
    if (!post_receive(index)) return false;
  }
  return true;
}

Channel::~Channel() {
  if (queue_pair_.value != 0) static_cast<void>(adapter_.destroy_queue_pair(queue_pair_));
  if (completions_.value != 0) static_cast<void>(adapter_.destroy_completion_queue(completions_));
  if (registered_) static_cast<void>(adapter_.deregister(tag_));
}

fabric::Status Channel::connect(const fabric::QueuePairPeer& peer) { return adapter_.connect(queue_pair_, peer); }

std::span<std::byte> Channel::buffer(std::size_t index) {
  return memory_.bytes().subspan(index * message_bytes_, message_bytes_);
}

bool Channel::post_receive(std::size_t index) {
  const auto memory = buffer(index);
  return adapter_.post_receive(queue_pair_, {.id = index, .segment = {memory.data(), message_bytes_, tag_}}) ==
         fabric::Status::ok;
}

std::span<std::byte> Channel::claim() {
  if (free_.empty() || !adapter_.has_send_room(queue_pair_, 1)) return {};
  return buffer(receive_buffers_ + free_.back());
}

bool Channel::post(const fabric::WorkRequest& request) {
  if (adapter_.post_send(queue_pair_, request) != fabric::Status::ok) return false;
  ++posted_;
  return true;
}

bool Channel::commit(std::size_t bytes) {
  const std::uint32_t index = free_.back();
  fabric::WorkRequest request;
  request.id = index;
  request.segments[0] = {buffer(receive_buffers_ + index).data(), static_cast<std::uint32_t>(bytes), tag_};
  request.segment_count = 1;
  if (!post(request)) return false;
  free_.pop_back();
  return true;
}

bool Channel::commit_write(std::size_t bytes, fabric::RemoteAddress to, const std::uint32_t* immediate) {
  const std::uint32_t index = free_.back();
  fabric::WorkRequest request;
  request.id = index;
  request.operation =
      immediate != nullptr ? fabric::Operation::rdma_write_with_immediate : fabric::Operation::rdma_write;
  request.immediate = immediate != nullptr ? *immediate : 0;
  request.remote = to;
  request.segments[0] = {buffer(receive_buffers_ + index).data(), static_cast<std::uint32_t>(bytes), tag_};
  request.segment_count = 1;
  if (!post(request)) return false;
  free_.pop_back();
  return true;
}

bool Channel::announce_write(std::uint32_t bytes, fabric::RemoteAddress to, const std::uint32_t* immediate) {
  fabric::WorkRequest request;
  request.id = kNoBuffer;
  request.signalled = false;
  request.operation =
      immediate != nullptr ? fabric::Operation::rdma_write_with_immediate : fabric::Operation::rdma_write;
  request.immediate = immediate != nullptr ? *immediate : 0;
  request.remote = to;
  request.placed_bytes = bytes;
  return post(request);
}

void Channel::handle(const fabric::Completion& completion, ChannelSink& sink) {
  if (!completion.receive) {
    if (completion.id != kNoBuffer) free_.push_back(static_cast<std::uint32_t>(completion.id));
    if (completion.status != fabric::CompletionStatus::success) sink.on_channel_failure(completion.status);
    return;
  }
  if (completion.status != fabric::CompletionStatus::success) {
    sink.on_channel_failure(completion.status);
    return;
  }
  if (completion.has_immediate) {
    sink.on_immediate(completion.immediate);
  } else {
    sink.on_message(buffer(completion.id).first(completion.bytes));
  }
  if (completion.id == kStandingReceive) return;
  if (!post_receive(completion.id)) sink.on_channel_failure(fabric::CompletionStatus::flushed);
}

std::size_t Channel::poll(ChannelSink& sink, std::size_t budget) {
  std::size_t handled = 0;
  while (handled < budget) {
    const std::size_t wanted = std::min(batch_.size(), budget - handled);
    const std::size_t got = adapter_.poll_completions(completions_, std::span(batch_).first(wanted));
    for (std::size_t index = 0; index < got; ++index) handle(batch_[index], sink);
    handled += got;
    if (got < wanted) break;
  }
  return handled;
}

}  // namespace splitnic::messaging
