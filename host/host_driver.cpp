#include "host/host_driver.h"

#include <fmt/format.h>

#include <algorithm>

#include "messaging/statistics.h"

namespace splitnic::host {

namespace wire = messaging::wire;
using messaging::Answer;
using messaging::Refusal;

namespace {

constexpr Duration kSettingsInterval = std::chrono::seconds(4);
constexpr std::chrono::seconds kAddressInterval{10};
// Sources of notices: however much else is to be said, a log tells that the session is up again.
constexpr std::string_view kUps = "session up";
constexpr std::string_view kDowns = "session down";
constexpr std::string_view kRefusals = "the unit's refusals";
// States of the driver, in words that no peer chooses.
constexpr const char* kStateUp = "up";
constexpr const char* kStateUpWithoutLan = "up, the LAN has no carrier";
constexpr const char* kStateDown = "down; trying again (the log has the reason)";

wire::ReceiveFilter filter_of(const NicSettings& settings) {
  wire::ReceiveFilter filter;
  filter.promiscuous = settings.promiscuous;
  if (settings.unicast.size() <= wire::kMaxUnicastFilters) {
    filter.unicast = settings.unicast;
  } else {
    filter.promiscuous = true;  // as a NIC does whose list of addresses is full
  }
  filter.all_multicast = settings.all_multicast || settings.multicast.size() > wire::kMaxMulticastFilters;
  if (!filter.all_multicast) filter.multicast = settings.multicast;
  return filter;
}

}  // namespace

HostDriver::HostDriver(messaging::SessionOptions options, VirtualNic& nic, fabric::BridgeSource& bridges,
                       RandomSource& random, Notices& notices)
    : options_(std::move(options)), nic_(nic), notices_(notices), session_(bridges, random, *this), pump_(nic) {
  messaging::require_valid(options_);
  options_.role = wire::Role::host;
  options_.offloads = options_.offloads && nic_.offloads().frames;
  options_.udp_segments = options_.offloads && nic_.offloads().udp_segments;
  nic_.set_carrier(false);
}

HostDriver::~HostDriver() = default;

std::size_t HostDriver::poll(Time now) {
  now_ = now;
  if (!cleared_at_) cleared_at_ = now;
  std::size_t work = poll_bridge(now);
  if (!session_) return work;
  work += session_->poll(now);
  if (session_->up()) {
    work += pump_.push(*session_);
    session_->flush();  // first the frames: the settings take system calls
    follow_settings(now);
    session_->flush();
  }
  return work;
}

/// Accepts a new bridge if there is none, and closes one that will not come back.
std::size_t HostDriver::poll_bridge(Time now) {
  if (session_.is_over()) session_.end();
  if (session_ || stopping_ || !session_.take_bridge(now)) return 0;
  auto options = options_;
  if (options.mac.is_zero()) options.mac = nic_.preferred_mac();
  session_.start(options);
  return 1;
}

void HostDriver::follow_settings(Time now) {
  const auto frames = [this] {
    const auto sum = totals().session;
    return sum.rx_frames + sum.tx_frames;
  };
  if (statistics_schedule_.due(now, frames)) session_->request(wire::StatisticsReport{});
  settings_due_ = now + kSettingsInterval;
  ask_for_address_again(now);
  const NicSettings& current = nic_.settings(now);
  if (announced_ && current == settings_) return;
  const NicSettings before = std::exchange(settings_, current);
  send_settings(announced_ ? &before : nullptr);
  announced_ = true;
}

/// before: the settings that the unit knows; null: none.
void HostDriver::send_settings(const NicSettings* before) {
  bool queued = true;
  if (before == nullptr || before->mac != settings_.mac) {
    queued = session_->request(wire::SetMacAddress{settings_.mac}) && queued;
  }
  if (before == nullptr || before->mtu != settings_.mtu) {
    queued = session_->request(wire::SetMtu{settings_.mtu}) && queued;
  }
  if (before == nullptr || filter_of(*before) != filter_of(settings_)) {
    queued = session_->request(filter_of(settings_)) && queued;
  }
  const auto has_too_many = [](const NicSettings& nic) { return nic.unicast.size() > wire::kMaxUnicastFilters; };
  if (has_too_many(settings_) && (before == nullptr || !has_too_many(*before))) {
    notices_.recurring_notice(
        fmt::format("the interface has more than {} further addresses: requesting all frames instead; without that "
                    "right, this host gets those to the addresses that the policy gives it",
                    wire::kMaxUnicastFilters));
  }
  if (before == nullptr || before->up != settings_.up) {
    queued = session_->request(wire::LinkState{.up = settings_.up}) && queued;
  }
  if (before == nullptr && vlans_) queued = session_->request(wire::VlanFilter{vlans_}) && queued;
  if (!queued) session_->reset("the unit does not take settings");
}

/// An address may be free later: the unit keeps it for a host that has left, or for a station of the LAN, only for a
/// time. A bond, for example, gives all of its interfaces one address.
void HostDriver::ask_for_address_again(Time now) {
  if (now < address_due_) return;
  address_due_ = now + kAddressInterval;
  session_->request(wire::SetMacAddress{settings_.mac});
}

void HostDriver::on_address(const Answer& answer) {
  const bool refused_before = std::exchange(address_due_, kNever) != kNever;
  if (answer) {
    refused_addresses_.clear();
    if (refused_before) notices_.notice(fmt::format("the I/O unit grants the address {}", to_string(settings_.mac)));
    return;
  }
  address_due_ = now_ + kAddressInterval;
  const std::string line =
      fmt::format("the I/O unit refused {}: {}; asking again every {} s",
                  wire::to_string(wire::CfgRequest::set_mac_address), answer.error().text, kAddressInterval.count());
  if (refused_addresses_.first_time(line)) notices_.notice_from(kRefusals, line);
}

void HostDriver::set_carrier(bool carrier) {
  carrier_ = carrier;
  nic_.set_carrier(carrier);
}

tl::expected<messaging::HelloGrant, Refusal> HostDriver::on_hello(const wire::HelloRequest&) {
  return tl::unexpected(Refusal{wire::CfgStatus::not_permitted, "this end is a host"});
}

void HostDriver::on_up(const wire::HelloReply* reply) {
  // A LinkState that came after the answer to the hello is newer than that answer.
  wire::LinkState link = early_link_.value_or(wire::LinkState{.up = reply->link_up});
  if (link.max_mtu == 0) link.max_mtu = reply->max_mtu;
  early_link_.reset();
  unit_name_ = reply->name;
  link.max_mtu = mtu_within(link.max_mtu);
  nic_.set_max_mtu(link.max_mtu);
  nic_.set_mac(reply->assigned_mac);
  nic_.set_offloads({.frames = session_->offloads(), .udp_segments = session_->udp_segments()});
  announced_ = false;
  address_due_ = kNever;
  statistics_schedule_.start();
  reported_.clear();
  set_carrier(link.up);
  admit_queues();
  notices_.state(link.up ? kStateUp : kStateUpWithoutLan);
  notices_.notice_from(
      kUps, fmt::format("up: I/O unit {}, address {}, MTU up to {}, mode {}{}{}, LAN {}", reply->name,
                        to_string(reply->assigned_mac), link.max_mtu, session_->mode() == wire::Mode::rdma ? 'R' : 'S',
                        session_->has_data_channel() ? "" : " without a data channel",
                        session_->offloads() ? " with offloads" : "", link.up ? "has carrier" : "has no carrier"));
}

void HostDriver::on_down(std::string_view reason) {
  set_carrier(false);
  if (group_ != nullptr) group_->set_terms(0, {});
  statistics_schedule_.stop();
  early_link_.reset();
  // The NIC's address may have changed since the last hello requested it, perhaps because the unit refused it.
  if (options_.mac.is_zero()) session_->ask_for_mac(nic_.preferred_mac());
  if (stopping_) return;  // the caller requested this
  // The session retries often, and the reasons may alternate.
  std::string line = fmt::format("down: {}; trying again", reason);
  if (!reported_.first_time(line)) return;
  notices_.state(kStateDown);
  notices_.notice_from(kDowns, line);
}

/// Lets further queues join the session that has just come up, if the unit takes them.
void HostDriver::admit_queues() {
  if (group_ == nullptr) return;
  const std::uint64_t cookie = session_.bridge().group().cookie;
  const bool has_pools = session_->mode() == wire::Mode::rdma && session_->has_data_channel();
  if (cookie == 0 || !has_pools) {
    notices_.notice(fmt::format("one queue instead of {}: {}", 1 + group_->further(),
                                cookie == 0 ? "the I/O unit takes no more" : "further ones need mode R"));
  }
  group_->set_terms(has_pools ? cookie : 0, {.frames = session_->offloads(), .udp_segments = session_->udp_segments()});
}

void HostDriver::on_frame(const messaging::ReceivedFrame& frame) { pump_.deliver(frame, *session_, now_); }

HostCounters HostDriver::counters() const {
  auto sum = pump_.counters();
  if (group_ != nullptr) sum += group_->sum().counters;
  return sum;
}

std::size_t HostDriver::queues_up() const {
  if (!up()) return 0;
  return 1 + (group_ != nullptr ? group_->sum().queues_up : 0);
}

Answer HostDriver::on_request(const wire::RequestBody& request) {
  if (const auto* link = std::get_if<wire::LinkState>(&request)) {
    if (!up()) {
      early_link_ = *link;  // without a session there is no carrier
      return wire::Acknowledged{};
    }
    if (link->max_mtu != 0) nic_.set_max_mtu(mtu_within(link->max_mtu));
    if (carrier_ != link->up) notices_.notice(link->up ? "the LAN has carrier" : "the LAN has no carrier");
    set_carrier(link->up);
    return wire::Acknowledged{};
  }
  if (const auto* report = std::get_if<wire::StatusReport>(&request)) {
    notices_.notice_from(kUnitsWords, fmt::format("the I/O unit says: {}", report->text));
    return wire::Acknowledged{};
  }
  const bool clear = std::holds_alternative<wire::StatisticsClear>(request);
  if (clear || std::holds_alternative<wire::StatisticsReport>(request)) return report_statistics(clear);
  return tl::unexpected(Refusal{wire::CfgStatus::unknown_request, "not a request to a host"});
}

wire::Statistics HostDriver::statistics() const {
  wire::Statistics statistics = messaging::session_statistics(totals().session);
  // All frames that the driver reads from the NIC go to the unit; without a free element it reads none.
  statistics.from_interface = statistics.to_peer;
  const HostCounters counted = counters();
  statistics.to_interface = {
      .frames = counted.rx_frames, .bytes = counted.rx_bytes, .errors = 0, .drops = counted.rx_refused_by_nic};
  statistics.counters.push_back({"refused_by_nic", counted.rx_refused_by_nic});
  return statistics;
}

messaging::SessionTotals HostDriver::totals() const {
  auto sum = session_.totals();
  if (group_ != nullptr) sum += group_->sum().totals;
  return sum;
}

Answer HostDriver::report_statistics(bool clear) {
  auto counted = statistics();
  auto report = messaging::since(counted, cleared_);
  report.counted_for = now_ - *cleared_at_;
  if (clear) {
    cleared_ = std::move(counted);
    cleared_at_ = now_;
  }
  return report;
}

void HostDriver::on_reply(wire::CfgRequest request, const Answer& answer) {
  if (request == wire::CfgRequest::set_mac_address) return on_address(answer);
  if (!answer) {
    notices_.notice_from(kRefusals,
                         fmt::format("the I/O unit refused {}: {}", wire::to_string(request), answer.error().text));
    return;
  }
  const auto* statistics = std::get_if<wire::Statistics>(&*answer);
  if (statistics == nullptr) return;
  unit_statistics_ = messaging::as_of_now(request, *statistics);
}

void HostDriver::clear_unit_statistics() {
  if (up() && !session_->request(wire::StatisticsClear{})) notices_.notice("the I/O unit was not asked to clear");
}

Time HostDriver::next_deadline() const {
  Time deadline = session_.next_deadline();
  if (session_.up())
    deadline =
        std::min({deadline, statistics_schedule_.next_deadline(), settings_due_, address_due_, nic_.next_deadline()});
  return deadline;
}

void HostDriver::collect_descriptors(std::vector<int>& out) const {
  // While no element is free, the driver can't act on the NIC's descriptor.
  if (session_.up() && !pump_.waits_for_elements()) nic_.collect_descriptors(out);
  session_.collect_descriptors(out);
}

void HostDriver::begin_shutdown() {
  stopping_ = true;
  session_.begin_shutdown();
}

std::string HostDriver::state() const {
  if (!session_) return "connecting";
  return std::string(messaging::to_string(session_->state()));
}

}  // namespace splitnic::host
