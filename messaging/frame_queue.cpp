#include "messaging/frame_queue.h"

#include <algorithm>
#include <cstring>
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

bool FrameQueue::patient() const {
  return uses_pools() && flushes_to_answer_.empty() && !waits_for_buffers_ && data_->can_write(kWritesInFlight / 2) &&
         data_->mostly_free();
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
  // Immediate data has no room for the longest frames, so with offloads a list is good for every pool.
  const bool fits = pool != nullptr && (pool->immediate() == immediate || (context_.offloads && !immediate));
  if (!fits) return context_.fail("an indication that does not fit its pool");
  std::uint32_t lost = 0;
  const PoolFault verdict = pool->indicate(indication.element, indication.length, lost);
  if (verdict != PoolFault::none) return context_.fail(std::string("indication: ") + to_string(verdict));
  context_.counters.lost_elements += lost;
  const OwnedPool::Bytes bytes = pool->bytes_of(indication.element, indication.length);
  if (context_.offloads) return deliver_unfinished(bytes);
  deliver({bytes.first});
}

/// Takes the virtio-net header from the front of the frame.
void FrameQueue::deliver_unfinished(const OwnedPool::Bytes& bytes) {
  frame::VirtioNetHeader header;
  const std::size_t length = bytes.first.size() + bytes.rest.size();
  if (length < sizeof header + wire::kMinFrameBytes) {
    ++context_.counters.rx_bad_length;
    return;
  }
  // An element is longer than the header, so all of it is in the first part.
  bytes.first.copy_out(0, std::as_writable_bytes(std::span(&header, 1)));
  const auto offload = frame::parse_virtio_net_header(header);
  if (!offload || (offload->kind == frame::SegmentKind::udp && !context_.udp_segments)) {
    ++context_.counters.rx_bad_offload;
    return;
  }
  deliver({bytes.first.slice(sizeof header, bytes.first.size() - sizeof header), bytes.rest, *offload});
}

void FrameQueue::deliver(const ReceivedFrame& frame) {
  const bool segmented = frame.offload.kind != frame::SegmentKind::none;
  const std::uint32_t most = segmented ? context_.longest_frame_bytes() : context_.max_frame_bytes;
  if (frame.size() < wire::kMinFrameBytes || frame.size() > most) {
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

/// The oldest pool with free elements for so many bytes, so that the memory in use stays small and the other pools
/// become idle.
PeerPool* FrameQueue::usable_peer_pool(std::uint32_t bytes) {
  for (std::size_t index = 0; index < peer_pools_.size(); ++index) {
    PeerPool& pool = peer_pools_[index];
    if (!pool.has(context_.offloads ? elements_for(bytes, pool.element_bytes()) : 1)) continue;
    peer_pool_in_use_ = index;
    if (index > 0) extra_pool_used_at_ = context_.now;
    return &pool;
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
  if (peer_pools_.empty()) return sum;
  sum.first_pool = peer_pools_.front().elements();
  // Each write fills an element at least, so there is nothing to ask while few are filled.
  sum.few_writes = sum.elements - sum.free >= kWritesInFlight * 3 / 4 && !data_->can_write(kWritesInFlight / 4);
  return sum;
}

FrameMemory FrameQueue::claim(std::uint32_t frame_bytes) {
  claimed_ = {};
  waits_for_buffers_ = false;
  if (context_.state != SessionState::up || context_.shutting_down) return {};
  const std::uint32_t header_bytes = context_.header_bytes();
  const std::uint32_t bytes = header_bytes + std::min(frame_bytes, context_.longest_frame_bytes());
  switch (tx_path_) {
    case TxPath::none:
      return {};
    case TxPath::send_data: {
      const auto buffer = control_.claim();
      if (buffer.empty()) return {};
      claimed_ = {buffer.first(std::min<std::size_t>(buffer.size(), context_.limits.message_bytes))
                      .subspan(wire::kSendDataHeadBytes)};
      break;
    }
    case TxPath::data_send:
      claimed_ = {data_->claim()};
      break;
    case TxPath::direct:
    case TxPath::segmented:
    case TxPath::staged:
      claimed_ = claim_elements(bytes);
      break;
  }
  if (claimed_.size() > bytes) claimed_ = claimed_.first(bytes);
  return claimed_.empty() ? claimed_ : claimed_.behind(header_bytes);
}

/// Memory for the next elements of a pool of the peer. Elements are contiguous, so a frame that spans some lies in one
/// range, or in two where it goes round the end of the ring.
FrameMemory FrameQueue::claim_elements(std::uint32_t bytes) {
  if (!data_->can_write()) return {};
  PeerPool* pool = usable_peer_pool(bytes);
  if (pool == nullptr) return {};
  if (!context_.offloads) bytes = std::min(bytes, pool->element_bytes());
  const std::uint32_t first = *pool->next();
  const auto before_end = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, pool->bytes_from(first)));
  const bool around_end = before_end < bytes;
  if (!around_end || (context_.link.bridge().peer_window().is_memory() && data_->can_write(2))) {
    FrameMemory to{claim_range(pool->place_of(first), before_end)};
    if (around_end) to.rest = claim_range(pool->place_of(0), bytes - before_end);
    if (to.size() == bytes) {
      tx_path_ = TxPath::direct;
      return to;
    }
  }
  if (!context_.offloads) {
    tx_path_ = TxPath::segmented;
    return {data_->claim()};
  }
  // At worst, each buffer of the data channel takes a part, and both ranges end with a short one. One more buffer is
  // for the indication.
  const std::size_t parts = bytes / data_->message_bytes() + 2;
  waits_for_buffers_ = data_->free_buffers() <= parts || !data_->can_write(parts);
  if (waits_for_buffers_) return {};
  tx_path_ = TxPath::staged;
  staging_.resize(wire::kMaxFrameBytes);
  return {std::span(staging_).first(bytes)};
}

/// Memory of the peer; empty: this end may not store there.
std::span<std::byte> FrameQueue::claim_range(fabric::RemoteAddress at, std::uint32_t bytes) {
  const auto offset = context_.adapter.claim_direct(data_->number(), at, bytes);
  if (!offset) return {};
  claimed_offset_ = *offset;
  return context_.link.bridge().peer_window().claim(*offset, bytes);
}

void FrameQueue::commit(std::uint32_t bytes, const frame::FrameOffload& offload) {
  if (claimed_.empty()) return;  // the session went down, or the peer withdrew a pool, after the claim
  const std::uint32_t with_header = context_.header_bytes() + bytes;
  SPLITNIC_CHECK_OP(with_header, <=, claimed_.size());
  SPLITNIC_CHECK(context_.offloads || !offload.asks_for_work());
  if (context_.offloads) {
    const frame::VirtioNetHeader header = frame::make_virtio_net_header(offload);
    static_assert(sizeof header <= wire::kElementGrain);  // so all of it is in the first part
    std::memcpy(claimed_.bytes.data(), &header, sizeof header);
  }
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
    case TxPath::segmented:
    case TxPath::staged:
      sent = commit_elements(with_header);
      break;
  }
  claimed_ = {};
  if (!sent) return context_.fail("the data channel refused a frame");
  ++context_.counters.tx_frames;
  context_.counters.tx_bytes += bytes;
  context_.doorbell.count_frame(bytes);
  if (indications_.size() >= context_.limits.list_entries) flush_indications();
}

