#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/mac_address.h"
#include "common/os/netlink.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "host/tap_device.h"

namespace splitnic::host {

struct TapOptions {
  std::string name;                    ///< 1 to 15 characters
  std::optional<MacAddress> mac{};     ///< for a TAP that this driver creates now, and for one that somebody else made
  std::optional<std::uint32_t> mtu{};  ///< for a TAP that this driver creates now; layer-3 bytes
  bool offloads = false;               ///< frames with metadata, where the driver and the I/O unit take them
  std::size_t queues = 1;              ///< 1 to kMaxQueues
};

/// Layer-3 bytes: Linux counts the Ethernet header, too, and stops at 65535.
inline constexpr std::uint32_t kMaxTapMtu = 65521;

/// Queues of one virtual NIC. Each but the first needs a descriptor in the privileged process's answer.
inline constexpr std::size_t kMaxQueues = 8;

/// What an interface's driver sees of the network namespace that the interface is in.
struct TapPlace {
  os::UniqueFd network_namespace;
  os::LinkSocket links;
  os::UniqueFd multicast_list;  ///< /proc's; empty if it can't be opened
  std::string note{};           ///< what did not work and is not essential; empty: nothing
};

struct AttachedTap {
  TapDevice device;
  TapPlace place;
  bool made_here = false;            ///< by this driver or a crashed one before it
  bool created = false;              ///< now
  std::vector<TapDevice> further{};  ///< further queues, inactive
};

/// The address in the mark of a TAP ("splitnic NAME ADDRESS"): the unit assigned it, or the kernel drew it, and so the
/// unit may replace it while the interface still has it. alias: the interface's. Nullopt: no such mark, or one without
/// an address.
[[nodiscard]] std::optional<MacAddress> assigned_address(std::string_view alias);

/// What a TapNic needs privileges for. After the start, the driver has none, and a process that kept them does this
/// work (see tap_requests.h). Thread: the owner's.
class TapRights {
 public:
  virtual ~TapRights() = default;
  /// Creates the TAP options.name in the driver's own namespace and marks it, or takes over an existing TAP. Errors: no
  /// tun driver, no permission, another program is attached, the interface of that name is not a TAP, or has one
  /// queue where several are wanted. Such a TAP of this driver's is made again with its address and MTU, if nothing
  /// else is configured on it.
  [[nodiscard]] virtual Result<AttachedTap> attach(const TapOptions& options) = 0;
  /// Where the interface is now. keep_neighbours: whether the interface's settings for neighbours are the driver's.
  /// Errors: the kernel can't report it, no permission.
  [[nodiscard]] virtual Result<TapPlace> find(const TapDevice& device, bool keep_neighbours) = 0;
  [[nodiscard]] virtual Result<void> set_mtu(const TapDevice& device, std::uint32_t mtu) = 0;
  /// Marks a TAP of this driver's anew: the address is one that nobody has chosen for it (assigned_address()). Errors:
  /// the kernel refuses it, no permission.
  [[nodiscard]] virtual Result<void> mark_address(const TapDevice& device, const MacAddress& address) = 0;
};

/// The rights of this process.
class OwnTapRights final : public TapRights {
 public:
  /// The driver's namespace is the one that the thread is in now.
  [[nodiscard]] static Result<OwnTapRights> in_this_namespace();

  [[nodiscard]] Result<AttachedTap> attach(const TapOptions& options) override;
  [[nodiscard]] Result<TapPlace> find(const TapDevice& device, bool keep_neighbours) override;
  [[nodiscard]] Result<void> set_mtu(const TapDevice& device, std::uint32_t mtu) override;
  [[nodiscard]] Result<void> mark_address(const TapDevice& device, const MacAddress& address) override;

 private:
  explicit OwnTapRights(os::UniqueFd home) : home_(std::move(home)) {}

  os::UniqueFd home_;
};

}  // namespace splitnic::host
