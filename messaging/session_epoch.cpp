#include "messaging/session_epoch.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace splitnic::messaging {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Maximum time in each state between the anchor and up. Every step is one round trip; the session gives up on a peer
// that stalls.
constexpr Duration kSetUpLimit = seconds(3);
constexpr Duration kHeartbeatInterval = seconds(1);
// How much later than it said a unit may ask.
constexpr Duration kHeartbeatSlack = milliseconds(250);
// How long a peer has to acknowledge a reset before this end starts anew without it.
constexpr Duration kResetLimit = milliseconds(200);

}  // namespace

SessionEpoch::SessionEpoch(SessionOptions& options, SessionCounters& counters, SessionEvents& events,
                           RandomSource& random, fabric::FabricLink& link, Time now)
    : context_(options, counters, events, random, link, now) {
  context_.move_to(SessionState::anchor_read);
  if (!control_.open()) {
    context_.fail("no room for the control channel");
    return;
  }
  context_.move_to(SessionState::control_connected);
  if (options.role == wire::Role::host) send_hello();
}

std::size_t SessionEpoch::poll(Time now, std::size_t completions) {
  context_.now = now;
  const std::size_t work = poll_channels(completions);
  poll_timers();
  if (context_.state != SessionState::up) flush();
  return work;
}

std::size_t SessionEpoch::poll_channels(std::size_t completions) {
  const std::size_t received = context_.adapter.receive(context_.now);
  std::size_t work = received;
  work += control_.poll(completions);
  work += frames_.poll(completions);
  // Send first: the frames forwarded above may cause answers, and one doorbell is enough for these and the
  // acknowledgements.
  const std::size_t sent = context_.adapter.send();
  if (received + sent != 0) context_.doorbell.request();  // also for the room that was returned
  if (sent != 0) context_.doorbell.request_at_once();
  return work + sent;
}

void SessionEpoch::poll_timers() {
  const Time now = context_.now;
  if (context_.state < SessionState::up && now - context_.state_since > kSetUpLimit) {
    context_.fail(std::string("the peer stalled in state ") + std::string(to_string(context_.state)));
  }
  advance();
  frames_.return_elements();
  if (context_.state == SessionState::up) {
    if (now >= next_heartbeat_) {
      put_heartbeat_off();
      if (!control_.has_requests()) ask_for_heartbeat();
    }
    frames_.manage_peer_pools();
  }
  if (context_.shutting_down) shut_down();
  if (now >= reset_due_) context_.fail(reset_reason_);
  frames_.push();
  control_.push();
}

void SessionEpoch::ask_for_heartbeat() {
  const bool unit = context_.options.role == wire::Role::io_unit;
  const auto next = unit ? context_.options.heartbeat_interval : milliseconds(0);
  request(wire::Heartbeat{.sequence = ++heartbeat_sequence_, .next = next});
}

/// The unit keeps to its phase, so that one wake-up serves all hosts that have the same.
void SessionEpoch::put_heartbeat_off() {
  if (context_.options.role != wire::Role::io_unit) {
    next_heartbeat_ = context_.now + kHeartbeatInterval;
    return;
  }
  const Duration interval = context_.options.heartbeat_interval;
  next_heartbeat_ = context_.now + interval;
  next_heartbeat_ -= (next_heartbeat_.time_since_epoch() - context_.options.heartbeat_phase) % interval;
}

Time SessionEpoch::next_deadline() const {
  Time deadline = std::min({context_.adapter.next_deadline(), frames_.next_deadline(), context_.doorbell.due(),
                            reset_due_, control_.next_deadline()});
  if (context_.state == SessionState::up) return std::min(deadline, next_heartbeat_);
  return std::min(deadline, context_.state_since + kSetUpLimit);
}

void SessionEpoch::flush() {
  frames_.flush_indications();
  context_.doorbell.ring(context_.now);
}

// ---- requests, resets, the orderly end

bool SessionEpoch::request(const wire::RequestBody& body) {
  return context_.state >= SessionState::negotiated && control_.request(wire::request_of(body), wire::encode(body));
}

void SessionEpoch::reset(std::string_view reason) {
  if (context_.state < SessionState::negotiated) return context_.fail(std::string(reason));
  if (!reset_reason_.empty()) return;
  reset_reason_ = reason;
  reset_due_ = context_.now + kResetLimit;
  request(wire::Reset{1, std::string(reason.substr(0, wire::kMaxTextBytes))});
}

void SessionEpoch::begin_shutdown() {
  context_.shutting_down = true;
  if (context_.state == SessionState::up && !pools_requested_back_) pools_requested_back_ = frames_.flush_own_pools();
}

void SessionEpoch::shut_down() {
  begin_shutdown();
  if (pools_requested_back_ && frames_.own_pools_gone() && !goodbye_sent_) {
    goodbye_sent_ = request(wire::Reset{0, "shutting down"});
  }
}

// ---- what the control session receives

void SessionEpoch::on_message(const wire::Message& message) {
  std::visit(
      [this](const auto& body) {
        if constexpr (requires { frames_.handle(body); }) {
          frames_.handle(body);
        } else {
          context_.fail("BufferRDMAIndicate on the control channel");
        }
      },
      message);
}

Answer SessionEpoch::on_request(const wire::RequestBody& request) {
  if (const auto* hello = std::get_if<wire::HelloRequest>(&request)) return answer_hello(*hello);
  if (const auto* beat = std::get_if<wire::Heartbeat>(&request)) {
    // While the unit asks, the host need not: the unit is not woken for the heartbeats of each host.
    if (context_.options.role == wire::Role::host && context_.state == SessionState::up) {
      next_heartbeat_ = context_.now + std::max<Duration>(beat->next, kHeartbeatInterval) + kHeartbeatSlack;
    }
    return wire::HeartbeatReply{beat->sequence};
  }
  if (const auto* moderation = std::get_if<wire::Moderation>(&request)) {
    context_.doorbell.set_moderation(*moderation);
    return wire::Acknowledged{};
  }
  if (const auto* reset = std::get_if<wire::Reset>(&request)) {
    reset_reason_ = "the peer: " + reset->text;
    reset_due_ = context_.now;  // takes effect after the answer has been sent
    return wire::Acknowledged{};
  }
  if (std::holds_alternative<wire::LinkState>(request) && context_.options.role == wire::Role::io_unit) {
    if (context_.state < SessionState::pools_exchanged) advance();
    if (context_.state < SessionState::pools_exchanged) {
      return tl::unexpected(Refusal{wire::CfgStatus::no_resources, "ready without a pool"});
    }
    peer_ready_ = true;
  }
  return context_.events.on_request(request);
}

void SessionEpoch::on_reply(wire::CfgRequest request, const Answer& answer) {
  switch (request) {
    case wire::CfgRequest::hello:
      if (!answer) {
        context_.not_permitted = answer.error().status == wire::CfgStatus::not_permitted;
        return context_.fail("the I/O unit refused: " + answer.error().text);
      }
      return accept_hello_reply(std::get<wire::HelloReply>(*answer));
    case wire::CfgRequest::reset:
      goodbye_done_ = context_.shutting_down;
      return context_.fail(reset_reason_.empty() ? "reset" : reset_reason_);
    case wire::CfgRequest::link_state:
      if (context_.state != SessionState::pools_exchanged) break;
      if (!answer) return context_.fail("the I/O unit is not ready: " + answer.error().text);
      peer_ready_ = true;
      return advance();
    case wire::CfgRequest::heartbeat:
    case wire::CfgRequest::set_moderation:
      return;
    default:
      break;
  }
  context_.events.on_reply(request, answer);
}

}  // namespace splitnic::messaging
