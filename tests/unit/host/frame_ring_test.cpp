#include "host/frame_ring.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

namespace splitnic::host::frame_ring_test {
namespace {

bool readable(int fd, int timeout_ms = 0) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, timeout_ms) == 1;
}

bool push(FrameRing& ring, std::uint64_t value, std::size_t bytes = sizeof(std::uint64_t)) {
  const std::span<std::byte> place = ring.claim();
  if (place.empty()) return false;
  std::memcpy(place.data(), &value, sizeof value);
  ring.commit(bytes);
  return true;
}

std::uint64_t value_of(std::span<const std::byte> frame) {
  std::uint64_t value = 0;
  std::memcpy(&value, frame.data(), sizeof value);
  return value;
}

TEST_CASE("frames leave a ring in order, with their lengths, and a full one refuses", "[host][ring]") {
  FrameRing ring(4, 64);
  CHECK(ring.front().empty());
  for (int round = 0; round < 10; ++round) {
    for (std::uint64_t number = 0; number < 4; ++number) REQUIRE(push(ring, number, 60 + number));
    CHECK(ring.claim().empty());
    for (std::uint64_t number = 0; number < 4; ++number) {
      REQUIRE(ring.front().size() == 60 + number);
      REQUIRE(value_of(ring.front()) == number);
      ring.pop();
    }
    CHECK(ring.front().empty());
  }
}

TEST_CASE("the descriptor is rung by the first frame after an empty look, and by no other", "[host][ring]") {
  FrameRing ring(4, 64);
  REQUIRE(push(ring, 1));
  CHECK_FALSE(readable(ring.descriptor()));
  CHECK(value_of(ring.front()) == 1);
  ring.pop();
  CHECK(ring.front().empty());
  CHECK_FALSE(readable(ring.descriptor()));
  REQUIRE(push(ring, 2));
  CHECK(readable(ring.descriptor()));
  CHECK(value_of(ring.front()) == 2);
  ring.pop();
  CHECK(ring.front().empty());
  CHECK_FALSE(readable(ring.descriptor()));
}

// Proves no lost wake-up and no torn frame on the machine it runs on; under ThreadSanitizer also that the storage is
// ordered by the queues. It proves nothing about machines with a weaker memory model.
TEST_CASE("a consumer that sleeps whenever it finds nothing sees every frame of a concurrent producer",
          "[host][ring][stress]") {
  constexpr std::uint64_t kFrames = 100'000;
  FrameRing ring(16, 64);
  std::thread producer([&] {
    for (std::uint64_t number = 0; number < kFrames;) {
      if (push(ring, number)) {
        ++number;
      } else {
        std::this_thread::yield();
      }
    }
  });
  std::uint64_t expected = 0;
  bool awakened = true;
  while (expected < kFrames && awakened) {
    const auto frame = ring.front();
    if (frame.empty()) {
      awakened = readable(ring.descriptor(), 10'000);
      continue;
    }
    if (value_of(frame) != expected) break;
    ++expected;
    ring.pop();
  }
  producer.join();
  CHECK(awakened);
  CHECK(expected == kFrames);
}

}  // namespace
}  // namespace splitnic::host::frame_ring_test
