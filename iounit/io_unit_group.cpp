// IoUnit, group: the policy, and what a unit that is one of several shares with the others.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "iounit/io_unit.h"

namespace splitnic::iounit {

namespace {

constexpr Duration kPinAgain = std::chrono::seconds(1);

}  // namespace

void IoUnit::set_rules(PolicyRules rules) {
  change_policy([&](Policy& policy) { policy.set_rules(std::move(rules)); });
  if (group_ == nullptr) return apply_rules();
  follow_policy(SharedPolicy::Age::now);
}

Time IoUnit::policy_due() const {
  const bool is_newer = group_ != nullptr && group_->group().policy().version() != policy_version_;
  return is_newer ? next_policy_ : kNever;
}

void IoUnit::follow_policy(SharedPolicy::Age age) {
  auto [version, policy, next] = group_->group().policy().copy(now_, age);
  policy_version_ = version;
  next_policy_ = next;
  const bool same_rules = policy_ != nullptr && policy_->has_rules_of(*policy);
  policy_ = std::move(policy);
  if (!same_rules) apply_rules();
}

void IoUnit::apply_rules() {
  turns_.attend_all(now_);
  // First all that go: an address may move from one host's rules to another's.
  for (const auto& host : hosts_) {
    if (!host) continue;
    for (const MacAddress& address : host->rights().addresses) {
      if (address != host->mac()) unpin(address, *host);
    }
  }
  for (auto& host : hosts_) {
    if (!host || host->name().empty()) continue;
    host->set_rights(policy_->rights_of(host->name()));
    if (!host->is_admitted()) continue;
    auto why = policy_->why_not_name(host->name(), host->bridge().peer());
    if (!why) why = policy_->why_not_address(host->name(), host->mac(), now_);
    if (why) host->session().reset(fmt::format("the new policy does not permit this host: {}", *why));
  }
  pin_configured();
}

bool IoUnit::pin(const MacAddress& address, const AttachedHost& host, SharedPlaces::Pin what) {
  if (!table_.pin(address, host.number())) return false;
  if (group_ == nullptr || group_->group().places().pin(address, number(), what)) return true;
  table_.unpin(address, host.number());
  return false;
}

void IoUnit::unpin(const MacAddress& address, const AttachedHost& host) {
  if (table_.unpin(address, host.number()) && group_ != nullptr) group_->group().places().unpin(address, number());
}

void IoUnit::unpin(const AttachedHost& host) {
  unpin(host.mac(), host);
  for (const MacAddress& address : host.rights().addresses) unpin(address, host);
}

/// An address that the rules give to several hosts belongs to the host that uses it.
void IoUnit::pin_configured(const AttachedHost& host, const Policy& policy) {
  for (const MacAddress& address : host.rights().addresses) {
    if (policy.is_configured_for_another(address, host.name())) continue;
    if (pin(address, host, SharedPlaces::Pin::further)) continue;
    // Another unit has yet to apply the new rules, or there are too many addresses.
    pin_again_at_ = now_ + kPinAgain;
    recurring_notice_about(host, "pins",
                           fmt::format("host {}: address {} is not yet kept from the LAN and from other hosts",
                                       host.name(), to_string(address)));
  }
}

void IoUnit::pin_configured() {
  pin_again_at_ = kNever;
  for (const auto& host : hosts_) {
    if (host && host->is_admitted()) pin_configured(*host, *policy_);
  }
}

bool IoUnit::is_behind_another(const MacAddress& address, const AttachedHost& host, const Policy& policy) const {
  const Duration hold = policy.rules().address_hold;
  if (table_.is_behind_another_host(address, host.number(), now_, hold)) return true;
  return group_ != nullptr && group_->group().places().is_behind_another_units_host(address, number(), now_, hold);
}

void IoUnit::forget_learned(const AttachedHost& host) {
  if (table_.forget(host.number()) != 0 && group_ != nullptr) group_->group().places().forget_learned(number());
}

void IoUnit::tell_group_wants() {
  if (group_ == nullptr) return;
  const bool any = std::ranges::any_of(hosts_, [](const auto& host) { return host != nullptr; });
  group_->group().places().set_wants(
      number(), {.groups = any, .unicast = promiscuous_hosts_ != 0, .unknown = hosts_that_want_unknown_ != 0});
}

bool IoUnit::is_elsewhere(const frame::EthernetHeader& header) const {
  const auto side = group_->group().places().find(header.destination, header.vlan_id, now_);
  return side && *side != side_of(number());
}

bool IoUnit::on_unit_frame(std::span<const std::byte> frame, const frame::FrameOffload& offload, bool addressed) {
  if (addressed) {
    const auto header = frame::parse_ethernet(frame);
    if (!header || destination_of(*header).addressed == nullptr) return false;
  }
  take_lan_frame(frame, &offload, Origin::another_unit);
  return true;
}

}  // namespace splitnic::iounit
