#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/notices.h"
#include "common/os/path_watch.h"
#include "common/reported_once.h"
#include "common/time.h"
#include "fabric/bridge/bridge_source.h"
#include "fabric/bridge/doorman.h"
#include "fabric/bridge/shm_connector.h"
#include "fabric/bridge/shm_listener.h"

namespace splitnic::fabric {

/// The host's bridges: connects to an I/O unit's socket, and always tries again: as soon as a socket appears, and now
/// and then, less and less often while the unit's rules refuse it. Each reason for a failure is reported once until an
/// attempt succeeds. Thread: the driver's owner.
class ShmConnectSource final : public BridgeSource {
 public:
  /// notices: gets the reasons why there is no bridge. Lent; outlives the source.
  ShmConnectSource(ShmConnectOptions options, Notices& notices);
  std::shared_ptr<Bridge> poll(Time now) override;
  void belong_to(std::uint64_t cookie) override;
  [[nodiscard]] Time next_deadline() const override;
  void collect_descriptors(std::vector<int>& out) const override;

 private:
  /// A further queue without a session has nowhere to connect to.
  [[nodiscard]] bool idle() const { return options_.purpose == ShmPurpose::further_queue && options_.cookie == 0; }
  /// longest: the longest pause before the next attempt.
  void failed(const std::string& why, Duration longest, Time now);

  ShmConnectOptions options_;
  Notices& notices_;
  std::unique_ptr<ShmConnector> attempt_;
  os::PathWatch watch_;  // paused while there is a bridge
  Time try_at_{};
  Duration next_wait_;
  ReportedOnce reported_;
};

/// The I/O unit's bridges: one for each host that connects. A doorman sets them up. Thread: the driver's owner.
class ShmListenSource final : public BridgeSource {
 public:
  /// notices: gets a recurring notice for refused connections, with the reason. Lent; outlives the source.
  ShmListenSource(std::unique_ptr<Doorman> doorman, Notices& notices);
  /// The listener gets a DoormanThread. Throws StartupError if there are no threads or descriptors left.
  ShmListenSource(std::unique_ptr<ShmListener> listener, Notices& notices);
  std::shared_ptr<Bridge> poll(Time now) override;
  [[nodiscard]] Time next_deadline() const override { return kNever; }
  void collect_descriptors(std::vector<int>& out) const override;
  [[nodiscard]] ShmListenerCounters counters() const { return doorman_->report().counters; }

 private:
  void report();

  std::unique_ptr<Doorman> doorman_;
  Notices& notices_;
  ShmListenerCounters reported_;
};

}  // namespace splitnic::fabric
