#include "messaging/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/check.h"
#include "common/result.h"

namespace splitnic::messaging {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Pause after a fault: long enough that a hostile peer can't keep this end busy, short enough to seem immediate.
constexpr Duration kPauseAfterFault = milliseconds(100);
// Maximum time from the anchor to up. Every step is one round trip; the session gives up on a peer that stalls.
constexpr Duration kSetUpLimit = seconds(3);
constexpr Duration kHeartbeatInterval = seconds(1);
// How long a peer has to acknowledge a reset before this end starts anew without it.
constexpr Duration kResetLimit = milliseconds(200);
constexpr std::size_t kCompletionsPerPoll = 128;

constexpr fabric::QpNumber kControlQueuePair{1};

}  // namespace

void Session::Receiver::on_message(std::span<const std::byte> message) {
  if (!session_.fault_.empty()) return;
  session_.last_heard_ = session_.now_;
  if (data_) {
    session_.on_data_message(message);
  } else {
    session_.on_control_message(message);
  }
}

void Session::Receiver::on_immediate(std::uint32_t immediate) {
  if (!session_.fault_.empty()) return;
  session_.last_heard_ = session_.now_;
  if (!data_ || session_.mode_ != wire::Mode::rdma)
    return session_.fault("an RDMA write with immediate data outside the data channel or mode R");
  ++session_.counters_.writes_with_immediate_received;
  session_.indicated(wire::decode_immediate(immediate), true);
}

void Session::Receiver::on_channel_failure(fabric::CompletionStatus status) {
  session_.fault(std::string(data_ ? "data" : "control") + " channel failed: " + fabric::to_string(status));
}

Session::Session(const SessionOptions& options, fabric::Bridge& bridge, RandomSource& random, SessionEvents& events)
    : options_(options),
      next_max_mtu_(options.max_mtu),
      random_(random),
      events_(events),
      link_(bridge, options.link, random) {
  require_valid(options_);
}

Session::~Session() = default;

void require_valid(const SessionOptions& options) {
  if (options.name.empty()) throw StartupError{"SessionOptions::name is empty: a session needs one"};
  if (!wire::is_valid_name(options.name)) {
    throw StartupError{
        fmt::format("SessionOptions::name is not valid: it must be 1 to {} bytes of UTF-8 without '/' "
                    "and control characters, and has {}",
                    wire::kMaxNameBytes, options.name.size())};
  }
  if (options.pool_elements == 0) throw StartupError{"SessionOptions::pool_elements is 0: it must be at least 1"};
}

void Session::move_to(SessionState next) {
  CHECK(session_move(state_, next).legal);
  state_ = next;
  state_since_ = now_;
}

void Session::fault(std::string reason) {
  if (fault_.empty()) fault_ = std::move(reason);
}

void Session::release(std::string_view reason) {
  const bool had_peer = state_ > SessionState::bridge_up;
  control_.reset();
  control_unacknowledged_.reset();
  data_.reset();
  if (adapter_) past_counters_ += adapter_->counters();
  adapter_.reset();
  for (auto& slot : own_pools_) slot = OwnSlot{};
  next_pool_number_ = 0;
  peer_pools_.clear();
  highest_peer_pool_.reset();
  peer_pool_in_use_ = 0;
  exhausted_ = advertise_wanted_ = false;
  extra_pool_writes_ = 0;
  returns_due_ = kNever;
  requests_.clear();
  flushes_.clear();
  flushes_to_answer_.clear();
  waiting_answer_.reset();
  limits_ = {};
  indications_.clear();
  claimed_ = {};
  tx_path_ = TxPath::none;
  peer_moderation_ = {};
  ring_wanted_ = ring_at_once_ = false;
  ring_due_ = reset_due_ = kNever;
  reset_reason_.clear();
  mode_ = wire::Mode::rdma;
  max_frame_bytes_ = 0;
  peer_ready_ = own_ready_sent_ = flush_requested_ = goodbye_sent_ = false;
  if (state_ != SessionState::down) move_to(SessionState::down);
  if (had_peer) events_.on_down(reason);
}

