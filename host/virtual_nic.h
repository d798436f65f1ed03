#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/mac_address.h"
#include "common/time.h"
#include "messaging/received_frame.h"

namespace splitnic::host {

/// What the host's system has set on its virtual NIC and the I/O unit must follow.
struct NicSettings {
  MacAddress mac;
  std::uint32_t mtu = 1500;  ///< layer-3 bytes
  bool up = false;
  bool promiscuous = false;
  bool all_multicast = true;          ///< also true until the first multicast list is known
  std::vector<MacAddress> multicast;  ///< sorted, without duplicates

  friend bool operator==(const NicSettings&, const NicSettings&) = default;
};

/// The host driver's upper edge: where the host's stack hands frames over and takes them. A TAP device in production,
/// the in-process nic for appliance firmware, a model in the simulation. Thread: the driver's owner.
class VirtualNic {
 public:
  virtual ~VirtualNic() = default;

  /// The next frame that the host wants sent, written to `to`, which may be write-only memory of the peer (never read
  /// it back). Returns its length; 0 when there is none now. A frame longer than `to` is dropped and counted.
  virtual std::size_t read_frame(std::span<std::byte> to) = 0;
  /// Gives the host a frame. False where the host's side refused it (counted by the caller).
  virtual bool write_frame(const messaging::ReceivedFrame& frame) = 0;

  /// The carrier that the host's system shall see.
  virtual void set_carrier(bool carrier) = 0;
  /// The I/O unit's MTU is the nic's maximum: a larger setting is set back (one log line).
  virtual void set_max_mtu(std::uint32_t max_mtu) = 0;
  /// Takes the address that the I/O unit assigned, where the system has not set one itself.
  virtual void set_mac(const MacAddress& mac) = 0;

  /// The address that this nic already has for good (given by its user, or kept over a restart); zero: the unit's
  /// choice is welcome.
  [[nodiscard]] virtual MacAddress preferred_mac() const { return {}; }

  /// The system's settings as they are now. Called at least once a second and after wake-ups; cheap when unchanged.
  virtual const NicSettings& settings(Time now) = 0;
  /// When settings() wants to be called next, for changes that no descriptor announces.
  [[nodiscard]] virtual Time next_deadline() const { return kNever; }

  /// Appends the descriptors to sleep on: readable when read_frame or settings may have news.
  virtual void collect_descriptors(std::vector<int>& out) const = 0;
};

}  // namespace splitnic::host
