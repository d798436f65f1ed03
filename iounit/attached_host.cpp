#include "iounit/attached_host.h"

#include <fmt/format.h>

#include "messaging/statistics.h"

#include <algorithm>
#include <boost/describe/enum.hpp>
#include <boost/describe/enum_to_string.hpp>
#include <boost/describe/enumerators.hpp>
#include <boost/mp11/list.hpp>
#include <cstring>
#include <iterator>
#include <utility>

namespace splitnic::iounit {

namespace wire = messaging::wire;
using messaging::Answer;
using messaging::Refusal;

BOOST_DESCRIBE_ENUM(HostDrop, to_host_not_up, to_host_interface_down, to_host_filtered, to_host_no_element,
                    to_host_too_long, to_host_over_rate, from_host_malformed, from_host_bad_source,
                    from_host_not_allowed, from_host_forged, from_host_lan_source, from_host_link_local, from_host_vlan,
                    from_host_group, from_host_ip_address, from_host_dhcp_server, from_host_router, from_host_over_rate,
                    from_host_broadcasts, from_host_multicasts, from_host_copies, from_host_to_itself,
                    from_host_over_share, from_host_too_long, from_host_lan_refused, from_host_bad_offload)
static_assert(boost::mp11::mp_size<boost::describe::describe_enumerators<HostDrop>>::value == kHostDrops);

std::string_view to_string(HostDrop cause) { return boost::describe::enum_to_string(cause, "unknown"); }

namespace {

struct Blame {
  bool error = false;
  bool refusal = false;
};

Blame blame_for(HostDrop cause) {
  switch (cause) {
    case HostDrop::from_host_malformed:
    case HostDrop::from_host_bad_source:
    case HostDrop::from_host_too_long:
    case HostDrop::from_host_bad_offload:
      return {.error = true, .refusal = true};
    case HostDrop::to_host_too_long:
    case HostDrop::from_host_lan_refused:
      return {.error = true, .refusal = false};
    case HostDrop::from_host_not_allowed:
    case HostDrop::from_host_forged:
    case HostDrop::from_host_lan_source:
    case HostDrop::from_host_link_local:
    case HostDrop::from_host_vlan:
    case HostDrop::from_host_group:
    case HostDrop::from_host_ip_address:
    case HostDrop::from_host_dhcp_server:
    case HostDrop::from_host_router:
    case HostDrop::from_host_to_itself:
      return {.error = false, .refusal = true};
    case HostDrop::to_host_not_up:
    case HostDrop::to_host_interface_down:
    case HostDrop::to_host_filtered:
    case HostDrop::to_host_no_element:
    case HostDrop::to_host_over_rate:
    case HostDrop::from_host_over_rate:
    case HostDrop::from_host_broadcasts:
    case HostDrop::from_host_multicasts:
    case HostDrop::from_host_copies:
    case HostDrop::from_host_over_share:
      return {};
  }
  return {};
}

}  // namespace

bool is_error(HostDrop cause) { return blame_for(cause).error; }
bool is_refusal(HostDrop cause) { return blame_for(cause).refusal; }

AttachedHost::AttachedHost(AttachedHostOwner& owner, ForwardingTarget number, std::shared_ptr<fabric::Bridge> bridge,
                           const messaging::SessionOptions& options, RandomSource& random, Time now)
    : owner_(owner),
      number_(number),
      bridge_(std::move(bridge)),
      now_(now),
      down_since_(now),
      cleared_(owner.lan_statistics()),
      cleared_at_(now),
      session_(std::make_unique<messaging::Session>(options, *bridge_, random, *this)) {}

AttachedHost::~AttachedHost() = default;

void AttachedHost::admitted(const std::string& name, const MacAddress& mac, HostRights rights) {
  name_ = name;
  is_admitted_ = true;
  mac_ = mac;
  filter_ = ReceiveFilter{};
  // Until the host's first list arrives, the host must not miss a group that it has joined.
  wanted_ = {.all_multicast = true};
  interface_up_ = true;
  set_rights(std::move(rights));
}

void AttachedHost::set_rights(HostRights rights) {
  rights_ = std::move(rights);
  vlans_ = VlanMembership(rights_.access_vlan, rights_.trunk_vlans);
  send_limit_.set(rights_.send);
  receive_limit_.set(rights_.receive);
  broadcasts_.set_limits(rights_.broadcasts, rights_.broadcasts);
  multicasts_.set_limits(rights_.multicasts, rights_.multicasts);
  copies_.set_limits(rights_.multicast_copies, rights_.multicast_copies);
  static_cast<void>(apply(wanted_));
  owner_.filters_changed();
}

void AttachedHost::Limit::set(const RateLimits& limits) {
  bytes.set_limits(limits.bytes, std::max(limits.bytes / 4, kLargestFrame));
  most_frames = std::max<std::uint64_t>(limits.frames / 4, 1);
  frames.set_limits(limits.frames, most_frames);
}

std::optional<HostDrop> AttachedHost::over_rate(frame::Audience audience, std::uint64_t frames) {
  if (audience == frame::Audience::broadcast && !broadcasts_.take(frames, now_)) {
    return HostDrop::from_host_broadcasts;
  }
  if (audience != frame::Audience::multicast) return std::nullopt;
  if (!rights_.multicast) return HostDrop::from_host_group;
  if (!multicasts_.take(frames, now_)) return HostDrop::from_host_multicasts;
  return std::nullopt;
}

bool AttachedHost::may_be_copied(std::uint64_t frames) { return copies_.take(frames, now_); }

void AttachedHost::leaves_as(const messaging::ReceivedFrame& received, std::uint64_t frames) {
  const std::uint64_t counted = send_limit_.at_first(received);
  if (frames > counted) send_limit_.frames.owe(frames - counted, now_);
}

void AttachedHost::set_mac(const MacAddress& mac) {
  mac_ = mac;
  static_cast<void>(apply(wanted_));
}

void AttachedHost::begin_shutdown() {
  ending_ = true;
  owner_.attend(*this);
  each_session([](messaging::Session& session) { session.begin_shutdown(); });
}

Turn AttachedHost::end_turn() {
  std::uint64_t frames = past_queues_.session.rx_frames + past_queues_.session.tx_frames - refused_frames_;
  std::uint64_t bytes = past_queues_.session.rx_bytes + copied_bytes_;
  each_session([&](const messaging::Session& session) {
    frames += session.counters().rx_frames + session.counters().tx_frames;
    bytes += session.counters().rx_bytes;
  });
  return {.cost = {},
          .bytes = bytes - std::exchange(bytes_in_turns_, bytes),
          .frames = frames - std::exchange(frames_in_turns_, frames)};
}

void AttachedHost::eject(const std::string& reason) {
  ejected_ = true;
  owner_.attend(*this);
  session_->reset(reason);
}

messaging::FrameMemory AttachedHost::place(const frame::EthernetHeader& header, std::size_t frame_bytes) {
  if (!session_->up() || ending_ || flows_ || header.vlan_tags != 0) return {};
  owner_.attend(*this);
  placed_ = session_->claim(static_cast<std::uint32_t>(frame_bytes));
  if (placed_.size() < frame_bytes) placed_ = {};
  return placed_;
}

bool AttachedHost::deliver(std::size_t sender, const frame::EthernetHeader& header, const FrameInHand& frame,
                           const frame::UnfinishedFrame* unfinished) {
  const auto drop = [this](HostDrop cause) { return count(cause), true; };
  const frame::FrameOffload offload = unfinished != nullptr ? unfinished->offload : frame::FrameOffload{};
  if (!session_->up() || ending_) return drop(HostDrop::to_host_not_up);
  if (!interface_up_) return drop(HostDrop::to_host_interface_down);
  owner_.attend(*this);
  auto [session, share, by_flow] = outlet_for(header, frame.head());
  const auto verdict = share.admit(sender, session.credits(), now_);
  if (verdict != ReceiverShare::Verdict::admitted) {
    if (verdict == ReceiverShare::Verdict::over_part) session.want_elements();
    return false;
  }
  const std::size_t frame_bytes = frame.bytes.size();
  if (!receive_limit_.take(frame_bytes, unfinished != nullptr ? unfinished->frames : 1, now_)) {
    return drop(HostDrop::to_host_over_rate);
  }
  // The tag of its access VLAN stays here.
  const std::size_t tag = vlans_.untags(header) ? frame::kVlanTagBytes : 0;
  const std::size_t size = frame_bytes - tag;
  const auto memory = frame.placed_in == this ? placed_ : session.claim(static_cast<std::uint32_t>(size));
  if (memory.empty()) {
    losses_.lost(*session_, now_, [this] {
      return fmt::format("frames come faster than this host takes them, {} lost so far",
                         drops(HostDrop::to_host_no_element) + 1);
    });
    return drop(HostDrop::to_host_no_element);
  }
  const std::size_t longest = (unfinished != nullptr ? unfinished->longest_bytes : frame_bytes) - tag;
  if (memory.size() < size || longest > session.max_frame_bytes()) return drop(HostDrop::to_host_too_long);
  constexpr std::size_t kAddresses = 2 * sizeof(MacAddress);
  const auto head = frame.head();
  memory.write(0, head.first(kAddresses));
  memory.write(kAddresses, head.subspan(kAddresses + tag));
  frame.payload.copy_out(memory.behind(head.size() - tag).first(frame.payload.size()));
  session.commit(static_cast<std::uint32_t>(size), frame::moved_by(offload, -static_cast<std::ptrdiff_t>(tag)));
  share.took(sender, session.credits());
  if (by_flow) flows_->sent();
  last_frame_at_ = now_;
  return true;
}

tl::expected<messaging::HelloGrant, Refusal> AttachedHost::on_hello(const wire::HelloRequest& hello) {
  return owner_.admit(*this, hello);
}

void AttachedHost::on_up(const wire::HelloReply*) {
  down_since_ = kNever;
  statistics_schedule_.start();
  owner_.host_up(*this);
}

void AttachedHost::on_down(std::string_view reason) {
  if (down_since_ == kNever) down_since_ = now_;
  statistics_schedule_.stop();
  owner_.host_down(*this, reason);
}

void AttachedHost::on_frame(const messaging::ReceivedFrame& frame) { take_frame(frame); }

void AttachedHost::take_frame(const messaging::ReceivedFrame& frame) {
  last_frame_at_ = now_;
  if (!send_limit_.take(frame.size(), send_limit_.at_first(frame), now_)) return count(HostDrop::from_host_over_rate);
  owner_.frame_from_host(*this, frame);
}

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
  const bool clear = std::holds_alternative<wire::StatisticsClear>(request);
  if (clear || std::holds_alternative<wire::StatisticsReport>(request)) {
    auto counted = statistics();
    auto report = messaging::since(counted, cleared_);
    report.counted_for = now_ - cleared_at_;
    if (clear) {
      cleared_ = std::move(counted);
      cleared_at_ = now_;
    }
    return report;
  }
  if (const auto* report = std::get_if<wire::StatusReport>(&request)) {
    owner_.host_says(*this, report->text);
    return wire::Acknowledged{};
  }
  return tl::unexpected(Refusal{wire::CfgStatus::unknown_request, "not a request to an I/O unit"});
}

