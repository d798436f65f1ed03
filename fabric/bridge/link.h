#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/anchor.h"
#include "fabric/bridge/bridge.h"
#include "fabric/ids.h"
#include "fabric/link/cell_link.h"
#include "fabric/link/slot_lane.h"

namespace splitnic::fabric {

struct LinkOptions {
  /// Bytes of the slot ring, and of the payload ring, that this end offers for each lane; powers of two within the
  /// limits below. A cell takes at most a quarter of the payload ring. Where all rings together would take more than a
  /// quarter of the bridge's memory, the largest is halved until they do not. A payload ring of twice a core's own
  /// cache is fastest: what the sender overwrites has left the receiver's cache by then.
  std::array<std::size_t, kLanes> slot_bytes{16U << 10U, 64U << 10U};
  std::array<std::size_t, kLanes> payload_bytes{32U << 10U, 2U << 20U};
  /// Slots of the protection-table copy that the peer may push to this end, and places for its queue pairs (rounded up
  /// to sets of four).
  std::size_t mpt_entries = 64;
  PortAddress port_address{};
  /// If set, a peer whose anchor has another port address is a fault, and the link does not come up.
  std::optional<PortAddress> peer_port_address{};
  /// Times stores of long payloads into the peer's memory, if the window is memory, and nothing else (StoreHabit).
  /// null: the peer's thread runs on the same core, so that all stores are plain.
  StoreHabit::Clock store_clock = monotonic_now;

  static constexpr std::size_t kMinRingBytes = kMinRingLines * kSlotLine;
  static constexpr std::size_t kMaxSlotBytes = kMaxSlotLines * kSlotLine;
  static constexpr std::size_t kMaxPayloadBytes = kMaxPayloadLines * kSlotLine;
};

/// down: the bridge is down. init: this end waits for the peer to echo its epoch. ready: this end's memory is laid out
/// and its anchor committed; the peer's anchor is not read yet. up: both; cells flow. faulty: the peer's anchor or a
/// tail made no sense; stays until restart().
enum class LinkPhase { down, init, ready, up, faulty };

/// The seed of the sequence words that `sender` writes for `receiver`, and the start of the checksum of its grants:
/// CRC-32C over both epochs (little-endian, sender first); 0, which zeroed memory would match, is replaced by 1.
[[nodiscard]] std::uint32_t epoch_tag(Epoch sender, Epoch receiver);

/// A link over a bridge: the handshake of epochs, memory laid out by anchor records, a slot ring with a payload ring
/// for each lane, doorbells with the sleeping rule. One per bridge end. Thread: the owner. Source: S2 Figs. 4, 5;
/// design, "Epochs", "Anchor record", "Sleeping".
///
/// Scratchpads 0 .. 7 hold each end's announcement for the other:
///
///     0          1       2          3          4           5           6               7
///    +----------+-------+----------+----------+-----------+-----------+---------------+----------------+
///    | protocol | phase | epoch lo | epoch hi | echoed lo | echoed hi | anchor offset | CRC-32C of 0-6 |
///    +----------+-------+----------+----------+-----------+-----------+---------------+----------------+
///
/// protocol: 0x534e in the upper half, version 1 in the lower. phase: 1 init, 2 ready, 3 faulty. A group whose checksum
/// does not fit is torn and read again later; an end that sleeps does so at the next doorbell, or after 100 ms. The
/// handshake, for each end:
///
///   the end sees              it does
///   a new epoch of the peer   stops using the rings; flushes every write issued so far (read-back); then echoes the
///                             epoch, in phase init
///   its own epoch echoed      no write of an older epoch can land any more: zeroes rings, tails, flag and table;
///                             stores the anchor with both epochs; announces ready
///   a ready peer, when ready  reads the peer's anchor; is up
///
/// An echo counts only in the same group as the peer's present epoch, so a pair of epochs is laid out at most once, and
/// a restart anywhere in the middle only leads back to the first line. Each end repeats its announcement and the
/// doorbell until it is up.
class FabricLink final : public CellLink {
 public:
  FabricLink(Bridge& bridge, const LinkOptions& options, RandomSource& random);
  ~FabricLink() override;
  FabricLink(const FabricLink&) = delete;
  FabricLink& operator=(const FabricLink&) = delete;

