#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "messaging/control_session.h"
#include "messaging/epoch_context.h"
#include "messaging/frame_queue.h"

namespace splitnic::messaging {

/// Everything of a session that belongs to one epoch of its link: adapter, control session, frame queue, and the way
/// from the anchor to `up`. The session destroys it whole when the epoch ends; nothing is resumed. Thread: the
/// session's owner. Source: S1 IV; design, "Epochs" and "Session".
class SessionEpoch final : private ControlEvents {
 public:
  /// The link is up. The references must outlive the epoch; options: a peer may override its mode for later epochs, and
  /// a grant may reduce its max_mtu.
  SessionEpoch(SessionOptions& options, SessionCounters& counters, SessionEvents& events, RandomSource& random,
               fabric::FabricLink& link, Time now);
  SessionEpoch(const SessionEpoch&) = delete;
  SessionEpoch& operator=(const SessionEpoch&) = delete;

  /// Does a bounded amount of work and returns how much. completions: the most that it handles of each channel.
  std::size_t poll(Time now, std::size_t completions);
  [[nodiscard]] Time next_deadline() const;
  void note_time(Time now) { context_.now = now; }
  /// See ChannelAdapter::outstanding().
  [[nodiscard]] bool outstanding() const { return context_.adapter.outstanding(); }
  /// Nothing waits for the completion of what was sent. It is soon enough to learn of it with whatever wakes this end
  /// next.
  [[nodiscard]] bool patient() const {
    return context_.state == SessionState::up && frames_.patient() && control_.patient();
  }
  /// Whether the doorbell for frames may be postponed.
  [[nodiscard]] bool moderated() const { return context_.doorbell.moderated(); }
  /// Ends a batch of frames.
  void flush();
  /// See PeerDoorbell.
  void note_announced() { context_.doorbell.note_announced(); }
  /// Why the epoch must end; empty: it continues.
  [[nodiscard]] const std::string& fault() const { return context_.fault; }
  [[nodiscard]] bool not_permitted() const { return context_.not_permitted; }
  void fail(std::string reason) { context_.fail(std::move(reason)); }

  [[nodiscard]] SessionState state() const { return context_.state; }
  [[nodiscard]] wire::Mode mode() const { return context_.mode; }
  [[nodiscard]] std::uint32_t max_frame_bytes() const { return context_.max_frame_bytes; }
  [[nodiscard]] std::uint32_t longest_frame_bytes() const { return context_.longest_frame_bytes(); }
  [[nodiscard]] bool offloads() const { return context_.offloads; }
  [[nodiscard]] bool udp_segments() const { return context_.udp_segments; }
  [[nodiscard]] FrameQueue& frames() { return frames_; }
  [[nodiscard]] const FrameQueue& frames() const { return frames_; }
  [[nodiscard]] const fabric::AdapterCounters& adapter_counters() const { return context_.adapter.counters(); }

  /// See Session::request() and reset().
  bool request(const wire::RequestBody& body);
  void reset(std::string_view reason);
  void begin_shutdown();
  /// The peer has confirmed the orderly end.
  [[nodiscard]] bool goodbye_done() const { return goodbye_done_; }

 private:
  void on_message(const wire::Message& message) override;
  Answer on_request(const wire::RequestBody& request) override;
  void on_hello_answered() override { after_hello(); }
  void on_reply(wire::CfgRequest request, const Answer& answer) override;

  std::size_t poll_channels(std::size_t completions);
  void poll_timers();
  void ask_for_heartbeat();
  void put_heartbeat_off();
  void shut_down();
  // session_hello.cpp: from control connected to up
  void send_hello();
  Answer answer_hello(const wire::HelloRequest& hello);
  void accept_hello_reply(const wire::HelloReply& reply);
  void settle(const wire::ChannelTerms& mine, const wire::ChannelTerms& theirs, wire::Mode mode);
  void after_hello();
  void advance();

  EpochContext context_;
  ControlSession control_{context_, *this};
  FrameQueue frames_{context_, control_};
  wire::HelloReply hello_reply_;
  bool peer_ready_ = false;
  bool own_ready_sent_ = false;
  Time next_heartbeat_ = kNever;
  std::uint64_t heartbeat_sequence_ = 0;
  bool pools_requested_back_ = false;
  bool goodbye_sent_ = false;
  bool goodbye_done_ = false;
  std::string reset_reason_;  // this end has sent a reset, which takes effect when answered or at reset_due_
  Time reset_due_ = kNever;
};

}  // namespace splitnic::messaging
