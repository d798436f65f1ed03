#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/notices.h"
#include "common/random.h"
#include "common/reported_once.h"
#include "common/time.h"
#include "fabric/bridge/bridge_source.h"
#include "host/virtual_nic.h"
#include "messaging/loss_report.h"
#include "messaging/session.h"

namespace splitnic::host {

struct HostCounters {
  std::uint64_t rx_refused_by_nic = 0;  ///< frames that the host's stack did not take
  std::uint64_t rx_frames = 0;          ///< frames that it took, and their bytes
  std::uint64_t rx_bytes = 0;
  std::uint64_t tx_waits = 0;  ///< times the NIC was not read because the unit had no element free
};

/// The host module driver: between the host's NIC nic and a push-push session with the I/O unit. Frames of the host
/// are read straight into the unit's elements; frames of the unit go to the host from where they lie. Settings of the
/// host's system travel by CfgUtil; carrier follows the unit's. Reconnects for ever. Thread: one owner; driven by
/// poll(). Source: S1 Fig. 5, host module driver 520.
class HostDriver final : public messaging::SessionEvents {
 public:
  /// All references outlive the driver. options.role is set to host. Throws StartupError for invalid options
  /// (messaging::require_valid).
  HostDriver(messaging::SessionOptions options, VirtualNic& nic, fabric::BridgeSource& bridges, RandomSource& random,
             Notices& notices);
  ~HostDriver() override;
  HostDriver(const HostDriver&) = delete;
  HostDriver& operator=(const HostDriver&) = delete;

  /// Tagged frames of these VLANs alone shall come in (1 .. 4094, strictly ascending). Before the first poll.
  void limit_vlans(std::vector<std::uint16_t> vlans) { vlans_ = std::move(vlans); }

  /// Bounded work; returns how much was done.
  std::size_t poll(Time now);
  [[nodiscard]] Time next_deadline() const;
  /// Arms the peer's doorbell and looks again; false: don't sleep.
  [[nodiscard]] bool prepare_sleep();
  void disarm();
  /// The unit waits for the core that this runs on (FabricLink).
  [[nodiscard]] bool peer_waits_for_core() { return session_ && session_->peer_waits_for_core(); }
  /// Descriptors to sleep on: the NIC's, the bridge's.
  void collect_descriptors(std::vector<int>& out) const;

  /// Orderly end: pools back, goodbye said. Poll until finished() or until the caller's patience ends.
  void begin_shutdown();
  [[nodiscard]] bool finished() const;

  [[nodiscard]] bool up() const { return session_ && session_->up(); }
  [[nodiscard]] bool carrier() const { return carrier_; }
  [[nodiscard]] std::string state() const;
  /// Null while there is no bridge.
  [[nodiscard]] const messaging::Session* session() const { return session_.get(); }
  [[nodiscard]] const std::string& unit_name() const { return unit_name_; }
  [[nodiscard]] const HostCounters& counters() const { return counters_; }
  [[nodiscard]] const NicSettings& settings() const { return settings_; }
  /// The unit's counters for this host, as of its last report (every few seconds while up).
  [[nodiscard]] const messaging::wire::Statistics& unit_statistics() const { return unit_statistics_; }
  /// Asks the unit to let them start from nothing. Without a session nothing happens.
  void clear_unit_statistics();

 private:
  tl::expected<messaging::HelloGrant, messaging::Refusal> on_hello(const messaging::wire::HelloRequest&) override;
  void on_up(const messaging::wire::HelloReply* reply) override;
  void on_down(std::string_view reason) override;
  void on_frame(const messaging::ReceivedFrame& frame) override;
  messaging::Answer on_request(const messaging::wire::RequestBody& request) override;
  void on_reply(messaging::wire::CfgRequest request, const messaging::Answer& answer) override;

  std::size_t poll_bridge(Time now);
  std::size_t push_frames();
  void follow_settings(Time now);
  void send_settings(const NicSettings* before);
  void set_carrier(bool carrier);
  [[nodiscard]] messaging::wire::Statistics statistics() const;
  [[nodiscard]] messaging::Answer report_statistics(bool clear);

  messaging::SessionOptions options_;
  VirtualNic& nic_;
  fabric::BridgeSource& bridges_;
  RandomSource& random_;
  Notices& notices_;
  std::shared_ptr<fabric::Bridge> bridge_;
  std::unique_ptr<messaging::Session> session_;
  std::optional<std::vector<std::uint16_t>> vlans_;
  NicSettings settings_;
  Time now_{};
  Time settings_due_{};
  Time statistics_due_ = kNever;
  messaging::LossReport losses_;  // of frames that the NIC refuses
  bool announced_ = false;        // the session's settings have been sent since it came up
  bool carrier_ = false;
  bool stopping_ = false;
  bool waiting_for_elements_ = false;
  std::string unit_name_;
  ReportedOnce reported_;  // why the session went down, since it was last up
  HostCounters counters_;
  messaging::wire::Statistics unit_statistics_;
  messaging::wire::Statistics cleared_;  // statistics() when the unit last cleared them
  std::optional<Time> cleared_at_;       // the first poll, or when the unit last cleared them
};

}  // namespace splitnic::host
