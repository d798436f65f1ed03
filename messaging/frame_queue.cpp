#include "messaging/frame_queue.h"

#include <algorithm>
#include <string>

#include "common/check.h"

namespace splitnic::messaging {

namespace {

// Maximum unacknowledged RDMA writes: more than a pool's elements, so that the pools are the limit.
constexpr std::size_t kWritesInFlight = 512;

}  // namespace

// ---- set-up

std::optional<wire::ChannelTerms::DataChannel> FrameQueue::open(wire::Mode mode) {
  data_ = context_.open_channel({}, mode == wire::Mode::rdma, fabric::VirtualLane::data, kWritesInFlight);
  if (!data_) return std::nullopt;
  first_psn_ = context_.random.next32();
  return wire::ChannelTerms::DataChannel{.queue_pair = data_->number().value,
                                         .receive_depth = context_.own_terms().receive_depth * 4,
                                         .initial_psn = first_psn_};
}

bool FrameQueue::connect(const wire::ChannelTerms& theirs) {
  return data_ && data_->connect({.number = fabric::QpNumber{theirs.data_channel->queue_pair},
                                  .first_psn_to_send = first_psn_,
                                  .first_psn_expected = theirs.data_channel->initial_psn}) == fabric::Status::ok;
}

void FrameQueue::start() {
  tx_path_ = !data_ ? TxPath::send_data : context_.mode == wire::Mode::send ? TxPath::data_send : TxPath::direct;
}

// ---- frames from the peer

void FrameQueue::on_immediate(std::uint32_t immediate) {
  if (!context_.fault.empty()) return;
  if (context_.mode != wire::Mode::rdma) return context_.fail("RDMA write with immediate data in mode S");
  ++context_.counters.writes_with_immediate_received;
  indicated(wire::decode_immediate(immediate), true);
}

void FrameQueue::on_channel_failure(fabric::CompletionStatus status) {
  context_.fail(std::string("data channel failed: ") + fabric::to_string(status));
}

void FrameQueue::on_message(std::span<const std::byte> bytes) {
  if (!context_.fault.empty()) return;
  if (context_.mode == wire::Mode::send) {
    ++context_.counters.data_sends_received;
    return deliver(ReceivedFrame::in_private_memory(bytes));
  }
  const auto message = wire::decode(bytes, context_.limits);
  const auto* list = message ? std::get_if<wire::BufferRdmaIndicate>(&*message) : nullptr;
  if (list == nullptr) {
    ++context_.counters.bad_messages;
    return context_.fail(message ? "a message on the data channel that belongs on the control channel"
                                 : "bad message: " + wire::to_string(message.error()));
  }
  ++context_.counters.messages_received[wire::index_of(wire::Function::buffer_rdma_indicate)];
  for (const auto indication : list->indications) {
    indicated(indication, false);
    if (!context_.fault.empty()) return;
  }
}

void FrameQueue::indicated(const wire::Indication& indication, bool immediate) {
  OwnedPool* pool = own_pool(indication.pool);
  if (pool == nullptr || pool->immediate() != immediate)
    return context_.fail("an indication that does not fit its pool");
  std::uint32_t lost = 0;
  const PoolFault verdict = pool->indicate(indication.element, indication.length, lost);
  if (verdict != PoolFault::none) return context_.fail(std::string("indication: ") + to_string(verdict));
  context_.counters.lost_elements += lost;
  deliver({pool->bytes_of(indication.element, indication.length)});
}

void FrameQueue::deliver(const ReceivedFrame& frame) {
  if (frame.size() < wire::kMinFrameBytes || frame.size() > context_.max_frame_bytes) {
    ++context_.counters.rx_bad_length;
    return;
  }
  if (context_.state < SessionState::pools_exchanged) {
    ++context_.counters.rx_before_up;
    return;
  }
  ++context_.counters.rx_frames;
  context_.counters.rx_bytes += frame.size();
  context_.events.on_frame(frame);
}

void FrameQueue::handle(const wire::SendData& message) { deliver(ReceivedFrame::in_private_memory(message.frame)); }

// ---- frames to the peer

/// The oldest pool with a free element, so that the memory in use stays small and the other pools become idle.
PeerPool* FrameQueue::usable_peer_pool() {
  for (std::size_t index = 0; index < peer_pools_.size(); ++index) {
    if (!peer_pools_[index].next()) continue;
    peer_pool_in_use_ = index;
    if (index > 0) extra_pool_used_at_ = context_.now;
    return &peer_pools_[index];
  }
  exhausted_ = true;
  return nullptr;
}

Credits FrameQueue::credits() const {
  Credits sum;
  for (const auto& pool : peer_pools_) {
    sum.elements += pool.elements();
    sum.free += pool.available();
  }
  return sum;
}

std::span<std::byte> FrameQueue::claim() {
  claimed_ = {};
  if (context_.state != SessionState::up || context_.shutting_down) return {};
  switch (tx_path_) {
    case TxPath::none:
      return {};
    case TxPath::send_data: {
      const auto buffer = control_.claim();
      if (buffer.empty()) return {};
      claimed_ = buffer.first(std::min<std::size_t>(buffer.size(), context_.limits.message_bytes))
                     .subspan(wire::kSendDataHeadBytes);
      break;
    }
    case TxPath::data_send:
      claimed_ = data_->claim();
      break;
    case TxPath::direct:
    case TxPath::segmented: {
      if (!data_->can_write()) return {};
      PeerPool* pool = usable_peer_pool();
      if (pool == nullptr) return {};
      const auto place = pool->place_of(*pool->next());
      const std::uint32_t bytes = std::min(context_.max_frame_bytes, pool->element_bytes());
      if (const auto offset = context_.adapter.claim_direct(place, bytes)) {
        tx_path_ = TxPath::direct;
        claimed_offset_ = *offset;
        claimed_ = context_.link.bridge().peer_window().claim(*offset, bytes);
      } else {
        tx_path_ = TxPath::segmented;
        claimed_ = data_->claim();
      }
      if (claimed_.size() > bytes) claimed_ = claimed_.first(bytes);
      break;
    }
  }
  if (claimed_.size() > context_.max_frame_bytes) claimed_ = claimed_.first(context_.max_frame_bytes);
  return claimed_;
}

void FrameQueue::commit(std::uint32_t bytes) {
  if (claimed_.empty()) return;  // the session went down, or the peer withdrew a pool, after the claim
  SPLITNIC_CHECK_OP(bytes, <=, claimed_.size());
  bool sent = false;
  switch (tx_path_) {
    case TxPath::none:
      break;
    case TxPath::send_data: {
      wire::encode_send_data_head(control_.claim(), 0, bytes);
      sent = control_.commit_frame(wire::kSendDataHeadBytes + bytes);
      break;
    }
    case TxPath::data_send:
      sent = data_->commit(bytes);
      ++context_.counters.data_sends_sent;
      break;
    case TxPath::direct:
    case TxPath::segmented: {
      PeerPool& pool = peer_pools_[peer_pool_in_use_];
      const wire::Indication indication{pool.number(), *pool.next(), bytes};
      const auto place = pool.place_of(indication.element);
      const std::uint32_t immediate = pool.immediate() ? wire::encode_immediate(indication) : 0;
      const std::uint32_t* with = pool.immediate() ? &immediate : nullptr;
      if (tx_path_ == TxPath::direct) {
        context_.link.bridge().peer_window().commit(claimed_offset_, claimed_.first(bytes));
        sent = data_->announce_write(bytes, place, with);
      } else {
        sent = data_->commit_write(bytes, place, with);
      }
      pool.consume();
      if (peer_pool_in_use_ > 0) extra_pool_writes_ = data_->posted();
      ++(with != nullptr ? context_.counters.writes_with_immediate_sent : context_.counters.writes_sent);
      if (with == nullptr) indications_.push_back(indication);
      break;
    }
  }
  claimed_ = {};
  if (!sent) return context_.fail("the data channel refused a frame");
  ++context_.counters.tx_frames;
  context_.counters.tx_bytes += bytes;
  context_.doorbell.count_frame(bytes);
  if (indications_.size() >= context_.limits.list_entries) flush_indications();
}

void FrameQueue::flush_indications() {
  std::size_t done = 0;
  while (done < indications_.size()) {
    const auto buffer = data_->claim();
    if (buffer.empty()) break;
    wire::IndicateWriter writer(buffer.first(std::min<std::size_t>(buffer.size(), context_.limits.message_bytes)),
                                context_.limits.list_entries);
    bool extra = false;
    for (; done < indications_.size() && writer.add(indications_[done]); ++done) {
      extra |= peer_pools_.empty() || indications_[done].pool != peer_pools_.front().number();
    }
    const std::size_t bytes = writer.finish().size();
    if (!data_->commit(bytes)) return context_.fail("the data channel refused a message");
    if (extra) extra_pool_writes_ = data_->posted();
    ++context_.counters.messages_sent[wire::index_of(wire::Function::buffer_rdma_indicate)];
  }
  indications_.erase(indications_.begin(), indications_.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace splitnic::messaging
