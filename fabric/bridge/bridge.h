#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/bridge/peer_memory.h"

namespace splitnic::fabric {

enum class LinkState { down, up };

inline constexpr std::size_t kScratchpads = 16;

/// One end of a point-to-point bridge: local memory that the peer writes, a window onto the peer's, scratchpads,
/// doorbells, link state. PCIe NTB, or what behaves like one. Sizes come from the bridge, never from constants.
/// Thread: one owner polls an end. Source: S2 Figs. 2, 4, 5; shape after the Linux NTB API.
class Bridge {
 public:
  virtual ~Bridge() = default;

  /// Memory of this end that the peer may write at any time. Multiple of 64 bytes, 64-byte aligned.
  virtual PeerMemory local_memory() = 0;
  /// The peer's local memory, for writing.
  virtual PeerWindow& peer_window() = 0;

  /// Scratchpads: kScratchpads 32-bit words each way, whole but not ordered with the windows.
  /// read: what the peer wrote for us; write: what the peer will read. index < kScratchpads.
  [[nodiscard]] virtual std::uint32_t read_scratchpad(std::size_t index) = 0;
  virtual void write_scratchpad(std::size_t index, std::uint32_t value) = 0;

  /// Everything written through the window before becomes visible before anything written after.
  virtual void publish() = 0;
  /// The consumer's half of "arm, then look again": earlier writes have arrived at the peer, and what the peer had
  /// written before they arrived is seen by later loads of local memory. Posted bridges read back.
  virtual void fence() = 0;
  /// The producer's half: earlier writes are issued before later loads of local memory (its armed flag). No read-back.
  virtual void before_doorbell() = 0;
  /// Returns when every write issued before has arrived in the peer's memory (read-back).
  virtual void flush() = 0;

  /// Wakes the peer; may be lost. Never blocks.
  virtual void ring() = 0;
  /// Empties the pending doorbells; true if there were any. Cheap enough once per wake-up, not per packet.
  virtual bool take_doorbells() = 0;
  /// Becomes readable when a doorbell or a link change is pending; -1 where there is none (the simulation).
  [[nodiscard]] virtual int doorbell_descriptor() const = 0;

  /// The core that the caller runs on, as a number that means the same to the peer, from 1 on; 0 where the two ends
  /// never share one. A hint: it may have changed when it is read.
  [[nodiscard]] virtual std::uint32_t core() const { return 0; }

  /// down is final for a bridge whose peer has hung up (shm); others may come back (sim, pci).
  [[nodiscard]] virtual LinkState link() = 0;
};

}  // namespace splitnic::fabric