Answer AttachedHost::set_filter(const wire::ReceiveFilter& wanted) {
  // A refused filter changes nothing: check all of it before applying any of it.
  ReceiveFilter checked;
  std::vector<MacAddress> unicast = wanted.unicast;
  unicast.push_back(mac_);
  if (!checked.set_unicast(unicast) || !checked.set_multicast(wanted.multicast)) {
    return tl::unexpected(Refusal{wire::CfgStatus::invalid_parameter, "address list not acceptable"});
  }
  wanted_ = wanted;
  if (const std::string limits = apply(wanted_); !limits.empty()) report_limits(limits);
  owner_.filters_changed();
  return wire::Acknowledged{};
}

/// Sets what the policy permits of a valid filter. Returns what it does not permit, for people; empty: nothing.
std::string AttachedHost::apply(const wire::ReceiveFilter& wanted) {
  const bool all = rights_.promiscuous || rights_.foreign_sources;
  further_unicast_.clear();
  std::ranges::copy_if(wanted.unicast, std::back_inserter(further_unicast_), [&](const MacAddress& mac) {
    return all || std::ranges::find(rights_.addresses, mac) != rights_.addresses.end();
  });
  const std::size_t permitted = further_unicast_.size();
  promiscuous_ = wanted.promiscuous && rights_.promiscuous;
  is_bridge_ = wanted.promiscuous && rights_.foreign_sources;
  const bool limited = wanted.promiscuous && !promiscuous_ && !is_bridge_;
  if (limited) add_permitted_addresses();
  std::vector<MacAddress> unicast = further_unicast_;
  unicast.push_back(mac_);
  static_cast<void>(filter_.set_unicast(unicast));  // set_filter() has limited the number
  const auto groups = rights_.multicast ? wanted.multicast : std::vector<MacAddress>{};
  static_cast<void>(filter_.set_multicast(groups));  // set_filter() has limited the number
  filter_.set_all_multicast(rights_.multicast && (wanted.all_multicast || wanted.promiscuous));
  filter_.set_promiscuous(promiscuous_);
  // An interface whose list has addresses is often promiscuous because of them: a TAP has no filter of its own.
  if (limited && wanted.unicast.empty()) {
    return "promiscuous mode is not permitted to this host: it gets no unicast frames of others";
  }
  if (permitted < wanted.unicast.size()) {
    return "frames to further addresses are not permitted to this host";
  }
  return {};
}

