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
#include "common/os/event_bell.h"
#include "common/os/log.h"
#include "common/os/netlink.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"
#include "host/tap_device.h"
#include "host/tap_queue.h"
#include "host/tap_rights.h"
#include "host/virtual_nic.h"

namespace splitnic::host {

/// The virtual NIC as a TAP interface. The driver gives a TAP that it creates the alias "splitnic NAME" and makes it
/// persistent, so that addresses and routes survive a crash. The next driver finds that TAP by name, keeps its
/// settings, and removes it at a clean exit. The alias also has the address, unless somebody has chosen that: so the
/// next driver knows that the unit may replace it. A TAP without this alias belongs to somebody else; the driver leaves
/// it in place. An administrator may move the interface to another network namespace, rename it, or delete it (the
/// driver then creates it again) at any time. An interface that the driver made keeps its neighbours (ARP, IPv6) while
/// it has no carrier. The driver reduces an MTU that is larger than set_max_mtu(), and undoes that when it may, unless
/// somebody has set another MTU meanwhile. The driver reads the settings when the kernel reports a link event, when an
/// IGMP or MLD report leaves, and once a second while frames pass, through whatever queue, else every four seconds. It
/// reads the multicast list every 100 ms while frames pass, else every two seconds (a long list: every second, else
/// every ten). A group that is joined without a report, which none of IP is, shows in the list alone. The settings
/// include what interfaces on top of the TAP receive through it: their addresses, and all groups.
class TapNic final : public VirtualNic {
 public:
  /// Interval between two readings of the settings, while frames have passed within kQuietAfter or the last reading
  /// failed, and without. On a machine with hundreds of idle hosts these are most of what they cost.
  static constexpr Duration kCheckInterval = std::chrono::seconds{1};
  static constexpr Duration kQuietCheckInterval = std::chrono::seconds{4};
  /// The same for the multicast list. The first is kCheckInterval if the namespace's list is longer than kLongListBytes
  /// (some 300 groups), so that reading costs less than a thousandth of a core.
  static constexpr Duration kMulticastInterval = std::chrono::milliseconds{100};
  static constexpr Duration kQuietMulticastInterval = std::chrono::seconds{2};
  /// Of a list that is longer than kLongListBytes. Where the interfaces of many quiet hosts are in one namespace, each
  /// of them reads the groups of all.
  static constexpr Duration kQuietLongListInterval = std::chrono::seconds{10};
  static constexpr Duration kQuietAfter = std::chrono::seconds{1};
  static constexpr std::size_t kLongListBytes = 16384;
  /// Minimum interval between two checks for link events. Each check is a system call, and the driver may call
  /// settings() once per batch of frames.
  static constexpr Duration kEventInterval = std::chrono::milliseconds{5};
  /// If the host has joined more groups than this, the NIC requests all multicast.
  static constexpr std::size_t kMostMulticast = 512;

  /// Opens the TAP in the thread's network namespace. log: must outlive the NIC. Errors: an invalid name or address, no
  /// tun driver, no permission, another program is attached, the interface of that name is not a TAP.
  [[nodiscard]] static Result<std::unique_ptr<TapNic>> open(const TapOptions& options, Time now, os::Log& log);
  /// From now on these rights do what the driver may need privileges for. They work in the namespace of open().
  void use(std::unique_ptr<TapRights> rights) { rights_ = std::move(rights); }
  ~TapNic() override;
  TapNic(const TapNic&) = delete;
  TapNic& operator=(const TapNic&) = delete;

  std::size_t read_frame(std::span<std::byte> to) override;
  std::size_t read_unfinished(const messaging::FrameMemory& to, std::size_t max_complete_bytes,
                              frame::FrameOffload& offload) override;
  [[nodiscard]] NicOffloads offloads() const override { return offloads_; }
  void set_offloads(const NicOffloads& permitted) override;
  bool write_frame(const messaging::ReceivedFrame& frame) override;
  void set_carrier(bool carrier) override;
  void set_max_mtu(std::uint32_t max_mtu) override;
  void set_mac(const MacAddress& mac) override;
  [[nodiscard]] MacAddress preferred_mac() const override;
  const NicSettings& settings(Time now) override;
  [[nodiscard]] Time next_deadline() const override { return std::min(next_check_, next_multicast_check_); }
  /// The descriptors may change in settings(), when the interface was moved or created again.
  void collect_descriptors(std::vector<int>& out) const override;

