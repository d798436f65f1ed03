// FrameQueue, pools: this end's and the peer's, and the messages about them.
#include <algorithm>
#include <new>

#include "common/check.h"
#include "common/range.h"
#include "messaging/frame_queue.h"

namespace splitnic::messaging {

namespace {

using std::chrono::milliseconds;

// With fewer elements, a pool in the bridge's memory is worse than a segmented pool in process memory.
constexpr std::uint32_t kFewestElements = 16;
// Where frames span elements: while one of the longest is being consumed, there is room for another.
constexpr std::uint32_t kSpannedBytes = 2 * wire::kMaxFrameBytes;

}  // namespace

std::uint32_t FrameQueue::own_element_bytes() const {
  return round_up(context_.header_bytes() + context_.max_frame_bytes, wire::kElementGrain);
}

void FrameQueue::settle_pool_shape() {
  const std::uint32_t element_bytes = own_element_bytes();
  const std::size_t room = context_.link.buffers().bytes / element_bytes;
  const std::uint32_t fewest = context_.offloads ? elements_for(kSpannedBytes, element_bytes) : 1;
  slot_elements_ = std::clamp(context_.options.pool_elements, fewest, context_.limits.pool_elements);
  if (room < slot_elements_ && room >= std::max(kFewestElements, fewest)) {
    slot_elements_ = static_cast<std::uint32_t>(room);
  }
  // The peer ends a session with more elements than that.
  const std::size_t permitted = context_.limits.pool_elements / slot_elements_;
  bridge_slots_ = std::min({kMaxOwnPools, room / slot_elements_, permitted});
}

/// Creates a pool in the first free slot; false when there is none, or no memory.
bool FrameQueue::add_own_pool(std::uint32_t elements) {
  if (elements == 0) return false;
  const std::uint32_t element_bytes = own_element_bytes();
  if (context_.offloads) elements = std::max(elements, elements_for(wire::kMaxFrameBytes, element_bytes));
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
    const fabric::MemoryRange range{context_.link.buffers().offset + index * slot_bytes, bytes};
    tag = context_.adapter.register_bridge_memory(context_.domain, range, rights, true);
    memory = context_.link.bridge().local_memory().slice(range.offset, range.bytes);
  } else {
    try {
      slot->process_memory.resize(bytes);
    } catch (const std::bad_alloc&) {
      return false;
    }
    tag = context_.adapter.register_memory(context_.domain, slot->process_memory, rights);
    memory = ReceivedFrame::in_private_memory(slot->process_memory).bytes;
  }
  if (!tag) return false;
  const wire::PoolNumber number{next_pool_number_++};
  slot->pool.emplace(number, elements, element_bytes, memory, *tag,
                     wire::uses_immediate(number, elements, element_bytes), context_.offloads);
  slot->advertised = false;
  advertise_wanted_ = true;
  return true;
}

void FrameQueue::remove_own_pool(OwnSlot& slot) {
  static_cast<void>(context_.adapter.deregister(slot.pool->tag()));
  slot = OwnSlot{};
}

OwnedPool* FrameQueue::own_pool(wire::PoolNumber number) {
  for (auto& slot : own_pools_) {
    if (slot.pool && slot.advertised && slot.pool->number() == number) return &*slot.pool;
  }
  return nullptr;
}

bool FrameQueue::start_pools() {
  settle_pool_shape();
  if (!add_own_pool(slot_elements_)) return false;
  advertise_pools();
  return true;
}

bool FrameQueue::pools_exchanged() const { return !uses_pools() || (own_pools_[0].advertised && !peer_pools_.empty()); }

bool FrameQueue::own_pools_gone() const {
  return std::none_of(own_pools_.begin(), own_pools_.end(), [](const OwnSlot& slot) { return slot.pool.has_value(); });
}

void FrameQueue::return_elements() { return_elements(context_.now >= returns_due_); }

void FrameQueue::manage_peer_pools() {
  ask_for_pool();
  drop_idle_peer_pools();
}

void FrameQueue::push() {
  if (advertise_wanted_) advertise_pools();
  answer_flushes();
}

void FrameQueue::advertise_pools() {
  const std::size_t at_once = std::min<std::size_t>(kMaxOwnPools, context_.limits.list_entries);
  for (;;) {
    std::array<wire::PoolAdvertisement, kMaxOwnPools> advertised;
    std::array<OwnSlot*, kMaxOwnPools> slots{};
    std::size_t count = 0;
    for (auto& slot : own_pools_) {
      if (!slot.pool || slot.advertised || count == at_once) continue;
      slots[count] = &slot;
      advertised[count++] = {.pool = slot.pool->number(),
                             .elements = slot.pool->elements(),
                             .element_bytes = slot.pool->element_bytes(),
                             .memory_handle = slot.pool->tag().value,
                             .address = context_.adapter.region_address(slot.pool->tag()),
                             .context = 0};
    }
    advertise_wanted_ = count != 0;
    if (count == 0) return;
    if (!control_.send(wire::Function::buffer_recv_pool, [&](std::span<std::byte> out) {
          return wire::encode_buffer_recv_pool(out, 0, std::span(advertised).first(count));
        })) {
      return;
    }
    for (OwnSlot* slot : std::span(slots).first(count)) slot->advertised = true;
  }
}

