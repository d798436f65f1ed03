// IoUnit, frames: from the LAN and from hosts to their receivers.
#include <algorithm>
#include <array>
#include <cstring>

#include "common/check.h"
#include "common/frame/ip.h"
#include "iounit/io_unit.h"

namespace splitnic::iounit {

namespace wire = messaging::wire;
using frame::FrameOffload;

AttachedHost* IoUnit::host_at(ForwardingTarget number) {
  return number.value < hosts_.size() ? hosts_[number.value].get() : nullptr;
}

IoUnit::Destination IoUnit::destination_of(const frame::EthernetHeader& header) {
  if (header.destination.is_multicast()) return {};
  const auto at = table_.find(header.destination, header.vlan_id, now_);
  AttachedHost* const host = at ? host_at(*at) : nullptr;
  const bool for_certain = host != nullptr ? header.destination == host->mac() : at.has_value();
  if (group_ != nullptr && !for_certain && is_elsewhere(header)) return {.known = true};
  // In a VLAN that the host is not in, its address may be anybody's.
  if (host != nullptr && !host->vlans().outward(header)) return {};
  return {.known = at.has_value(), .addressed = host};
}

bool IoUnit::overhears(const AttachedHost& host, const frame::EthernetHeader& header, const Destination& destination) {
  if (!host.up()) return false;
  if (header.destination.is_multicast()) return host.accepts(header);
  // An address in the table belongs to one host; any other host must be promiscuous to get a copy.
  return destination.known ? host.promiscuous() && host.accepts(header) : host.accepts_unknown(header);
}

/// Avoids a walk over the hosts for nearly every unicast frame.
bool IoUnit::nobody_overhears(const frame::EthernetHeader& header, const Destination& destination) const {
  return !header.destination.is_multicast() && promiscuous_hosts_ == 0 &&
         (destination.known || hosts_that_want_unknown_ == 0);
}

std::size_t IoUnit::find_receivers(const frame::EthernetHeader& header, const Destination& destination,
                                   AttachedHost* from, std::uint64_t frames) {
  receivers_.clear();
  std::size_t refused = 0;
  if (AttachedHost* const addressed = destination.addressed) {
    if (addressed == from) {
      addressed->count(HostDrop::from_host_to_itself);
      ++refused;
    } else if (!addressed->accepts_addressed(header)) {
      addressed->count(HostDrop::to_host_filtered);
      ++refused;
    } else {
      receivers_.push_back(addressed);
    }
  }
  if (nobody_overhears(header, destination)) return refused;
  for (auto& host : hosts_) {
    if (!host || host.get() == destination.addressed || host.get() == from) continue;
    if (overhears(*host, header, destination)) receivers_.push_back(host.get());
  }
  if (from == nullptr || header.audience() != frame::Audience::multicast) return refused;
  const bool for_others = group_ != nullptr && group_->others_want_groups();
  if ((receivers_.empty() && !for_others) || from->may_be_copied(frames)) return refused;
  if (for_others) {
    group_->keep_groups_on_wire(true);
    from->count(HostDrop::from_host_copies);
    ++refused;
  }
  refused += receivers_.size();
  for (; !receivers_.empty(); receivers_.pop_back()) from->count(HostDrop::from_host_copies);
  return refused;
}

void IoUnit::deliver(AttachedHost& to, AttachedHost* from, const frame::EthernetHeader& header,
                     const FrameInHand& frame, const frame::UnfinishedFrame* unfinished) {
  const std::size_t sender = from == nullptr ? ReceiverShare::kLan : ReceiverShare::of_host(from->number().value);
  const bool within_share = to.deliver(sender, header, frame, unfinished);
  if (from == nullptr) {
    if (!within_share) count(LanDrop::lan_over_share);
  } else if (!within_share) {
    from->count(HostDrop::from_host_over_share);
  } else if (header.destination.is_multicast()) {
    from->note_copy(frame.bytes.size());
  }
}

std::size_t IoUnit::forward_to_hosts(const frame::EthernetHeader& header, const Destination& destination,
                                     std::span<const std::byte> frame, AttachedHost* from) {
  const std::size_t refused = find_receivers(header, destination, from, 1);
  for (AttachedHost* const host : receivers_) deliver(*host, from, header, frame);
  return refused + receivers_.size();
}

std::size_t IoUnit::forward_unfinished(const frame::EthernetHeader& header, const Destination& destination,
                                       FrameInHand& frame, const frame::UnfinishedFrame& unfinished,
                                       AttachedHost* from) {
  std::size_t copies = find_receivers(header, destination, from, unfinished.frames);
  const auto unable = std::ranges::partition(
      receivers_, [&](const AttachedHost* host) { return unfinished.whole && host->takes(unfinished.offload); });
  const std::span able(receivers_.begin(), unable.begin());
  const bool for_lan = from != nullptr && destination.addressed == nullptr;
  const bool lan_takes = unfinished.whole && lan_.takes_offloads(unfinished.offload.kind);
  if (!frame.is_whole()) {
    // One receiver alone may read the payload from where it is.
    const bool lan_alone = able.empty() && for_lan && lan_takes && lan_.gathers(frame.head(), frame.bytes.size());
    const bool host_alone = able.size() == 1 && !for_lan;
    if (frame.placed_in != nullptr) {
      SPLITNIC_CHECK(receivers_.empty() || (host_alone && unable.empty() && able.front() == frame.placed_in));
    } else if (!unable.empty() || !(lan_alone || host_alone)) {
      complete(frame);
    }
  }
  for (AttachedHost* const host : able) {
    deliver(*host, from, header, frame, &unfinished);
    ++copies;
    ++counters_.passed_unfinished;
  }
  if (for_lan && lan_takes) {
    send_to_lan(*from, frame, unfinished.offload);
    ++copies;
    ++counters_.passed_unfinished;
  }
  if (unable.empty() && (lan_takes || !for_lan)) return copies;

  host_merger_.flush(towards_lan_);  // what is cut is not merged again
  const auto emit = [&](std::span<const std::byte> finished) {
    for (AttachedHost* const host : unable) deliver(*host, from, header, finished);
    copies += unable.size();
    if (!for_lan || lan_takes) return;
    put_on_lan(*from, finished, {});
    ++copies;
  };
  const auto result = offload_.complete(frame.bytes, unfinished.offload, lan_mtu_, emit);
  count_finished(result, from == nullptr);
  return copies;
}

void IoUnit::count_finished(frame::OffloadResult result, bool from_lan) {
  if (result == frame::OffloadResult::finished) {
    ++(from_lan ? counters_.lan_checksums_completed : counters_.host_checksums_completed);
  } else if (result == frame::OffloadResult::segmented) {
    ++(from_lan ? counters_.lan_segmented : counters_.host_segmented);
  }
}

namespace {

/// nullopt: the frame is not dropped.
std::optional<LanDrop> drop_of(frame::OffloadResult result) {
  switch (result) {
    case frame::OffloadResult::unchanged:
    case frame::OffloadResult::finished:
    case frame::OffloadResult::segmented:
      break;
    case frame::OffloadResult::dropped_udp_oversize:
      return LanDrop::lan_udp_oversize;
    case frame::OffloadResult::dropped_malformed:
      return LanDrop::lan_malformed;
    case frame::OffloadResult::dropped_oversize:
      return LanDrop::lan_oversize;
    case frame::OffloadResult::dropped_bad_offload:
      return LanDrop::lan_bad_offload;
  }
  return std::nullopt;
}

}  // namespace

/// For the plain case alone: what overhears, or takes no super-frame, gets the frames as they came.
bool IoUnit::TowardsHosts::wants_merged(const frame::EthernetHeader& header, frame::SegmentKind kind) {
  const Destination destination = unit.destination_of(header);
  return destination.addressed != nullptr && unit.nobody_overhears(header, destination) &&
         destination.addressed->takes({.partial_checksum = true, .kind = kind});
}

void IoUnit::TowardsHosts::on_kept_frame(std::span<const std::byte> frame, const FrameOffload* offload,
                                         std::size_t segments, std::size_t received_bytes) {
  unit.counters_.lan_frames += segments - 1;
  unit.counters_.lan_merged += segments - 1;
  unit.counters_.lan_bytes += received_bytes - frame.size();
  unit.take_lan_frame(frame, offload);
}

/// Only for the plain case: a frame to a host's own address that nobody else gets. Nothing is counted or learned before
/// the frame is there.
messaging::FrameMemory IoUnit::place_for(std::span<const std::byte> frame, std::size_t head_bytes,
                                         const FrameOffload& offload) {
  lan_merger_.flush(towards_hosts_);  // older frames of the same connection
  const auto head = frame.first(head_bytes);
  if (!offload.asks_for_work() || !frame::holds_all_headers(head)) return {};
  const auto header = frame::parse_ethernet(head);
  const Destination destination = destination_of(*header);
  placed_in_ = destination.addressed;
  if (placed_in_ == nullptr || header->destination != placed_in_->mac() || !nobody_overhears(*header, destination) ||
      !placed_in_->accepts_addressed(*header)) {
    return {};
  }
  const auto unfinished = frame::judge_unfinished(frame, offload, lan_mtu_);
  if (!unfinished.whole || !placed_in_->takes(unfinished.offload)) return {};
  return placed_in_->place(*header, frame.size());
}

void IoUnit::on_placed_frame(std::span<const std::byte> frame, std::size_t head_bytes, const FrameOffload& offload) {
  FrameInHand in_hand(frame, head_bytes);
  in_hand.placed_in = placed_in_;
  take_lan_frame(in_hand, &offload);
}

void IoUnit::take_lan_frame(FrameInHand in_hand, const frame::FrameOffload* offload, Origin origin) {
  const auto frame = in_hand.bytes;
  ++counters_.lan_frames;
  counters_.lan_bytes += frame.size();
  moved_.add(frame.size());
  const auto header = frame::parse_ethernet(frame);
  if (!header) return count(LanDrop::lan_malformed);
  if (origin == Origin::lan && is_another_units(header->source)) return count(LanDrop::lan_forged);
  using Learned = ForwardingTable::Learned;
  const Learned learned = table_.learn(header->source, header->vlan_id, kLanTarget, now_);
  if (learned == Learned::kNoAddress) return count(LanDrop::lan_bad_source);
  if (learned == Learned::kPinned) return count(LanDrop::lan_forged);
  if (origin == Origin::lan) policy_->heard_on_lan(header->source, now_);
  if (header->destination.is_link_local_group()) return count(LanDrop::lan_link_local);
  const Destination destination = destination_of(*header);
  const auto takes = [&](const auto& host) { return host && overhears(*host, *header, destination); };
  if (destination.addressed == nullptr &&
      (nobody_overhears(*header, destination) || std::none_of(hosts_.begin(), hosts_.end(), takes))) {
    return count(destination.known ? LanDrop::lan_to_lan : LanDrop::lan_unwanted);
  }
  std::size_t copies = 0;
  if (offload != nullptr && offload->asks_for_work()) {
    const auto unfinished = frame::judge_unfinished(frame, *offload, lan_mtu_);
    if (const auto cause = drop_of(unfinished.result)) return count(*cause);
    copies = forward_unfinished(*header, destination, in_hand, unfinished, nullptr);
  } else {
    const auto forward = [&](std::span<const std::byte> finished) {
      copies += forward_to_hosts(*header, destination, finished, nullptr);
    };
    const auto result = offload == nullptr ? offload_.complete(frame, lan_mtu_, forward)
                                           : offload_.complete(frame, *offload, lan_mtu_, forward);
    if (const auto cause = drop_of(result)) return count(*cause);
    count_finished(result, true);
  }
  if (copies > 1) counters_.copies += copies - 1;
}

namespace {

/// The same for a frame of a host.
std::optional<HostDrop> host_drop_of(frame::OffloadResult result) {
  switch (result) {
    case frame::OffloadResult::unchanged:
    case frame::OffloadResult::finished:
    case frame::OffloadResult::segmented:
      break;
    case frame::OffloadResult::dropped_udp_oversize:
    case frame::OffloadResult::dropped_oversize:
      return HostDrop::from_host_too_long;
    case frame::OffloadResult::dropped_malformed:
      return HostDrop::from_host_malformed;
    case frame::OffloadResult::dropped_bad_offload:
      return HostDrop::from_host_bad_offload;
  }
  return std::nullopt;
}

std::optional<HostDrop> why_not_claim(const IpGuard& guard, const frame::EthernetHeader& header,
                                      std::span<const std::byte> frame) {
  switch (forbidden_claim(guard, header, frame)) {
    case IpClaim::none:
      break;
    case IpClaim::address:
      return HostDrop::from_host_ip_address;
    case IpClaim::dhcp_server:
      return HostDrop::from_host_dhcp_server;
    case IpClaim::router:
      return HostDrop::from_host_router;
  }
  return std::nullopt;
}

/// Puts the tag of this VLAN into the frame, which lies in memory behind room for one. Returns where the frame is now.
std::span<std::byte> put_tag(std::span<std::byte> memory, std::span<std::byte> frame, VlanMembership::Inward how,
                             std::uint16_t vlan) {
  constexpr std::size_t kAddresses = 2 * sizeof(MacAddress);
  if (how == VlanMembership::Inward::tag) {
    std::memmove(memory.data(), frame.data(), kAddresses);
    frame = memory.first(frame.size() + frame::kVlanTagBytes);
    frame[kAddresses] = std::byte{frame::kEtherTypeVlan >> 8U};
    frame[kAddresses + 1] = std::byte{frame::kEtherTypeVlan & 0xffU};
    frame[kAddresses + 2] = {};
  }
  // The upper four bits are the priority, which stays.
  frame[kAddresses + 2] = (frame[kAddresses + 2] & std::byte{0xf0}) | static_cast<std::byte>(vlan >> 8U);
  frame[kAddresses + 3] = static_cast<std::byte>(vlan & 0xffU);
  return frame;
}

}  // namespace

FrameInHand IoUnit::take_in_hand(const messaging::ReceivedFrame& received) {
  const auto frame = std::span(private_copy_).subspan(frame::kVlanTagBytes, received.size());
  FrameInHand in_hand(frame);
  if (received.size() <= kLongFrameBytes || received.offload.kind == frame::SegmentKind::none) {
    received.copy_out(frame);
    return in_hand;
  }
  in_hand.head_bytes = kHeadBytes;
  in_hand.payload = received.behind(kHeadBytes);
  received.first(kHeadBytes).copy_out(frame.first(kHeadBytes));
  if (!frame::holds_all_headers(in_hand.head())) complete(in_hand);
  return in_hand;
}

void IoUnit::complete(FrameInHand& frame) {
  ++counters_.payloads_copied;
  const auto at = static_cast<std::size_t>(frame.bytes.data() - private_copy_.data()) + frame.head_bytes;
  frame.payload.copy_out(std::span(private_copy_).subspan(at, frame.payload.size()));
  frame.head_bytes = frame.bytes.size();
  frame.payload = {};
}

void IoUnit::frame_from_host(AttachedHost& attached, const messaging::ReceivedFrame& received) {
  moved_.add(received.size());
  if (received.size() > wire::kMaxFrameBytes) return attached.count(HostDrop::from_host_too_long);
  FrameInHand in_hand = take_in_hand(received);
  auto frame = in_hand.bytes;
  auto header = frame::parse_ethernet(frame);
  if (!header) return attached.count(HostDrop::from_host_malformed);
  if (const auto cause = why_not_source(attached, *header)) return attached.count(*cause);
  if (header->destination.is_link_local_group()) return attached.count(HostDrop::from_host_link_local);
  attached.note_flow(*header, frame);
  if (const auto cause = why_not_claim(attached.rights().ip, *header, frame)) return attached.count(*cause);
  const FrameOffload& offload = received.offload;
  std::optional<frame::UnfinishedFrame> unfinished;
  if (offload.asks_for_work()) {
    // Only a super-frame may be longer than the MTU.
    const bool too_long = offload.kind == frame::SegmentKind::none && frame.size() > header->payload_offset + lan_mtu_;
    unfinished = frame::judge_unfinished(frame, offload, lan_mtu_);
    const auto cause = too_long ? HostDrop::from_host_too_long : host_drop_of(unfinished->result);
    if (cause) return attached.count(*cause);
  }
  // What leaves counts, not what the host claims: the MTU may cut a super-frame into more.
  const std::uint64_t frames = unfinished ? unfinished->frames : 1;
  if (const auto cause = attached.over_rate(header->audience(), frames)) return attached.count(*cause);
  const auto inward = attached.vlans().inward(*header);
  if (inward == VlanMembership::Inward::refuse) return attached.count(HostDrop::from_host_vlan);
  attached.leaves_as(received, frames);
  if (inward != VlanMembership::Inward::unchanged) {
    const std::size_t untagged_bytes = frame.size();
    const auto untagged = std::span(private_copy_).subspan(frame::kVlanTagBytes, untagged_bytes);
    in_hand.bytes = frame = put_tag(private_copy_, untagged, inward, attached.vlans().access());
    in_hand.head_bytes += frame.size() - untagged_bytes;
    header = frame::parse_ethernet(frame);
    if (unfinished) unfinished->grow(frame.size() - untagged_bytes);
  }
  using Learned = ForwardingTable::Learned;
  const Learned learned = table_.learn(header->source, header->vlan_id, attached.number(), now_);
  if (learned == Learned::kPinned) return attached.count(HostDrop::from_host_forged);
  if (group_ != nullptr && learned != Learned::kTargetFull && header->source != attached.mac()) {
    group_->group().places().learn(header->source, header->vlan_id, side_of(number()), now_);
  }
  const Destination destination = destination_of(*header);
  if (group_ != nullptr && destination.addressed != nullptr && group_->others_overhear()) {
    if (!in_hand.is_whole()) complete(in_hand);
    group_->let_others_overhear(in_hand.bytes, unfinished ? unfinished->offload : FrameOffload{});
    sent_to_lan_ = true;
  }
  std::size_t copies = 0;
  if (unfinished) {
    copies = forward_unfinished(*header, destination, in_hand, *unfinished, &attached);
  } else {
    copies = forward_to_hosts(*header, destination, frame, &attached);
    if (destination.addressed == nullptr) {
      ++copies;
      forward_to_lan(attached, *header, frame);
    }
  }
  if (group_ != nullptr) group_->keep_groups_on_wire(false);
  counters_.copies += copies - 1;  // the addressed host, or the LAN, is always one receiver
}

void IoUnit::forward_to_lan(AttachedHost& from, const frame::EthernetHeader& header, std::span<const std::byte> frame) {
  if (frame.size() - header.payload_offset > lan_mtu_) return from.count(HostDrop::from_host_too_long);
  send_to_lan(from, frame, {});
}

void IoUnit::send_to_lan(AttachedHost& from, const FrameInHand& frame, const FrameOffload& offload) {
  towards_lan_.from = &from;
  if (frame.is_whole()) {
    if (host_merger_.keep(frame.bytes, &offload, lan_mtu_, towards_lan_)) return;
  } else {
    host_merger_.flush(towards_lan_);  // older frames of the same connection
  }
  put_on_lan(from, frame, offload);
}

/// Of a host that makes such super-frames itself: without offloads every frame is finished on the LAN as well, and a
/// kernel that does not know those of UDP is usually the unit's, too.
bool IoUnit::TowardsLan::wants_merged(const frame::EthernetHeader& header, frame::SegmentKind kind) {
  return from->takes({.partial_checksum = true, .kind = kind}) && !header.destination.is_multicast() &&
         unit.lan_.takes_offloads(kind);
}

void IoUnit::TowardsLan::on_kept_frame(std::span<const std::byte> frame, const FrameOffload* offload,
                                       std::size_t segments, std::size_t /*received_bytes*/) {
  unit.counters_.to_lan_merged += segments - 1;
  unit.put_on_lan(*from, frame, *offload);
}

namespace {

/// Whether that is why the LAN refuses the frame. Beyond the MTU an interface has room for one tag, of 802.1Q alone.
bool is_too_long_for(const LanEngine& lan, const FrameInHand& frame, const FrameOffload& offload) {
  const auto header = frame::parse_ethernet(frame.head());
  if (!header || offload.kind != frame::SegmentKind::none || !lan.carrier()) return false;
  const std::size_t tag = header->outer_tpid == frame::kEtherTypeVlan ? frame::kVlanTagBytes : 0;
  return frame.bytes.size() > frame::kEthernetHeaderBytes + tag + lan.mtu();
}

}  // namespace

void IoUnit::put_on_lan(AttachedHost& from, const FrameInHand& frame, const FrameOffload& offload) {
  bool taken = false;
  if (!frame.is_whole()) {
    const messaging::ReceivedFrame& payload = frame.payload;
    const std::array parts{payload.bytes.for_kernel(0, payload.bytes.size()),
                           payload.rest.for_kernel(0, payload.rest.size())};
    taken = lan_.send_gathered(frame.head(), parts, offload);
  } else {
    taken = offload.asks_for_work() ? lan_.send_unfinished(frame.bytes, offload) : lan_.send(frame.bytes);
  }
  if (!taken) {
    return from.count(is_too_long_for(lan_, frame, offload) ? HostDrop::from_host_too_long
                                                            : HostDrop::from_host_lan_refused);
  }
  counters_.lan_bytes_sent += frame.bytes.size();
  sent_to_lan_ = true;
  share_.sent_to_lan(from.number().value);
}

}  // namespace splitnic::iounit
