#include "messaging/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "common/check.h"
#include "common/result.h"

namespace splitnic::messaging {

namespace {

// Pause after a fault: long enough that a hostile peer can't keep this end busy, short enough to seem immediate.
constexpr Duration kPauseAfterFault = std::chrono::milliseconds(100);
/// While the unit's rules do not permit the session, each pause is twice as long as the last one, up to this. It is
/// shorter than the time that a unit gives a set-up (kSetUpLimit), and somebody who has changed the rules may wait.
constexpr Duration kLongestPause = std::chrono::seconds(2);

}  // namespace

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

Session::Session(const SessionOptions& options, fabric::Bridge& bridge, RandomSource& random, SessionEvents& events)
    : options_(options),
      next_max_mtu_(options.max_mtu),
      random_(random),
      events_(events),
      link_(bridge, options.link, random) {
  require_valid(options_);
}

Session::~Session() = default;

// ---- epochs

void Session::start_epoch() {
  SPLITNIC_CHECK(session_move(state_, SessionState::anchor_read).legal);
  options_.max_mtu = next_max_mtu_;
  incarnation_ = link_.incarnation();
  try {
    epoch_ = std::make_unique<SessionEpoch>(options_, counters_, events_, random_, link_, now_);
  } catch (const std::bad_alloc&) {
    return fault("no memory for the session's buffers");
  }
  if (shutting_down_) epoch_->begin_shutdown();
}

void Session::end_epoch(std::string_view reason) {
  state_ = SessionState::down;
  if (!epoch_) return;
  past_counters_ += epoch_->adapter_counters();
  goodbye_done_ = goodbye_done_ || epoch_->goodbye_done();
  epoch_.reset();
  events_.on_down(reason);
}

void Session::fault(std::string reason) {
  if (epoch_) return epoch_->fail(std::move(reason));
  if (fault_.empty()) fault_ = std::move(reason);
}

std::size_t Session::poll(Time now, std::size_t completions) {
  now_ = now;
  if (restart_wanted_ && now >= restart_at_) {
    link_.restart();
    restart_wanted_ = false;
  }
  if (restart_wanted_) return 0;
  std::size_t work = poll_link();
  if (epoch_ && epoch_->fault().empty()) work += epoch_->poll(now, completions);
  const std::string reason = epoch_ ? epoch_->fault() : std::exchange(fault_, std::string());
  if (!reason.empty()) {
    link_.notify();  // the peer may sleep until its reset is answered
    ++counters_.faults;
    const bool not_permitted = epoch_ && epoch_->not_permitted();
    pause_ = not_permitted ? std::clamp(2 * pause_, kPauseAfterFault, kLongestPause) : kPauseAfterFault;
    end_epoch(reason);
    restart_wanted_ = true;
    restart_at_ = now + pause_;
  }
  return work;
}

/// Follows the link: down, bridge up, and an epoch while it is up.
std::size_t Session::poll_link() {
  std::size_t work = link_.poll(now_);
  if (link_.phase() == fabric::LinkPhase::faulty) {
    fault(std::string("link: ") + link_.fault());
    return work;
  }
  if (epoch_ && (!link_.up() || link_.incarnation() != incarnation_)) {
    const std::string reason = epoch_->fault();
    end_epoch(link_.phase() == fabric::LinkPhase::down ? "the bridge is down" : "the peer has restarted");
    fault_ = reason;
    ++work;
  }
  if (epoch_) return work;
  if (link_.phase() == fabric::LinkPhase::down) {
    state_ = SessionState::down;
  } else if (fault_.empty()) {
    state_ = SessionState::bridge_up;
  }
  if (state_ == SessionState::bridge_up && link_.up()) {
    start_epoch();
    ++work;
  }
  return work;
}

bool Session::prepare_sleep() {
  // In the pause after a fault nothing is received. A record of the ended epoch may wait in the link, which would
  // refuse every sleep because of it, and would arm and disarm all the time.
  return restart_wanted_ || prepare_link();
}

bool Session::prepare_link() {
  link_.set_patient(epoch_ && epoch_->patient());
  const bool armed = link_.prepare_sleep();
  if (epoch_) epoch_->note_announced();
  return armed;
}

void Session::resume(Time now) {
  now_ = now;
  link_.resume(now);
  if (epoch_) epoch_->note_time(now);
}

bool Session::leave_armed() {
  if (restart_wanted_ || shutting_down_ || !prepare_link()) return false;
  if (link_.armed_until_deadline()) return true;
  link_.disarm();
  return false;
}

void Session::disarm() {
  if (restart_wanted_) static_cast<void>(link_.bridge().take_doorbells());
  link_.disarm();
}

Time Session::next_deadline() const {
  if (restart_wanted_) return restart_at_;
  const Time deadline = link_.next_deadline(now_, !up() || epoch_->outstanding());
  return epoch_ ? std::min(deadline, epoch_->next_deadline()) : deadline;
}

// ---- frames and requests

FrameMemory Session::claim(std::uint32_t bytes) { return epoch_ ? epoch_->frames().claim(bytes) : FrameMemory(); }

void Session::commit(std::uint32_t bytes, const frame::FrameOffload& offload) {
  if (epoch_) epoch_->frames().commit(bytes, offload);
}

void Session::flush() {
  if (epoch_) epoch_->flush();
}

Credits Session::credits() const { return epoch_ ? epoch_->frames().credits() : Credits{}; }

bool Session::request(const wire::RequestBody& body) { return epoch_ && epoch_->request(body); }

void Session::reset(std::string_view reason) {
  if (!epoch_) return fault(std::string(reason));
  epoch_->reset(reason);
}

void Session::begin_shutdown() {
  shutting_down_ = true;
  if (epoch_) epoch_->begin_shutdown();
}

bool Session::finished() const { return !up() || goodbye_done_ || epoch_->goodbye_done(); }

// ---- counters

fabric::AdapterCounters Session::adapter_counters() const {
  auto sum = past_counters_;
  if (epoch_) sum += epoch_->adapter_counters();
  return sum;
}

SessionTotals Session::totals() const {
  return {.session = counters_, .adapter = adapter_counters(), .doorbells_left_out = doorbells_left_out()};
}

}  // namespace splitnic::messaging
