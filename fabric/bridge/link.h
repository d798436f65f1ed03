#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"
#include "fabric/bridge/message_fifo.h"
#include "fabric/ids.h"

namespace splitnic::fabric {

struct LinkOptions {
  /// Ring bytes this end offers per lane; powers of two, at least 4 KiB.
  std::array<std::size_t, kLanes> fifo_bytes{32U << 10U, 128U << 10U};
  /// Slots of the protection-table copy that the peer may push to this end.
  std::size_t mpt_entries = 64;
  PortAddress port_address{};
};

/// down: the bridge is down. init: this end waits for the peer to echo its epoch. ready: this end's memory is laid out and
/// its anchor committed; the peer's not yet read. up: both; records flow. faulty: the peer's anchor or rings made no
/// sense; stays until restart().
enum class LinkPhase { down, init, ready, up, faulty };

/// Bytes of the peer's or the own memory, by offset from its start.
struct MemoryRange {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// A bridge made usable: epochs shaken, memory laid out by anchor records, a message FIFO per lane, doorbells with the
/// sleeping rule. One per bridge end. Thread: the owner. Source: S2 Figs. 4, 5; design, "Epochs", "Anchor record", "Sleeping".
///
/// Scratchpads: each end writes a word group {protocol, phase, epoch lo/hi, echoed epoch lo/hi, anchor offset, check};
/// a group whose check does not fit is torn and read again later.
class FabricLink {
 public:
  FabricLink(Bridge& bridge, const LinkOptions& options, RandomSource& random);
  ~FabricLink();
  FabricLink(const FabricLink&) = delete;
  FabricLink& operator=(const FabricLink&) = delete;

  /// Voids everything of the present epoch and announces a new one. Call at start-up too.
  void restart();
  /// Advances the handshake; bounded. Returns 1 if the phase changed, else 0.
  std::size_t poll(Time now);
  [[nodiscard]] LinkPhase phase() const { return phase_; }
  [[nodiscard]] bool up() const { return phase_ == LinkPhase::up; }
  /// Changes with every transition to up, so that users see that an epoch went by between two of their polls.
  [[nodiscard]] std::uint64_t incarnation() const { return incarnation_; }
  [[nodiscard]] const char* fault() const { return fault_; }

  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] Epoch peer_epoch() const { return peer_epoch_; }
  [[nodiscard]] PortAddress port_address() const { return options_.port_address; }
  [[nodiscard]] PortAddress peer_port_address() const { return peer_port_address_; }

  /// While up only.
  [[nodiscard]] FifoSender& sender(VirtualLane lane) { return senders_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] FifoReceiver& receiver(VirtualLane lane) { return receivers_[static_cast<std::size_t>(lane)]; }
  /// Local memory for buffers that the peer writes directly; the peer's likewise, within the window.
  [[nodiscard]] MemoryRange buffers() const { return buffers_; }
  [[nodiscard]] MemoryRange peer_buffers() const { return peer_buffers_; }
  /// The protection-table copy: the peer's entries pushed here, and ours pushed there (fabric/memory/mpt.h).
  [[nodiscard]] MemoryRange mpt() const { return mpt_; }
  [[nodiscard]] MemoryRange peer_mpt() const { return peer_mpt_; }
  [[nodiscard]] Bridge& bridge() { return bridge_; }

  /// Wakes the peer if it sleeps; once per batch, after everything was written. Cheap when it doesn't sleep.
  void notify();
  /// Arms the wake-up, makes sure it arrived, looks again: false means that something came in (and nothing is armed).
  [[nodiscard]] bool prepare_sleep();
  /// Back from sleep: disarms, empties doorbells.
  void awake();
  /// While armed work may be outstanding, look again by then (a doorbell may be lost).
  [[nodiscard]] Time next_deadline(Time now, bool outstanding) const;

 private:
  struct Layout;
  struct PeerGroup;
  void enter_init();
  void lay_out();
  bool read_peer_anchor();
  void publish_group();
  bool read_peer_group(PeerGroup& group);
  void fail_link(const char* why);
  bool anything_waiting();

  Bridge& bridge_;
  LinkOptions options_;
  RandomSource& random_;
  LinkPhase phase_ = LinkPhase::down;
  const char* fault_ = "";
  std::uint64_t incarnation_ = 0;
  Epoch epoch_{};
  Epoch peer_epoch_{};
  Epoch echoed_{};
  PortAddress peer_port_address_{};
  std::array<FifoSender, kLanes> senders_{};
  std::array<FifoReceiver, kLanes> receivers_{};
  MemoryRange buffers_, peer_buffers_, mpt_, peer_mpt_;
  std::size_t anchor_offset_ = 0;
  std::size_t armed_offset_ = 0;       // in local memory: the peer's armed flag
  std::size_t peer_armed_offset_ = 0;  // in the peer's memory: our armed flag
  bool armed_ = false;
};

}  // namespace splitnic::fabric
