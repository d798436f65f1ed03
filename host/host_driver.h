#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/moved_frames.h"
#include "common/notices.h"
#include "common/random.h"
#include "common/reported_once.h"
#include "common/time.h"
#include "fabric/bridge/bridge_source.h"
#include "host/bridged_session.h"
#include "host/frame_pump.h"
#include "host/queue_group.h"
#include "host/virtual_nic.h"
#include "messaging/session.h"
#include "messaging/statistics_schedule.h"

namespace splitnic::host {

/// The host module driver. It connects the host's NIC with a push-push session to the I/O unit. It reads the host's
/// frames directly into the unit's elements, and delivers the unit's frames to the host from the memory where they
/// arrived. It sends the settings of the host's system by CfgUtil; its carrier follows the unit's. It reconnects for
/// ever. Thread: one owner, which calls poll(). Source: S1 Fig. 5, host module driver 520.
class HostDriver final : public messaging::SessionEvents {
 public:
  /// All references must outlive the driver. Sets options.role to host. Throws StartupError for invalid options
  /// (messaging::require_valid).
  HostDriver(messaging::SessionOptions options, VirtualNic& nic, fabric::BridgeSource& bridges, RandomSource& random,
             Notices& notices);
  ~HostDriver() override;
  HostDriver(const HostDriver&) = delete;
  HostDriver& operator=(const HostDriver&) = delete;

  /// Limits received tagged frames to these VLANs (1 .. 4094, strictly ascending). Call before the first poll().
  void limit_vlans(std::vector<std::uint16_t> vlans) { vlans_ = std::move(vlans); }
  /// The driver has further queues (QueueDriver), which join its session. Its counters are those of all queues. group:
  /// lent; outlives the driver. Call before the first poll().
  void lead(QueueGroup& group) { group_ = &group; }

  /// Does a bounded amount of work and returns how much.
  std::size_t poll(Time now);
  [[nodiscard]] Time next_deadline() const;
  /// Arms the doorbell, then checks for work again; false: don't sleep.
  [[nodiscard]] bool prepare_sleep() { return session_.prepare_sleep(); }
  void disarm() { session_.disarm(); }
  /// Whether the unit waits for the core that this driver runs on (FabricLink).
  [[nodiscard]] bool peer_waits_for_core() { return session_.peer_waits_for_core(); }
  /// Frames that poll() has moved, both ways.
  [[nodiscard]] const MovedFrames& moved() const { return pump_.moved(); }
  /// Appends the descriptors to sleep on: the NIC's and the bridge's.
  void collect_descriptors(std::vector<int>& out) const;

  /// Starts an orderly end (Session::begin_shutdown). Call poll() until finished(), or until the caller's time limit.
  void begin_shutdown();
  [[nodiscard]] bool finished() const { return session_.finished(); }

  [[nodiscard]] bool up() const { return session_.up(); }
  [[nodiscard]] bool carrier() const { return carrier_; }
  [[nodiscard]] std::string state() const;
  /// Null while there is no bridge.
  [[nodiscard]] const messaging::Session* session() const { return session_.get(); }
  /// Counted over all sessions of this driver.
  [[nodiscard]] messaging::SessionTotals totals() const;
  [[nodiscard]] const std::string& unit_name() const { return unit_name_; }
  [[nodiscard]] HostCounters counters() const;
  /// Queues that carry frames: 0 while the driver is not up.
  [[nodiscard]] std::size_t queues_up() const;
  [[nodiscard]] const NicSettings& settings() const { return settings_; }
  /// The unit's counters for this host, as of its last report (every few seconds while up).
  [[nodiscard]] const messaging::wire::Statistics& unit_statistics() const { return unit_statistics_; }
  /// Asks the unit to clear them. Does nothing without a session.
  void clear_unit_statistics();

 private:
  tl::expected<messaging::HelloGrant, messaging::Refusal> on_hello(const messaging::wire::HelloRequest&) override;
  void on_up(const messaging::wire::HelloReply* reply) override;
  void on_down(std::string_view reason) override;
  void on_frame(const messaging::ReceivedFrame& frame) override;
  messaging::Answer on_request(const messaging::wire::RequestBody& request) override;
  void on_reply(messaging::wire::CfgRequest request, const messaging::Answer& answer) override;

  std::size_t poll_bridge(Time now);
  void admit_queues();
  void follow_settings(Time now);
  void send_settings(const NicSettings* before);
  void ask_for_address_again(Time now);
  void on_address(const messaging::Answer& answer);
  /// Of the NIC. A frame that is longer than this end's own maximum fits none of the session's elements.
  [[nodiscard]] std::uint32_t mtu_within(std::uint32_t of_unit) const { return std::min(of_unit, options_.max_mtu); }
  void set_carrier(bool carrier);
  [[nodiscard]] messaging::wire::Statistics statistics() const;
  [[nodiscard]] messaging::Answer report_statistics(bool clear);

  messaging::SessionOptions options_;
  VirtualNic& nic_;
  Notices& notices_;
  BridgedSession session_;
  std::optional<std::vector<std::uint16_t>> vlans_;
  NicSettings settings_;
  Time now_{};
  Time settings_due_{};
  Time address_due_ = kNever;  // when to ask again for an address that the unit has refused
  messaging::StatisticsSchedule statistics_schedule_;
  FramePump pump_;
  QueueGroup* group_ = nullptr;
  bool announced_ = false;                                // the driver has sent the settings since the session came up
  std::optional<messaging::wire::LinkState> early_link_;  // came before the session was up
  bool carrier_ = false;
  bool stopping_ = false;
  std::string unit_name_;
  ReportedOnce reported_;           // why the session went down, since it was last up
  ReportedOnce refused_addresses_;  // why the unit refused addresses, since it last granted one
  messaging::wire::Statistics unit_statistics_;
  messaging::wire::Statistics cleared_;  // statistics() when the unit last cleared them
  std::optional<Time> cleared_at_;       // the first poll, or when the unit last cleared them
};

}  // namespace splitnic::host
