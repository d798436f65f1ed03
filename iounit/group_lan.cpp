#include "iounit/group_lan.h"

#include <algorithm>
#include <utility>

#include "common/frame/ethernet.h"

namespace splitnic::iounit {

using frame::FrameOffload;

GroupLan::GroupLan(UnitGroup& group, UnitNumber unit, LanEngine& wire) : group_(group), unit_(unit), wire_(wire) {}

// --- From the wire and from the rings
// ----------------------------------------------------------------------------------

/// The rings share half of the budget, so that neither they nor the wire wait for the other.
std::size_t GroupLan::receive(LanSink& sink, std::size_t budget) {
  sink_ = &sink;
  std::size_t taken = 0;
  const std::uint16_t units = group_.units();
  const std::size_t share = std::max<std::size_t>(budget / 2 / (units - 1U), 1);
  for (std::uint16_t n = 0; n < units; ++n) {
    const UnitNumber from{static_cast<std::uint16_t>((first_ring_ + n) % units)};
    if (from != unit_) taken += take_handed(group_.ring(from, unit_), sink, share);
  }
  first_ring_ = static_cast<std::uint16_t>((first_ring_ + 1) % units);
  if (std::exchange(sent_from_ring_, false)) wire_.flush();
  taken += wire_.receive(*this, budget - std::min(taken, budget / 2));
  group_.publish(unit_);
  return taken;
}

std::size_t GroupLan::take_handed(FrameRing& ring, LanSink& sink, std::size_t budget) {
  std::size_t taken = 0;
  while (taken < budget) {
    const auto frame = ring.take();
    if (!frame) break;
    ++taken;
    take_handed(*frame, sink);
  }
  if (taken != 0) ring.settle();
  return taken;
}

void GroupLan::take_handed(const HandedFrame& frame, LanSink& sink) {
  ++counters_.from_others;
  if (!frame.from_lan && !sink.on_unit_frame(frame.bytes, *frame.offload, frame.addressed)) {
    // Its host is not here any more, or not in its VLAN: the address is anybody's.
    const bool taken = send_on_wire(frame.bytes, *frame.offload);
    ++(taken ? counters_.to_wire : counters_.refused);
    sent_from_ring_ = true;
    return;
  }
  ++counters_.to_unit;
  if (!frame.from_lan) return;
  if (frame.offload) {
    sink.on_lan_frame(frame.bytes, *frame.offload);
  } else {
    sink.on_lan_frame(frame.bytes);
  }
}

/// A frame that the unit itself drops, whatever its destination, is for this unit alone, which counts the cause.
GroupLan::Receivers GroupLan::receivers_of(std::span<const std::byte> head) {
  const Receivers own{.units = just(unit_)};
  const auto header = frame::parse_ethernet(head);
  if (!header || header->source.is_multicast() || header->source.is_zero()) return own;
  if (group_.places().host_at(header->source)) return own;
  group_.places().learn(header->source, header->vlan_id, kLanSide, now_);
  if (header->destination.is_link_local_group()) return own;
  return group_.places().receivers_of_lan(*header, unit_, now_);
}

void GroupLan::from_wire(std::span<const std::byte> frame, const FrameOffload* offload) {
  ++counters_.from_wire;
  const Receivers receivers = receivers_of(frame);
  const bool for_unit = (receivers.units & just(unit_)) != 0;
  const HandedFrame handed{
      .bytes = frame, .offload = offload != nullptr ? std::optional(*offload) : std::nullopt, .from_lan = true};
  const std::size_t others = hand_to(receivers.units & ~just(unit_), handed, receivers);
  counters_.copies += others + (for_unit ? 1 : 0) - 1;
  if (!for_unit) return;
  ++counters_.to_unit;
  if (offload != nullptr) {
    sink_->on_lan_frame(frame, *offload);
  } else {
    sink_->on_lan_frame(frame);
  }
}

messaging::FrameMemory GroupLan::place_for(std::span<const std::byte> frame, std::size_t head_bytes,
                                           const FrameOffload& offload) {
  if (receivers_of(frame.first(head_bytes)).units != just(unit_)) return {};
  return sink_->place_for(frame, head_bytes, offload);
}

void GroupLan::on_placed_frame(std::span<const std::byte> frame, std::size_t head_bytes, const FrameOffload& offload) {
  ++counters_.from_wire;
  ++counters_.to_unit;
  sink_->on_placed_frame(frame, head_bytes, offload);
}

// --- From the unit's hosts
// --------------------------------------------------------------------------------------------

std::size_t GroupLan::hand_to(UnitSet units, HandedFrame frame, const Receivers& receivers) {
  std::size_t copies = 0;
  for (std::uint16_t number = 0; number < group_.units(); ++number) {
    const UnitNumber to{number};
    if ((units & just(to)) == 0) continue;
    ++copies;
    frame.addressed = receivers.addressed == to;
    ++(group_.ring(unit_, to).add(frame) ? counters_.to_others : counters_.full);
  }
  return copies;
}

GroupLan::Receivers GroupLan::receivers_of(const frame::EthernetHeader& header) const {
  if (groups_on_wire_ && header.destination.is_multicast()) return {.lan = true};
  return group_.places().receivers(header, unit_, now_);
}

bool GroupLan::send_on_wire(std::span<const std::byte> frame, const FrameOffload& offload) {
  if (!offload.asks_for_work()) return wire_.send(frame);
  return wire_.takes_offloads(offload.kind) && wire_.send_unfinished(frame, offload);
}

bool GroupLan::send_unfinished(std::span<const std::byte> frame, const FrameOffload& offload) {
  const auto header = frame::parse_ethernet(frame);
  const Receivers receivers = header ? receivers_of(*header) : Receivers{.lan = true};
  const std::size_t others = hand_to(receivers.units, {.bytes = frame, .offload = offload}, receivers);
  if (!receivers.lan) {
    counters_.copies += others - 1;
  } else if (send_on_wire(frame, offload)) {
    counters_.copies += others;
    ++counters_.to_wire;
  } else {
    counters_.copies += others;
    return false;
  }
  ++counters_.from_unit;
  return true;
}

void GroupLan::let_others_overhear(std::span<const std::byte> frame, const FrameOffload& offload) {
  const UnitSet units = group_.places().want_unicast() & ~just(unit_);
  counters_.copies += hand_to(units, {.bytes = frame, .offload = offload}, {});
}

/// A payload that a host can still write is read by the kernel, not by this thread for a ring.
bool GroupLan::gathers(std::span<const std::byte> head, std::size_t frame_bytes) const {
  const auto header = frame::parse_ethernet(head);
  if (!header || !wire_.gathers(head, frame_bytes)) return false;
  return receivers_of(*header) == Receivers{.lan = true};
}

bool GroupLan::send_gathered(std::span<const std::byte> head, std::span<const iovec> payload,
                             const FrameOffload& offload) {
  if (!wire_.send_gathered(head, payload, offload)) return false;
  ++counters_.from_unit;
  ++counters_.to_wire;
  return true;
}

void GroupLan::flush() {
  wire_.flush();
  group_.publish(unit_);
}

void GroupLan::poll(Time now) {
  now_ = now;
  wire_.poll(now);
}

void GroupLan::collect_descriptors(std::vector<int>& out) const {
  wire_.collect_descriptors(out);
  out.push_back(group_.descriptor(unit_));
}

}  // namespace splitnic::iounit