  /// Voids everything of the present epoch and announces a new one. Call at start-up too.
  void restart();
  /// Advances the handshake; bounded. Returns 1 if the phase changed, else 0.
  std::size_t poll(Time now) override;
  [[nodiscard]] bool rests(Time now) const override;
  [[nodiscard]] LinkPhase phase() const { return phase_; }
  [[nodiscard]] bool up() const override { return phase_ == LinkPhase::up; }
  [[nodiscard]] std::uint64_t incarnation() const override { return incarnation_; }
  [[nodiscard]] const std::uint64_t* live_incarnation() const override { return live_; }
  /// The link is the next one of a longer life: its incarnations come after `before`, and live_incarnation() is `word`,
  /// which is lent until this is called again. Call before it comes up. Or the link is replaced: with its incarnation()
  /// and null, at any time, and the word stays as it is.
  void keep_live_incarnation(std::uint64_t before, std::uint64_t* word) {
    incarnation_ = before;
    live_ = word != nullptr ? word : &own_live_;
    enter(phase_);
  }
  [[nodiscard]] const char* fault() const { return fault_; }

  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] Epoch peer_epoch() const { return peer_epoch_; }
  [[nodiscard]] PortAddress port_address() const override { return options_.port_address; }
  [[nodiscard]] PortAddress peer_port_address() const override { return peer_port_address_; }

  [[nodiscard]] DirectAccess* direct() override { return &direct_; }
  /// Local memory for buffers that the peer writes directly.
  [[nodiscard]] MemoryRange buffers() const { return direct_.buffers; }
  [[nodiscard]] Bridge& bridge() { return bridge_; }

  [[nodiscard]] LinkProperties properties() const override {
    return {.lossless = true, .corrupts = false, .reports_settled = true};
  }
  [[nodiscard]] std::size_t max_payload(VirtualLane lane) const override;
  [[nodiscard]] bool claim(VirtualLane lane, const Cell& cell, std::size_t payload_bytes, ClaimedPayload& to) override;
  std::uint64_t release(VirtualLane lane, const Cell& cell, std::uint32_t& packet_crc) override;
  [[nodiscard]] std::uint64_t settled(VirtualLane lane) override { return at(lane).settled(); }
  [[nodiscard]] bool wants_room(VirtualLane lane) const override;
  [[nodiscard]] bool drained(VirtualLane lane) override;
  [[nodiscard]] const ReceivedCell* front(VirtualLane lane) override;
  void pop(VirtualLane lane) override;
  void settle(VirtualLane lane) override { at(lane).receiver.settle(); }
  [[nodiscard]] SlotLane* slots(VirtualLane lane) override { return &at(lane); }
  bool return_room(VirtualLane lane, bool all) override { return at(lane).return_room(all); }

  /// Wakes the peer if it sleeps and something was sent since the last call, or if it waits for room or for something
  /// to be settled and was told of some. Once per batch, after everything was written, also after a refused send.
  /// Nearly free otherwise.
  void notify() override;
  /// What was sent so far may wait for a later notify(), which the caller owes: prepare_sleep() does not ring for it
  /// alone.
  void postpone() { postponed_lines_ = lines_sent(); }
  /// Whether notify() has nothing to say about what was sent: the peer was rung for it, or finds it before it sleeps.
  [[nodiscard]] bool announced() const { return lines_sent() == notified_lines_; }
  /// Whether notify() would ring for something new, as far as the peer's last flag says: it sleeps and was not rung.
  [[nodiscard]] bool peer_sleeps() const;
  /// Arms the wake-up, makes sure that it arrived, and polls once more. False: something came in, and nothing is armed.
  [[nodiscard]] bool prepare_sleep() override;
  [[nodiscard]] bool rearm() override;
  /// A patient end sleeps on while the peer settles its cells, and learns of it when it wakes for something else, or
  /// from next_deadline(). What it can't send for lack of room still wakes it. At first an end is not patient.
  void set_patient(bool patient) { patient_ = patient; }
  [[nodiscard]] bool stays_armed() const override {
    return up() && armed_until_deadline() && !undelivered_ && !patient_;
  }
  /// As stays_armed(), but the peer may have yet to take cells, and the end may be patient. Until next_deadline(),
  /// nobody needs to poll. Before the link is up, the peer rings for each of its steps.
  [[nodiscard]] bool armed_until_deadline() const {
    if (phase_ == LinkPhase::init || phase_ == LinkPhase::ready) return true;
    return up() && armed_ != 0 && !doorbell_taken_ && !torn_;
  }
  /// Back from sleep: disarms, empties doorbells.
  void disarm() override;
  /// The end of a time in which stays_armed() or armed_until_deadline() held and nobody polled: disarms. What poll()
  /// does at intervals for cells that wait counts from now, if none did.
  void resume(Time now);
  /// The peer is awake and, as far as this end knows, waits for the core that this end runs on. Spinning would only
  /// keep the peer from sending. This end trusts the peer's last flag for a short time only, because the peer may have
  /// been stopped, or may lie.
  [[nodiscard]] bool peer_waits_for_core(Time now);
  /// Doorbells that only the poll every 100 ms rang: the peer slept although cells waited that this end had tried to
  /// announce at least 10 ms before, and this end had never rung for that sleep. A doorbell that is lost on its way
  /// does not count, nor does a peer that was rung and has not woken yet. Stays 0 while both ends arm and poll in the
  /// right order.
  [[nodiscard]] std::uint64_t doorbells_left_out() const { return doorbells_left_out_; }
  /// When to poll again although no doorbell came. outstanding: the caller waits for something from the peer.
  [[nodiscard]] Time next_deadline(Time now, bool outstanding) const override;
  [[nodiscard]] int descriptor() const override { return bridge_.doorbell_descriptor(); }

