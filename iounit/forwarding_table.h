#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/mac_address.h"
#include "common/strong_id.h"
#include "common/time.h"

namespace splitnic::iounit {

/// A target that the I/O unit can forward a frame to: a host by its index, or the LAN.
using ForwardingTarget = StrongId<struct ForwardingTargetTag, std::uint16_t>;
inline constexpr ForwardingTarget kLanTarget{0xffff};

struct ForwardingTableLimits {
  std::size_t entries = 4096;                ///< maximum learned addresses; rounded up to a power of two, at least 4
  std::size_t entries_per_host = 256;        ///< maximum for one host, so that no host can displace the others' entries
  Duration age = std::chrono::seconds{300};  ///< the table forgets an address after this long without a frame from it
};

/// Stores the target that each address was last heard from. Address and VLAN are the key of a learned entry. Learned
/// entries age, and the table replaces them when it is full. Pinned entries (an address that belongs to a host by
/// configuration) hold in every VLAN, never age and can't be learned elsewhere. Every operation except pin() and
/// forget() takes constant time and allocates nothing. Thread: the driver's owner. For several threads:
/// SharedAddresses. Source: IEEE 802.1D-2004, 7.8 (learning) and 7.9 (filtering database).
class ForwardingTable {
 public:
  /// A host that has sent from an address uses it for this long.
  static constexpr Duration kInUse = std::chrono::seconds(5);

  enum class Learned : std::uint8_t {
    kKnown,       ///< already known at this target
    kAdded,       ///< new; may have replaced the entry of its set that was silent longest
    kMoved,       ///< known at another target until now
    kPinned,      ///< belongs to another target by configuration: the frame's source is forged
    kTargetFull,  ///< the host has reached its maximum of addresses
    kNoAddress,   ///< multicast or zero: not a valid source address
  };

  /// seed: unpredictable to hosts and LAN; otherwise they can attack one set of the table.
  ForwardingTable(ForwardingTableLimits limits, std::uint64_t seed);

  /// Assigns `mac` to `target` in every VLAN. False: `mac` is pinned to another target.
  [[nodiscard]] bool pin(const MacAddress& mac, ForwardingTarget target);
  /// Does nothing unless `mac` is pinned to `target`. Returns whether it was.
  bool unpin(const MacAddress& mac, ForwardingTarget target);

  /// Records that a frame with this source came from `target`. vlan: 0 (untagged) .. 4094.
  Learned learn(const MacAddress& source, std::uint16_t vlan, ForwardingTarget target, Time now);
  /// The target to forward to; nullopt: unknown, the caller floods.
  [[nodiscard]] std::optional<ForwardingTarget> find(const MacAddress& destination, std::uint16_t vlan, Time now) const;
  /// Whether a frame with this source came from this host within kInUse, also if one came from the LAN since.
  [[nodiscard]] bool is_in_use(const MacAddress& address, std::uint16_t vlan, ForwardingTarget host, Time now) const;
  /// Whether the address was last heard from another host than this one, in any VLAN, within `age`. Walks the table.
  [[nodiscard]] bool is_behind_another_host(const MacAddress& address, ForwardingTarget host, Time now,
                                            Duration age) const;
  /// Removes a target's learned entries when its session ends; its pins stay. Walks the table. Returns how many it
  /// had.
  std::size_t forget(ForwardingTarget target);
  /// Frees aged entries among the next `budget` entries. Call it regularly, so that counts stay true.
  void sweep(Time now, std::size_t budget);

  /// Learned entries, including aged ones that no sweep has freed yet.
  [[nodiscard]] std::size_t size() const { return used_; }
  [[nodiscard]] std::size_t capacity() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t key = 0;  ///< 0: free; address << 12 | VLAN otherwise (never 0: the zero address is not learned)
    Time heard{};
    Time heard_from_user{};
    ForwardingTarget target;
    ForwardingTarget user = kLanTarget;  ///< the host that sent from it last; the LAN: none
    /// A frame came from the target.
    void hear(Time now);
  };
  static constexpr std::size_t kWays = 4;

  [[nodiscard]] std::size_t set_of(std::uint64_t key) const;
  [[nodiscard]] bool aged(const Entry& entry, Time now) const { return now - entry.heard > limits_.age; }
  [[nodiscard]] bool may_add(ForwardingTarget target) const;
  Entry& victim(std::size_t set, Time now);
  void free_entry(Entry& entry);
  std::size_t& count_of(ForwardingTarget target);

  ForwardingTableLimits limits_;
  std::uint64_t seed_;
  std::vector<Entry> entries_;         ///< sets of kWays adjacent entries
  std::vector<std::size_t> per_host_;  ///< entries by host index; grows with the highest index seen
  boost::unordered_flat_map<std::uint64_t, ForwardingTarget> pinned_;  ///< by address
  std::size_t used_ = 0;
  std::size_t lan_entries_ = 0;
  std::size_t sweep_at_ = 0;
};

}  // namespace splitnic::iounit
