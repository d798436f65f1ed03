#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <thread>

#include "common/mac_address.h"
#include "common/random.h"
#include "common/time.h"

namespace splitnic::hostile {

/// Where and for how long.
struct Target {
  std::string socket;  ///< of the I/O unit
  std::string name;    ///< of this host
  std::string victim;  ///< the name of another host of the unit
  MacAddress station;  ///< of the LAN
  SeededRandom random;
  Time until{};

  [[nodiscard]] bool goes_on() const { return monotonic_now() < until; }
  /// Sleeps, at most until the end. Being slow is what some attacks do; it is never a wait for the unit.
  void be_idle(Duration time) const { std::this_thread::sleep_until(std::min(until, monotonic_now() + time)); }
};

/// What an attack did, by name. The attack starts with a zero for each thing that it must do at least once.
using Counts = std::map<std::string, std::uint64_t>;

struct Attack {
  const char* name;
  const char* about;
  void (*run)(Target& target, Counts& counts);
};

/// On the unit's socket.
[[nodiscard]] std::span<const Attack> connection_attacks();
/// On links and control sessions.
[[nodiscard]] std::span<const Attack> session_attacks();
/// By hosts that are up.
[[nodiscard]] std::span<const Attack> frame_attacks();
/// By hosts that pose as somebody else, or as more than they are.
[[nodiscard]] std::span<const Attack> identity_attacks();

}  // namespace splitnic::hostile
