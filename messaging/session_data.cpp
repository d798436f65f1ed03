// Session, frames: pools in this end's memory, claims in the peer's, indications.
#include <algorithm>

#include "common/check.h"
#include "messaging/session.h"

namespace splitnic::messaging {

namespace {

constexpr std::uint32_t round_up(std::uint32_t value, std::uint32_t to) { return (value + to - 1) / to * to; }

// With fewer elements, a pool in the bridge's memory is worse than a segmented pool in process memory.
constexpr std::uint32_t kFewestElements = 16;

}  // namespace

void Session::settle_pool_shape() {
  const std::uint32_t element_bytes = round_up(max_frame_bytes_, wire::kElementGrain);
  const std::size_t room = link_.buffers().bytes / element_bytes;
  slot_elements_ = options_.pool_elements;
  if (room < slot_elements_ && room >= kFewestElements) slot_elements_ = static_cast<std::uint32_t>(room);
  bridge_slots_ = std::min(kMaxOwnPools, room / slot_elements_);
}

/// Creates a pool in the first free slot; false when there is none.
bool Session::add_own_pool(std::uint32_t elements) {
  if (elements == 0) return false;
  const std::uint32_t element_bytes = round_up(max_frame_bytes_, wire::kElementGrain);
  const std::size_t slots = std::max<std::size_t>(1, bridge_slots_);
  const auto slot = std::find_if(own_pools_.begin(), own_pools_.begin() + static_cast<std::ptrdiff_t>(slots),
                                 [](const OwnSlot& candidate) { return !candidate.pool; });
  if (slot == own_pools_.begin() + static_cast<std::ptrdiff_t>(slots)) return false;
  const auto rights = fabric::Right::local_read | fabric::Right::remote_write;
  const std::size_t bytes = std::size_t{elements} * element_bytes;
  std::optional<fabric::Stag> tag;
  fabric::PeerMemory memory;
  if (bridge_slots_ > 0) {
    const auto index = static_cast<std::size_t>(slot - own_pools_.begin());
    const std::size_t slot_bytes = std::size_t{slot_elements_} * element_bytes;
    const fabric::MemoryRange range{link_.buffers().offset + index * slot_bytes, bytes};
    tag = adapter_->register_bridge_memory(domain_, range, rights, true);
    memory = link_.bridge().local_memory().slice(range.offset, range.bytes);
  } else {
    slot->process_memory.resize(bytes);
    tag = adapter_->register_memory(domain_, slot->process_memory, rights);
    memory = ReceivedFrame::in_private_memory(slot->process_memory).bytes;
  }
  if (!tag) return false;
  const wire::PoolNumber number{next_pool_number_++};
  slot->pool.emplace(number, elements, element_bytes, memory, *tag,
                     wire::uses_immediate(number, elements, element_bytes));
  slot->advertised = false;
  advertise_wanted_ = true;
  return true;
}

void Session::remove_own_pool(OwnSlot& slot) {
  static_cast<void>(adapter_->deregister(slot.pool->tag()));
  slot = OwnSlot{};
}

OwnedPool* Session::own_pool(wire::PoolNumber number) {
  for (auto& slot : own_pools_) {
    if (slot.pool && slot.advertised && slot.pool->number() == number) return &*slot.pool;
  }
  return nullptr;
}

void Session::on_data_message(std::span<const std::byte> bytes) {
  if (mode_ == wire::Mode::send) {
    ++counters_.data_sends_received;
    return deliver(ReceivedFrame::in_private_memory(bytes));
  }
  const auto message = wire::decode(bytes, limits_);
  const auto* list = message ? std::get_if<wire::BufferRdmaIndicate>(&*message) : nullptr;
  if (list == nullptr) {
    ++counters_.bad_messages;
    return fault(message ? "a message on the data channel that belongs on the control channel"
                         : "bad message: " + wire::to_string(message.error()));
  }
  ++counters_.messages_received[wire::index_of(wire::Function::buffer_rdma_indicate)];
  for (const auto indication : list->indications) {
    indicated(indication, false);
    if (!fault_.empty()) return;
  }
}

void Session::indicated(const wire::Indication& indication, bool immediate) {
  OwnedPool* pool = own_pool(indication.pool);
  if (pool == nullptr || pool->immediate() != immediate) return fault("an indication that does not fit its pool");
  std::uint32_t lost = 0;
  const PoolFault verdict = pool->indicate(indication.element, indication.length, lost);
  if (verdict != PoolFault::none) return fault(std::string("indication: ") + to_string(verdict));
  counters_.lost_elements += lost;
  deliver({pool->bytes_of(indication.element, indication.length)});
}

void Session::deliver(const ReceivedFrame& frame) {
  if (frame.size() < wire::kMinFrameBytes || frame.size() > max_frame_bytes_) {
    ++counters_.rx_bad_length;
    return;
  }
  if (state_ < SessionState::pools_exchanged) {
    ++counters_.rx_before_up;
    return;
  }
  ++counters_.rx_frames;
  counters_.rx_bytes += frame.size();
  events_.on_frame(frame);
}

/// The oldest pool with a free element, so that the memory in use stays small and the other pools become idle.
PeerPool* Session::usable_peer_pool() {
  for (std::size_t index = 0; index < peer_pools_.size(); ++index) {
    if (!peer_pools_[index].next()) continue;
    peer_pool_in_use_ = index;
    if (index > 0) extra_pool_used_at_ = now_;
    return &peer_pools_[index];
  }
  exhausted_ = true;
  return nullptr;
}

Credits Session::credits() const {
  Credits sum;
  for (const auto& pool : peer_pools_) {
    sum.elements += pool.elements();
    sum.free += pool.available();
  }
  return sum;
}

std::span<std::byte> Session::claim() {
  claimed_ = {};
  if (state_ != SessionState::up || shutting_down_) return {};
  switch (tx_path_) {
    case TxPath::none:
      return {};
    case TxPath::send_data: {
      const auto buffer = control().claim();
      if (buffer.empty()) return {};
      claimed_ =
          buffer.first(std::min<std::size_t>(buffer.size(), limits_.message_bytes)).subspan(wire::kSendDataHeadBytes);
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
      const std::uint32_t bytes = std::min(max_frame_bytes_, pool->element_bytes());
      if (const auto offset = adapter_->claim_direct(place, bytes)) {
        tx_path_ = TxPath::direct;
        claimed_offset_ = *offset;
        claimed_ = link_.bridge().peer_window().claim(*offset, bytes);
      } else {
        tx_path_ = TxPath::segmented;
        claimed_ = data_->claim();
      }
      if (claimed_.size() > bytes) claimed_ = claimed_.first(bytes);
      break;
    }
  }
  if (claimed_.size() > max_frame_bytes_) claimed_ = claimed_.first(max_frame_bytes_);
  return claimed_;
}

void Session::commit(std::uint32_t bytes) {
  if (claimed_.empty()) return;  // the session went down, or the peer withdrew a pool, after the claim
  CHECK_OP(bytes, <=, claimed_.size());
  bool sent = false;
  switch (tx_path_) {
    case TxPath::none:
      break;
    case TxPath::send_data: {
      auto& channel = control();
      const auto buffer = channel.claim();
      wire::encode_send_data_head(buffer, 0, bytes);
      sent = channel.commit(wire::kSendDataHeadBytes + bytes);
      ++counters_.messages_sent[wire::index_of(wire::Function::send_data)];
      break;
    }
    case TxPath::data_send:
      sent = data_->commit(bytes);
      ++counters_.data_sends_sent;
      break;
    case TxPath::direct:
    case TxPath::segmented: {
      PeerPool& pool = peer_pools_[peer_pool_in_use_];
      const wire::Indication indication{pool.number(), *pool.next(), bytes};
      const auto place = pool.place_of(indication.element);
      const std::uint32_t immediate = pool.immediate() ? wire::encode_immediate(indication) : 0;
      const std::uint32_t* with = pool.immediate() ? &immediate : nullptr;
      if (tx_path_ == TxPath::direct) {
        link_.bridge().peer_window().commit(claimed_offset_, claimed_.first(bytes));
        sent = data_->announce_write(bytes, place, with);
      } else {
        sent = data_->commit_write(bytes, place, with);
      }
      pool.consume();
      if (peer_pool_in_use_ > 0) extra_pool_writes_ = data_->posted();
      ++(with != nullptr ? counters_.writes_with_immediate_sent : counters_.writes_sent);
      if (with == nullptr) indications_.push_back(indication);
      break;
    }
  }
  claimed_ = {};
  if (!sent) return fault("the data channel refused a frame");
  ++counters_.tx_frames;
  counters_.tx_bytes += bytes;
  ++unrung_entries_;
  unrung_bytes_ += bytes;
  ring_wanted_ = true;
  if (indications_.size() >= limits_.list_entries) flush_indications();
}

void Session::flush_indications() {
  std::size_t done = 0;
  while (done < indications_.size()) {
    const auto buffer = data_->claim();
    if (buffer.empty()) break;
    wire::IndicateWriter writer(buffer.first(std::min<std::size_t>(buffer.size(), limits_.message_bytes)),
                                limits_.list_entries);
    bool extra = false;
    for (; done < indications_.size() && writer.add(indications_[done]); ++done) {
      extra |= peer_pools_.empty() || indications_[done].pool != peer_pools_.front().number();
    }
    const std::size_t bytes = writer.finish().size();
    if (!data_->commit(bytes)) return fault("the data channel refused a message");
    if (extra) extra_pool_writes_ = data_->posted();
    ++counters_.messages_sent[wire::index_of(wire::Function::buffer_rdma_indicate)];
  }
  indications_.erase(indications_.begin(), indications_.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace splitnic::messaging
