#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "iounit/lan_engine.h"
#include "iounit/unit_group.h"

namespace splitnic::iounit {

/// Event counts of one GroupLan. Every frame leaves in one way or more:
///
///     from_wire + from_unit + from_others + copies
///       == to_unit + to_wire + to_others + full + refused
///
/// Of all members together, to_others == from_others + the frames that are in the rings.
struct GroupLanCounters {
  std::uint64_t from_wire = 0;    ///< frames that the wire's engine has delivered
  std::uint64_t from_unit = 0;    ///< frames of this unit's hosts that send() has accepted
  std::uint64_t from_others = 0;  ///< frames from the rings
  std::uint64_t copies = 0;       ///< copies beyond the first, and those of frames that the wire has refused
  std::uint64_t to_unit = 0;      ///< frames that the unit has taken; it counts them as lan_frames
  std::uint64_t to_wire = 0;      ///< frames that the wire's engine has accepted
  std::uint64_t to_others = 0;    ///< frames in the rings
  std::uint64_t full = 0;         ///< lost: a ring had no room
  std::uint64_t refused = 0;      ///< lost: frames from the rings for the wire, which has refused them
};

/// The LAN as one of several I/O units of a daemon has it: an engine of its own for the wire, of whose frames it gets a
/// part, and the hosts of the other units. For each frame SharedPlaces says who gets it: a frame for a host of another
/// unit goes to that unit's ring alone, whether it came from a host or from the wire; frames to groups and to unknown
/// addresses go to the wire and to the units that want them. A frame from a ring goes to no other ring. It goes to the
/// wire if it was for a host that is not here any more. Thread: the unit's.
class GroupLan final : public LanEngine, private LanSink {
 public:
  /// group, wire: lent, outlive this.
  GroupLan(UnitGroup& group, UnitNumber unit, LanEngine& wire);

  void begin_round(Time now) override { wire_.begin_round(now); }
  std::size_t receive(LanSink& sink, std::size_t budget) override;
  [[nodiscard]] Time rests_until() const override { return wire_.rests_until(); }
  bool send(std::span<const std::byte> frame) override { return send_unfinished(frame, {}); }
  [[nodiscard]] bool takes_offloads(frame::SegmentKind kind) const override { return wire_.takes_offloads(kind); }
  bool send_unfinished(std::span<const std::byte> frame, const frame::FrameOffload& offload) override;
  [[nodiscard]] bool gathers(std::span<const std::byte> head, std::size_t frame_bytes) const override;
  bool send_gathered(std::span<const std::byte> head, std::span<const iovec> payload,
                     const frame::FrameOffload& offload) override;
  void flush() override;

  void poll(Time now) override;
  [[nodiscard]] Time next_deadline() const override { return wire_.next_deadline(); }
  [[nodiscard]] bool prepare_sleep() override { return group_.prepare_sleep(unit_); }
  void disarm() override { group_.awake(unit_); }
  [[nodiscard]] bool carrier() const override { return wire_.carrier(); }
  [[nodiscard]] std::uint32_t mtu() const override { return wire_.mtu(); }
  [[nodiscard]] Result<void> reopen_with(const PacketSockets& sockets) override { return wire_.reopen_with(sockets); }
  void on_sessions(std::size_t sessions, Time now) override { wire_.on_sessions(sessions, now); }
  /// The wire's.
  [[nodiscard]] const LanCounters& counters() const override { return wire_.counters(); }
  void collect_descriptors(std::vector<int>& out) const override;
  [[nodiscard]] std::string name() const override { return wire_.name(); }
  [[nodiscard]] std::string_view engine() const override { return wire_.engine(); }

  [[nodiscard]] UnitGroup& group() { return group_; }
  [[nodiscard]] const UnitGroup& group() const { return group_; }
  [[nodiscard]] UnitNumber unit() const { return unit_; }
  /// While on, frames to groups go to the wire alone: their sender has reached its limit of copies.
  void keep_groups_on_wire(bool on) { groups_on_wire_ = on; }
  /// Whether another unit has promiscuous hosts.
  [[nodiscard]] bool others_overhear() const { return group_.places().others_want_unicast(unit_); }
  /// Gives these units a copy of a frame that stays in this unit.
  void let_others_overhear(std::span<const std::byte> frame, const frame::FrameOffload& offload);
  /// Whether another unit gets frames to groups.
  [[nodiscard]] bool others_want_groups() const { return group_.places().others_want_groups(unit_); }
  [[nodiscard]] const GroupLanCounters& group_counters() const { return counters_; }

 private:
  using Receivers = SharedPlaces::Receivers;

  // From the wire.
  void on_lan_frame(std::span<const std::byte> frame) override { from_wire(frame, nullptr); }
  void on_lan_frame(std::span<const std::byte> frame, const frame::FrameOffload& offload) override {
    from_wire(frame, &offload);
  }
  messaging::FrameMemory place_for(std::span<const std::byte> frame, std::size_t head_bytes,
                                   const frame::FrameOffload& offload) override;
  void on_placed_frame(std::span<const std::byte> frame, std::size_t head_bytes,
                       const frame::FrameOffload& offload) override;
  void from_wire(std::span<const std::byte> frame, const frame::FrameOffload* offload);
  /// Of a frame of this unit's host.
  [[nodiscard]] Receivers receivers_of(const frame::EthernetHeader& header) const;
  /// Of a frame from the wire. Learns its source.
  [[nodiscard]] Receivers receivers_of(std::span<const std::byte> head);

  [[nodiscard]] std::size_t take_handed(FrameRing& ring, LanSink& sink, std::size_t budget);
  void take_handed(const HandedFrame& frame, LanSink& sink);
  [[nodiscard]] bool send_on_wire(std::span<const std::byte> frame, const frame::FrameOffload& offload);
  /// Adds a copy to the ring of each of these units. Returns how many they are.
  std::size_t hand_to(UnitSet units, HandedFrame frame, const Receivers& receivers);

  UnitGroup& group_;
  UnitNumber unit_;
  LanEngine& wire_;
  LanSink* sink_ = nullptr;  ///< during receive()
  std::uint16_t first_ring_ = 0;
  bool sent_from_ring_ = false;
  bool groups_on_wire_ = false;
  Time now_{};
  GroupLanCounters counters_;
};

}  // namespace splitnic::iounit
