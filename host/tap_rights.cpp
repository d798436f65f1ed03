#include "host/tap_rights.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "common/os/dev_mcast.h"
#include "common/os/errno_text.h"
#include "common/os/netns.h"

namespace splitnic::host {
namespace {

constexpr std::string_view kMark = "splitnic ";

std::string mark_of(const std::string& name) { return std::string(kMark) + name; }
std::string mark_of(const std::string& name, const MacAddress& assigned) {
  return fmt::format("{} {}", mark_of(name), to_string(assigned));
}

/// The multicast lists of the thread's namespace. The descriptor keeps showing that namespace's lists.
os::UniqueFd open_multicast_list() { return os::UniqueFd(::open(os::kThreadDevMcast, O_RDONLY | O_CLOEXEC)); }

/// Switches off a setting of the thread's namespace. False: errno has the reason.
bool switch_off(const std::string& path) {
  const os::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), "0", 1) == 1;
}

/// The carrier goes down whenever a driver or an I/O unit ends, and most often the same LAN is back a moment later. By
/// default Linux then deletes the neighbours. The ARP requests of that moment are lost, so the host would wait a whole
/// second for the second request. Neighbour unreachability detection finds stale addresses. The thread is in the
/// interface's namespace. Returns what did not work.
std::string keep_neighbours_of(const std::string& name) {
  for (const char* setting : {"ipv4/conf/{}/arp_evict_nocarrier", "ipv6/conf/{}/ndisc_evict_nocarrier"}) {
    if (switch_off("/proc/sys/net/" + fmt::format(fmt::runtime(setting), name)) || errno == ENOENT) continue;
    return fmt::format("TAP {} forgets its neighbours when it loses its carrier: {}", name, os::errno_text());
  }
  return {};
}

/// The kernel deletes a new interface with its descriptor until the last step, so a driver that dies here leaves no
/// unmarked interface. alias_before: of the interface that this one replaces; empty: none.
Result<void> mark_and_dress(const TapOptions& options, const std::string& alias_before, AttachedTap& tap) {
  os::LinkSocket& links = tap.place.links;
  const auto link = links.query(options.name);
  if (!link) return tl::unexpected(link.error());
  if (options.mac && !tap.device.set_mac(*options.mac)) {
    return fail("the TAP {} refuses the address {}", options.name, to_string(*options.mac));
  }
  if (options.mtu) {
    if (auto set = links.set_mtu(*link, *options.mtu); !set) return set;
  }
  const std::string alias = options.mac ? mark_of(options.name) : mark_of(options.name, tap.device.mac());
  if (auto set = links.set_alias(*link, alias_before.empty() ? alias : alias_before); !set) return set;
  if (!tap.device.set_persistent(true)) return fail("the TAP {} can't be made persistent", options.name);
  tap.place.note = keep_neighbours_of(options.name);
  return {};
}

/// Removes a TAP with one queue, where several are wanted and nothing is configured on it.
Result<void> remove_unconfigured(os::LinkSocket& links, const os::LinkInfo& link, const TapOptions& options) {
  if (!link.alias.starts_with(kMark)) {
    return fail(
        "the TAP {0} has one queue, and splitnic did not make it: make it with ip tuntap add dev {0} mode tap "
        "multi_queue, or leave out --queues",
        link.name);
  }
  const auto configuration = links.configuration_of(link);
  if (!configuration) return fail("what is configured on the TAP {}: {}", link.name, configuration.error().message);
  if (!configuration->empty()) {
    return fail(
        "the TAP {0} of an earlier driver has one queue, and {1}: to make it again with {2} queues would lose that. "
        "Remove it (ip link delete {0}), or leave out --queues",
        link.name, *configuration, options.queues);
  }
  auto device = TapDevice::attach(link.name, {.unfinished = options.offloads});
  if (!device) return tl::unexpected(device.error());
  if (!device->set_persistent(false)) return fail("the TAP {} can't be removed", link.name);
  return {};  // it goes with its last descriptor
}

/// The further queues of a TAP whose first one is attached.
Result<void> attach_queues(const TapOptions& options, const TapDevice::Kind& kind, AttachedTap& tap) {
  while (tap.further.size() + 1 < options.queues) {
    auto queue = TapDevice::attach_queue(options.name, kind);
    if (!queue) return tl::unexpected(queue.error());
    tap.further.push_back(*std::move(queue));
  }
  if (!kind.multi_queue) return {};
  // The kernel lets several programs attach to a multi-queue TAP at the same time.
  const auto link = tap.place.links.query(options.name);
  if (link && link->tun && link->tun->queues != options.queues) {
    return tl::unexpected(busy_tap(options.name));
  }
  return {};
}

}  // namespace

