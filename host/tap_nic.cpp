#include "host/tap_nic.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/frame/multicast.h"
#include "common/os/dev_mcast.h"
#include "common/os/errno_text.h"
#include "common/os/netns.h"

namespace splitnic::host {
namespace {

constexpr std::string_view kMark = "splitnic ";

/// Opens the multicast lists of the thread's namespace. The descriptor keeps showing that namespace's lists.
os::UniqueFd open_multicast_list() { return os::UniqueFd(::open(os::kThreadDevMcast, O_RDONLY | O_CLOEXEC)); }

/// Switches off a setting of the thread's namespace. False: errno has the reason.
bool switch_off(const std::string& path) {
  const os::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), "0", 1) == 1;
}

}  // namespace

Result<std::unique_ptr<TapNic>> TapNic::open(const TapOptions& options, Time now, os::Log& log) {
  if (auto usable = os::check_interface_name(options.name); !usable) return tl::unexpected(usable.error());
  if (options.mac && (options.mac->is_multicast() || options.mac->is_zero())) {
    return fail("{} can't be the address of an interface", to_string(*options.mac));
  }
  std::unique_ptr<TapNic> nic(new TapNic(options, log));
  auto home = os::open_current_netns();
  if (!home) return tl::unexpected(home.error());
  nic->home_ = *std::move(home);
  if (auto error = nic->attach()) return tl::unexpected(*std::move(error));
  nic->refresh(now);
  return nic;
}

TapNic::~TapNic() {
  if (!device_ || keep_ || !made_here_) return;
  if (!device_->set_persistent(false)) log_.warning("TAP {} can't be removed", name_);
}

/// Creates the interface options_.name in the thread's namespace, or takes over an existing one.
std::optional<Error> TapNic::attach() {
  auto links = os::LinkSocket::open();
  if (!links) return links.error();
  links_ = *std::move(links);
  multicast_list_ = open_multicast_list();
  const Result<os::LinkInfo> before = links_->query(options_.name);
  if (before && before->kind != "tun") {
    return Error{fmt::format("the interface {} exists and is not a TAP", options_.name)};
  }
  auto device = TapDevice::attach(options_.name);
  if (!device) return device.error();
  device_ = *std::move(device);
  name_ = options_.name;
  where_ = device_->network_namespace();
  made_here_ = !before || before->alias.starts_with(kMark);
  if (!before) return mark_and_dress();
  if (!made_here_ && options_.mac && !device_->set_mac(*options_.mac)) {
    return Error{fmt::format("the TAP {} refuses the address {}", name_, to_string(*options_.mac))};
  }
  log_.info("TAP {} taken over{}", name_, made_here_ ? " from a driver that ended without removing it" : "");
  return std::nullopt;
}

/// The kernel deletes a new interface with its descriptor until the last step, so a driver that dies here leaves no
/// unmarked interface.
std::optional<Error> TapNic::mark_and_dress() {
  const Result<os::LinkInfo> made = links_->query(name_);
  if (!made) return made.error();
  if (options_.mac && !device_->set_mac(*options_.mac)) {
    return Error{fmt::format("the TAP {} refuses the address {}", name_, to_string(*options_.mac))};
  }
  if (options_.mtu) {
    if (const auto set = links_->set_mtu(*made, *options_.mtu); !set) return set.error();
  }
  if (const auto set = links_->set_alias(*made, std::string(kMark) + name_); !set) return set.error();
  if (!device_->set_persistent(true)) return Error{fmt::format("the TAP {} can't be made persistent", name_)};
  keep_neighbours();
  mac_is_ours_ = !options_.mac;
  our_mac_ = device_->mac();
  log_.info("created TAP {}", name_);
  return std::nullopt;
}

/// The carrier goes down whenever a driver or an I/O unit ends, and most often the same LAN is back a moment later. By
/// default Linux then deletes the neighbours. The ARP requests of that moment are lost, so the host would wait a whole
/// second for the second request. Neighbour unreachability detection finds stale addresses. The thread is in the
/// interface's namespace.
void TapNic::keep_neighbours() {
  const std::string name = device_->name();
  for (const char* setting : {"ipv4/conf/{}/arp_evict_nocarrier", "ipv6/conf/{}/ndisc_evict_nocarrier"}) {
    if (switch_off("/proc/sys/net/" + fmt::format(fmt::runtime(setting), name)) || errno == ENOENT) continue;
    log_.info("TAP {} forgets its neighbours when it loses its carrier: {}", name, os::errno_text());
    return;
  }
}

std::size_t TapNic::read_frame(std::span<std::byte> to) {
  if (!device_) return 0;
  const std::size_t bytes = device_->read_frame(to);
  const std::span<const std::byte> head = device_->head();
  const bool to_group = bytes != 0 && (std::to_integer<unsigned>(head.front()) & 1U) != 0;
  if (to_group && frame::is_membership_report(head)) check_at_once_ = true;
  return bytes;
}

