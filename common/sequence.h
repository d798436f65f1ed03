#pragma once

#include <cstdint>

namespace splitnic {

/// How far sequence number `number` is beyond `from`; negative: it comes before. Numbers wrap after 2^32 - 1, so that
/// the answer is right for numbers less than 2^31 apart. Source: RFC 1982 (serial number arithmetic).
[[nodiscard]] constexpr std::int32_t sequence_distance(std::uint32_t number, std::uint32_t from) {
  return static_cast<std::int32_t>(number - from);
}

}  // namespace splitnic
