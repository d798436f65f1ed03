#include "host/tap_nic.h"

#include <string_view>
#include <utility>

#include "common/frame/multicast.h"
#include "common/os/dev_mcast.h"
#include "common/os/netns.h"
#include "host/tap_steering.h"

namespace splitnic::host {
namespace {

// The unit can cause them at will.
constexpr std::string_view kMtuLines = "MTU";
/// The smallest MTU with which an interface keeps its IPv6 addresses (RFC 8200).
constexpr std::uint32_t kLeastIpv6Mtu = 1280;

}  // namespace

TapNic::TapNic(const TapOptions& options, os::Log& log) : options_(options), log_(log), name_(options.name) {
  if (options_.queues > 1) bell_.emplace();
  while (queues_.size() + 1 < options_.queues) queues_.push_back(std::make_unique<TapQueue>(*bell_));
}

Result<std::unique_ptr<TapNic>> TapNic::open(const TapOptions& options, Time now, os::Log& log) {
  if (auto usable = os::check_interface_name(options.name); !usable) return tl::unexpected(usable.error());
  if (options.mac && (options.mac->is_multicast() || options.mac->is_zero())) {
    return fail("{} can't be the address of an interface", to_string(*options.mac));
  }
  std::unique_ptr<TapNic> nic(new TapNic(options, log));
  auto rights = OwnTapRights::in_this_namespace();
  if (!rights) return tl::unexpected(rights.error());
  nic->use(std::make_unique<OwnTapRights>(*std::move(rights)));
  if (options.queues > 1) {
    auto steering = load_tap_steering();
    if (steering) {
      nic->steering_ = *std::move(steering);
    } else {
      log.info("{}; the kernel chooses queues itself, and frames may overtake others of their flow when it moves one",
               steering.error().message);
    }
  }
  if (auto error = nic->attach()) return tl::unexpected(*std::move(error));
  nic->offloads_ = nic->device_->offloads();
  nic->refresh(now, true);
  return nic;
}

TapNic::~TapNic() {
  if (!device_ || keep_) return;
  if (!made_here_) {
    // The next program may not ask for headers, and could not finish frames.
    device_->set_offloads({});
  } else if (!device_->set_persistent(false)) {
    log_.warning("TAP {} can't be removed", name_);
  }
}

/// Creates the interface options_.name, or takes over an existing one.
std::optional<Error> TapNic::attach() {
  auto tap = rights_->attach(options_);
  if (!tap) return tap.error();
  device_ = std::move(tap->device);
  made_here_ = tap->made_here;
  device_->set_offloads(permitted_);
  if (steering_ && !device_->steer(steering_.get())) log_.warning("TAP {}: the kernel steers frames itself", name_);
  for (std::size_t at = 0; at < queues_.size(); ++at) queues_[at]->replace(std::move(tap->further[at]));
  name_ = options_.name;
  if (tap->created) {
    mac_is_ours_ = !options_.mac;
    our_mac_ = device_->mac();
    log_.info("created TAP {}", name_);
  } else {
    log_.info("TAP {} taken over{}", name_, made_here_ ? " from a driver that ended without removing it" : "");
  }
  take_place(std::move(tap->place));
  marked_mac_.reset();
  if (made_here_) follow_mark();
  return std::nullopt;
}

/// The driver before this one may have left an address that nobody has chosen: the unit may replace it, unless the
/// interface has another one now.
void TapNic::follow_mark() {
  const auto link = links_->query(name_);
  if (!link) return;
  marked_mac_ = assigned_address(link->alias);
  if (options_.mac || !marked_mac_) return;
  mac_is_ours_ = true;
  our_mac_ = *marked_mac_;
}

/// Without the mark a driver that takes over the TAP after a crash would keep the address for an administrator's.
void TapNic::mark_mac() {
  if (!made_here_ || marked_mac_ == our_mac_) return;
  marked_mac_ = our_mac_;
  if (const auto marked = rights_->mark_address(*device_, our_mac_); !marked) log_.info("{}", marked.error().message);
}

void TapNic::take_place(TapPlace place) {
  if (!place.note.empty()) log_.info("{}", place.note);
  links_ = std::move(place.links);
  multicast_list_ = std::move(place.multicast_list);
  where_ = std::move(place.network_namespace);
}

std::size_t TapNic::read_frame(std::span<std::byte> to) {
  frame::FrameOffload none;
  return read_unfinished({to}, to.size(), none);
}

std::size_t TapNic::read_unfinished(const messaging::FrameMemory& to, std::size_t max_complete_bytes,
                                    frame::FrameOffload& offload) {
  if (!device_) return 0;
  const std::size_t bytes = device_->read_frame(to, max_complete_bytes, offload);
  frames_passed_ = frames_passed_ || bytes != 0;
  const std::span<const std::byte> head = device_->head();
  const bool to_group = bytes != 0 && (std::to_integer<unsigned>(head.front()) & 1U) != 0;
  if (to_group && frame::is_membership_report(head)) check_at_once_ = true;
  return bytes;
}

bool TapNic::write_frame(const messaging::ReceivedFrame& frame) {
  frames_passed_ = true;
  return device_ && device_->write_frame(frame);
}

void TapNic::set_offloads(const NicOffloads& permitted) {
  permitted_ = permitted;
  if (device_) device_->set_offloads(permitted);
}

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
  mark_mac();
}

