#include "fabric/link/record_ring.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "common/random.h"

namespace splitnic::fabric::record_ring_test {
namespace {

std::vector<std::byte> random_bytes(RandomSource& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

TEST_CASE("runs leave a record ring whole and in order, through many laps", "[fabric][udp]") {
  SeededRandom random(7);
  RecordRing ring(1000, 300);
  std::deque<std::vector<std::byte>> expected;
  std::size_t inside = 0;
  std::size_t most = 0;
  for (int step = 0; step < 20000; ++step) {
    const auto bytes = static_cast<std::size_t>(16 + random.below(285));
    if (random.below(2) == 0 && inside + bytes <= 1000) {
      const auto place = ring.claim(bytes);
      REQUIRE(place.size() == bytes);      // bounded by `bytes` alone, wherever the ring's end is
      if (random.below(8) == 0) continue;  // a claim that is not put is forgotten
      expected.push_back(random_bytes(random, bytes));
      std::ranges::copy(expected.back(), place.begin());
      ring.put();
      inside += bytes;
      most = std::max(most, inside);
    } else if (!expected.empty()) {
      const auto front = ring.front();
      REQUIRE(std::ranges::equal(front, expected.front()));
      inside -= front.size();
      ring.pop();
      expected.pop_front();
    }
    REQUIRE(ring.bytes() == inside);
    REQUIRE(ring.empty() == expected.empty());
  }
  CHECK(most > 950);
}

TEST_CASE("a record ring refuses what has no room, and takes it again later", "[fabric][udp]") {
  RecordRing ring(64, 64);
  int taken = 0;
  while (!ring.claim(64).empty()) {
    ring.put();
    ++taken;
  }
  CHECK(taken >= 2);
  CHECK(ring.front().size() == 64);
  ring.pop();
  CHECK(ring.claim(64).size() == 64);
  ring.clear();
  CHECK(ring.empty());
  CHECK(ring.front().empty());
}

}  // namespace
}  // namespace splitnic::fabric::record_ring_test
