#include "fabric/bridge/shm_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace splitnic::fabric {

namespace {

constexpr Duration kRetryInterval = std::chrono::milliseconds(100);
/// While the unit's rules refuse the attempts (ShmConnector::refused_by_rule).
constexpr Duration kRefusedInterval = std::chrono::seconds(2);
/// A socket that has just appeared does not listen yet.
constexpr Duration kFirstRetry = std::chrono::milliseconds(1);

std::unique_ptr<Doorman> started(std::unique_ptr<ShmListener> listener) {
  auto doorman = DoormanThread::start(std::move(listener));
  if (!doorman) throw StartupError{doorman.error().message};
  return std::move(*doorman);
}

}  // namespace

ShmConnectSource::ShmConnectSource(ShmConnectOptions options, Notices& notices)
    : options_(std::move(options)), notices_(notices), watch_(options_.path), next_wait_(kRetryInterval) {}

void ShmConnectSource::failed(const std::string& why, Duration longest, Time now) {
  attempt_.reset();
  const Duration wait = std::min(next_wait_, longest);
  try_at_ = now + wait;
  next_wait_ = std::min(2 * wait, longest);
  if (reported_.first_time(why)) notices_.notice(fmt::format("{}; trying again", why));
}

void ShmConnectSource::belong_to(std::uint64_t cookie) {
  if (options_.purpose != ShmPurpose::further_queue || options_.cookie == cookie) return;
  options_.cookie = cookie;
  attempt_.reset();
  try_at_ = Time{};
  next_wait_ = kRetryInterval;
}

std::shared_ptr<Bridge> ShmConnectSource::poll(Time now) {
  if (idle()) return nullptr;
  if (!attempt_) {
    // Watch, then look: what appears after the look is an event.
    if (watch_.changed()) {
      try_at_ = now;
      next_wait_ = kFirstRetry;
    }
    if (now < try_at_) return nullptr;
    auto started = ShmConnector::start(options_, now);
    if (!started) {
      failed(started.error().message, kRetryInterval, now);
      return nullptr;
    }
    attempt_ = std::move(*started);
  }
  auto outcome = attempt_->poll(now);
  if (!outcome) return nullptr;
  if (!*outcome) {
    failed(outcome->error().message, attempt_->refused_by_rule() ? kRefusedInterval : kRetryInterval, now);
    return nullptr;
  }
  attempt_.reset();
  watch_.pause();
  try_at_ = now + kRetryInterval;
  next_wait_ = kRetryInterval;
  reported_.clear();
  return std::move(**outcome);
}

Time ShmConnectSource::next_deadline() const {
  if (idle()) return kNever;
  return attempt_ ? attempt_->next_deadline() : try_at_;
}

void ShmConnectSource::collect_descriptors(std::vector<int>& out) const {
  if (idle()) return;
  if (attempt_) return out.push_back(attempt_->descriptor());
  if (watch_.descriptor() >= 0) out.push_back(watch_.descriptor());
}

ShmListenSource::ShmListenSource(std::unique_ptr<Doorman> doorman, Notices& notices)
    : doorman_(std::move(doorman)), notices_(notices) {}

ShmListenSource::ShmListenSource(std::unique_ptr<ShmListener> listener, Notices& notices)
    : ShmListenSource(started(std::move(listener)), notices) {}

std::shared_ptr<Bridge> ShmListenSource::poll(Time /*now*/) {
  if (!doorman_->has_news()) return nullptr;
  report();
  if (auto ready = doorman_->take()) return std::move(ready->bridge);
  return nullptr;
}

/// Reports why connections were refused. The doorman limits how often. Each cause is a source of notices of its own, so
/// that one of them, which anybody can bring about, hides no other.
void ShmListenSource::report() {
  const auto [now, last_error] = doorman_->report();
  const auto report_cause = [&](std::string_view cause, std::uint64_t ShmListenerCounters::*counter,
                                const std::string& line) {
    if (now.*counter != reported_.*counter) notices_.recurring_notice_from(cause, line);
  };
  report_cause("connections refused credentials", &ShmListenerCounters::refused_credentials,
               "a connection was refused: its user may not connect (see --allow-uid, --allow-gid)");
  report_cause("connections refused version", &ShmListenerCounters::refused_version,
               "a connection was refused: it has another version of the shm set-up");
  report_cause("connections refused sizes", &ShmListenerCounters::refused_sizes,
               "a connection was refused: it asked for memory sizes that are not allowed (see --window-bytes)");
  report_cause("connections refused purpose", &ShmListenerCounters::refused_purpose,
               "a connection was refused: it wanted something that is not served here");
  report_cause("connections refused session", &ShmListenerCounters::refused_session,
               "a connection was refused: it is no part of a session of its user");
  report_cause("connections refused places", &ShmListenerCounters::refused_places,
               "a host was turned away: all places are taken (see --max-hosts)");
  report_cause(
      "connections refused user limit", &ShmListenerCounters::refused_user_limit,
      "a host was turned away: its user has as much as one user may (see --hosts-per-user, --memory-per-user)");
  report_cause("connections refused resources", &ShmListenerCounters::refused_resources,
               "a connection was refused: " + last_error);
  report_cause("connections closed garbage", &ShmListenerCounters::closed_garbage,
               "a connection was closed: it sent something other than a hello");
  report_cause("connections closed descriptors", &ShmListenerCounters::closed_descriptors,
               "a connection was closed: it sent descriptors");
  report_cause("connections setup delayed", &ShmListenerCounters::setup_delayed,
               "a host waits to be set up: those of its user come and go too often (see --setups-per-minute)");
  reported_ = now;
}

void ShmListenSource::collect_descriptors(std::vector<int>& out) const { out.push_back(doorman_->descriptor()); }

}  // namespace splitnic::fabric