  /// The further queues, options.queues - 1 of them, each for a thread of its own that must end before the NIC.
  [[nodiscard]] const std::vector<std::unique_ptr<TapQueue>>& further_queues() const { return queues_; }

  /// Makes the destructor leave the interface in place, even one that this driver made, as a crash would.
  void keep() { keep_ = true; }
  /// Whether this driver, or a crashed one before it, made the interface.
  [[nodiscard]] bool made_here() const { return made_here_; }
  /// Outgoing frames that the driver dropped because they were longer than the memory for them.
  [[nodiscard]] std::uint64_t oversized() const { return oversized_ + (device_ ? device_->oversized() : 0); }
  /// Outgoing frames that the driver dropped because they were unfinished when the offloads had been switched off.
  [[nodiscard]] std::uint64_t unfinished() const { return unfinished_ + (device_ ? device_->unfinished() : 0); }
  /// The interface's name now.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  TapNic(const TapOptions& options, os::Log& log);
  [[nodiscard]] std::optional<Error> attach();
  /// with_long_list: the multicast list is read even if it is long.
  void refresh(Time now, bool with_long_list);
  [[nodiscard]] Result<os::LinkInfo> query();
  bool follow_namespace();
  void take_place(TapPlace place);
  void follow_mark();
  void mark_mac();
  void make_again();
  void note_frames(Time now);
  void read_unicast(const os::LinkInfo& link);
  void read_multicast(Time now);
  [[nodiscard]] Duration multicast_interval() const { return list_is_long_ ? kCheckInterval : kMulticastInterval; }
  [[nodiscard]] Duration quiet_multicast_interval() const {
    return list_is_long_ ? kQuietLongListInterval : kQuietMulticastInterval;
  }
  void follow_max_mtu(const os::LinkInfo& link);
  [[nodiscard]] std::uint32_t least_mtu(const os::LinkInfo& link);
  [[nodiscard]] bool set_mtu(std::uint32_t mtu);

  TapOptions options_;
  os::Log& log_;
  std::string name_;
  std::unique_ptr<TapRights> rights_;
  os::UniqueFd where_;                 ///< the interface's present network namespace; empty: not known
  std::optional<TapDevice> device_;    ///< empty while a deleted interface can't be made again
  std::optional<os::EventBell> bell_;  ///< which the further queues ring; empty without any
  std::vector<std::unique_ptr<TapQueue>> queues_;
  os::UniqueFd steering_;                ///< see load_tap_steering(); empty: the kernel steers
  std::optional<os::LinkSocket> links_;  ///< of where_
  os::UniqueFd multicast_list_;          ///< /proc's, of where_
  NicSettings settings_;
  MacAddress our_mac_;  ///< the last one that this driver set, or found at creation; any other is the administrator's
  bool mac_is_ours_ = false;
  std::optional<MacAddress> marked_mac_;  ///< in the interface's mark (assigned_address())
  int index_ = 0;                         ///< the interface's index at the last check
  bool all_multicast_ = false;            ///< the interface's flag at the last check
  std::optional<std::uint32_t> max_mtu_;
  /// The MTU that the interface had before the driver reduced it, and to what the driver set it last.
  struct ReducedMtu {
    std::uint32_t wanted;
    std::uint32_t set;
  };
  std::optional<ReducedMtu> reduced_mtu_;
  bool carrier_ = false;
  bool made_here_ = false;
  bool keep_ = false;
  bool check_at_once_ = true;
  bool frames_passed_ = false;  ///< through the first queue, since the last look
  bool list_is_long_ = false;
  NicOffloads offloads_;   ///< of the first device: the kernel's
  NicOffloads permitted_;  ///< by the last set_offloads()
  std::uint64_t oversized_ = 0;
  std::uint64_t unfinished_ = 0;
  Time next_check_{};
  Time next_multicast_check_{};
  Time next_event_check_{};
  Time multicast_read_{};
  Time quiet_at_{};  ///< if no more frames pass
};

}  // namespace splitnic::host
