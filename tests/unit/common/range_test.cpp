#include "common/range.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>

#include "common/sequence.h"

namespace splitnic::range_test {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

/// Byte by byte, for ranges of small numbers.
bool holds(const ByteRange& range, std::uint64_t byte) {
  return byte >= range.offset && byte < range.offset + range.bytes;
}

TEST_CASE("ranges of small numbers contain and overlap each other as their bytes do", "[common]") {
  constexpr std::uint64_t kEnd = 6;
  for (std::uint64_t at = 0; at <= kEnd; ++at) {
    for (std::uint64_t bytes = 0; at + bytes <= kEnd; ++bytes) {
      for (std::uint64_t other_at = 0; other_at <= kEnd; ++other_at) {
        for (std::uint64_t other_bytes = 0; other_at + other_bytes <= kEnd; ++other_bytes) {
          const ByteRange range{at, bytes};
          const ByteRange other{other_at, other_bytes};
          bool all = true;
          bool any = false;
          for (std::uint64_t byte = 0; byte < kEnd; ++byte) {
            if (!holds(other, byte)) continue;
            all = all && holds(range, byte);
            any = any || holds(range, byte);
          }
          const bool empty_beside = other_bytes == 0 && (other_at < at || other_at > at + bytes);
          CAPTURE(at, bytes, other_at, other_bytes);
          CHECK(range.contains(other) == (all && !empty_beside));
          CHECK(range.overlaps(other) == any);
          CHECK(within(bytes, other) == ByteRange{0, bytes}.contains(other));
        }
      }
    }
  }
}

TEST_CASE("a range whose end is beyond 64 bits is contained in nothing shorter", "[common]") {
  CHECK_FALSE(within(100, {1, kMost}));
  CHECK_FALSE(within(100, {kMost, 1}));
  CHECK_FALSE(within(100, {kMost, 2}));  // the sum is 1
  CHECK_FALSE(within(100, {kMost - 49, 100}));
  CHECK_FALSE(within(kMost, {kMost, 1}));
  CHECK_FALSE(within(kMost, {1, kMost}));
  CHECK(within(kMost, {0, kMost}));
  CHECK(within(kMost, {kMost - 1, 1}));
  CHECK(within(kMost, {kMost, 0}));
  CHECK_FALSE(ByteRange{100, 100}.contains({99, 2}));
  CHECK_FALSE(ByteRange{100, 100}.contains({0, kMost}));
  CHECK(ByteRange{kMost - 100, 100}.contains({kMost - 1, 1}));
  CHECK_FALSE(ByteRange{kMost - 100, 100}.contains({kMost - 1, 2}));
}

TEST_CASE("a range whose end is beyond 64 bits overlaps what it reaches, and nothing at the start", "[common]") {
  const ByteRange last{kMost - 9, 100};  // the sum is 90
  CHECK_FALSE(last.overlaps({0, 100}));
  CHECK_FALSE(ByteRange{0, 100}.overlaps(last));
  CHECK(last.overlaps({kMost, 1}));
  CHECK(ByteRange{kMost, 1}.overlaps(last));
  CHECK(last.overlaps({0, kMost}));
  CHECK(ByteRange{0, kMost}.overlaps(last));
  CHECK_FALSE(last.overlaps({0, kMost - 9}));
  CHECK(last.overlaps({0, kMost - 8}));
}

TEST_CASE("sequence numbers wrap, and half their number is as far as one can be beyond another", "[common]") {
  CHECK(sequence_distance(7, 7) == 0);
  CHECK(sequence_distance(8, 7) == 1);
  CHECK(sequence_distance(7, 8) == -1);
  CHECK(sequence_distance(0, 0xffffffff) == 1);
  CHECK(sequence_distance(0xffffffff, 0) == -1);
  CHECK(sequence_distance(5, 0xfffffff0) == 21);
  CHECK(sequence_distance(0x7fffffff, 0) == 0x7fffffff);
  CHECK(sequence_distance(0x80000001, 0) == -0x7fffffff);
  CHECK(sequence_distance(0x10, 0x80000011) == 0x7fffffff);
}

}  // namespace
}  // namespace splitnic::range_test
