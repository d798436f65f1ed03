// What the hosts' stacks and the LAN's stations send.
#include <algorithm>

#include "world.h"

namespace splitnic::sim {

namespace {

constexpr MacAddress kUnknownStation{{0x02, 0x20, 0, 0, 0, 0x77}};

}  // namespace

void World::plan_traffic() {
  const Duration gap = between(random_, Duration(1000), 2 * scenario_.traffic_gap);
  at(now_ + gap, [this] {
    if (healed_) return;
    burst();
    plan_traffic();
  });
}

void World::burst() {
  const std::size_t senders = hosts_.size() + kLanStations;
  const std::size_t drawn = random_.below(senders);
  burst_from(drawn < hosts_.size() ? drawn : lan_sender(drawn - hosts_.size()));
}

void World::burst_from(std::size_t sender) {
  const std::uint64_t frames = between(random_, 1, scenario_.burst_max);
  for (std::uint64_t i = 0; i < frames; ++i) {
    SentFrame frame = draw_frame(sender);
    draw_source(frame);
    send(frame);
  }
}

/// The largest payload that every station of this world can take.
std::uint32_t World::common_mtu() const {
  std::uint32_t mtu = scenario_.lan_mtu;
  for (const auto& host : scenario_.hosts) mtu = std::min(mtu, host.session.max_mtu);
  return mtu;
}

SentFrame World::draw_frame(std::size_t sender) {
  SentFrame frame;
  frame.sender = sender;
  frame.destination = draw_destination(sender);
  frame.source = sender < kMaxHosts ? hosts_[sender]->nic().current().mac : lan_station_mac(sender - kMaxHosts);
  frame.vlan = one_in(random_, 8) ? 5 : 0;
  const std::uint32_t least = FrameBook::min_bytes(frame.vlan);
  std::uint32_t most = FrameBook::header_bytes(frame.vlan) + common_mtu();
  if (!one_in(random_, 4)) most = least + (most - least) / 8;  // most frames are small
  const auto kind = random_.below(4);
  frame.bytes = kind == 0 ? least : kind == 1 ? most : static_cast<std::uint32_t>(between(random_, least, most));
  return frame;
}

MacAddress World::draw_destination(std::size_t sender) {
  switch (random_.below(8)) {
    case 0:
      return kBroadcastMac;
    case 1:
      return group_mac(random_.below(kGroups));
    case 2:
      return kUnknownStation;
    case 3:
    case 4:
      return lan_station_mac(random_.below(kLanStations));
    default: {
      const std::size_t host = random_.below(hosts_.size());
      if (host == sender) return lan_station_mac(0);
      return hosts_[host]->nic().current().mac;
    }
  }
}

/// Now and then a source address that no honest sender uses.
void World::draw_source(SentFrame& frame) {
  if (!one_in(random_, 24)) return;
  switch (random_.below(3)) {
    case 0:
      frame.source = one_in(random_, 2) ? MacAddress{} : group_mac(0);
      frame.forbidden = true;
      return;
    case 1:  // another host's: refused while that host is there
      frame.source = hosts_[random_.below(hosts_.size())]->nic().current().mac;
      return;
    default: {
      if (frame.sender >= kMaxHosts) return;
      const HostScenario& host = scenario_.hosts[frame.sender];
      if (!host.restricted) return;
      frame.source = host.macs.back();
      frame.forbidden = true;
      return;
    }
  }
}

void World::send(SentFrame frame) {
  frame.sent = now_;
  if (frame.judged) frame.expected = receivers_of(frame);
  if (frame.sender < kMaxHosts) {
    hosts_[frame.sender]->nic().send(frame);
  } else {
    unit_->lan().send_from_station(frame);
  }
}

/// Who shall have this frame, after the heal: as a switch and NICs with these settings do it.
Receivers World::receivers_of(const SentFrame& frame) const {
  if (frame.forbidden) return 0;
  const bool from_host = frame.sender < kMaxHosts;
  Receivers receivers = 0;
  bool at_a_host = false;
  for (std::size_t index = 0; index < hosts_.size(); ++index) {
    const auto& settings = hosts_[index]->nic().current();
    const bool own_source = frame.source == settings.mac;
    if (own_source && index != frame.sender) return 0;  // forged
    at_a_host = at_a_host || settings.mac == frame.destination;
    if (index == frame.sender) continue;
    const bool wanted = frame.destination.is_broadcast() || frame.destination == settings.mac ||
                        std::ranges::binary_search(settings.multicast, frame.destination) || settings.promiscuous;
    if (wanted) receivers |= receiver_bit(index);
  }
  if (from_host && !at_a_host) receivers |= receiver_bit(kLan);
  return receivers;
}

}  // namespace splitnic::sim
