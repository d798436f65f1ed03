#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/bridge_source.h"
#include "messaging/session.h"

namespace splitnic::host {

/// The source of notices with a text of the unit's (Notices::notice_from): a unit has its own limit of lines in the
/// log, and its text is never the host's status.
inline constexpr std::string_view kUnitsWords = "the unit's words";

/// A driver's session with its bridge. Both end when the bridge goes down; the source provides the next bridge. A
/// driver has no session between the two. Thread: the driver's owner.
class BridgedSession {
 public:
  /// All references must outlive this.
  BridgedSession(fabric::BridgeSource& bridges, RandomSource& random, messaging::SessionEvents& events)
      : bridges_(bridges), random_(random), events_(events) {}

  explicit operator bool() const { return session_ != nullptr; }
  messaging::Session& operator*() const { return *session_; }
  messaging::Session* operator->() const { return session_.get(); }
  /// Null while there is no bridge.
  [[nodiscard]] messaging::Session* get() const { return session_.get(); }
  /// With a session only.
  [[nodiscard]] fabric::Bridge& bridge() const { return *bridge_; }
  [[nodiscard]] bool up() const { return session_ && session_->up(); }

  /// The session is down, and its bridge will not come back: call end().
  [[nodiscard]] bool is_over() const;
  void end();
  /// Takes a bridge from the source, if it has one; then call start(). Only without a session.
  [[nodiscard]] bool take_bridge(Time now);
  void start(const messaging::SessionOptions& options);

  /// Of all sessions so far.
  [[nodiscard]] messaging::SessionTotals totals() const;

  /// As messaging::Session has them, or as it must be without one.
  [[nodiscard]] Time next_deadline() const { return session_ ? session_->next_deadline() : bridges_.next_deadline(); }
  [[nodiscard]] bool prepare_sleep() { return !session_ || session_->prepare_sleep(); }
  void disarm();
  [[nodiscard]] bool peer_waits_for_core() { return session_ && session_->peer_waits_for_core(); }
  void begin_shutdown();
  [[nodiscard]] bool finished() const { return !session_ || session_->finished(); }
  /// Appends the bridge's doorbell; without a bridge, the source's descriptors.
  void collect_descriptors(std::vector<int>& out) const;

 private:
  fabric::BridgeSource& bridges_;
  RandomSource& random_;
  messaging::SessionEvents& events_;
  std::shared_ptr<fabric::Bridge> bridge_;
  std::unique_ptr<messaging::Session> session_;
  messaging::SessionTotals past_;  // of the sessions before session_
};

}  // namespace splitnic::host