/// bytes: of the claim, with the header.
bool FrameQueue::commit_elements(std::uint32_t bytes) {
  PeerPool& pool = peer_pools_[peer_pool_in_use_];
  const wire::Indication indication{pool.number(), *pool.next(), bytes};
  const auto place = pool.place_of(indication.element);
  const std::uint32_t elements = elements_for(bytes, pool.element_bytes());
  // Indications must arrive in the order of the ring: none may overtake one that waits for the end of the batch.
  const bool has_room = bytes <= wire::kMaxImmediateLength;
  const bool by_immediate = pool.immediate() && has_room && (!context_.offloads || indications_.empty());
  const std::uint32_t immediate = by_immediate ? wire::encode_immediate(indication) : 0;
  const std::uint32_t* with = by_immediate ? &immediate : nullptr;
  bool sent = false;
  if (tx_path_ == TxPath::direct) {
    sent = announce(pool, bytes, with);
  } else if (tx_path_ == TxPath::segmented) {
    sent = data_->commit_write(bytes, place, with);
  } else {
    sent = write_staged(pool, bytes, with);
  }
  pool.consume(elements);
  if (peer_pool_in_use_ > 0) extra_pool_writes_ = data_->posted();
  ++(by_immediate ? context_.counters.writes_with_immediate_sent : context_.counters.writes_sent);
  if (!by_immediate) indications_.push_back(indication);
  return sent;
}

/// The bytes are in the claim.
bool FrameQueue::announce(const PeerPool& pool, std::uint32_t bytes, const std::uint32_t* immediate) {
  const FrameMemory frame = claimed_.first(bytes);
  const auto place = pool.place_of(*pool.next());
  if (frame.rest.empty()) {
    context_.link.bridge().peer_window().commit(claimed_offset_, frame.bytes);
    return data_->announce_write(bytes, place, immediate);
  }
  return data_->announce_write(static_cast<std::uint32_t>(frame.bytes.size()), place, nullptr) &&
         data_->announce_write(static_cast<std::uint32_t>(frame.rest.size()), pool.place_of(0), immediate);
}

bool FrameQueue::write_staged(const PeerPool& pool, std::uint32_t bytes, const std::uint32_t* immediate) {
  const std::uint32_t first = *pool.next();
  const auto frame = std::span<const std::byte>(staging_).first(bytes);
  const std::size_t before_end = std::min<std::size_t>(bytes, pool.bytes_from(first));
  if (before_end == bytes) return write(pool.place_of(first), frame, immediate);
  return write(pool.place_of(first), frame.first(before_end), nullptr) &&
         write(pool.place_of(0), frame.subspan(before_end), immediate);
}

/// One range: stored by this end where the peer's grant allows it, else in buffers of the data channel.
bool FrameQueue::write(fabric::RemoteAddress to, std::span<const std::byte> bytes, const std::uint32_t* immediate) {
  const auto length = static_cast<std::uint32_t>(bytes.size());
  if (const auto offset = context_.adapter.claim_direct(data_->number(), to, length)) {
    context_.link.bridge().peer_window().write(*offset, bytes);
    return data_->announce_write(length, to, immediate);
  }
  while (!bytes.empty()) {
    const auto buffer = data_->claim();
    if (buffer.empty()) return false;
    const auto part = bytes.first(std::min(bytes.size(), buffer.size()));
    std::copy(part.begin(), part.end(), buffer.begin());
    const bool last = part.size() == bytes.size();
    if (!data_->commit_write(part.size(), to, last ? immediate : nullptr)) return false;
    to.address += part.size();
    bytes = bytes.subspan(part.size());
  }
  return true;
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