const NicSettings& TapNic::settings(Time now) {
  const bool called = bell_ && bell_->heard();
  if (!called && !check_at_once_ && now < std::min(next_event_check_, next_deadline())) return settings_;
  next_event_check_ = now + kEventInterval;
  note_frames(now);
  bool event = false;
  if (links_) {
    links_->poll_events([&](const os::LinkEvent& change) { event = event || change.concerns(index_, name_); });
  }
  if (event || check_at_once_ || now >= next_check_) {
    refresh(now, event || check_at_once_);
  } else if (now >= next_multicast_check_) {
    read_multicast(now);
  }
  return settings_;
}

/// A NIC that was quiet reads both as often as a busy one again.
void TapNic::note_frames(Time now) {
  bool passed = std::exchange(frames_passed_, false);
  for (const auto& queue : queues_) {
    // A busy NIC looks every 100 ms. A quiet one sleeps longer, and wants to be called.
    passed = queue->take_passed(now >= quiet_at_) || passed;
    check_at_once_ = queue->take_report() || check_at_once_;
  }
  if (!passed) return;
  quiet_at_ = now + kQuietAfter;
  next_check_ = std::min(next_check_, now + kCheckInterval);
  next_multicast_check_ = std::min(next_multicast_check_, multicast_read_ + multicast_interval());
}

void TapNic::refresh(Time now, bool with_long_list) {
  check_at_once_ = false;
  const Time list_due = next_multicast_check_;
  next_check_ = next_multicast_check_ = now + kCheckInterval;  // unless all goes well
  if (!device_ || device_->name().empty()) make_again();
  if (!device_) return;
  name_ = device_->name();
  Result<os::LinkInfo> link = query();
  if (!link) {
    if (!follow_namespace()) return;
    link = query();
  }
  if (!link) return;  // moved just now: the next check follows it
  settings_.mac = link->mac;
  settings_.mtu = link->mtu;
  settings_.up = link->up;
  settings_.promiscuous = link->promiscuous;
  if (max_mtu_) follow_max_mtu(*link);
  index_ = link->index;
  all_multicast_ = link->all_multicast;
  if (now >= quiet_at_) next_check_ = now + kQuietCheckInterval;
  read_unicast(*link);
  if (list_is_long_ && !with_long_list && now < list_due) {
    next_multicast_check_ = list_due;
  } else {
    read_multicast(now);
  }
}

/// A port of a bridge is promiscuous, and its list has every station behind the bridge.
void TapNic::read_unicast(const os::LinkInfo& link) {
  if (link.master && link.promiscuous) {
    settings_.unicast.clear();
    return;
  }
  if (auto further = links_->further_addresses(link)) settings_.unicast = *std::move(further);
}

/// Another interface may have got the name in the namespace that ours has left.
Result<os::LinkInfo> TapNic::query() {
  auto link = links_->query(name_);
  if (link && (link->kind != "tun" || link->mac != device_->mac())) return fail("{} is another interface", name_);
  return link;
}

/// Looks for the interface in its present namespace. False: the check is not possible.
bool TapNic::follow_namespace() {
  // A new namespace has given the interface its own defaults for neighbours.
  auto place = rights_->find(*device_, made_here_);
  if (!place || !place->multicast_list) return false;
  const bool moved = !where_ || !os::same_netns(place->network_namespace.get(), where_.get());
  take_place(*std::move(place));
  if (moved) log_.info("TAP {} was moved to another network namespace", device_->name());
  return true;
}

