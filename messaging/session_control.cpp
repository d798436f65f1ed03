// Session, messages of the control channel: decoding, dispatch, requests and their answers.
#include <algorithm>

#include "common/check.h"
#include "messaging/session.h"

namespace splitnic::messaging {

namespace {

using std::chrono::milliseconds;

constexpr Duration kAnswerLimit = std::chrono::seconds(1);
constexpr unsigned kTries = 3;
constexpr std::size_t kMaxQueuedRequests = 32;
// Minimum interval between two Unsupported: a peer that sends nonsense fast gets slow answers.
constexpr Duration kUnsupportedInterval = milliseconds(100);

}  // namespace

void Session::on_control_message(std::span<const std::byte> bytes) {
  const auto message = wire::decode(bytes, limits_);
  if (!message) {
    ++counters_.bad_messages;
    if (wire::unsupported_answer(message.error())) return answer_unsupported(message.error());
    return fault("bad message: " + wire::to_string(message.error()));
  }
  ++counters_.messages_received[wire::index_of(wire::function_of(*message))];
  std::visit([this](const auto& body) { handle(body); }, *message);
}

void Session::answer_unsupported(const wire::MessageFault& error) {
  if (now_ < unsupported_after_) return;
  const auto answer = wire::unsupported_answer(error);
  if (!answer) return;
  if (send_message(wire::Function::unsupported,
                   [&](std::span<std::byte> out) { return wire::encode_unsupported(out, *answer); })) {
    unsupported_after_ = now_ + kUnsupportedInterval;
  }
}

/// Answers a hello that has no version in common with this end.
void Session::answer_version(std::uint64_t transaction) {
  ++counters_.bad_messages;
  constexpr std::uint32_t kWord = static_cast<std::uint32_t>(wire::Function::cfg_util_request) << 16U | 1U;
  const wire::Unsupported answer{.transaction = transaction,
                                 .offending_word = kWord,
                                 .lowest_version = wire::kLowestVersion,
                                 .highest_version = wire::kHighestVersion,
                                 .reason = static_cast<std::uint32_t>(wire::UnsupportedReason::version)};
  if (!send_message(wire::Function::unsupported,
                    [&](std::span<std::byte> out) { return wire::encode_unsupported(out, answer); })) {
    ++counters_.answers_not_sent;
  }
}

void Session::handle(const wire::BufferRecvPool& message) {
  if (state_ < SessionState::negotiated) return fault("BufferRecvPool before hello");
  if (mode_ != wire::Mode::rdma || !data_) return fault("BufferRecvPool in a mode without pools");
  std::uint64_t elements = 0;
  for (const auto& pool : peer_pools_) elements += pool.elements();
  for (const auto advertised : message.pools) {
    if (highest_peer_pool_ && advertised.pool <= *highest_peer_pool_) return fault("a pool number was used again");
    elements += advertised.elements;
    if (peer_pools_.size() == kMaxPeerPools || elements > limits_.pool_elements) return fault("too many pools");
    highest_peer_pool_ = advertised.pool;
    peer_pools_.emplace_back(advertised);
  }
  exhausted_ = false;
  extra_pool_used_at_ = now_;
}

void Session::handle(const wire::BufferRecvPoolGet& message) {
  // An end that takes its pools back adds no new ones: otherwise it would never finish.
  if (state_ != SessionState::up || shutting_down_ || mode_ != wire::Mode::rdma || !data_) {
    ++counters_.pool_gets_refused;
    return;
  }
  if (message.packet_bytes > max_frame_bytes_ || !add_own_pool(std::min(message.packets, slot_elements_))) {
    ++counters_.pool_gets_refused;
    return;
  }
  advertise_pools();
}

void Session::handle(const wire::BufferRecvPoolUpdate& message) {
  for (const auto run : message.runs) {
    const auto pool = std::find_if(peer_pools_.begin(), peer_pools_.end(),
                                   [&](const PeerPool& candidate) { return candidate.number() == run.pool; });
    // Returned elements and this end's flush may cross on the way.
    if (pool == peer_pools_.end() && highest_peer_pool_ && run.pool <= *highest_peer_pool_) continue;
    const PoolFault verdict =
        pool == peer_pools_.end() ? PoolFault::unknown_pool : pool->take_back(run.first, run.elements);
    if (verdict != PoolFault::none) return fault(std::string("BufferRecvPoolUpdate: ") + to_string(verdict));
  }
  exhausted_ = false;
}

void Session::handle(const wire::BufferPoolFlushRequest& message) {
  // Each side flushes each pool at most once. More outstanding flushes would only use this end's memory.
  if (flushes_to_answer_.size() == kMaxFlushes) return fault("more flush requests outstanding than there can be pools");
  for (const auto flushed : message.pools) {
    if (flushed.receivers_pool) {
      // The user has stopped using a pool of this end; its last write came before this message.
      for (auto& slot : own_pools_) {
        if (slot.pool && slot.advertised && slot.pool->number() == flushed.pool) remove_own_pool(slot);
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
void Session::answer_flushes() {
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
    if (!send_message(wire::Function::buffer_pool_flush_reply, [&](std::span<std::byte> out) {
          return wire::encode_buffer_pool_flush_reply(out, oldest.transaction);
        })) {
      return;
    }
    flushes_to_answer_.pop_front();
  }
}

/// Frees only the pools of the answered request. For the others, the peer has not yet confirmed that its last write has
/// arrived.
void Session::handle(const wire::BufferPoolFlushReply& message) {
  const auto request = std::find(flushes_.begin(), flushes_.end(), message.transaction);
  if (request == flushes_.end()) {
    ++counters_.stray_replies;
    return;
  }
  flushes_.erase(request);
  for (auto& slot : own_pools_) {
    if (slot.pool && slot.flush == message.transaction) remove_own_pool(slot);
  }
}

/// pools: at most as many as the hello allows in a list. Returns the transaction; nullopt: not possible now.
std::optional<std::uint64_t> Session::send_flush(std::span<const wire::FlushedPool> pools) {
  if (flushes_.size() == kMaxFlushes) return std::nullopt;
  const std::uint64_t transaction = next_transaction_;
  if (!send_message(wire::Function::buffer_pool_flush_request, [&](std::span<std::byte> out) {
        return wire::encode_buffer_pool_flush_request(out, transaction, pools);
      })) {
    return std::nullopt;
  }
  ++next_transaction_;
  flushes_.push_back(transaction);
  return transaction;
}

/// Requests every pool of this end back. True when it has requested all of them.
bool Session::flush_own_pools() {
  const std::size_t at_once = std::min<std::size_t>(kMaxOwnPools, limits_.list_entries);
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

void Session::handle(const wire::SendData& message) { deliver(ReceivedFrame::in_private_memory(message.frame)); }

void Session::handle(const wire::BufferRdmaIndicate&) { fault("BufferRDMAIndicate on the control channel"); }

void Session::handle(const wire::CfgUtilRequest& message) {
  const auto request = wire::decode_request(message.code, message.data);
  if (!request) {
    return reply(message.transaction, tl::unexpected(Refusal{request.error().status, request.error().what}));
  }
  const auto* const greeting = std::get_if<wire::HelloRequest>(&*request);
  const bool hello = greeting != nullptr;
  if (hello && !wire::common_version(*greeting)) return answer_version(message.transaction);
  if (!hello && state_ < SessionState::negotiated) {
    return reply(message.transaction, tl::unexpected(Refusal{wire::CfgStatus::not_permitted, "hello comes first"}));
  }
  const Answer given = answer(*request);
  reply(message.transaction, given);
  if (hello && given) after_hello();
}

Answer Session::answer(const wire::RequestBody& request) {
  if (const auto* hello = std::get_if<wire::HelloRequest>(&request)) return answer_hello(*hello);
  if (const auto* beat = std::get_if<wire::Heartbeat>(&request)) return wire::HeartbeatReply{beat->sequence};
  if (const auto* moderation = std::get_if<wire::Moderation>(&request)) {
    peer_moderation_ = *moderation;
    return wire::Acknowledged{};
  }
  if (const auto* reset = std::get_if<wire::Reset>(&request)) {
    reset_reason_ = "the peer: " + reset->text;
    reset_due_ = now_;  // takes effect after the answer has been sent
    return wire::Acknowledged{};
  }
  if (std::holds_alternative<wire::LinkState>(request) && options_.role == wire::Role::io_unit) {
    if (state_ < SessionState::pools_exchanged) advance();
    if (state_ < SessionState::pools_exchanged) {
      return tl::unexpected(Refusal{wire::CfgStatus::no_resources, "ready without a pool"});
    }
    peer_ready_ = true;
  }
  return events_.on_request(request);
}

void Session::reply(std::uint64_t transaction, const Answer& answer) {
  WaitingAnswer told{.transaction = transaction,
                     .status = answer ? wire::CfgStatus::ok : answer.error().status,
                     .data = answer ? wire::encode(*answer) : wire::encode_refusal(answer.error().text)};
  if (told.data.size() > limits_.message_bytes - sizeof(wire::CfgUtilHead)) {
    told.status = wire::CfgStatus::no_resources;
    told.data = wire::encode_refusal("the answer is longer than the session's messages");
  }
  if (!waiting_answer_) {
    if (!send_answer(told)) waiting_answer_ = std::move(told);
    return;
  }
  // The peer requests faster than it receives answers. It will request again, or give up.
  ++counters_.answers_not_sent;
}

bool Session::send_answer(const WaitingAnswer& answer) {
  return send_message(wire::Function::cfg_util_reply, [&](std::span<std::byte> out) {
    return wire::encode_cfg_util_reply(out, answer.transaction, answer.status, answer.data);
  });
}

void Session::push_answer() {
  if (waiting_answer_ && send_answer(*waiting_answer_)) waiting_answer_.reset();
}

bool Session::request(const wire::RequestBody& body) {
  if (state_ < SessionState::negotiated) return false;
  return queue_request(wire::request_of(body), wire::encode(body));
}

bool Session::queue_request(wire::CfgRequest code, std::vector<std::byte> data) {
  if (data.size() > limits_.message_bytes - sizeof(wire::CfgUtilHead)) return false;
  const auto same = std::find_if(requests_.begin(), requests_.end(), [&](const PendingRequest& pending) {
    return pending.code == code && pending.transaction == 0;
  });
  if (same != requests_.end()) {
    same->data = std::move(data);
    return true;
  }
  if (requests_.size() == kMaxQueuedRequests) return false;
  requests_.push_back({.code = code, .data = std::move(data), .transaction = 0, .deadline = now_, .tries = 0});
  push_requests();
  return true;
}

/// Sends one request at a time, so that settings take effect in the order in which they were made.
void Session::push_requests() {
  if (requests_.empty()) return;
  auto& front = requests_.front();
  if (front.transaction != 0 && now_ < front.deadline) return;
  if (front.tries == kTries) return fault("no answer to " + std::string(wire::to_string(front.code)));
  const std::uint64_t transaction = front.transaction != 0 ? front.transaction : next_transaction_++;
  if (!send_message(wire::Function::cfg_util_request, [&](std::span<std::byte> out) {
        return wire::encode_cfg_util_request(out, transaction, front.code, front.data);
      })) {
    front.deadline = now_ + milliseconds(1);
    return;
  }
  front.transaction = transaction;
  front.deadline = now_ + kAnswerLimit;
  ++front.tries;
}

void Session::handle(const wire::CfgUtilReply& message) {
  if (requests_.empty() || requests_.front().transaction == 0 || requests_.front().transaction != message.transaction) {
    ++counters_.stray_replies;
    return;
  }
  const auto code = requests_.front().code;
  requests_.pop_front();
  Answer result = tl::unexpected(Refusal{message.status, ""});
  if (message.status == wire::CfgStatus::ok) {
    auto body = wire::decode_reply(code, message.data);
    if (!body) return fault("bad reply to " + std::string(wire::to_string(code)) + ": " + body.error().what);
    result = std::move(*body);
  } else {
    result.error().text = wire::decode_refusal(message.data);
  }
  if (code == wire::CfgRequest::hello) {
    if (!result) return fault("the I/O unit refused: " + result.error().text);
    return accept_hello_reply(std::get<wire::HelloReply>(*result));
  }
  if (code == wire::CfgRequest::reset) {
    goodbye_done_ = shutting_down_;
    return fault(reset_reason_.empty() ? "reset" : reset_reason_);
  }
  if (code == wire::CfgRequest::link_state && state_ == SessionState::pools_exchanged) {
    if (!result) return fault("the I/O unit is not ready: " + result.error().text);
    peer_ready_ = true;
    return advance();
  }
  if (code != wire::CfgRequest::heartbeat && code != wire::CfgRequest::set_moderation) events_.on_reply(code, result);
  push_requests();
}

void Session::handle(const wire::Unsupported& message) {
  fault("the peer does not understand " + std::to_string(message.offending_word) + " (it speaks versions " +
        std::to_string(message.lowest_version) + " to " + std::to_string(message.highest_version) + ")");
}

// Messages that the other parts of Session send.
void Session::advertise_pools() {
  const std::size_t at_once = std::min<std::size_t>(kMaxOwnPools, limits_.list_entries);
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
                             .address = adapter_->region_address(slot.pool->tag()),
                             .context = 0};
    }
    advertise_wanted_ = count != 0;
    if (count == 0) return;
    if (!send_message(wire::Function::buffer_recv_pool, [&](std::span<std::byte> out) {
          return wire::encode_buffer_recv_pool(out, 0, std::span(advertised).first(count));
        })) {
      return;
    }
    for (OwnSlot* slot : std::span(slots).first(count)) slot->advertised = true;
  }
}

void Session::ask_for_pool() {
  constexpr Duration kInterval = milliseconds(10);
  if (!exhausted_ || now_ < pool_asked_at_ + kInterval) return;
  std::uint32_t most = 1;
  for (const auto& pool : peer_pools_) most = std::max(most, pool.elements());
  if (send_message(wire::Function::buffer_recv_pool_get, [&](std::span<std::byte> out) {
        return wire::encode_buffer_recv_pool_get(out, 0, max_frame_bytes_, most);
      })) {
    pool_asked_at_ = now_;
  }
}

/// False if some elements must wait for a free buffer.
bool Session::return_elements_of(OwnedPool& pool) {
  while (pool.unreturned() != 0) {
    const auto buffer = control().claim();
    if (buffer.empty()) return false;
    wire::UpdateWriter writer(buffer.first(std::min<std::size_t>(buffer.size(), limits_.message_bytes)),
                              limits_.list_entries);
    // A ring has at most two runs; the list may have room for fewer.
    while (const auto run = pool.next_return()) {
      if (!writer.add(*run)) break;
      pool.take_return();
    }
    const std::size_t bytes = writer.finish().size();
    if (!control().commit(bytes)) {
      fault("the control channel refused a message");
      return false;
    }
    ++counters_.messages_sent[wire::index_of(wire::Function::buffer_recv_pool_update)];
    ring_wanted_ = ring_at_once_ = true;
  }
  return true;
}

void Session::return_elements(bool all) {
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
    returns_due_ = now_ + kReturnDelay;
  }
}

void Session::drop_idle_peer_pools() {
  // This end requested the pools beyond the first during a burst; it returns them when they stay unused.
  constexpr Duration kExtraPoolIdle = std::chrono::seconds(10);
  if (peer_pools_.size() < 2 || now_ - extra_pool_used_at_ < kExtraPoolIdle) return;
  // The flush tells the owner that the last write and its indication have arrived, so both must be complete.
  if (!indications_.empty() || data_->completed() < extra_pool_writes_) return;
  const std::size_t at_once = std::min<std::size_t>(kMaxPeerPools, limits_.list_entries);
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