std::unique_ptr<Channel> Session::open_channel(fabric::QpNumber number, bool acknowledged, fabric::VirtualLane lane,
                                               std::size_t writes) {
  // Before the hello, this end's own terms limit what the peer may send.
  return Channel::open(
      *adapter_, domain_,
      {.number = number,
       .acknowledged = acknowledged,
       .lane = lane,
       .send_buffers = writes > 0 ? std::size_t{64} : std::size_t{32},
       .receive_buffers = own_terms().receive_depth * (writes > 0 ? 4U : 1U),
       .message_bytes = lane == fabric::VirtualLane::data ? data_message_bytes() : own_terms().max_message_bytes,
       .writes = writes});
}

void Session::start_epoch() {
  options_.max_mtu = next_max_mtu_;
  incarnation_ = link_.incarnation();
  adapter_ = std::make_unique<fabric::ChannelAdapter>(
      link_, fabric::AdapterOptions{.max_message_bytes = wire::kMaxMessageBytes}, random_);
  domain_ = adapter_->allocate_domain();
  last_heard_ = now_;
  move_to(SessionState::anchor_read);
  if (!open_control()) return fault("no room for the control channel");
  move_to(SessionState::control_connected);
  if (options_.role == wire::Role::host) send_hello();
}

bool Session::open_control() {
  control_ = open_channel(kControlQueuePair, true, fabric::VirtualLane::control, 0);
  return control_ && control_->connect({.number = kControlQueuePair}) == fabric::Status::ok;
}

std::size_t Session::poll(Time now) {
  now_ = now;
  if (restart_wanted_ && now >= restart_at_) {
    link_.restart();
    restart_wanted_ = false;
  }
  if (restart_wanted_) return 0;
  std::size_t work = link_.poll(now);
  if (link_.phase() == fabric::LinkPhase::faulty) fault(std::string("link: ") + link_.fault());
  if (state_ > SessionState::bridge_up && (!link_.up() || link_.incarnation() != incarnation_)) {
    release(link_.phase() == fabric::LinkPhase::down ? "the bridge is down" : "the peer has restarted");
    ++work;
  }
  if (state_ == SessionState::bridge_up && link_.phase() == fabric::LinkPhase::down) move_to(SessionState::down);
  if (state_ == SessionState::down && link_.phase() != fabric::LinkPhase::down && fault_.empty()) {
    move_to(SessionState::bridge_up);
  }
  if (state_ == SessionState::bridge_up && link_.up()) {
    start_epoch();
    ++work;
  }
  if (state_ > SessionState::anchor_read && fault_.empty()) {
    work += poll_channels();
    poll_timers();
    if (state_ != SessionState::up) flush();
  }
  if (!fault_.empty()) {
    ++counters_.faults;
    const std::string reason = std::exchange(fault_, std::string());
    release(reason);
    restart_wanted_ = true;
    restart_at_ = now + kPauseAfterFault;
  }
  return work;
}

bool Session::prepare_sleep() {
  // In the pause after a fault nothing is received. A record of the ended epoch may wait in the link, which would
  // refuse every sleep because of it, and would arm and disarm all the time.
  return restart_wanted_ || link_.prepare_sleep();
}

void Session::disarm() {
  if (restart_wanted_) static_cast<void>(link_.bridge().take_doorbells());
  link_.disarm();
}

std::size_t Session::poll_channels() {
  const std::size_t received = adapter_->receive(now_);
  std::size_t work = received;
  work += control_->poll(control_receiver_, kCompletionsPerPoll);
  if (control_unacknowledged_) work += control_unacknowledged_->poll(control_receiver_, kCompletionsPerPoll);
  if (data_) work += data_->poll(data_receiver_, kCompletionsPerPoll);
  // Send first: the frames forwarded above may cause answers, and one doorbell is enough for these and the
  // acknowledgements.
  const std::size_t sent = adapter_->send();
  if (received + sent != 0) ring_wanted_ = true;  // also for the room that was returned
  if (sent != 0) ring_at_once_ = true;
  return work + sent;
}

