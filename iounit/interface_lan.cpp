#include "iounit/interface_lan.h"

#include <algorithm>
#include <utility>

#include "common/os/netns.h"

namespace splitnic::iounit {

std::optional<Error> InterfaceLan::open_in_this_namespace(Time now) {
  auto here = os::open_current_netns();
  if (!here) return here.error();
  namespace_ = *std::move(here);
  auto links = os::LinkSocket::open();
  if (!links) return links.error();
  links_ = *std::move(links);
  next_check_ = now + kCheckInterval;
  if (auto found = read_link(); !found)
    return Error{fmt::format("the LAN interface can't be used: {}", found.error().message)};
  if (!link_.up) {
    log_.warning("LAN interface {} is down: no carrier until it is up", interface_);
    absent_ = true;
    next_check_ = now + kReopenInterval;
    return std::nullopt;
  }
  return capture();
}

Result<void> InterfaceLan::read_link() {
  const auto link = links_->query(interface_);
  if (!link) {
    link_ = Link{.mtu = link_.mtu};
    return tl::unexpected(link.error());
  }
  // IFF_RUNNING would report the same up to a second later: the kernel updates it at most once a second.
  const bool usable = link->oper_state != os::OperState::kDormant && link->oper_state != os::OperState::kTesting;
  link_ = Link{.index = link->index, .up = link->up, .carrier = link->up && link->carrier && usable, .mtu = link->mtu};
  return {};
}

void InterfaceLan::poll(Time now) {
  if (!check_at_once_ && now < std::min(next_event_check_, next_check_)) return;
  next_event_check_ = now + kEventInterval;
  bool event = false;
  links_->poll_events([&](const os::LinkEvent& change) { event = event || change.concerns(link_.index, interface_); });
  if (event || check_at_once_ || now >= next_check_) refresh(now);
}

void InterfaceLan::refresh(Time now) {
  const bool capture_failed = std::exchange(check_at_once_, false);
  static_cast<void>(read_link());  // if it fails, the interface counts as vanished
  const bool same = link_.index == captured_index_;
  if (is_open() && (!same || !link_.up || capture_failed)) {
    read_kernel_drops();
    close_capture();
    captured_index_ = 0;
    if (!absent_) {
      log_.warning("LAN interface {} {}: carrier down", interface_,
                   link_.index == 0 ? "has vanished"
                   : !same          ? "was replaced"
                   : !link_.up      ? "is down"
                                    : "has met an error");
    }
    absent_ = true;
  }
  if (!is_open() && link_.up) {
    // The thread may be in another namespace by now. If it can't enter the interface's namespace, it never left it.
    std::optional<Result<os::ScopedNetns>> inside;
    if (opens_here()) inside.emplace(os::ScopedNetns::enter(namespace_.get()));
    if (const auto error = capture()) {
      if (error->message != last_refusal_) log_.warning("{}", error->message);
      last_refusal_ = error->message;
    } else {
      log_.info("LAN interface {} is back", interface_);
      last_refusal_.clear();
      absent_ = false;
    }
  }
  if (is_open()) read_kernel_drops();
  next_check_ = now + (is_open() ? kCheckInterval : kReopenInterval);
}

std::optional<Error> InterfaceLan::capture() {
  auto error = open_capture();
  if (!error) captured_index_ = link_.index;
  return error;
}

std::size_t InterfaceLan::receive(LanSink& sink, std::size_t budget) {
  rests_ = !pause_.is_over(round_);
  if (rests_ || !is_open() || budget == 0) return 0;
  const Look found = look(sink, budget);
  pause_.looked(found.delivered, found.emptied, moved_, round_);
  rests_ = !pause_.is_over(round_);
  return found.delivered;
}

void InterfaceLan::collect_descriptors(std::vector<int>& out) const {
  out.push_back(links_->descriptor());
  if (is_open() && !rests_) out.push_back(capture_descriptor());
}

}  // namespace splitnic::iounit
