#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/mac_address.h"
#include "common/strong_id.h"
#include "common/time.h"

namespace splitnic::iounit {

/// One of the I/O units of a daemon, from 0.
using UnitNumber = StrongId<struct UnitNumberTag, std::uint16_t>;
/// The side on which an address is: a unit, by its number, or the LAN.
using Side = StrongId<struct SideTag, std::uint16_t>;
inline constexpr Side kLanSide{0xffff};
[[nodiscard]] constexpr Side side_of(UnitNumber unit) { return Side{unit.value}; }

/// The side from which each address was last heard, for several threads. Address and VLAN are the key. The table has a
/// fixed size, in sets of four; a new address replaces the one of its set that was silent longest. Times are rounded
/// down to about a millisecond, and an address that is heard again within it costs no store. Nobody waits: a writer
/// that meets another one in its set leaves the address to the next frame, and a reader that meets a writer does not
/// find that one entry. Any thread; allocates nothing after the construction. The same for one thread and with limits
/// for each host: ForwardingTable.
class SharedAddresses {
 public:
  /// entries: rounded up to a power of two, at least four. seed: unpredictable to hosts and LAN.
  SharedAddresses(std::size_t entries, std::uint64_t seed);

  /// A frame with this source came from this side. The address is neither multicast nor zero. vlan: 0 .. 4094.
  void learn(const MacAddress& source, std::uint16_t vlan, Side side, Time now);
  /// The side; nullopt: unknown, or silent for longer than `age`.
  [[nodiscard]] std::optional<Side> find(const MacAddress& address, std::uint16_t vlan, Time now, Duration age) const;
  /// Whether the address was last heard at another unit than this one, in any VLAN, within `age`. Walks the table.
  [[nodiscard]] bool is_at_another_unit(const MacAddress& address, UnitNumber unit, Time now, Duration age) const;
  /// Forgets every address on this side. Walks the table, and waits for writers.
  void forget(Side side);
  [[nodiscard]] std::size_t capacity() const { return entries_.size(); }

 private:
  static constexpr std::size_t kWays = 4;
  struct Entry {
    std::atomic<std::uint64_t> key{0};    ///< 0: free; address << 12 | VLAN otherwise
    std::atomic<std::uint64_t> heard{0};  ///< ticks << 16 | side
  };
  struct Claim;

  [[nodiscard]] std::size_t set_of(std::uint64_t key) const;

  std::uint64_t seed_;
  std::vector<Entry> entries_;                     ///< sets of kWays adjacent entries
  std::vector<std::atomic<std::uint8_t>> claims_;  ///< of each set: 1 while a thread writes there
};

}  // namespace splitnic::iounit