/// A host with more further addresses than a filter has room for requests promiscuous mode instead.
void AttachedHost::add_permitted_addresses() {
  for (const MacAddress& mac : rights_.addresses) {
    if (further_unicast_.size() + 1 == ReceiveFilter::kMaxUnicast) return;
    if (mac != mac_ && std::ranges::find(further_unicast_, mac) == further_unicast_.end()) {
      further_unicast_.push_back(mac);
    }
  }
}

void AttachedHost::report_limits(const std::string& why) {
  owner_.filter_limited(*this, why);
  constexpr Duration kInterval = std::chrono::seconds(10);
  if (!up() || now_ - kInterval < limits_reported_) return;
  limits_reported_ = now_;
  owner_.attend(*this);
  session_->request(wire::StatusReport{wire::kNotPermitted, why});
}

void AttachedHost::on_reply(wire::CfgRequest request, const Answer& answer) {
  const auto* statistics = answer ? std::get_if<wire::Statistics>(&*answer) : nullptr;
  if (statistics == nullptr) return;
  host_statistics_ = messaging::as_of_now(request, *statistics);
}

void AttachedHost::ask_for_statistics() {
  const auto frames = [this] {
    const auto sum = counters();
    return sum.rx_frames + sum.tx_frames;
  };
  if (up() && statistics_schedule_.due(now_, frames)) session_->request(wire::StatisticsReport{});
}

void AttachedHost::clear_host_statistics() {
  if (!up()) return;
  owner_.attend(*this);
  session_->request(wire::StatisticsClear{});
}

wire::Statistics AttachedHost::statistics() const {
  auto report = messaging::session_statistics(counters());
  const auto lan = owner_.lan_statistics();
  report.from_interface = lan.from_interface;
  report.to_interface = lan.to_interface;
  for (std::size_t index = 0; index < kHostDrops; ++index) {
    const auto cause = static_cast<HostDrop>(index);
    const std::string name(to_string(cause));
    auto& flow = name.starts_with("to_host") ? report.to_peer : report.from_peer;
    (is_error(cause) ? flow.errors : flow.drops) += drops_[index];
    report.counters.push_back({name, drops_[index]});
  }
  return report;
}

}  // namespace splitnic::iounit
