#pragma once

#include <cstdint>

namespace splitnic {

/// The finalizer of MurmurHash3: every bit of the value affects every bit of the result. Different values have
/// different results.
constexpr std::uint64_t mix(std::uint64_t value) {
  value ^= value >> 33U;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 33U;
  value *= 0xc4ceb9fe1a85ec53ULL;
  return value ^ value >> 33U;
}

}  // namespace splitnic