void Session::poll_timers() {
  if (state_ < SessionState::up && now_ - state_since_ > kSetUpLimit) {
    fault(std::string("the peer stalled in state ") + std::string(to_string(state_)));
  }
  advance();
  return_elements(now_ >= returns_due_);
  if (state_ == SessionState::up) {
    if (now_ >= next_heartbeat_) {
      next_heartbeat_ = now_ + kHeartbeatInterval;
      if (requests_.empty()) request(wire::Heartbeat{++heartbeat_sequence_});
    }
    ask_for_pool();
    drop_idle_peer_pools();
  }
  if (shutting_down_ && state_ == SessionState::up && !flush_requested_) begin_shutdown();
  const bool pools_gone =
      std::none_of(own_pools_.begin(), own_pools_.end(), [](const OwnSlot& s) { return s.pool.has_value(); });
  if (shutting_down_ && flush_requested_ && pools_gone && !goodbye_sent_) {
    goodbye_sent_ = request(wire::Reset{0, "shutting down"});
  }
  if (now_ >= reset_due_) fault(reset_reason_);
  if (advertise_wanted_) advertise_pools();
  answer_flushes();
  push_answer();
  push_requests();
}

Time Session::next_deadline() const {
  if (restart_wanted_) return restart_at_;
  const bool outstanding = adapter_ && adapter_->outstanding();
  Time deadline = link_.next_deadline(now_, outstanding || state_ != SessionState::up);
  if (!adapter_) return deadline;
  deadline = std::min({deadline, adapter_->next_deadline(), returns_due_, ring_due_, reset_due_});
  if (state_ == SessionState::up) deadline = std::min(deadline, next_heartbeat_);
  if (state_ < SessionState::up) deadline = std::min(deadline, state_since_ + kSetUpLimit);
  if (!requests_.empty()) deadline = std::min(deadline, requests_.front().deadline);
  return deadline;
}

void Session::reset(std::string_view reason) {
  if (state_ < SessionState::negotiated) return fault(std::string(reason));
  if (!reset_reason_.empty()) return;
  reset_reason_ = reason;
  reset_due_ = now_ + kResetLimit;
  request(wire::Reset{1, std::string(reason.substr(0, wire::kMaxTextBytes))});
}

void Session::begin_shutdown() {
  shutting_down_ = true;
  if (state_ != SessionState::up || flush_requested_) return;
  flush_requested_ = flush_own_pools();
}

bool Session::finished() const { return state_ != SessionState::up || goodbye_done_; }

fabric::AdapterCounters Session::adapter_counters() const {
  auto sum = past_counters_;
  if (adapter_) sum += adapter_->counters();
  return sum;
}

SessionTotals Session::totals() const {
  return {.session = counters_, .adapter = adapter_counters(), .doorbells_left_out = doorbells_left_out()};
}

void Session::ring() {
  if (!ring_wanted_) return;
  const auto& wish = peer_moderation_;
  const bool moderated = !ring_at_once_ && wish.time.count() > 0 && now_ < ring_due_ &&
                         (wish.entries == 0 || unrung_entries_ < wish.entries) &&
                         (wish.bytes == 0 || unrung_bytes_ < wish.bytes);
  if (moderated) {
    if (ring_due_ == kNever) ring_due_ = now_ + wish.time;
    return;
  }
  link_.notify();
  ring_wanted_ = ring_at_once_ = false;
  unrung_entries_ = unrung_bytes_ = 0;
  ring_due_ = kNever;
}

void Session::flush() {
  if (!adapter_) return;
  flush_indications();
  ring();
}

}  // namespace splitnic::messaging