void FrameQueue::handle(const wire::BufferRecvPool& message) {
  if (context_.state < SessionState::negotiated) return context_.fail("BufferRecvPool before hello");
  if (!uses_pools()) return context_.fail("BufferRecvPool in a mode without pools");
  std::uint64_t elements = 0;
  for (const auto& pool : peer_pools_) elements += pool.elements();
  for (const auto advertised : message.pools) {
    // The highest number says for all of them which were used, however many there were.
    if (highest_peer_pool_ && advertised.pool <= *highest_peer_pool_)
      return context_.fail("a pool number that is not above all earlier ones");
    if (context_.offloads && std::uint64_t{advertised.elements} * advertised.element_bytes < wire::kMaxFrameBytes)
      return context_.fail("a pool that is too small for the longest frame");
    elements += advertised.elements;
    if (peer_pools_.size() == kMaxPeerPools)
      return context_.fail("more than " + std::to_string(kMaxPeerPools) + " pools");
    if (elements > context_.limits.pool_elements)
      return context_.fail("more than " + std::to_string(context_.limits.pool_elements) + " elements in pools");
    highest_peer_pool_ = advertised.pool;
    peer_pools_.emplace_back(advertised);
  }
  exhausted_ = false;
  extra_pool_used_at_ = context_.now;
}

void FrameQueue::handle(const wire::BufferRecvPoolGet& message) {
  // An end that takes its pools back adds no new ones: otherwise it would never finish.
  if (context_.state != SessionState::up || context_.shutting_down || !uses_pools()) {
    ++context_.counters.pool_gets_refused;
    return;
  }
  if (message.packet_bytes > context_.max_frame_bytes || !add_own_pool(std::min(message.packets, slot_elements_))) {
    ++context_.counters.pool_gets_refused;
    return;
  }
  advertise_pools();
}

void FrameQueue::handle(const wire::BufferRecvPoolUpdate& message) {
  for (const auto run : message.runs) {
    const auto pool = std::find_if(peer_pools_.begin(), peer_pools_.end(),
                                   [&](const PeerPool& candidate) { return candidate.number() == run.pool; });
    // Returned elements and this end's flush may cross on the way.
    if (pool == peer_pools_.end() && highest_peer_pool_ && run.pool <= *highest_peer_pool_) continue;
    const PoolFault verdict =
        pool == peer_pools_.end() ? PoolFault::unknown_pool : pool->take_back(run.first, run.elements);
    if (verdict != PoolFault::none) return context_.fail(std::string("BufferRecvPoolUpdate: ") + to_string(verdict));
  }
  exhausted_ = false;
}

void FrameQueue::ask_for_pool() {
  constexpr Duration kInterval = milliseconds(10);
  if (!exhausted_ || context_.now < pool_asked_at_ + kInterval) return;
  std::uint32_t most = 1;
  for (const auto& pool : peer_pools_) most = std::max(most, pool.elements());
  if (control_.send(wire::Function::buffer_recv_pool_get, [&](std::span<std::byte> out) {
        return wire::encode_buffer_recv_pool_get(out, 0, context_.max_frame_bytes, most);
      })) {
    pool_asked_at_ = context_.now;
  }
}

/// False if some elements must wait for a free buffer.
bool FrameQueue::return_elements_of(OwnedPool& pool) {
  while (pool.unreturned() != 0) {
    const auto buffer = control_.claim();
    if (buffer.empty()) return false;
    wire::UpdateWriter writer(buffer.first(std::min<std::size_t>(buffer.size(), context_.limits.message_bytes)),
                              context_.limits.list_entries);
    // A ring has at most two runs; the list may have room for fewer.
    while (const auto run = pool.next_return()) {
      if (!writer.add(*run)) break;
      pool.take_return();
    }
    const std::size_t bytes = writer.finish().size();
    if (!control_.commit(wire::Function::buffer_recv_pool_update, bytes)) return false;
  }
  return true;
}

void FrameQueue::return_elements(bool all) {
  bool waiting = false;
  for (auto& slot : own_pools_) {
    if (!slot.pool || slot.flush != 0) continue;
    auto& pool = *slot.pool;
    if (pool.unreturned() == 0) continue;
    const bool enough = all || pool.unreturned() >= std::max(1U, pool.elements() / 4);
    if (!enough || !return_elements_of(pool)) waiting = true;
  }
  // A few elements may wait for more, but only for a limited time.
  constexpr Duration kReturnDelay = milliseconds(50);
  if (!waiting) {
    returns_due_ = kNever;
  } else if (returns_due_ == kNever || all) {
    returns_due_ = context_.now + kReturnDelay;
  }
}

/// The peer has given a pool back, after this end acknowledged its last indication. The budget of a poll may have left
/// that one, and others before it, among the completions.
void FrameQueue::take_indicated() {
  constexpr std::size_t kAtOnce = 128;
  while (poll(kAtOnce) == kAtOnce) {
  }
}

