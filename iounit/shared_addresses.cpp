#include "iounit/shared_addresses.h"

#include <algorithm>
#include <bit>
#include <thread>

#include "common/bit_mix.h"

namespace splitnic::iounit {

namespace {

constexpr unsigned kTickBits = 20;  // of a nanosecond count
constexpr unsigned kSideBits = 16;

std::uint64_t key_of(const MacAddress& mac, std::uint16_t vlan) { return mac.as_number() << 12U | (vlan & 0xfffU); }

std::uint64_t ticks_of(Time time) {
  return static_cast<std::uint64_t>(std::max<Duration::rep>(time.time_since_epoch().count(), 0)) >> kTickBits;
}

Time time_of(std::uint64_t heard) {
  return Time(Duration(static_cast<Duration::rep>((heard >> kSideBits) << kTickBits)));
}

Side side_in(std::uint64_t heard) { return Side{static_cast<std::uint16_t>(heard & 0xffffU)}; }

}  // namespace

/// The right to write to one set, while it lives.
struct SharedAddresses::Claim {
  explicit Claim(std::atomic<std::uint8_t>& its_claim)
      // A1 (acquire): pairs with A1 in the destructor. What the last writer of the set has stored is seen by the next
      // one; otherwise it could add an address a second time.
      : claim(its_claim), held(claim.exchange(1, std::memory_order_acquire) == 0) {}
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  ~Claim() {
    if (held) claim.store(0, std::memory_order_release);  // A1
  }
  std::atomic<std::uint8_t>& claim;
  bool held;
};

SharedAddresses::SharedAddresses(std::size_t entries, std::uint64_t seed)
    : seed_(seed), entries_(std::bit_ceil(std::max(entries, kWays))), claims_(entries_.size() / kWays) {}

std::size_t SharedAddresses::set_of(std::uint64_t key) const { return mix(key ^ seed_) & (claims_.size() - 1); }

void SharedAddresses::learn(const MacAddress& source, std::uint16_t vlan, Side side, Time now) {
  const std::uint64_t key = key_of(source, vlan);
  const std::uint64_t heard = ticks_of(now) << kSideBits | side.value;
  const std::size_t set = set_of(key);
  Entry* const ways = &entries_[set * kWays];
  for (std::size_t way = 0; way < kWays; ++way) {
    const bool known = ways[way].key.load(std::memory_order_acquire) == key;
    if (known && ways[way].heard.load(std::memory_order_relaxed) == heard) return;
  }
  const Claim claim(claims_[set]);
  if (!claim.held) return;
  Entry* victim = ways;
  for (Entry* entry = ways; entry != ways + kWays; ++entry) {
    const std::uint64_t present = entry->key.load(std::memory_order_relaxed);
    if (present == key) return entry->heard.store(heard, std::memory_order_release);
    const auto age_of = [](const Entry& of) {
      const bool free = of.key.load(std::memory_order_relaxed) == 0;
      return free ? 0 : of.heard.load(std::memory_order_relaxed) >> kSideBits;
    };
    if (age_of(*entry) < age_of(*victim)) victim = entry;
  }
  // A2 (release, twice): the old key goes before the new value, and the value is there before the new key. Pairs with
  // A2 in find(). Without it a reader could take the side of one address for that of another.
  victim->key.store(0, std::memory_order_relaxed);
  victim->heard.store(heard, std::memory_order_release);
  victim->key.store(key, std::memory_order_release);
}

std::optional<Side> SharedAddresses::find(const MacAddress& address, std::uint16_t vlan, Time now, Duration age) const {
  const std::uint64_t key = key_of(address, vlan);
  const Entry* const ways = &entries_[set_of(key) * kWays];
  for (const Entry* entry = ways; entry != ways + kWays; ++entry) {
    // A2 (acquire, twice): the value is read behind its key, and the key again behind the value.
    if (entry->key.load(std::memory_order_acquire) != key) continue;
    const std::uint64_t heard = entry->heard.load(std::memory_order_acquire);
    if (entry->key.load(std::memory_order_relaxed) != key) continue;
    if (now - time_of(heard) > age) return std::nullopt;
    return side_in(heard);
  }
  return std::nullopt;
}

bool SharedAddresses::is_at_another_unit(const MacAddress& address, UnitNumber unit, Time now, Duration age) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    // As in find().
    const std::uint64_t key = entry.key.load(std::memory_order_acquire);  // A2
    if (key == 0 || key >> 12U != address.as_number()) return false;
    const std::uint64_t heard = entry.heard.load(std::memory_order_acquire);  // A2
    if (entry.key.load(std::memory_order_relaxed) != key) return false;
    const Side side = side_in(heard);
    return side != kLanSide && side != side_of(unit) && now - time_of(heard) <= age;
  });
}

void SharedAddresses::forget(Side side) {
  for (std::size_t set = 0; set < claims_.size(); ++set) {
    for (std::size_t way = 0; way < kWays; ++way) {
      Entry& entry = entries_[set * kWays + way];
      const auto is_there = [&] {
        return entry.key.load(std::memory_order_relaxed) != 0 &&
               side_in(entry.heard.load(std::memory_order_relaxed)) == side;
      };
      while (is_there()) {
        const Claim claim(claims_[set]);
        if (!claim.held) {
          std::this_thread::yield();
        } else if (is_there()) {
          entry.key.store(0, std::memory_order_relaxed);
        }
      }
    }
  }
}

}  // namespace splitnic::iounit