 private:
  struct PeerGroup;
  struct Lane : SlotLane {
    SlotClaim claimed{};
    ReceivedCell front{};
    bool has_front = false;  ///< `front` is that of the receiver
  };
  enum class GroupPhase : std::uint32_t { init = 1, ready = 2, faulty = 3 };
  /// What the peer may be rung for.
  enum class RingFor : std::uint8_t { news, news_not_postponed, what_waits };

  void enter(LinkPhase phase) {
    phase_ = phase;
    *live_ = up() ? incarnation_ : 0;
  }
  void step(Time now);
  void step_up(Time now);
  void follow(const PeerGroup& group);
  void answer_new_epoch(Epoch peer);
  [[nodiscard]] bool lay_out();
  [[nodiscard]] bool read_peer_anchor(std::size_t offset);
  void go_up(const Anchor& peer, std::size_t anchor_offset);
  [[nodiscard]] bool takes_last_cells(Time now);
  void announce(GroupPhase phase);
  void announce_again(Time now);
  [[nodiscard]] bool read_peer_group(PeerGroup& group);
  [[nodiscard]] bool peer_group_changed();
  void fail_link(const char* why);
  void void_epoch();
  [[nodiscard]] std::uint64_t wanted_wake_ups() const;
  [[nodiscard]] bool arm(std::uint64_t flags);
  void set_armed(std::uint64_t flags);
  void ring_if_asleep(RingFor what);
  [[nodiscard]] std::uint64_t lines_sent() const {
    std::uint64_t lines = 0;
    for (const Lane& lane : lanes_) lines += lane.sender.head();
    return lines;
  }
  [[nodiscard]] bool anything_waiting();
  [[nodiscard]] bool rings_faulty() const;
  [[nodiscard]] bool all_drained();
  [[nodiscard]] Lane& at(VirtualLane lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] const Lane& at(VirtualLane lane) const { return lanes_[static_cast<std::size_t>(lane)]; }
  static void read_front(Lane& lane, ReceivedSlot& slot);

  Bridge& bridge_;
  LinkOptions options_;
  RandomSource& random_;
  LinkPhase phase_ = LinkPhase::down;
  const char* fault_ = "";
  std::uint64_t incarnation_ = 0;
  std::uint64_t own_live_ = 0;
  std::uint64_t* live_ = &own_live_;  // incarnation_ while up, else 0
  Epoch epoch_{};
  Epoch peer_epoch_{};
  Epoch echoed_{};
  PortAddress peer_port_address_{};
  std::array<Lane, kLanes> lanes_{};
  DirectAccess direct_;
  Anchor layout_;  // of the local memory

  GroupPhase announced_ = GroupPhase::init;
  Time announce_next_{};
  std::uint32_t peer_check_ = 0;  // of the group that was last acted on
  std::uint32_t peer_epoch_low_ = 0;
  bool has_peer_group_ = false;
  bool torn_ = false;  // while up: the peer's group, at the last look

  std::size_t peer_armed_offset_ = 0;  // in the peer's memory: our armed flag
  std::uint64_t armed_sequence_ = 0;   // of our armed flag
  std::uint32_t published_core_ = 0;   // in our armed flag
  std::uint64_t believed_flag_ = 0;    // the peer's, as peer_waits_for_core() saw it last
  Time believed_since_{};
  std::uint64_t armed_ = 0;             // the flags in our armed flag
  bool doorbell_taken_ = false;         // by poll(), since it was armed
  std::uint64_t rung_for_ = 0;          // the peer's armed flag that we rang for
  std::uint64_t notified_lines_ = 0;    // lines sent that were announced to the peer
  std::uint64_t postponed_lines_ = 0;   // lines sent at the last postpone()
  std::uint64_t notified_returns_ = 0;  // lines returned and settled likewise
  bool undelivered_ = false;            // at the last prepare_sleep()
  Time now_{};                          // of the last poll()
  Time looked_at_{};                    // now_ when the peer's armed flag was looked at for what was new
  std::uint64_t doorbells_left_out_ = 0;
  Time next_check_{};
  Time bridge_looked_at_{};
  Time ring_again_next_{};
  bool patient_ = false;
  std::optional<Time>
      hung_up_at_{};                 // the peer, or this end took something after that; while it takes what came before
  std::uint64_t last_consumed_ = 0;  // by then, in all lanes
};

}  // namespace splitnic::fabric
