#include "common/random.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

namespace splitnic::random_test {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

/// Gives the numbers of a list, one after the other.
class Listed final : public RandomSource {
 public:
  Listed(std::initializer_list<std::uint64_t> numbers) : numbers_(numbers) {}
  std::uint64_t next() override { return numbers_.at(taken_++); }
  [[nodiscard]] std::size_t taken() const { return taken_; }

 private:
  std::vector<std::uint64_t> numbers_;
  std::size_t taken_ = 0;
};

TEST_CASE("a seed gives the same numbers for ever, since seeds are kept as regressions", "[common][random]") {
  // From an implementation of splitmix64 and xoshiro256** in Python.
  struct Known {
    std::uint64_t seed;
    std::array<std::uint64_t, 3> numbers;
  };
  for (const Known& known : {Known{0, {0x99ec5f36cb75f2b4, 0xbf6e1f784956452a, 0x1a5f849d4933e6e0}},
                             Known{42, {0x15780b2e0c2ec716, 0x6104d9866d113a7e, 0xae17533239e499a1}},
                             Known{kMost, {0x8f5520d52a7ead08, 0xc476a018caa1802d, 0x81de31c0d260469e}}}) {
    SeededRandom random(known.seed);
    for (const std::uint64_t number : known.numbers) CHECK(random.next() == number);
  }
}

TEST_CASE("a number below a bound favours none: the part of the range that does not divide is drawn again",
          "[common][random]") {
  // 2^64 = 3 x 0x5555555555555555 + 1: one number is left over, and 0 is it.
  Listed thirds{0, 1, 2, 3, kMost};
  CHECK(thirds.below(3) == 1);
  CHECK(thirds.taken() == 2);
  CHECK(thirds.below(3) == 2);
  CHECK(thirds.below(3) == 0);
  CHECK(thirds.below(3) == 0);
  Listed halves{0, kMost};
  CHECK(halves.below(2) == 0);
  CHECK(halves.below(2) == 1);
  Listed one{7};
  CHECK(one.below(1) == 0);
  // 2^64 = 1 x (2^64 - 1) + 1.
  Listed most{0, 1, kMost, kMost - 1};
  CHECK(most.below(kMost) == 1);
  CHECK(most.below(kMost) == 0);
  CHECK(most.below(kMost) == kMost - 1);
}

TEST_CASE("the kernel's numbers differ, and differ between two sources", "[common][random]") {
  SystemRandom one;
  SystemRandom other;
  std::uint64_t before = one.next();
  for (int i = 0; i < 200; ++i) {  // more than the buffer holds
    const std::uint64_t number = one.next();
    CHECK(number != before);
    CHECK(number != other.next());
    before = number;
  }
}

}  // namespace
}  // namespace splitnic::random_test