std::optional<MacAddress> assigned_address(std::string_view alias) {
  if (!alias.starts_with(kMark)) return std::nullopt;
  const std::size_t name_ends = alias.find(' ', kMark.size());
  if (name_ends == std::string_view::npos) return std::nullopt;
  return parse_mac(alias.substr(name_ends + 1));
}

Result<OwnTapRights> OwnTapRights::in_this_namespace() {
  return os::open_current_netns().map([](os::UniqueFd home) { return OwnTapRights(std::move(home)); });
}

Result<AttachedTap> OwnTapRights::attach(const TapOptions& wanted) {
  TapOptions options = wanted;
  const auto inside = os::ScopedNetns::enter(home_.get());
  if (!inside) return tl::unexpected(inside.error());
  auto links = os::LinkSocket::open();
  if (!links) return tl::unexpected(links.error());
  const auto before = links->query(options.name);
  if (before && before->kind != "tun") return fail("the interface {} exists and is not a TAP", options.name);
  const bool made_here = !before || before->alias.starts_with(kMark);
  const bool one_queue = before && before->tun && !before->tun->multi_queue;
  const bool replaced = one_queue && options.queues > 1;
  if (replaced) {
    if (auto gone = remove_unconfigured(*links, *before, options); !gone) return tl::unexpected(gone.error());
    options.mac = before->mac;
    options.mtu = before->mtu;
  }
  // A multi-queue TAP also serves a driver with one queue. Nobody but its driver may be attached to it.
  const bool multi_queue = options.queues > 1 || (before && before->tun && before->tun->multi_queue);
  if (multi_queue && !replaced && before && before->tun && before->tun->queues != 0) {
    return tl::unexpected(busy_tap(options.name));
  }
  const TapDevice::Kind kind{.unfinished = options.offloads, .multi_queue = multi_queue};
  auto device = TapDevice::attach(options.name, kind);
  if (!device) return tl::unexpected(device.error());
  auto here = os::open_current_netns();
  if (!here) return tl::unexpected(here.error());
  TapPlace place{*std::move(here), *std::move(links), open_multicast_list()};
  AttachedTap tap{*std::move(device), std::move(place), made_here, !before};
  if (auto all = attach_queues(options, kind, tap); !all) return tl::unexpected(all.error());
  if (!before || replaced) {
    if (auto dressed = mark_and_dress(options, replaced ? before->alias : std::string(), tap); !dressed)
      return tl::unexpected(dressed.error());
  } else if (!made_here && options.mac && !tap.device.set_mac(*options.mac)) {
    return fail("the TAP {} refuses the address {}", options.name, to_string(*options.mac));
  }
  return tap;
}

Result<TapPlace> OwnTapRights::find(const TapDevice& device, bool keep_neighbours) {
  os::UniqueFd now_in = device.network_namespace();
  if (!now_in) return fail("the TAP's network namespace is not known: {}", os::errno_text());
  const auto inside = os::ScopedNetns::enter(now_in.get());
  if (!inside) return tl::unexpected(inside.error());
  auto links = os::LinkSocket::open();
  if (!links) return tl::unexpected(links.error());
  TapPlace place{std::move(now_in), *std::move(links), open_multicast_list()};
  if (keep_neighbours) place.note = keep_neighbours_of(device.name());
  return place;
}

Result<void> OwnTapRights::set_mtu(const TapDevice& device, std::uint32_t mtu) {
  auto place = find(device, false);
  if (!place) return tl::unexpected(place.error());
  const auto link = place->links.query(device.name());
  if (!link) return tl::unexpected(link.error());
  return place->links.set_mtu(*link, mtu);
}

Result<void> OwnTapRights::mark_address(const TapDevice& device, const MacAddress& address) {
  auto place = find(device, false);
  if (!place) return tl::unexpected(place.error());
  const auto link = place->links.query(device.name());
  if (!link) return tl::unexpected(link.error());
  if (!link->alias.starts_with(kMark)) return fail("the TAP {} is not splitnic's", link->name);
  // The interface may have another name now; the mark keeps the one that the driver gave it.
  const std::size_t name_ends = link->alias.find(' ', kMark.size());
  const std::string name = link->alias.substr(kMark.size(), name_ends - kMark.size());
  return place->links.set_alias(*link, mark_of(name, address));
}

}  // namespace splitnic::host
