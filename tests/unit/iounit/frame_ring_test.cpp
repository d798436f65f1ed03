#include "iounit/frame_ring.h"

#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "common/random.h"

namespace splitnic::iounit::test::frame_ring_test {
namespace {

constexpr std::size_t kBytes = 256U << 10U;

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> frame(bytes);
  for (std::size_t at = 0; at < bytes; ++at) frame[at] = static_cast<std::byte>(seed * 31 + at * 7);
  return frame;
}

TEST_CASE("what is added is taken in order, when it is published, with everything that is known of it",
          "[iounit][group][ring]") {
  FrameRing ring(kBytes);
  const auto first = pattern(60, 1);
  const auto second = pattern(1514, 2);
  const frame::FrameOffload offload{.partial_checksum = true,
                                    .checksum_start = 34,
                                    .checksum_offset = 16,
                                    .kind = frame::SegmentKind::tcp_v4,
                                    .segment_bytes = 1400,
                                    .header_bytes = 54};
  REQUIRE(ring.add({.bytes = first, .offload = offload, .addressed = true}));
  REQUIRE(ring.add({.bytes = second, .offload = {}, .from_lan = true}));
  CHECK(ring.empty());
  CHECK_FALSE(ring.take());
  REQUIRE(ring.publish());
  CHECK_FALSE(ring.publish());
  CHECK_FALSE(ring.empty());
  const auto one = ring.take();
  REQUIRE(one);
  CHECK(std::ranges::equal(one->bytes, first));
  CHECK(one->offload == offload);
  CHECK(one->addressed);
  CHECK_FALSE(one->from_lan);
  const auto two = ring.take();
  REQUIRE(two);
  CHECK(std::ranges::equal(two->bytes, second));
  CHECK_FALSE(two->offload);
  CHECK(two->from_lan);
  CHECK_FALSE(two->addressed);
  CHECK(std::ranges::equal(one->bytes, first));  // until it is settled
  CHECK_FALSE(ring.take());
  CHECK(ring.empty());
}

TEST_CASE("a full ring refuses until its frames are settled", "[iounit][group][ring]") {
  FrameRing ring(kBytes);
  const auto frame = pattern(60'000, 3);
  std::size_t fit = 0;
  while (fit < 100 && ring.add({.bytes = frame, .offload = {}})) ++fit;
  CHECK(fit == 4);
  REQUIRE(ring.publish());
  REQUIRE(ring.take());
  CHECK_FALSE(ring.add({.bytes = frame, .offload = {}}));
  ring.settle();
  CHECK(ring.add({.bytes = frame, .offload = {}}));
}

TEST_CASE("frames of every size go round the ring's end whole, however full it is", "[iounit][group][ring]") {
  FrameRing ring(kBytes);
  SeededRandom random(7);
  std::deque<std::vector<std::byte>> inside;
  std::size_t refused = 0;
  std::size_t taken = 0;
  for (unsigned round = 0; round < 20'000; ++round) {
    if (random.below(2) == 0) {
      const std::size_t bytes = random.below(8) == 0 ? 14 + random.below(65'591) : 14 + random.below(1500);
      auto frame = pattern(bytes, round);
      if (ring.add({.bytes = frame, .offload = {}})) {
        inside.push_back(std::move(frame));
      } else {
        ++refused;
      }
      static_cast<void>(ring.publish());
    } else {
      const auto frame = ring.take();
      REQUIRE(frame.has_value() == !inside.empty());
      if (!frame) continue;
      REQUIRE(std::ranges::equal(frame->bytes, inside.front()));
      inside.pop_front();
      ring.settle();
      ++taken;
    }
  }
  CHECK(taken > 5000);
  CHECK(refused > 100);
}

}  // namespace
}  // namespace splitnic::iounit::test::frame_ring_test
