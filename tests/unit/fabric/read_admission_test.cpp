#include "fabric/memory/read_admission.h"

#include <catch2/catch.hpp>

namespace splitnic::fabric::read_admission_test {

TEST_CASE("a read request has a place if its number is the next and the depth is not used up", "[fabric][memory]") {
  constexpr std::uint64_t kWrap = std::uint64_t{1} << 32U;
  for (std::size_t depth = 1; depth <= 8; ++depth) {
    for (const std::uint64_t answered : {std::uint64_t{0}, kWrap / 2 - 3, kWrap - 9, kWrap - 1, kWrap, 5 * kWrap - 2}) {
      for (std::uint64_t waiting = 0; waiting <= depth; ++waiting) {
        const std::uint64_t taken = answered + waiting;
        const auto next = static_cast<std::uint32_t>(taken + 1);
        const auto refusal = [&](std::uint32_t sequence) { return read_refusal(sequence, taken, answered, depth); };
        CAPTURE(depth, answered, waiting);
        if (waiting < depth) {
          CHECK_FALSE(refusal(next).has_value());
        } else {
          CHECK(refusal(next) == ProtectionError::no_read_resource);
        }
        for (std::uint32_t off = 1; off <= 2 * depth + 1; ++off) {  // waiting, answered long ago, or too early
          CHECK(refusal(next - off) == ProtectionError::unexpected_sequence);
          CHECK(refusal(next + off) == ProtectionError::unexpected_sequence);
        }
        CHECK(refusal(next + 0x8000'0000U) == ProtectionError::unexpected_sequence);
      }
    }
  }
}

}  // namespace splitnic::fabric::read_admission_test
