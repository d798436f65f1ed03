#pragma once

#include <cstdint>

namespace splitnic {

/// The distance from sequence number `from` to `number`; negative: `number` comes before. Numbers wrap after 2^32 - 1,
/// so the result is right for numbers less than 2^31 apart. Source: RFC 1982 (serial number arithmetic).
[[nodiscard]] constexpr std::int32_t sequence_distance(std::uint32_t number, std::uint32_t from) {
  return static_cast<std::int32_t>(number - from);
}

}  // namespace splitnic