bool TapNic::write_frame(const messaging::ReceivedFrame& frame) { return device_ && device_->write_frame(frame); }

void TapNic::set_carrier(bool carrier) {
  if (carrier == carrier_) return;
  carrier_ = carrier;
  if (device_) device_->set_carrier(carrier);
}

void TapNic::set_max_mtu(std::uint32_t max_mtu) {
  max_mtu_ = max_mtu;
  check_at_once_ = true;
}

MacAddress TapNic::preferred_mac() const {
  if (!device_) return settings_.mac;
  const MacAddress current = device_->mac();
  return mac_is_ours_ && current == our_mac_ ? MacAddress{} : current;
}

void TapNic::set_mac(const MacAddress& mac) {
  if (!device_ || !mac_is_ours_ || device_->mac() != our_mac_) return;
  if (!device_->set_mac(mac)) {
    log_.warning("TAP {} refuses the address {} of the I/O unit", name_, to_string(mac));
    return;
  }
  our_mac_ = mac;
  check_at_once_ = true;
}

const NicSettings& TapNic::settings(Time now) {
  if (!check_at_once_ && now < next_event_check_) return settings_;
  next_event_check_ = now + kEventInterval;
  const bool event = links_ && links_->poll_events([](const os::LinkEvent&) {}) != 0;
  if (event || check_at_once_ || now >= next_check_) {
    refresh(now);
  } else if (now >= next_multicast_check_) {
    read_multicast(now);
  }
  return settings_;
}

void TapNic::refresh(Time now) {
  check_at_once_ = false;
  next_check_ = next_multicast_check_ = now + kCheckInterval;
  if (!device_ || device_->name().empty()) make_again();
  if (!device_ || !follow_namespace()) return;
  name_ = device_->name();
  const Result<os::LinkInfo> link = links_->query(name_);
  if (!link) return;  // moved just now: the next check follows it
  settings_.mac = link->mac;
  settings_.mtu = link->mtu;
  settings_.up = link->up;
  settings_.promiscuous = link->promiscuous;
  if (max_mtu_ && settings_.mtu > *max_mtu_) set_mtu_back(*link);
  index_ = link->index;
  all_multicast_ = link->all_multicast;
  read_multicast(now);
}

/// Checks the interface in its present namespace. False: the check is not possible.
bool TapNic::follow_namespace() {
  os::UniqueFd now_in = device_->network_namespace();
  if (!now_in || os::same_netns(now_in.get(), where_.get())) return true;
  const auto inside = os::ScopedNetns::enter(now_in.get());
  if (!inside) return false;
  auto links = os::LinkSocket::open();
  os::UniqueFd multicast = open_multicast_list();
  if (!links || !multicast) return false;
  links_ = *std::move(links);
  multicast_list_ = std::move(multicast);
  where_ = std::move(now_in);
  if (made_here_) keep_neighbours();  // the new namespace has given the interface its own defaults
  log_.info("TAP {} was moved to another network namespace", device_->name());
  return true;
}

/// Handles that the interface was deleted, or that a new one could not be created yet.
void TapNic::make_again() {
  const bool first_try = device_.has_value();
  if (first_try) {
    oversized_ += device_->oversized();
    device_.reset();
    log_.warning("TAP {} was deleted; creating it again", name_);
  }
  const auto inside = os::ScopedNetns::enter(home_.get());
  const MacAddress address = settings_.mac;
  options_.mac = address;
  options_.mtu = settings_.mtu;
  if (const auto error = attach()) {
    device_.reset();
    if (first_try) log_.warning("{}", error->message);
    return;
  }
  device_->set_carrier(carrier_);
}

void TapNic::set_mtu_back(const os::LinkInfo& link) {
  if (!links_->set_mtu(link, *max_mtu_)) {
    log_.warning("TAP {} has an MTU of {}, more than the I/O unit's {}, and it can't be set back", name_, settings_.mtu,
                 *max_mtu_);
    return;
  }
  log_.warning("TAP {} has an MTU of {}, more than the I/O unit's: set back to {}", name_, settings_.mtu, *max_mtu_);
  settings_.mtu = *max_mtu_;
}

void TapNic::read_multicast(Time now) {
  // Through the descriptor, because the path would mean the thread's present namespace.
  const auto text = os::read_dev_mcast(fmt::format("/proc/thread-self/fd/{}", multicast_list_.get()));
  const bool cheap = text && text->size() <= kLongListBytes;
  next_multicast_check_ = now + (cheap ? kMulticastInterval : kCheckInterval);
  settings_.multicast.clear();
  if (text) settings_.multicast = os::parse_dev_mcast(*text, index_);
  const bool too_many = settings_.multicast.size() > kMostMulticast;
  if (too_many) settings_.multicast.clear();
  settings_.all_multicast = !text || too_many || all_multicast_;
}

void TapNic::collect_descriptors(std::vector<int>& out) const {
  if (device_) out.push_back(device_->descriptor());
  if (links_) out.push_back(links_->descriptor());
}

}  // namespace splitnic::host
