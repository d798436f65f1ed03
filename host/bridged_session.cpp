#include "host/bridged_session.h"

namespace splitnic::host {

bool BridgedSession::is_over() const {
  return session_ && session_->state() == messaging::SessionState::down && bridge_->link() == fabric::LinkState::down;
}

void BridgedSession::end() {
  past_ += session_->totals();
  session_.reset();
  bridge_.reset();
}

bool BridgedSession::take_bridge(Time now) {
  bridge_ = bridges_.poll(now);
  return bridge_ != nullptr;
}

void BridgedSession::start(const messaging::SessionOptions& options) {
  session_ = std::make_unique<messaging::Session>(options, *bridge_, random_, events_);
}

messaging::SessionTotals BridgedSession::totals() const {
  auto sum = past_;
  if (session_) sum += session_->totals();
  return sum;
}

void BridgedSession::disarm() {
  if (session_) session_->disarm();
}

void BridgedSession::begin_shutdown() {
  if (session_) session_->begin_shutdown();
}

void BridgedSession::collect_descriptors(std::vector<int>& out) const {
  if (!bridge_) return bridges_.collect_descriptors(out);
  if (bridge_->doorbell_descriptor() >= 0) out.push_back(bridge_->doorbell_descriptor());
}

}  // namespace splitnic::host
