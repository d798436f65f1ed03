#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/mac_address.h"
#include "common/time.h"
#include "messaging/frame_memory.h"
#include "messaging/received_frame.h"

namespace splitnic::host {

/// Settings that the host's system made on its virtual NIC, and that the I/O unit must follow.
struct NicSettings {
  MacAddress mac;
  std::uint32_t mtu = 1500;  ///< layer-3 bytes
  bool up = false;
  bool promiscuous = false;
  bool all_multicast = true;          ///< also true until the first multicast list is known
  std::vector<MacAddress> multicast;  ///< sorted, without duplicates
  std::vector<MacAddress> unicast{};  ///< further addresses that it receives; sorted, without duplicates

  friend bool operator==(const NicSettings&, const NicSettings&) = default;
};

/// What a NIC and its driver may leave to each other.
struct NicOffloads {
  bool frames = false;        ///< partial checksums, and super-frames of TCP
  bool udp_segments = false;  ///< super-frames of UDP too
  friend bool operator==(const NicOffloads&, const NicOffloads&) = default;
};

/// Where one thread of the driver exchanges frames with the host's stack. Thread: its owner.
class NicQueue {
 public:
  virtual ~NicQueue() = default;

  /// Writes the host's next outgoing frame to `to`, which may be the peer's memory (write-only; never read it back).
  /// Returns the frame's length; 0 when there is none now. Drops and counts a frame longer than `to`.
  virtual std::size_t read_frame(std::span<std::byte> to) = 0;
  /// The same for a NIC with offloads(), while unfinished frames are permitted. offload: what the driver is to finish.
  /// Drops and counts a frame that is longer than max_complete_bytes, unless it is to be segmented.
  virtual std::size_t read_unfinished(const messaging::FrameMemory& to, std::size_t /*max_complete_bytes*/,
                                      frame::FrameOffload& offload) {
    offload = {};
    return read_frame(to.bytes);
  }
  /// Delivers a frame to the host. False if the host's side refused it; the caller counts that. Only with offloads
  /// the frame may be unfinished.
  virtual bool write_frame(const messaging::ReceivedFrame& frame) = 0;
  /// Appends the descriptors to sleep on. They become readable when read_frame() may have something new.
  virtual void collect_descriptors(std::vector<int>& out) const = 0;
};

/// A further queue of a NIC, for a thread of its own. It begins inactive.
class FurtherNicQueue : public NicQueue {
 public:
  /// Whether the host's stack shall send in this queue. An inactive queue has no frames, and drops those that waited.
  /// permitted: see VirtualNic::set_offloads(), which the first queue has done for all.
  virtual void set_active(bool active, const NicOffloads& permitted) = 0;
  /// Outgoing frames that were dropped: longer than the memory for them, or unfinished where that is not permitted.
  [[nodiscard]] virtual std::uint64_t oversized() const { return 0; }
  [[nodiscard]] virtual std::uint64_t unfinished() const { return 0; }
};

/// The host driver's upper interface, which exchanges frames and settings with the host's stack: a TAP device in
/// production, the in-process NIC for appliance firmware, a model in the simulation. Thread: the driver's owner.
class VirtualNic : public NicQueue {
 public:
  /// What this NIC can do.
  [[nodiscard]] virtual NicOffloads offloads() const { return {}; }
  /// What its frames may leave to the driver from now on: nothing at first, at most offloads().
  virtual void set_offloads(const NicOffloads& /*permitted*/) {}

  /// Sets the carrier that the host's system sees.
  virtual void set_carrier(bool carrier) = 0;
  /// Sets the NIC's maximum MTU, which is the session's. The NIC reduces a larger setting (one log line).
  virtual void set_max_mtu(std::uint32_t max_mtu) = 0;
  /// Sets the address that the I/O unit assigned, unless the host's system has set one itself.
  virtual void set_mac(const MacAddress& mac) = 0;

  /// The address that this NIC must keep (its user gave it, or it survived a restart); zero: the unit may choose.
  [[nodiscard]] virtual MacAddress preferred_mac() const { return {}; }

  /// The system's present settings. The driver calls it after each wake-up, at next_deadline(), and at least every four
  /// seconds; it is cheap when nothing changed.
  virtual const NicSettings& settings(Time now) = 0;
  /// When the driver must call settings() next, for changes that no descriptor reports.
  [[nodiscard]] virtual Time next_deadline() const { return kNever; }
  // The descriptors of collect_descriptors() also become readable when settings() may have something new.
};

}  // namespace splitnic::host
