#include "messaging/control_session.h"

#include <algorithm>
#include <string>
#include <utility>

namespace splitnic::messaging {

namespace {

using std::chrono::milliseconds;

constexpr fabric::QpNumber kControlQueuePair{1};
constexpr fabric::QpNumber kControlUnacknowledgedQueuePair{2};
constexpr Duration kAnswerLimit = std::chrono::seconds(1);
constexpr unsigned kTries = 3;
constexpr std::size_t kMaxQueuedRequests = 32;
// Minimum interval between two Unsupported: a peer that sends nonsense fast gets slow answers.
constexpr Duration kUnsupportedInterval = milliseconds(100);

}  // namespace

bool ControlSession::open() {
  acknowledged_ = context_.open_channel(kControlQueuePair, true, fabric::VirtualLane::control, 0);
  return acknowledged_ && acknowledged_->connect({.number = kControlQueuePair}) == fabric::Status::ok;
}

bool ControlSession::open_unacknowledged() {
  unacknowledged_ = context_.open_channel(kControlUnacknowledgedQueuePair, false, fabric::VirtualLane::control, 0);
  return unacknowledged_ && unacknowledged_->connect({.number = kControlUnacknowledgedQueuePair}) == fabric::Status::ok;
}

std::size_t ControlSession::poll(std::size_t budget) {
  std::size_t work = acknowledged_->poll(*this, budget);
  if (unacknowledged_) work += unacknowledged_->poll(*this, budget);
  return work;
}

void ControlSession::push() {
  if (waiting_answer_ && send_answer(*waiting_answer_)) waiting_answer_.reset();
  push_requests();
}

bool ControlSession::post(wire::Function function, std::size_t bytes) {
  if (!channel().commit(bytes)) {
    context_.fail("the control channel refused a message");
    return false;
  }
  ++context_.counters.messages_sent[wire::index_of(function)];
  return true;
}

bool ControlSession::commit(wire::Function function, std::size_t bytes) {
  if (!post(function, bytes)) return false;
  context_.doorbell.request_at_once();
  return true;
}

bool ControlSession::commit_frame(std::size_t bytes) {
  if (!post(wire::Function::send_data, bytes)) return false;
  context_.doorbell.request();
  return true;
}

// ---- what the channels receive

void ControlSession::on_message(std::span<const std::byte> bytes) {
  if (!context_.fault.empty()) return;
  const auto message = wire::decode(bytes, context_.limits);
  if (!message) {
    ++context_.counters.bad_messages;
    if (wire::unsupported_answer(message.error())) return answer_unsupported(message.error());
    return context_.fail("bad message: " + wire::to_string(message.error()));
  }
  ++context_.counters.messages_received[wire::index_of(wire::function_of(*message))];
  if (const auto* request = std::get_if<wire::CfgUtilRequest>(&*message)) return handle(*request);
  if (const auto* reply = std::get_if<wire::CfgUtilReply>(&*message)) return handle(*reply);
  if (const auto* unsupported = std::get_if<wire::Unsupported>(&*message)) return handle(*unsupported);
  events_.on_message(*message);
}

void ControlSession::on_immediate(std::uint32_t) {
  context_.fail("RDMA write with immediate data on the control channel");
}

void ControlSession::on_channel_failure(fabric::CompletionStatus status) {
  context_.fail(std::string("control channel failed: ") + fabric::to_string(status));
}

void ControlSession::answer_unsupported(const wire::MessageFault& error) {
  if (context_.now < unsupported_after_) return;
  const auto answer = wire::unsupported_answer(error);
  if (!answer) return;
  if (send(wire::Function::unsupported,
           [&](std::span<std::byte> out) { return wire::encode_unsupported(out, *answer); })) {
    unsupported_after_ = context_.now + kUnsupportedInterval;
  }
}

/// Answers a hello that has no version in common with this end.
void ControlSession::answer_version(std::uint64_t transaction) {
  ++context_.counters.bad_messages;
  constexpr std::uint32_t kWord = static_cast<std::uint32_t>(wire::Function::cfg_util_request) << 16U | 1U;
  const wire::Unsupported answer{.transaction = transaction,
                                 .offending_word = kWord,
                                 .lowest_version = wire::kLowestVersion,
                                 .highest_version = wire::kHighestVersion,
                                 .reason = static_cast<std::uint32_t>(wire::UnsupportedReason::version)};
  if (!send(wire::Function::unsupported,
            [&](std::span<std::byte> out) { return wire::encode_unsupported(out, answer); })) {
    ++context_.counters.answers_not_sent;
  }
}

void ControlSession::handle(const wire::Unsupported& message) {
  context_.fail("the peer does not understand " + std::to_string(message.offending_word) + " (it speaks versions " +
                std::to_string(message.lowest_version) + " to " + std::to_string(message.highest_version) + ")");
}

// ---- requests of the peer

void ControlSession::handle(const wire::CfgUtilRequest& message) {
  const auto request = wire::decode_request(message.code, message.data);
  if (!request) {
    // A request that only later versions know is no fault.
    if (request.error().status != wire::CfgStatus::unknown_request) ++context_.counters.bad_messages;
    return reply(message.transaction, tl::unexpected(Refusal{request.error().status, request.error().what}));
  }
  const auto* const greeting = std::get_if<wire::HelloRequest>(&*request);
  const bool hello = greeting != nullptr;
  if (hello && !wire::common_version(*greeting)) return answer_version(message.transaction);
  if (!hello && context_.state < SessionState::negotiated) {
    return reply(message.transaction, tl::unexpected(Refusal{wire::CfgStatus::not_permitted, "hello comes first"}));
  }
  const Answer given = events_.on_request(*request);
  reply(message.transaction, given);
  if (hello && given) events_.on_hello_answered();
}

void ControlSession::reply(std::uint64_t transaction, const Answer& answer) {
  WaitingAnswer waiting{.transaction = transaction,
                        .status = answer ? wire::CfgStatus::ok : answer.error().status,
                        .data = answer ? wire::encode(*answer) : wire::encode_refusal(answer.error().text)};
  if (waiting.data.size() > context_.limits.message_bytes - sizeof(wire::CfgUtilHead)) {
    waiting.status = wire::CfgStatus::no_resources;
    waiting.data = wire::encode_refusal("the answer is longer than the session's messages");
  }
  if (!waiting_answer_) {
    if (!send_answer(waiting)) waiting_answer_ = std::move(waiting);
    return;
  }
  // The peer requests faster than it receives answers. It will request again, or give up.
  ++context_.counters.answers_not_sent;
}

bool ControlSession::send_answer(const WaitingAnswer& answer) {
  return send(wire::Function::cfg_util_reply, [&](std::span<std::byte> out) {
    return wire::encode_cfg_util_reply(out, answer.transaction, answer.status, answer.data);
  });
}

// ---- requests of this end

bool ControlSession::request(wire::CfgRequest code, std::vector<std::byte> data) {
  if (data.size() > context_.limits.message_bytes - sizeof(wire::CfgUtilHead)) return false;
  const auto same = std::find_if(requests_.begin(), requests_.end(), [&](const PendingRequest& pending) {
    return pending.code == code && pending.transaction == 0;
  });
  if (same != requests_.end()) {
    same->data = std::move(data);
    return true;
  }
  if (requests_.size() == kMaxQueuedRequests) return false;
  requests_.push_back({.code = code, .data = std::move(data), .transaction = 0, .deadline = context_.now, .tries = 0});
  push_requests();
  return true;
}

/// Sends one request at a time, so that settings take effect in the order in which they were made.
void ControlSession::push_requests() {
  if (requests_.empty()) return;
  auto& front = requests_.front();
  if (front.transaction != 0 && context_.now < front.deadline) return;
  if (front.tries == kTries) return context_.fail("no answer to " + std::string(wire::to_string(front.code)));
  const std::uint64_t transaction = front.transaction != 0 ? front.transaction : take_transaction();
  if (!send(wire::Function::cfg_util_request, [&](std::span<std::byte> out) {
        return wire::encode_cfg_util_request(out, transaction, front.code, front.data);
      })) {
    front.deadline = context_.now + milliseconds(1);
    return;
  }
  front.transaction = transaction;
  front.deadline = context_.now + kAnswerLimit;
  ++front.tries;
}

void ControlSession::handle(const wire::CfgUtilReply& message) {
  if (requests_.empty() || requests_.front().transaction == 0 || requests_.front().transaction != message.transaction) {
    ++context_.counters.stray_replies;
    return;
  }
  const auto code = requests_.front().code;
  requests_.pop_front();
  Answer result = tl::unexpected(Refusal{message.status, ""});
  if (message.status == wire::CfgStatus::ok) {
    auto body = wire::decode_reply(code, message.data);
    if (!body) {
      return context_.fail("bad reply to " + std::string(wire::to_string(code)) + ": " + body.error().what);
    }
    result = std::move(*body);
  } else {
    result.error().text = wire::decode_refusal(message.data);
  }
  events_.on_reply(code, result);
  push_requests();
}

}  // namespace splitnic::messaging
