#include "iounit/attached_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/describe/enum.hpp>
#include <boost/describe/enum_to_string.hpp>
#include <cstring>

namespace splitnic::iounit {

namespace wire = messaging::wire;
using messaging::Answer;
using messaging::Refusal;

BOOST_DESCRIBE_ENUM(HostDrop, to_host_not_up, to_host_interface_down, to_host_filtered, to_host_no_element,
                    to_host_too_long, from_host_malformed, from_host_bad_source, from_host_not_allowed,
                    from_host_forged, from_host_to_itself, from_host_too_long, from_host_lan_refused)

std::string_view to_string(HostDrop cause) { return boost::describe::enum_to_string(cause, "unknown"); }

AttachedHost::AttachedHost(AttachedHostOwner& owner, ForwardingTarget number, std::shared_ptr<fabric::Bridge> bridge,
                           const messaging::SessionOptions& options, RandomSource& random, Time now)
    : owner_(owner),
      number_(number),
      bridge_(std::move(bridge)),
      now_(now),
      down_since_(now),
      session_(std::make_unique<messaging::Session>(options, *bridge_, random, *this)) {}

AttachedHost::~AttachedHost() = default;

void AttachedHost::admitted(const std::string& name, const MacAddress& mac) {
  name_ = name;
  filter_ = ReceiveFilter{};
  further_unicast_.clear();
  // Until the first list of the host is in, it must not miss a group that it has joined.
  filter_.set_all_multicast(true);
  promiscuous_ = false;
  interface_up_ = true;
  set_mac(mac);
  owner_.filters_changed();
}

void AttachedHost::set_mac(const MacAddress& mac) {
  mac_ = mac;
  std::vector<MacAddress> unicast = further_unicast_;
  unicast.push_back(mac_);
  static_cast<void>(filter_.set_unicast(unicast));  // as many as set_filter() has accepted
}

void AttachedHost::begin_shutdown() {
  ending_ = true;
  session_->begin_shutdown();
}

void AttachedHost::deliver(std::span<const std::byte> frame) {
  if (!session_->up() || ending_) return count(HostDrop::to_host_not_up);
  if (!interface_up_) return count(HostDrop::to_host_interface_down);
  const auto memory = session_->claim();
  if (memory.empty()) {
    count(HostDrop::to_host_no_element);
    return losses_.lost(*session_, now_, [this] {
      return fmt::format("frames come faster than this host takes them, {} lost so far",
                         drops(HostDrop::to_host_no_element));
    });
  }
  if (memory.size() < frame.size()) return count(HostDrop::to_host_too_long);
  std::memcpy(memory.data(), frame.data(), frame.size());
  session_->commit(static_cast<std::uint32_t>(frame.size()));
}

tl::expected<messaging::HelloGrant, Refusal> AttachedHost::on_hello(const wire::HelloRequest& hello) {
  return owner_.admit(*this, hello);
}

void AttachedHost::on_up(const wire::HelloReply*) {
  down_since_ = kNever;
  owner_.host_up(*this);
}

void AttachedHost::on_down(std::string_view reason) {
  if (down_since_ == kNever) down_since_ = now_;
  owner_.host_down(*this, reason);
}

void AttachedHost::on_frame(const messaging::ReceivedFrame& frame) { owner_.frame_from_host(*this, frame); }

Answer AttachedHost::on_request(const wire::RequestBody& request) {
  if (const auto* mac = std::get_if<wire::SetMacAddress>(&request)) return owner_.change_mac(*this, mac->address);
  if (const auto* mtu = std::get_if<wire::SetMtu>(&request)) {
    return wire::MtuReply{std::min(mtu->bytes, owner_.max_mtu())};
  }
  if (const auto* link = std::get_if<wire::LinkState>(&request)) {
    interface_up_ = link->up;
    return wire::Acknowledged{};
  }
  if (const auto* filter = std::get_if<wire::ReceiveFilter>(&request)) return set_filter(*filter);
  if (const auto* vlans = std::get_if<wire::VlanFilter>(&request)) {
    std::optional<std::span<const std::uint16_t>> only;
    if (vlans->only) only = *vlans->only;
    if (!filter_.set_vlans(only))
      return tl::unexpected(Refusal{wire::CfgStatus::invalid_parameter, "VLAN out of range"});
    return wire::Acknowledged{};
  }
  if (std::holds_alternative<wire::StatisticsReport>(request)) return statistics();
  if (std::holds_alternative<wire::StatisticsClear>(request)) {
    auto before = statistics();
    cleared_ = drops_;
    return before;
  }
  if (const auto* report = std::get_if<wire::StatusReport>(&request)) {
    owner_.host_says(*this, report->text);
    return wire::Acknowledged{};
  }
  return tl::unexpected(Refusal{wire::CfgStatus::unknown_request, "not a request to an I/O unit"});
}

Answer AttachedHost::set_filter(const wire::ReceiveFilter& wanted) {
  // A refused filter changes nothing: all of it is checked before any of it holds.
  ReceiveFilter next = filter_;
  std::vector<MacAddress> unicast = wanted.unicast;
  unicast.push_back(mac_);
  if (!next.set_unicast(unicast) || !next.set_multicast(wanted.multicast)) {
    return tl::unexpected(Refusal{wire::CfgStatus::invalid_parameter, "address list not acceptable"});
  }
  next.set_all_multicast(wanted.all_multicast);
  next.set_promiscuous(wanted.promiscuous);
  filter_ = std::move(next);
  further_unicast_ = wanted.unicast;
  promiscuous_ = wanted.promiscuous;
  owner_.filters_changed();
  return wire::Acknowledged{};
}

void AttachedHost::on_reply(wire::CfgRequest, const Answer&) {}

wire::Statistics AttachedHost::statistics() const {
  wire::Statistics report;
  for (std::size_t index = 0; index < kHostDrops; ++index) {
    report.counters.push_back({std::string(to_string(static_cast<HostDrop>(index))), drops_[index] - cleared_[index]});
  }
  return report;
}

}  // namespace splitnic::iounit
