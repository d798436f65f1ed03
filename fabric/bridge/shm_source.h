#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/notices.h"
#include "common/reported_once.h"
#include "common/time.h"
#include "fabric/bridge/bridge_source.h"
#include "fabric/bridge/shm_connector.h"
#include "fabric/bridge/shm_listener.h"

namespace splitnic::fabric {

/// The host's bridges: connects to an I/O unit's socket, and always tries again. Each reason for a failure is reported
/// once until an attempt succeeds. Thread: the driver's owner.
class ShmConnectSource final : public BridgeSource {
 public:
  /// notices: gets the reasons why there is no bridge. Lent; outlives the source.
  ShmConnectSource(ShmConnectOptions options, Notices& notices);
  std::shared_ptr<Bridge> poll(Time now) override;
  [[nodiscard]] Time next_deadline() const override;
  void collect_descriptors(std::vector<int>& out) const override;

 private:
  void failed(const std::string& why, Time now);

  ShmConnectOptions options_;
  Notices& notices_;
  std::unique_ptr<ShmConnector> attempt_;
  Time try_at_{};
  ReportedOnce reported_;
};

/// The I/O unit's bridges: one for each host that connects. Thread: the driver's owner.
class ShmListenSource final : public BridgeSource {
 public:
  /// notices: gets a recurring notice for each refused connection, with the reason. Lent; outlives the source.
  ShmListenSource(std::unique_ptr<ShmListener> listener, Notices& notices);
  std::shared_ptr<Bridge> poll(Time now) override;
  [[nodiscard]] Time next_deadline() const override;
  void collect_descriptors(std::vector<int>& out) const override;
  [[nodiscard]] const ShmListenerCounters& counters() const { return listener_->counters(); }

 private:
  std::unique_ptr<ShmListener> listener_;
  Notices& notices_;
  Time next_check_{};
  ShmListenerCounters reported_;
};

}  // namespace splitnic::fabric
