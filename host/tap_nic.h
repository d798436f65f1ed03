#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/mac_address.h"
#include "common/os/log.h"
#include "common/os/netlink.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"
#include "host/tap_device.h"
#include "host/virtual_nic.h"

namespace splitnic::host {

struct TapOptions {
  std::string name;                    ///< 1 to 15 characters
  std::optional<MacAddress> mac{};     ///< for a TAP that is made now, and for one that somebody else made
  std::optional<std::uint32_t> mtu{};  ///< for a TAP that is made now; layer-3 bytes
};

/// The virtual NIC as a TAP interface. One that this driver makes carries the alias "splitnic NAME" and persists, so
/// that addresses and routes outlive a crash; the next driver finds it by name, takes it as it is, and removes it when
/// it ends cleanly. A TAP without the mark belongs to somebody else and is left behind. The interface may be moved to
/// another network namespace, renamed, or deleted (then it is made again) while served. One that this driver made
/// keeps its neighbours (ARP, IPv6) while it has no carrier.
/// The driver reads the settings when the kernel reports a link event, when an IGMP or MLD report leaves, and once a
/// second. It reads the multicast list every 100 ms, because the kernel reports no change of it.
class TapNic final : public VirtualNic {
 public:
  static constexpr Duration kCheckInterval = std::chrono::seconds{1};
  /// Between two readings of the multicast list; kCheckInterval where the namespace's list is longer than
  /// kLongListBytes (some 300 groups), so that reading costs less than a thousandth of a core.
  static constexpr Duration kMulticastInterval = std::chrono::milliseconds{100};
  static constexpr std::size_t kLongListBytes = 16384;
  /// Between two looks for link events, each a system call: settings() may be called per batch of frames.
  static constexpr Duration kEventInterval = std::chrono::milliseconds{5};
  /// With more groups joined the NIC asks for all multicast.
  static constexpr std::size_t kMostMulticast = 512;

  /// In the thread's network namespace. log: outlives the nic. Errors: an unusable name or address, no tun driver, no
  /// permission, another program attached, an interface of that name that is no TAP.
  [[nodiscard]] static Result<std::unique_ptr<TapNic>> open(const TapOptions& options, Time now, os::Log& log);
  ~TapNic() override;
  TapNic(const TapNic&) = delete;
  TapNic& operator=(const TapNic&) = delete;

  std::size_t read_frame(std::span<std::byte> to) override;
  bool write_frame(const messaging::ReceivedFrame& frame) override;
  void set_carrier(bool carrier) override;
  void set_max_mtu(std::uint32_t max_mtu) override;
  void set_mac(const MacAddress& mac) override;
  [[nodiscard]] MacAddress preferred_mac() const override;
  const NicSettings& settings(Time now) override;
  [[nodiscard]] Time next_deadline() const override { return std::min(next_check_, next_multicast_check_); }
  /// May change after settings(): the interface was moved or made again.
  void collect_descriptors(std::vector<int>& out) const override;

  /// Leave the interface behind at destruction, whoever made it: as after a crash.
  void keep() { keep_ = true; }
  /// Whether this driver, or a crashed one before it, made the interface.
  [[nodiscard]] bool made_here() const { return made_here_; }
  /// Outgoing frames dropped because they were longer than the room for them.
  [[nodiscard]] std::uint64_t oversized() const { return oversized_ + (device_ ? device_->oversized() : 0); }
  /// The interface's name now.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  TapNic(const TapOptions& options, os::Log& log) : options_(options), log_(log), name_(options.name) {}
  [[nodiscard]] std::optional<Error> attach();
  [[nodiscard]] std::optional<Error> mark_and_dress();
  void look(Time now);
  bool follow_namespace();
  void make_again();
  void read_multicast(Time now);
  void keep_neighbours();
  void set_mtu_back(const os::LinkInfo& link);

  TapOptions options_;
  os::Log& log_;
  std::string name_;
  os::UniqueFd home_;                    ///< the network namespace of open()
  os::UniqueFd where_;                   ///< the one that the interface is in now
  std::optional<TapDevice> device_;      ///< empty while a deleted interface can't be made again
  std::optional<os::LinkSocket> links_;  ///< of where_
  os::UniqueFd multicast_list_;          ///< /proc's, of where_
  NicSettings settings_;
  MacAddress our_mac_;  ///< the last one set or met at the making: another one is the administrator's
  bool mac_is_ours_ = false;
  int index_ = 0;               ///< the interface's, as of the last look
  bool all_multicast_ = false;  ///< its flag, as of the last look
  std::optional<std::uint32_t> max_mtu_;
  bool carrier_ = false;
  bool made_here_ = false;
  bool keep_ = false;
  bool check_at_once_ = true;
  std::uint64_t oversized_ = 0;
  Time next_check_{};
  Time next_multicast_check_{};
  Time next_event_check_{};
};

}  // namespace splitnic::host