/// Handles that the interface was deleted, or that a new one could not be created yet.
void TapNic::make_again() {
  const bool first_try = device_.has_value();
  if (first_try) {
    oversized_ += device_->oversized();
    unfinished_ += device_->unfinished();
    device_.reset();
    for (auto& queue : queues_) queue->replace(std::nullopt);
    log_.warning("TAP {} was deleted; creating it again", name_);
  }
  const MacAddress address = settings_.mac;
  const bool was_ours = mac_is_ours_ && address == our_mac_;
  options_.mac = address;
  options_.mtu = settings_.mtu;
  if (const auto error = attach()) {
    device_.reset();
    if (first_try) log_.warning("{}", error->message);
    return;
  }
  device_->set_carrier(carrier_);
  // Nobody else has chosen the address: the unit may still replace it.
  mac_is_ours_ = mac_is_ours_ || (was_ours && made_here_);
  if (mac_is_ours_ && device_->mac() == our_mac_) mark_mac();
}

/// The LAN's MTU may be smaller for a short time, and no operator has to act when it is back.
void TapNic::follow_max_mtu(const os::LinkInfo& link) {
  const std::uint32_t mtu = settings_.mtu;
  if (reduced_mtu_ && reduced_mtu_->set != mtu) reduced_mtu_.reset();  // somebody has set another one
  const std::uint32_t most = std::max(*max_mtu_, least_mtu(link));
  if (most > *max_mtu_ && mtu >= most) {
    log_.recurring(os::LogLevel::kWarning,
                   fmt::format("TAP {} keeps an MTU of {}, more than the session permits, for its IPv6 addresses; "
                               "longer frames than the session's are lost",
                               name_, most));
  }
  if (mtu > most) {
    if (!set_mtu(most)) {
      return log_.recurring(os::LogLevel::kWarning,
                            fmt::format("TAP {} has an MTU of {}, more than the session's {}, and it can't be set back",
                                        name_, mtu, most));
    }
    log_.limited(kMtuLines, os::LogLevel::kWarning,
                 "TAP {} has an MTU of {}, more than the session permits: set back to {}", name_, mtu, most);
    reduced_mtu_ = {.wanted = reduced_mtu_ ? reduced_mtu_->wanted : mtu, .set = most};
  } else if (reduced_mtu_ && mtu < *max_mtu_) {
    const std::uint32_t raised = std::min(reduced_mtu_->wanted, *max_mtu_);
    if (!set_mtu(raised)) {
      return log_.recurring(
          os::LogLevel::kWarning,
          fmt::format("TAP {} has an MTU of {}, and it can't be set to {} again", name_, mtu, raised));
    }
    log_.limited(kMtuLines, os::LogLevel::kInfo, "TAP {} has an MTU of {} again", name_, raised);
    reduced_mtu_->set = raised;
    if (raised == reduced_mtu_->wanted) reduced_mtu_.reset();
  }
}

/// Below which MTU no session's may set this interface's. The kernel would remove addresses that nobody gives back.
std::uint32_t TapNic::least_mtu(const os::LinkInfo& link) {
  if (*max_mtu_ >= kLeastIpv6Mtu || link.mtu <= *max_mtu_) return 0;
  const auto has_address = links_->has_ipv6_address(link);
  return has_address && *has_address ? std::min(link.mtu, kLeastIpv6Mtu) : 0;
}

bool TapNic::set_mtu(std::uint32_t mtu) {
  if (!rights_->set_mtu(*device_, mtu)) return false;
  settings_.mtu = mtu;
  return true;
}

void TapNic::read_multicast(Time now) {
  const auto text = os::read_dev_mcast(multicast_list_.get());
  list_is_long_ = !text || text->size() > kLongListBytes;
  multicast_read_ = now;
  next_multicast_check_ = now + (now < quiet_at_ ? multicast_interval() : quiet_multicast_interval());
  settings_.multicast.clear();
  if (text) settings_.multicast = os::parse_dev_mcast(*text, index_);
  const bool too_many = settings_.multicast.size() > kMostMulticast;
  if (too_many) settings_.multicast.clear();
  settings_.all_multicast = !text || too_many || all_multicast_;
}

void TapNic::collect_descriptors(std::vector<int>& out) const {
  if (device_) out.push_back(device_->descriptor());
  if (links_) out.push_back(links_->descriptor());
  if (bell_) out.push_back(bell_->descriptor());
}

}  // namespace splitnic::host