void FrameQueue::handle(const wire::BufferPoolFlushRequest& message) {
  // Each side flushes each pool at most once. More outstanding flushes would only use this end's memory.
  if (flushes_to_answer_.size() == kMaxFlushes)
    return context_.fail("more flush requests outstanding than there can be pools");
  for (const auto flushed : message.pools) {
    if (flushed.receivers_pool) {
      // The user has stopped using a pool of this end; its last write came before this message.
      for (auto& slot : own_pools_) {
        if (!slot.pool || !slot.advertised || slot.pool->number() != flushed.pool) continue;
        take_indicated();
        remove_own_pool(slot);
      }
    } else {
      std::erase_if(peer_pools_, [&](const PeerPool& pool) { return pool.number() == flushed.pool; });
      peer_pool_in_use_ = 0;
      claimed_ = {};
    }
  }
  flushes_to_answer_.push_back({message.transaction, std::nullopt});
}

/// The owner may free its memory when it reads the answer. This end therefore answers after every write into that
/// memory is acknowledged and indicated. It does not wait for later writes, which go into other pools.
void FrameQueue::answer_flushes() {
  while (!flushes_to_answer_.empty()) {
    auto& oldest = flushes_to_answer_.front();
    if (data_) {
      if (!oldest.writes) {
        flush_indications();
        if (!indications_.empty()) return;
        oldest.writes = data_->posted();
      }
      if (data_->completed() < *oldest.writes) return;
    }
    if (!control_.send(wire::Function::buffer_pool_flush_reply, [&](std::span<std::byte> out) {
          return wire::encode_buffer_pool_flush_reply(out, oldest.transaction);
        })) {
      return;
    }
    flushes_to_answer_.pop_front();
  }
}

/// Frees only the pools of the answered request. For the others, the peer has not yet confirmed that its last write has
/// arrived.
void FrameQueue::handle(const wire::BufferPoolFlushReply& message) {
  const auto request = std::find(flushes_.begin(), flushes_.end(), message.transaction);
  if (request == flushes_.end()) {
    ++context_.counters.stray_replies;
    return;
  }
  flushes_.erase(request);
  take_indicated();
  for (auto& slot : own_pools_) {
    if (slot.pool && slot.flush == message.transaction) remove_own_pool(slot);
  }
}

/// pools: at most as many as the hello allows in a list. Returns the transaction; nullopt: not possible now.
std::optional<std::uint64_t> FrameQueue::send_flush(std::span<const wire::FlushedPool> pools) {
  if (flushes_.size() == kMaxFlushes) return std::nullopt;
  const std::uint64_t transaction = control_.take_transaction();
  if (!control_.send(wire::Function::buffer_pool_flush_request, [&](std::span<std::byte> out) {
        return wire::encode_buffer_pool_flush_request(out, transaction, pools);
      })) {
    return std::nullopt;
  }
  flushes_.push_back(transaction);
  return transaction;
}

/// Requests every pool of this end back. True when it has requested all of them.
bool FrameQueue::flush_own_pools() {
  const std::size_t at_once = std::min<std::size_t>(kMaxOwnPools, context_.limits.list_entries);
  for (;;) {
    std::array<wire::FlushedPool, kMaxOwnPools> pools;
    std::array<OwnSlot*, kMaxOwnPools> slots{};
    std::size_t count = 0;
    for (auto& slot : own_pools_) {
      if (!slot.pool || slot.flush != 0 || count == at_once) continue;
      if (!slot.advertised) {  // the peer does not know of it
        remove_own_pool(slot);
        continue;
      }
      slots[count] = &slot;
      pools[count++] = {slot.pool->number(), false};
    }
    if (count == 0) return true;
    const auto transaction = send_flush(std::span(pools).first(count));
    if (!transaction) return false;
    for (OwnSlot* slot : std::span(slots).first(count)) slot->flush = *transaction;
  }
}

void FrameQueue::drop_idle_peer_pools() {
  // This end requested the pools beyond the first during a burst; it returns them when they stay unused.
  constexpr Duration kExtraPoolIdle = std::chrono::seconds(10);
  if (peer_pools_.size() < 2 || context_.now - extra_pool_used_at_ < kExtraPoolIdle) return;
  // The flush tells the owner that the last write and its indication have arrived, so both must be complete.
  if (!indications_.empty() || data_->completed() < extra_pool_writes_) return;
  const std::size_t at_once = std::min<std::size_t>(kMaxPeerPools, context_.limits.list_entries);
  std::array<wire::FlushedPool, kMaxPeerPools> flushed;
  std::size_t count = 0;
  for (std::size_t index = 1; index < peer_pools_.size() && count < at_once; ++index) {
    flushed[count++] = {peer_pools_[index].number(), true};
  }
  if (!send_flush(std::span(flushed).first(count))) return;
  peer_pools_.erase(peer_pools_.begin() + 1, peer_pools_.begin() + 1 + static_cast<std::ptrdiff_t>(count));
  peer_pool_in_use_ = 0;
  claimed_ = {};
}

}  // namespace splitnic::messaging
