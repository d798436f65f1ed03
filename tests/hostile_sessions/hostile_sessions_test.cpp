// The attacks of the stateful fuzzers, from drawn bytes.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "common/random.h"
#include "tests/hostile_sessions/world.h"

namespace splitnic::hostile::hostile_sessions_test {
namespace {

constexpr std::size_t kInputBytes = 2048;
// Each mode, with and without offloads.
constexpr std::uint64_t kFewestInputs = 4;
// After so many, the victims have once had all memory that they need.
constexpr std::uint64_t kInputsToWarmUp = 8;
constexpr unsigned kFlood = 4;
#ifdef SPLITNIC_AUDIT_LOADS
constexpr bool kSlowBuild = true;
#else
constexpr bool kSlowBuild = false;
#endif

/// Bytes of the resident set.
std::size_t resident() {
  std::size_t size = 0;
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> size >> pages;
  return pages * 4096;
}

/// Little: for planted bugs, which a short attack finds, too.
constexpr std::uint64_t kShort = 50'000;

/// From so many cells on, a run says how far it is.
constexpr std::uint64_t kLong = 50'000'000;

/// Draws inputs until the victim has taken so many cells in all modes.
Tally run(Tally (*attack_one)(Input&, unsigned), std::uint64_t least, std::uint64_t seed) {
  Tally tally;
  std::uint64_t next_word = least >= kLong ? least / 20 : UINT64_MAX;
  SeededRandom random(seed);
  std::vector<std::uint8_t> bytes(kInputBytes);
  std::size_t early = 0;
  for (std::uint64_t count = 0; tally.received < least || count < kFewestInputs; ++count) {
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
    bytes[0] = static_cast<std::uint8_t>(count);  // every kind of victim
    bytes[1] &= 0x7fU;                            // which comes up first
    Input input(bytes);
    tally += attack_one(input, kFlood);
    if (count == kInputsToWarmUp) early = resident();
    if (tally.received < next_word) continue;
    std::fprintf(stderr, "  %llu of %llu million cells\n", static_cast<unsigned long long>(tally.received / 1'000'000),
                 static_cast<unsigned long long>(least / 1'000'000));
    next_word += least / 20;
  }
  // A sanitizer keeps freed memory.
  if (early != 0 && !kSlowBuild) CHECK(resident() < early + (64U << 20U));
  return tally;
}

/// A part of HOSTILE_CELLS; without it ten million, and a tenth of that in builds with sanitizers or unoptimised ones.
/// A unit with three hosts takes much longer than a session for each.
std::uint64_t part(unsigned percent) {
  const char* const wanted = std::getenv("HOSTILE_CELLS");
  const std::uint64_t all = wanted != nullptr ? std::strtoull(wanted, nullptr, 10)
                            : kSlowBuild      ? 1'000'000
                                              : 10'000'000;
  return all / 100 * percent;
}

void check(const char* victim, const Tally& tally, std::uint64_t least) {
  std::printf("%s: %llu cells, %llu messages, %llu writes; it took %llu cells, %llu sessions came up, %llu faults\n",
              victim, static_cast<unsigned long long>(tally.cells), static_cast<unsigned long long>(tally.messages),
              static_cast<unsigned long long>(tally.writes), static_cast<unsigned long long>(tally.received),
              static_cast<unsigned long long>(tally.ups), static_cast<unsigned long long>(tally.faults));
  CHECK(tally.received >= least);
  CHECK(tally.messages > least / 500);
  CHECK(tally.writes > least / 2000);
  // Most of what it took are attacks, not what brings sessions up.
  CHECK(tally.handed_over() > least * 9 / 10);
  CHECK(tally.ups > 10);
  CHECK(tally.faults > 10);
}

}  // namespace

TEST_CASE("a session survives whatever a valid link brings", "[hostile][session]") {
  check("session", run(attack_session, part(75), 11), part(75));
}

TEST_CASE("a unit survives a hostile host, and its neighbours don't notice", "[hostile][unit]") {
  check("unit", run(attack_io_unit, part(5), 12), part(5));
}

TEST_CASE("a host driver survives a hostile unit", "[hostile][driver]") {
  check("host driver", run(attack_host_driver, part(20), 13), part(20));
}

TEST_CASE("a short attack breaks no promise of a session", "[hostile][session]") {
  CHECK(run(attack_session, 4 * kShort, 21).ups > 0);
}

TEST_CASE("a short attack breaks no promise of a unit", "[hostile][unit]") {
  CHECK(run(attack_io_unit, kShort, 22).ups > 0);
}

TEST_CASE("a short attack breaks no promise of a host driver", "[hostile][driver]") {
  CHECK(run(attack_host_driver, kShort, 23).ups > 0);
}

}  // namespace splitnic::hostile::hostile_sessions_test
