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

/// Where a frame can leave the I/O unit: a host by its index, or the LAN.
using ForwardingTarget = StrongId<struct ForwardingTargetTag, std::uint16_t>;
inline constexpr ForwardingTarget kLanTarget{0xffff};

struct ForwardingTableLimits {
  std::size_t entries = 4096;  ///< learned addresses in all; rounded up to a power of two, at least 4
  std::size_t entries_per_host =
      256;  ///< of one target that is not the LAN's, so that no host can push out the others'
  Duration age = std::chrono::seconds{300};  ///< an address not heard from for that long is forgotten
};

/// Which target an address was last heard from. Learned entries are keyed by address and VLAN, age, and are replaced
/// when the table is full; pinned ones (an address that belongs to a host by configuration) hold in every VLAN, never
/// age and can't be learned elsewhere. Every operation but pin() and forget() takes constant time and allocates
/// nothing. Thread: the driver's owner. Source: IEEE 802.1D-2004, 7.8 (learning) and 7.9 (filtering database).
class ForwardingTable {
 public:
  enum class Learned : std::uint8_t {
    kKnown,       ///< heard there before
    kAdded,       ///< new, perhaps in place of the longest silent of its set
    kMoved,       ///< was on another target
    kPinned,      ///< belongs to another target by configuration: the frame's source is forged
    kTargetFull,  ///< its host has as many addresses as it may
    kNoAddress,   ///< multicast or zero: no source of a valid frame
  };

  /// seed: unpredictable to hosts and LAN, else they can aim at one set of the table.
  ForwardingTable(ForwardingTableLimits limits, std::uint64_t seed);

  /// Gives `mac` to `target` in every VLAN. False: pinned to another target.
  [[nodiscard]] bool pin(const MacAddress& mac, ForwardingTarget target);
  /// Does nothing unless `mac` is pinned to `target`.
  void unpin(const MacAddress& mac, ForwardingTarget target);

  /// A frame with this source came from target. vlan: 0 (untagged) .. 4094.
  Learned learn(const MacAddress& source, std::uint16_t vlan, ForwardingTarget target, Time now);
  /// Where to send; nullopt: unknown, flood.
  [[nodiscard]] std::optional<ForwardingTarget> find(const MacAddress& destination, std::uint16_t vlan, Time now) const;
  /// Drops all that was learned of a target, when its session ends. Its pins stay. Walks the table.
  void forget(ForwardingTarget target);
  /// Frees aged entries among the next `budget` places; call it now and then, so that counts stay true.
  void sweep(Time now, std::size_t budget);

  /// Learned entries, aged ones that no sweep has met included.
  [[nodiscard]] std::size_t size() const { return used_; }
  [[nodiscard]] std::size_t capacity() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t key = 0;  ///< 0: free; address << 12 | VLAN otherwise (never 0: the zero address is not learned)
    Time heard{};
    ForwardingTarget target;
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
  std::vector<Entry> entries_;         ///< sets of kWays neighbours
  std::vector<std::size_t> per_host_;  ///< entries by host index; grows with the highest index seen
  boost::unordered_flat_map<std::uint64_t, ForwardingTarget> pinned_;  ///< by address
  std::size_t used_ = 0;
  std::size_t lan_entries_ = 0;
  std::size_t sweep_at_ = 0;
};

}  // namespace splitnic::iounit
