#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fabric/bridge/peer_memory.h"

namespace splitnic::fabric {

enum class LinkState { down, up };

inline constexpr std::size_t kScratchpads = 16;

/// The process at the other end of a bridge, as the kernel attested it when the bridge was made (SO_PEERCRED).
struct BridgePeer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

/// The session that a bridge is part of. A session with several queues has a bridge for each of them.
struct BridgeGroup {
  std::uint64_t cookie = 0;  ///< of the session, the same at all its bridges; 0: it can have no other bridge
  bool further = false;      ///< the bridge of a further queue, not the session's first
};

/// One end of a point-to-point bridge: local memory that the peer writes, a window onto the peer's memory, scratchpads,
/// doorbells, link state. A PCIe NTB, or a device that behaves like one. The bridge gives its sizes; no constant does.
/// Thread: one owner polls an end. Source: S2 Figs. 2, 4, 5; shape after the Linux NTB API.
class Bridge {
 public:
  virtual ~Bridge() = default;

  /// Memory of this end that the peer may write at any time. Multiple of 64 bytes, 64-byte aligned.
  virtual PeerMemory local_memory() = 0;
  /// The peer's local memory, for writing.
  virtual PeerWindow& peer_window() = 0;

  /// Scratchpads: kScratchpads 32-bit words each way. Each word is atomic, but not ordered with the windows.
  /// read: a word that the peer wrote; write: a word that the peer reads. index < kScratchpads.
  [[nodiscard]] virtual std::uint32_t read_scratchpad(std::size_t index) = 0;
  virtual void write_scratchpad(std::size_t index, std::uint32_t value) = 0;

  /// All earlier writes through the window become visible before any later write.
  virtual void publish() = 0;
  /// The consumer's half of "arm, then poll again": earlier writes have arrived at the peer, and later loads of local
  /// memory see what the peer had written before they arrived. Posted bridges read back.
  virtual void fence() = 0;
  /// The producer's half: earlier writes are issued before later loads of local memory (the peer's armed flag). No
  /// read-back.
  virtual void before_doorbell() = 0;
  /// Returns when every earlier write has arrived in the peer's memory (read-back).
  virtual void flush() = 0;

  /// Wakes the peer; the doorbell may be lost. Never blocks.
  virtual void ring() = 0;
  /// Takes the pending doorbells; true if there were any. Call it once per wake-up, not once per packet: it costs a
  /// system call.
  virtual bool take_doorbells() = 0;
  /// Becomes readable when a doorbell or a link change is pending; -1 if the bridge has no descriptor (the simulation).
  [[nodiscard]] virtual int doorbell_descriptor() const = 0;

  /// The processor core that the caller runs on, as a number from 1 that means the same to the peer; 0 if the two ends
  /// never share a core. A hint: the caller may have moved already.
  [[nodiscard]] virtual std::uint32_t core() const { return 0; }

  /// nullopt: nobody attests it, because the bridge is a device or both ends belong to one program.
  [[nodiscard]] virtual std::optional<BridgePeer> peer() const { return std::nullopt; }

  /// Which bridges belong together, as the set-up of the bridge has settled it.
  [[nodiscard]] virtual BridgeGroup group() const { return {}; }

  /// down is final for a bridge whose peer has hung up (shm); other bridges may come up again (sim, pci).
  [[nodiscard]] virtual LinkState link() = 0;
};

}  // namespace splitnic::fabric
