#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "fabric/link/udp_peer.h"

namespace splitnic::fabric::test {

/// What a network does to a datagram, in thousandths.
struct DatagramFaults {
  std::uint32_t lost = 0;
  std::uint32_t duplicated = 0;
  std::uint32_t damaged = 0;
  Duration delay_min = std::chrono::microseconds(10);
  /// Of those that are late, which others overtake.
  Duration delay_max = std::chrono::microseconds(10);
  std::uint32_t late = 1000;
};

/// One direction between two ends, in simulated time.
class DatagramNetwork final : public DatagramSink {
 public:
  DatagramNetwork(RandomSource& random, const DatagramFaults& with) : faults(with), random_(random) {}

  [[nodiscard]] bool send(std::span<const std::byte> datagram) override {
    if (full) return false;
    ++sent;
    if (happens(faults.lost)) {
      ++lost;
      return true;
    }
    add(datagram);
    if (happens(faults.duplicated)) {
      ++duplicated;
      add(datagram);
    }
    return true;
  }
  /// Calls take(datagram) for each that has arrived.
  template <class Take>
  std::size_t deliver(Time now, Take&& take) {
    now_ = now;
    std::size_t count = 0;
    while (!on_the_way.empty() && on_the_way.begin()->first <= now) {
      const std::vector<std::byte> datagram = std::move(on_the_way.begin()->second);
      on_the_way.erase(on_the_way.begin());
      take(datagram);
      ++count;
    }
    return count;
  }
  [[nodiscard]] Time next_arrival() const { return on_the_way.empty() ? kNever : on_the_way.begin()->first; }

  DatagramFaults faults;
  bool full = false;  ///< takes nothing
  std::uint64_t sent = 0, lost = 0, duplicated = 0, damaged = 0;
  std::multimap<Time, std::vector<std::byte>> on_the_way;

 private:
  bool happens(std::uint32_t thousandths) { return thousandths != 0 && random_.below(1000) < thousandths; }
  void add(std::span<const std::byte> datagram) {
    std::vector<std::byte> copy(datagram.begin(), datagram.end());
    if (happens(faults.damaged)) {
      ++damaged;
      copy[random_.below(copy.size())] ^= static_cast<std::byte>(1U << random_.below(8));
    }
    const Duration spread = happens(faults.late) ? faults.delay_max - faults.delay_min : Duration{};
    const auto extra = static_cast<Duration::rep>(random_.below(static_cast<std::uint64_t>(spread.count()) + 1));
    on_the_way.emplace(now_ + faults.delay_min + Duration(extra), std::move(copy));
  }

  RandomSource& random_;
  Time now_{};
};

}  // namespace splitnic::fabric::test
