#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "common/frame/ethernet.h"
#include "iounit/shared_addresses.h"

namespace splitnic::iounit {

/// So many I/O units can share a LAN.
inline constexpr std::size_t kMaxUnits = 8;

/// A set of units, one bit each.
using UnitSet = std::uint32_t;
[[nodiscard]] constexpr UnitSet just(UnitNumber unit) { return UnitSet{1} << unit.value; }

/// Where the units of one daemon have their hosts' addresses, and which unit wants frames to others. It says for each
/// frame which units and whether the LAN must get it. The addresses of hosts are pinned to their unit in every VLAN;
/// other addresses are learned from frames. Any thread: the questions take no lock, allocate nothing and wait for
/// nobody. Source: IEEE 802.1D-2004, 7.9 (filtering database).
class SharedPlaces {
 public:
  /// hosts: maximum of all units together. age: how long a learned address is known. seed: unpredictable to hosts and
  /// LAN. further: room for so many pins besides those of the addresses that hosts use.
  SharedPlaces(std::size_t units, std::size_t hosts, Duration age, std::uint64_t seed, std::size_t further = 0);

  // ---- When a host attaches, changes or leaves. These take a lock.
  /// What an address is to its host.
  enum class Pin : std::uint8_t { used, further };
  /// A host of this unit has the address. False: a host of another unit has it, or there are too many hosts, or no room
  /// for further addresses, which never take that of the hosts' own.
  [[nodiscard]] bool pin(const MacAddress& address, UnitNumber unit, Pin pin = Pin::used);
  /// Does nothing unless the address is pinned to this unit.
  void unpin(const MacAddress& address, UnitNumber unit);
  /// Forgets the learned addresses behind this unit's hosts. The next frames from those that are still there are
  /// learned again.
  void forget_learned(UnitNumber unit) { learned_.forget(side_of(unit)); }
  /// Whether the address was last heard behind a host of another unit, in any VLAN, within `age`. Walks the table.
  [[nodiscard]] bool is_behind_another_units_host(const MacAddress& address, UnitNumber unit, Time now,
                                                  Duration age) const {
    return learned_.is_at_another_unit(address, unit, now, std::min(age, age_));
  }
  /// What the hosts of a unit want.
  struct Wants {
    bool groups = false;   ///< there is a host
    bool unicast = false;  ///< a host is promiscuous
    bool unknown = false;  ///< a host has requested addresses besides its own, or has a bridge behind it
  };
  void set_wants(UnitNumber unit, const Wants& wants);
  /// Whether a unit besides this one wants frames to groups.
  [[nodiscard]] bool others_want_groups(UnitNumber unit) const {
    return (want_groups_.load(std::memory_order_relaxed) & ~just(unit)) != 0;
  }

  /// The units with promiscuous hosts.
  [[nodiscard]] UnitSet want_unicast() const { return want_unicast_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool others_want_unicast(UnitNumber unit) const { return (want_unicast() & ~just(unit)) != 0; }

  // ---- For each frame.
  /// A frame with this source came from this side. Pinned addresses are not learned.
  void learn(const MacAddress& source, std::uint16_t vlan, Side side, Time now) {
    learned_.learn(source, vlan, side, now);
  }
  /// The unit whose host has this address.
  [[nodiscard]] std::optional<UnitNumber> host_at(const MacAddress& address) const;
  [[nodiscard]] std::optional<Side> find(const MacAddress& address, std::uint16_t vlan, Time now) const;

  /// Who gets a frame.
  struct Receivers {
    bool lan = false;
    UnitSet units = 0;
    std::optional<UnitNumber> addressed{};  ///< of `units`: the one where the address is known, not `from`
    friend bool operator==(const Receivers&, const Receivers&) = default;
  };
  /// Of a frame of a host at `from` that is addressed to no other host there. `from` is not among them.
  [[nodiscard]] Receivers receivers(const frame::EthernetHeader& header, UnitNumber from, Time now) const;
  /// Of a frame of the LAN that `from` has received. `from` is among them, unless another unit is addressed and no host
  /// at `from` is promiscuous.
  [[nodiscard]] Receivers receivers_of_lan(const frame::EthernetHeader& header, UnitNumber from, Time now) const;

 private:
  [[nodiscard]] std::size_t slot_of(std::uint64_t address) const;
  /// The slot with this address; the number of slots if there is none.
  [[nodiscard]] std::size_t slot_with(std::uint64_t address) const;
  static void set_bit(std::atomic<UnitSet>& set, UnitNumber unit, bool on);

  std::uint64_t seed_;
  Duration age_;
  std::size_t most_pins_;
  std::size_t most_with_further_;  ///< a further address gets no pin beyond this
  std::mutex writing_;             ///< serialises the writers of pins_
  std::size_t pins_used_ = 0;
  /// By linear probing: address << 16 | unit + 1; 0: free, and no probe goes on behind it; kGone: free, and probes go
  /// on. One word each, so a reader never sees half of a pin.
  std::vector<std::atomic<std::uint64_t>> pins_;
  SharedAddresses learned_;
  std::atomic<UnitSet> want_groups_{0};
  std::atomic<UnitSet> want_unicast_{0};
  std::atomic<UnitSet> want_unknown_{0};
};

}  // namespace splitnic::iounit
