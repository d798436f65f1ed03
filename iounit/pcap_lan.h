#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/os/log.h"
#include "common/os/netlink.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"
#include "iounit/lan_engine.h"

struct pcap;

namespace splitnic::iounit {

struct PcapOptions {
  std::string interface {};
  /// Size of the kernel's capture ring. Where receive offloads are on, each frame takes a slot of 128 KiB, whatever its
  /// length. The slots hold frames while the driver isn't scheduled.
  int ring_bytes = 32 << 20;
};

/// A LAN interface through libpcap: promiscuous, inbound frames only, immediate mode. Frames keep their VLAN tags in
/// place. Carrier is down while the interface is down or has vanished. When the kernel reports it up again, the engine
/// reopens it by name. The driver sleeps on the capture descriptor and on the kernel's link events.
class PcapLan final : public LanEngine {
 public:
  static constexpr Duration kReopenInterval = std::chrono::milliseconds{500};
  static constexpr Duration kCheckInterval = std::chrono::seconds{1};
  /// Minimum interval between two checks for link events. Each check is a system call, and the driver may call poll()
  /// once per batch of frames.
  static constexpr Duration kEventInterval = std::chrono::milliseconds{5};

  /// Opens the interface in the thread's network namespace; the engine later reopens it in the same namespace. An
  /// interface that exists and is down is no error. log: must outlive the engine. Errors: no such interface, no
  /// permission, not Ethernet.
  [[nodiscard]] static Result<std::unique_ptr<PcapLan>> open(const PcapOptions& options, Time now, os::Log& log);
  ~PcapLan() override;

  std::size_t receive(LanSink& sink, std::size_t budget) override;
  bool send(std::span<const std::byte> frame) override;
  void flush() override {}
  void poll(Time now) override;
  [[nodiscard]] Time next_deadline() const override { return next_check_; }
  [[nodiscard]] bool carrier() const override { return capture_ != nullptr && link_.carrier; }
  [[nodiscard]] std::uint32_t mtu() const override { return link_.mtu; }
  [[nodiscard]] const LanCounters& counters() const override { return counters_; }
  void collect_descriptors(std::vector<int>& out) const override;
  [[nodiscard]] std::string name() const override { return options_.interface; }

 private:
  struct Close {
    void operator()(pcap* capture) const;
  };
  struct Link {
    int index = 0;  ///< 0: there is no such interface
    bool up = false;
    bool carrier = false;
    std::uint32_t mtu = 1500;  ///< the last known
  };

  PcapLan(const PcapOptions& options, os::Log& log) : options_(options), log_(log) {}
  [[nodiscard]] std::optional<Error> open_in_this_namespace(Time now);
  [[nodiscard]] Result<void> read_link();
  [[nodiscard]] std::optional<Error> activate();
  void refresh(Time now);
  void close_capture();
  void read_statistics();

  PcapOptions options_;
  os::Log& log_;
  os::UniqueFd namespace_;  ///< where the interface is
  std::optional<os::LinkSocket> links_;
  Link link_;
  std::unique_ptr<pcap, Close> capture_;
  int captured_index_ = 0;
  std::uint32_t kernel_drops_seen_ = 0;  ///< of this capture
  bool absent_ = false;                  ///< the engine has logged its loss, but not its return
  std::string last_refusal_;             ///< of activate(), logged once
  bool check_at_once_ = false;           ///< receive or send met an error
  Time next_check_{};
  Time next_event_check_{};
  LanCounters counters_;
};

}  // namespace splitnic::iounit
