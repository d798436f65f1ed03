#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "messaging/epoch_context.h"
#include "messaging/wire/encode.h"

namespace splitnic::messaging {

/// What a control session passes on. All calls come from ControlSession::poll().
class ControlEvents {
 public:
  virtual ~ControlEvents() = default;
  /// A message about pools or frames: any but CfgUtilRequest, CfgUtilReply and Unsupported.
  virtual void on_message(const wire::Message& message) = 0;
  /// A request of the peer; the hello is the only one before the state `negotiated`.
  virtual Answer on_request(const wire::RequestBody& request) = 0;
  /// The answer that accepts the peer's hello is on its way.
  virtual void on_hello_answered() = 0;
  /// The peer's answer to a request of this end.
  virtual void on_reply(wire::CfgRequest request, const Answer& answer) = 0;
};

/// The control session of one epoch: the control channel, this end's requests and their answers, and the answers to the
/// peer's. Thread: the session's owner. Source: S1 IV.A, channel 0.
class ControlSession final : private ChannelSink {
 public:
  /// Both must outlive the control session.
  ControlSession(EpochContext& context, ControlEvents& events) : context_(context), events_(events) {}
  ControlSession(const ControlSession&) = delete;
  ControlSession& operator=(const ControlSession&) = delete;

  /// False: the adapter has no room.
  [[nodiscard]] bool open();
  /// Mode S: the second, unacknowledged control channel, which carries every message from then on.
  [[nodiscard]] bool open_unacknowledged();
  /// Handles up to `budget` completions of each channel; returns how many.
  std::size_t poll(std::size_t budget);
  /// Sends what waits: first the answer, then the oldest request.
  void push();

  /// Queues a request. It replaces a queued one of the same kind that has not been sent. False: the queue is full, or
  /// the request is longer than the session's messages.
  [[nodiscard]] bool request(wire::CfgRequest code, std::vector<std::byte> data);
  /// At least half of the channel's buffers is free. Mode R.
  [[nodiscard]] bool patient() const { return acknowledged_->mostly_free(); }
  [[nodiscard]] bool has_requests() const { return !requests_.empty(); }
  /// When the oldest request is sent again; kNever: there is none.
  [[nodiscard]] Time next_deadline() const { return requests_.empty() ? kNever : requests_.front().deadline; }

  /// Sends one message. encode(span) returns the bytes used. False when no buffer is free: the caller keeps its message
  /// and tries again.
  template <class Encode>
  [[nodiscard]] bool send(wire::Function function, Encode&& encode);
  /// The same for a caller that fills the buffer piece by piece; empty when none is free. commit() sends it.
  [[nodiscard]] std::span<std::byte> claim() { return channel().claim(); }
  [[nodiscard]] bool commit(wire::Function function, std::size_t bytes);
  /// The same for a SendData, which moderation covers.
  [[nodiscard]] bool commit_frame(std::size_t bytes);
  /// A number for a request of this epoch that expects a reply.
  [[nodiscard]] std::uint64_t take_transaction() { return next_transaction_++; }

 private:
  struct PendingRequest {
    wire::CfgRequest code{};
    std::vector<std::byte> data;
    std::uint64_t transaction = 0;  ///< 0: not sent yet
    Time deadline{};
    unsigned tries = 0;
  };
  /// An answer that waits for a free send buffer.
  struct WaitingAnswer {
    std::uint64_t transaction = 0;
    wire::CfgStatus status{};
    std::vector<std::byte> data;
  };

  void on_message(std::span<const std::byte> bytes) override;
  void on_immediate(std::uint32_t immediate) override;
  void on_channel_failure(fabric::CompletionStatus status) override;

  [[nodiscard]] bool post(wire::Function function, std::size_t bytes);
  [[nodiscard]] Channel& channel() {
    return context_.mode == wire::Mode::send && unacknowledged_ ? *unacknowledged_ : *acknowledged_;
  }
  void handle(const wire::CfgUtilRequest& message);
  void handle(const wire::CfgUtilReply& message);
  void handle(const wire::Unsupported& message);
  void answer_unsupported(const wire::MessageFault& error);
  void answer_version(std::uint64_t transaction);
  void reply(std::uint64_t transaction, const Answer& answer);
  [[nodiscard]] bool send_answer(const WaitingAnswer& answer);
  void push_requests();

  EpochContext& context_;
  ControlEvents& events_;
  std::unique_ptr<Channel> acknowledged_;
  std::unique_ptr<Channel> unacknowledged_;  // mode S, from negotiated on
  std::deque<PendingRequest> requests_;
  std::uint64_t next_transaction_ = 1;
  std::optional<WaitingAnswer> waiting_answer_;  // one is enough: the protocol allows one request at a time
  Time unsupported_after_{};
};

template <class Encode>
bool ControlSession::send(wire::Function function, Encode&& encode) {
  const auto buffer = claim();
  return !buffer.empty() && commit(function, encode(buffer));
}

}  // namespace splitnic::messaging
