#include "iounit/io_unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/describe/enum.hpp>
#include <boost/describe/enum_to_string.hpp>
#include <boost/describe/enumerators.hpp>
#include <boost/mp11/list.hpp>
#include <cstring>
#include <new>

#include "common/os/memory.h"

namespace splitnic::iounit {

namespace wire = messaging::wire;
using messaging::Answer;
using messaging::Refusal;

namespace {

constexpr std::size_t kLanFramesPerPoll = 64;
constexpr std::size_t kTablePlacesPerSweep = 16;
// A host counts as active for this long after its last frame.
constexpr Duration kActive = std::chrono::milliseconds(100);
// Hosts often end together: the unit returns their memory once, shortly after the last of them.
constexpr Duration kMemoryPause = std::chrono::milliseconds(500);
// The unit asks so many hosts in a second whether they are there, and so many of them at the same time.
constexpr std::size_t kHeartbeatsPerSecond = 32;
constexpr std::size_t kHeartbeatsAtOnce = 8;
constexpr std::chrono::milliseconds kHeartbeatStep{250};
static_assert(kHeartbeatsPerSecond * kHeartbeatStep == kHeartbeatsAtOnce * std::chrono::seconds(1));

}  // namespace

BOOST_DESCRIBE_ENUM(LanDrop, lan_malformed, lan_bad_source, lan_forged, lan_link_local, lan_to_lan, lan_unwanted,
                    lan_udp_oversize, lan_oversize, lan_over_share, lan_bad_offload)
static_assert(boost::mp11::mp_size<boost::describe::describe_enumerators<LanDrop>>::value == kLanDrops);

std::string_view to_string(LanDrop cause) { return boost::describe::enum_to_string(cause, "unknown"); }

IoUnit::IoUnit(IoUnitOptions options, LanEngine& lan, fabric::BridgeSource& bridges, RandomSource& random,
               Notices& notices)
    : options_(std::move(options)),
      lan_(lan),
      group_(options_.group),
      bridges_(bridges),
      random_(random),
      notices_(notices),
      table_(ForwardingTableLimits{}, random.next()),
      own_policy_(std::make_shared<Policy>(options_.policy, random.next())),
      policy_(own_policy_),
      share_(options_.share),
      turns_(options_.doorbells),
      meter_(options_.meter != nullptr ? *options_.meter : counted_work_),
      ejections_({.places = options_.max_hosts + 1,
                  .free_ends = 1,
                  .pause_min = options_.ejected_pause_min,
                  .pause_max = options_.ejected_pause_max}),
      private_copy_(frame::kVlanTagBytes + wire::kMaxFrameBytes) {
  messaging::require_valid(options_.session);
  options_.session.role = wire::Role::io_unit;
  lan_carrier_ = lan_.carrier();
  lan_mtu_ = max_mtu();
  if (group_ == nullptr) return;
  own_policy_.reset();
  follow_policy(SharedPolicy::Age::now);
}

IoUnit::~IoUnit() = default;

// Within the protocol's range (lo has an MTU of 65536). A LAN below the minimum serves no host: see admit.
std::uint32_t IoUnit::max_mtu() const {
  const std::uint32_t mtu = std::clamp(lan_.mtu(), wire::kMinMtu, wire::kMaxMtu);
  return options_.max_mtu == 0 ? mtu : std::min(options_.max_mtu, mtu);
}

std::size_t IoUnit::poll(Time now) {
  now_ = now;
  if (now >= policy_due()) follow_policy(SharedPolicy::Age::recent);
  if (now >= pin_again_at_) pin_configured();
  turns_.begin(now, hosts_);
  lan_.begin_round(now);
  std::size_t work = give_turns(now);
  if (sent_to_lan_) flush_lan();  // before the system call that looks for the LAN's frames
  work += lan_.receive(*this, kLanFramesPerPoll);
  lan_merger_.flush(towards_hosts_);
  for (AttachedHost* const host : turns_.busy()) {
    host->ask_for_statistics();
    host->flush();
  }
  // Housekeeping last: no frame should wait for its system calls.
  lan_.poll(now);
  follow_lan();
  drop_dead_hosts(now);
  turns_.end(now, [this](const AttachedHost& host) { return rests(host); });
  accept_hosts(now);
  if (work == 0) {
    table_.sweep(now, kTablePlacesPerSweep);
    return_memory(now);
  }
  return work;
}

void IoUnit::accept_hosts(Time now) {
  if (stopping_) return;
  auto bridge = bridges_.poll(now);
  if (!bridge) return;
  if (const auto group = bridge->group(); group.further) return add_queue(std::move(bridge), group.cookie);
  auto place = std::find(hosts_.begin(), hosts_.end(), nullptr);
  if (place == hosts_.end()) {
    if (hosts_.size() == options_.max_hosts) {
      ++counters_.hosts_refused;
      return notices_.recurring_notice(fmt::format("a host was refused: {} hosts are attached already", hosts_.size()));
    }
    place = hosts_.insert(hosts_.end(), nullptr);
  }
  auto session = options_.session;
  session.max_mtu = max_mtu();
  const ForwardingTarget number{static_cast<std::uint16_t>(place - hosts_.begin())};
  const Time first = first_turn(*bridge, now);
  try {
    *place = std::make_unique<AttachedHost>(*this, number, std::move(bridge), session, random_, first);
  } catch (const std::bad_alloc&) {  // the others keep their sessions, and this host tries again
    ++counters_.hosts_refused;
    return notices_.recurring_notice("a host was refused: no memory is left for it");
  }
  share_.add(number.value, first);
  turns_.add(**place, now);
  tell_group_wants();
  pace_heartbeats();
}

/// A hang-up is seen at once, so heartbeats find only ends that hang. With many hosts they come less often, so that
/// idle hosts cost the same however many they are, and at different times.
void IoUnit::pace_heartbeats() {
  const auto free = std::count(hosts_.begin(), hosts_.end(), nullptr);
  const auto attached = hosts_.size() - static_cast<std::size_t>(free);
  const auto seconds = std::clamp<std::size_t>((attached + kHeartbeatsPerSecond - 1) / kHeartbeatsPerSecond, 1, 60);
  const std::chrono::milliseconds interval = std::chrono::seconds(seconds);
  for (const auto& host : hosts_) {
    if (host) host->set_heartbeat(interval, (host->number().value / kHeartbeatsAtOnce * kHeartbeatStep) % interval);
  }
}

/// The bridge closes unless it belongs to a host that is up; a live host connects again.
void IoUnit::add_queue(std::shared_ptr<fabric::Bridge> bridge, std::uint64_t cookie) {
  const auto its_host = std::ranges::find_if(hosts_, [&](const auto& host) {
    const auto group = host ? host->bridge().group() : fabric::BridgeGroup{};
    return host && host->up() && !group.further && group.cookie == cookie;
  });
  if (its_host == hosts_.end()) {
    ++counters_.queues_refused;
    return;
  }
  AttachedHost& host = **its_host;
  turns_.attend(host, now_);
  turns_.listen(host, false);
  bool added = false;
  try {
    added = host.add_queue(std::move(bridge), options_.session, random_);
  } catch (const std::bad_alloc&) {
    ++counters_.queues_refused;
    recurring_notice_about(host, "refused",
                           fmt::format("refused a further queue of host {}: no memory is left for it", host.name()));
    return turns_.listen(host, !rests(host));
  }
  if (!added) {
    ++counters_.queues_refused;
    recurring_notice_about(
        host, "refused",
        fmt::format("refused a further queue of host {}: it needs mode R, and {} queues are the most", host.name(),
                    kMaxQueues));
  }
  pace_heartbeats();
  turns_.listen(host, !rests(host));
}

void IoUnit::drop_dead_queues(AttachedHost& host, Time now) {
  if (!host.has_dead_queues(now)) return;
  turns_.listen(host, false);
  host.drop_dead_queues(now);
  turns_.listen(host, !rests(host));
  return_memory_at_ = now + kMemoryPause;
}

/// A quiet host that is not up becomes busy each 100 ms at least: its link's deadline. Backwards, because the last one
/// gets the position of one that is dropped.
void IoUnit::drop_dead_hosts(Time now) {
  for (std::size_t at = turns_.busy().size(); at-- > 0;) {
    AttachedHost* const host = turns_.busy()[at];
    drop_dead_queues(*host, now);
    if (host->up()) continue;
    const bool hung_up =
        host->bridge().link() == fabric::LinkState::down && host->session().state() == messaging::SessionState::down;
    const bool gone = hung_up || host->ejected();
    const bool hopeless = host->down_since() != kNever && now - host->down_since() > kDownLimit;
    if (!gone && !hopeless) continue;
    if (hopeless && !gone) {
      ++counters_.hosts_evicted;
      recurring_notice_about(*host, "refused",
                             fmt::format("closed the bridge of {}: its session did not come up",
                                         host->name().empty() ? "a nameless peer" : "host " + host->name()));
    }
    forget_learned(*host);
    unpin(*host);
    if (host->is_admitted()) change_policy([&](Policy& policy) { policy.detach(host->name(), now); });
    keep_counts_of(*host);
    share_.remove(host->number().value);
    turns_.remove(*host);
    hosts_[host->number().value].reset();
    filters_changed();
    pace_heartbeats();
    return_memory_at_ = now + kMemoryPause;
  }
}

void IoUnit::keep_counts_of(const AttachedHost& departing) {
  const auto totals = departing.totals();
  departed_ += totals;
  counters_.departed_rx_frames += totals.session.rx_frames;
  counters_.departed_tx_frames += totals.session.tx_frames;
  for (std::size_t index = 0; index < kHostDrops; ++index) {
    counters_.departed_drops += departing.drops(static_cast<HostDrop>(index));
  }
}

/// A host's buffers take a megabyte or more; the allocator would keep what many hosts have freed.
void IoUnit::return_memory(Time now) {
  if (now < return_memory_at_) return;
  return_memory_at_ = kNever;
  os::return_free_memory();
}

/// Reports changes of the LAN to the hosts.
void IoUnit::follow_lan() {
  const bool carrier = lan_.carrier();
  const std::uint32_t mtu = max_mtu();
  if (carrier != lan_carrier_ || mtu != lan_mtu_) {
    if (carrier != lan_carrier_)
      notices_.notice(fmt::format("LAN {}: {}", lan_.name(), carrier ? "carrier" : "no carrier"));
    lan_carrier_ = carrier;
    lan_mtu_ = mtu;
    turns_.attend_all(now_);
    for (auto& host : hosts_) {
      if (!host) continue;
      host->session().set_max_mtu(mtu);
      if (host->up() && !outgrown(*host)) {
        host->session().request(lan_state());
      }
    }
  }
  const std::size_t sessions = hosts_up();
  if (sessions != reported_sessions_) {
    reported_sessions_ = sessions;
    lan_.on_sessions(sessions, now_);
  }
}

wire::LinkState IoUnit::lan_state() const { return {.up = lan_.carrier(), .speed_mbps = 0, .max_mtu = max_mtu()}; }

/// Resets a session whose elements are too small for the LAN's present MTU.
bool IoUnit::outgrown(AttachedHost& host) {
  if (host.session().max_mtu() >= max_mtu()) return false;
  host.session().reset("the LAN's MTU has grown: larger elements are needed");
  return true;
}

std::size_t IoUnit::hosts_up() const {
  const auto busy = std::ranges::count_if(turns_.busy(), [](const AttachedHost* host) { return host->up(); });
  return turns_.quiet_up() + static_cast<std::size_t>(busy);
}

// --- Hosts
// ------------------------------------------------------------------------------------------------------------

/// Why the host may not send from this frame's source; nullopt: it may. A frame of the LAN does not take an address
/// from a host that is using it: it may be forged, or the host's own, which a loop or a switch has sent back.
std::optional<HostDrop> IoUnit::why_not_source(const AttachedHost& from, const frame::EthernetHeader& header) const {
  const MacAddress& source = header.source;
  if (source == from.mac()) return std::nullopt;
  if (source.is_multicast() || source.is_zero()) return HostDrop::from_host_bad_source;
  if (is_another_units(source)) return HostDrop::from_host_forged;
  const HostRights& rights = from.rights();
  if (std::ranges::find(rights.addresses, source) != rights.addresses.end()) return std::nullopt;
  if (policy_->is_another_hosts(source, from.name(), now_)) return HostDrop::from_host_forged;
  if (!rights.foreign_sources) return HostDrop::from_host_not_allowed;
  if (!policy_->is_lan_stations(source, now_)) return std::nullopt;
  const bool unchanged = from.vlans().inward(header) == VlanMembership::Inward::unchanged;
  const std::uint16_t vlan = unchanged ? header.vlan_id : from.vlans().access();
  if (table_.is_in_use(source, vlan, from.number(), now_) && !policy_->is_lan_address(source)) return std::nullopt;
  return HostDrop::from_host_lan_source;
}

tl::expected<MacAddress, Refusal> IoUnit::register_host(Policy& policy, AttachedHost& attached,
                                                        const wire::HelloRequest& hello) {
  const auto refuse = [](wire::CfgStatus status, std::string why) {
    return tl::unexpected(Refusal{status, std::move(why)});
  };
  const auto process = attached.bridge().peer();
  if (auto why = policy.why_not_name(hello.name, process)) {
    ++counters_.names_refused;
    return refuse(wire::CfgStatus::not_permitted, std::move(*why));
  }
  const bool is_here = std::ranges::any_of(hosts_, [&](const auto& host) {
    return host && host.get() != &attached && host->name() == hello.name && host->is_admitted();
  });
  if (is_here || policy.is_attached_elsewhere(hello.name, number())) {
    return refuse(wire::CfgStatus::busy, fmt::format("a host named {} is here already", hello.name));
  }
  MacAddress mac = hello.requested_mac;
  const auto behind_another = [&](const MacAddress& address) { return is_behind_another(address, attached, policy); };
  if (mac.is_zero()) mac = policy.address_for(hello.name, now_, behind_another).value_or(MacAddress{});
  if (mac.is_zero()) return refuse(wire::CfgStatus::no_resources, "no address is free for it");
  if (mac.is_multicast()) return refuse(wire::CfgStatus::invalid_parameter, "a host can't have a multicast address");
  unpin(attached);
  auto why = policy.why_not_address(hello.name, mac, now_, behind_another);
  if (!why && !pin(mac, attached)) why = fmt::format("address {} is another host's", to_string(mac));
  if (why) {
    ++counters_.addresses_refused;
    return refuse(wire::CfgStatus::not_permitted, std::move(*why));
  }
  policy.attach(hello.name, process, mac, now_, number());
  attached.admitted(hello.name, mac, policy.rights_of(hello.name));
  pin_configured(attached, policy);
  return mac;
}

tl::expected<messaging::HelloGrant, Refusal> IoUnit::admit(AttachedHost& attached, const wire::HelloRequest& hello) {
  tl::expected<MacAddress, Refusal> mac;
  if (lan_.mtu() < wire::kMinMtu) {
    mac = tl::unexpected(Refusal{
        wire::CfgStatus::no_resources,
        fmt::format("the MTU of LAN {} is {}, below the minimum of {}", lan_.name(), lan_.mtu(), wire::kMinMtu)});
  } else {
    mac = change_policy([&](Policy& policy) { return register_host(policy, attached, hello); });
  }
  if (mac) return messaging::HelloGrant{.mac = *mac, .max_mtu = max_mtu(), .link_up = lan_.carrier()};
  ++counters_.hosts_refused;
  recurring_notice_about(attached, "refused", fmt::format("refused host {}: {}", hello.name, mac.error().text));
  return tl::unexpected(std::move(mac.error()));
}

Answer IoUnit::change_mac(AttachedHost& attached, const MacAddress& wanted) {
  if (wanted == attached.mac()) return wire::MacAddressReply{wanted};
  if (wanted.is_multicast() || wanted.is_zero()) {
    return tl::unexpected(Refusal{wire::CfgStatus::invalid_parameter, "a host can't have this address"});
  }
  auto refusal = change_policy([&](Policy& policy) {
    auto why = policy.why_not_address(attached.name(), wanted, now_, [&](const MacAddress& address) {
      return is_behind_another(address, attached, policy);
    });
    if (why) return why;
    unpin(attached.mac(), attached);
    if (!pin(wanted, attached)) {
      static_cast<void>(pin(attached.mac(), attached));  // nobody else has got it since: that takes the policy
      return std::optional(fmt::format("address {} is another host's", to_string(wanted)));
    }
    policy.attach(attached.name(), attached.bridge().peer(), wanted, now_, number());
    pin_configured(attached, policy);  // the last address may be one of these
    return why;
  });
  if (refusal) {
    ++counters_.addresses_refused;
    recurring_notice_about(
        attached, "address",
        fmt::format("host {} keeps address {}: {}", attached.name(), to_string(attached.mac()), *refusal));
    return tl::unexpected(Refusal{wire::CfgStatus::not_permitted, std::move(*refusal)});
  }
  attached.set_mac(wanted);
  notice_about(attached, "state", fmt::format("host {}: address {}", attached.name(), to_string(wanted)));
  return wire::MacAddressReply{wanted};
}

void IoUnit::host_up(AttachedHost& attached) {
  notice_about(attached, "state",
               fmt::format("host {} is up: address {}, mode {}", attached.name(), to_string(attached.mac()),
                           attached.session().mode() == wire::Mode::rdma ? 'R' : 'S'));
  // The answer to the hello may be out of date by now.
  if (!outgrown(attached)) attached.session().request(lan_state());
}

void IoUnit::host_down(AttachedHost& attached, std::string_view reason) {
  if (!attached.is_admitted()) return;
  attached.hung_up();
  notice_about(attached, "state", fmt::format("host {} is down: {}", attached.name(), reason));
  forget_learned(attached);
  unpin(attached);
  change_policy([&](Policy& policy) { policy.detach(attached.name(), now_); });
}

void IoUnit::attend(AttachedHost& attached) { turns_.attend(attached, now_); }

void IoUnit::filters_changed() {
  const auto count_hosts = [&](auto&& has_it) {
    return static_cast<std::size_t>(
        std::count_if(hosts_.begin(), hosts_.end(), [&](const auto& host) { return host && has_it(*host); }));
  };
  promiscuous_hosts_ = count_hosts([](const AttachedHost& host) { return host.promiscuous(); });
  hosts_that_want_unknown_ = count_hosts([](const AttachedHost& host) { return host.wants_unknown(); });
  tell_group_wants();
}

void IoUnit::filter_limited(AttachedHost& attached, const std::string& why) {
  ++counters_.filters_limited;
  recurring_notice_about(attached, "filter", fmt::format("host {}: {}", attached.name(), why));
}

wire::Statistics IoUnit::lan_statistics() const {
  const auto& lan = lan_.counters();
  const auto drops = [this](LanDrop cause) { return counters_.lan_drops[static_cast<std::size_t>(cause)]; };
  wire::Statistics statistics;
  // Frames for others on the LAN (lan_to_lan, lan_unwanted) are no loss.
  statistics.from_interface = {.frames = counters_.lan_frames,
                               .bytes = counters_.lan_bytes,
                               .errors = lan.rx_truncated + lan.rx_undescribed + drops(LanDrop::lan_malformed) +
                                         drops(LanDrop::lan_bad_source) + drops(LanDrop::lan_bad_offload),
                               .drops = lan.rx_kernel_drops + drops(LanDrop::lan_forged) +
                                        drops(LanDrop::lan_udp_oversize) + drops(LanDrop::lan_oversize) +
                                        drops(LanDrop::lan_over_share)};
  statistics.to_interface = {
      .frames = lan.tx_frames, .bytes = counters_.lan_bytes_sent, .errors = lan.tx_errors, .drops = 0};
  return statistics;
}

void IoUnit::host_says(AttachedHost& attached, const std::string& text) {
  notice_about(attached, "words", fmt::format("host {} says: {}", attached.name(), text));
}

// By the host's place, not by its name: places are few, and names are the hosts' choice.
void IoUnit::notice_about(const AttachedHost& about, std::string_view kind, const std::string& line) {
  notices_.notice_from(fmt::format("host {} {}", about.number().value, kind), line);
}

void IoUnit::recurring_notice_about(const AttachedHost& about, std::string_view kind, const std::string& line) {
  notices_.recurring_notice_from(fmt::format("host {} {}", about.number().value, kind), line);
}

// --- Sleeping and stopping
// --------------------------------------------------------------------------------------------

Time IoUnit::next_deadline() const {
  Time deadline = std::min({policy_due(), lan_.next_deadline(), bridges_.next_deadline(), return_memory_at_,
                            pin_again_at_, turns_.next_deadline()});
  for (const AttachedHost* const host : turns_.busy()) {
    const Time rested = share_.rest_until(host->number().value);
    deadline = std::min(deadline, rests(*host) ? rested : host->next_deadline());
    if (host->down_since() != kNever) deadline = std::min(deadline, host->down_since() + kDownLimit);
  }
  return deadline;
}

bool IoUnit::prepare_sleep() {
  if (!lan_.prepare_sleep()) return false;
  return std::ranges::all_of(turns_.busy(),
                             [this](AttachedHost* host) { return rests(*host) || host->prepare_sleep(); });
}

void IoUnit::disarm() {
  lan_.disarm();
  turns_.awake();
  for (AttachedHost* const host : turns_.busy()) {
    if (!rests(*host)) host->disarm();
  }
}

// A host's word about its core may be a lie, so it counts for this host alone: the unit spins as long as a host with
// traffic does not wait for the core.
bool IoUnit::peer_waits_for_core() {
  bool some_wait = false;
  bool some_do_not = false;
  for (AttachedHost* const host : turns_.busy()) {
    const bool waits = host->peer_waits_for_core();  // call it for every host: it notes since when each one waits
    if (now_ - host->last_frame_at() > kActive) continue;
    (waits ? some_wait : some_do_not) = true;
  }
  return some_wait && !some_do_not;
}

void IoUnit::collect_descriptors(std::vector<int>& out) const {
  lan_.collect_descriptors(out);
  bridges_.collect_descriptors(out);
  turns_.collect_descriptors(out);
  for (AttachedHost* const host : turns_.busy()) {
    if (host->turn().watched || rests(*host)) continue;  // its doorbells can wait
    host->each_bridge([&](const fabric::Bridge& bridge) {
      if (bridge.doorbell_descriptor() >= 0) out.push_back(bridge.doorbell_descriptor());
    });
  }
}

void IoUnit::begin_shutdown() {
  stopping_ = true;
  for (auto& host : hosts_) {
    if (host) host->begin_shutdown();
  }
}

bool IoUnit::finished() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return !host || host->finished(); });
}

}  // namespace splitnic::iounit
