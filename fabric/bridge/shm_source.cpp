#include "fabric/bridge/shm_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace splitnic::fabric {

namespace {

constexpr Duration kRetryInterval = std::chrono::milliseconds(100);
// The interval of polling the sockets while frames keep the loop from sleeping on them.
constexpr Duration kCheckInterval = std::chrono::milliseconds(5);

}  // namespace

ShmConnectSource::ShmConnectSource(ShmConnectOptions options, Notices& notices)
    : options_(std::move(options)), notices_(notices) {}

void ShmConnectSource::failed(const std::string& why, Time now) {
  attempt_.reset();
  try_at_ = now + kRetryInterval;
  if (reported_.first_time(why)) notices_.notice(fmt::format("{}; trying again", why));
}

std::shared_ptr<Bridge> ShmConnectSource::poll(Time now) {
  if (!attempt_) {
    if (now < try_at_) return nullptr;
    auto started = ShmConnector::start(options_, now);
    if (!started) {
      failed(started.error().message, now);
      return nullptr;
    }
    attempt_ = std::move(*started);
  }
  auto outcome = attempt_->poll(now);
  if (!outcome) return nullptr;
  if (!*outcome) {
    failed(outcome->error().message, now);
    return nullptr;
  }
  attempt_.reset();
  try_at_ = now + kRetryInterval;
  reported_.clear();
  return std::move(**outcome);
}

Time ShmConnectSource::next_deadline() const { return attempt_ ? attempt_->next_deadline() : try_at_; }

void ShmConnectSource::collect_descriptors(std::vector<int>& out) const {
  if (attempt_) out.push_back(attempt_->descriptor());
}

ShmListenSource::ShmListenSource(std::unique_ptr<ShmListener> listener, Notices& notices)
    : listener_(std::move(listener)), notices_(notices) {}

std::shared_ptr<Bridge> ShmListenSource::poll(Time now) {
  if (auto waiting = listener_->take()) return std::move(waiting->bridge);
  if (now < next_check_) return nullptr;
  next_check_ = now + kCheckInterval;
  listener_->poll(now);
  const auto& counters = listener_->counters();
  if (counters.refused_credentials != std::exchange(reported_.refused_credentials, counters.refused_credentials)) {
    notices_.recurring_notice("a connection was refused: its user may not connect (see --allow-uid, --allow-gid)");
  }
  if (counters.refused_version != std::exchange(reported_.refused_version, counters.refused_version)) {
    notices_.recurring_notice("a connection was refused: it has another version of the shm set-up");
  }
  if (counters.refused_sizes != std::exchange(reported_.refused_sizes, counters.refused_sizes)) {
    notices_.recurring_notice("a connection was refused: it asked for memory sizes that are not allowed");
  }
  if (counters.refused_resources != std::exchange(reported_.refused_resources, counters.refused_resources)) {
    notices_.recurring_notice(fmt::format("a connection was refused: {}", listener_->last_error()));
  }
  if (counters.closed_garbage != std::exchange(reported_.closed_garbage, counters.closed_garbage)) {
    notices_.recurring_notice("a connection was closed: it sent something other than a hello");
  }
  if (auto ready = listener_->take()) return std::move(ready->bridge);
  return nullptr;
}

Time ShmListenSource::next_deadline() const { return listener_->next_deadline(); }

void ShmListenSource::collect_descriptors(std::vector<int>& out) const { out.push_back(listener_->descriptor()); }

}  // namespace splitnic::fabric
