#pragma once

#include <cstdint>

namespace splitnic::fabric {

/// What an entry of the protection table allows, as bits. Source: S3; design, "Protection".
enum class Right : std::uint16_t {
  local_read = 1,
  local_write = 2,
  remote_read = 4,
  remote_write = 8,
  remote_atomic = 16,
  window_binding = 32,
};

struct Rights {
  std::uint16_t bits = 0;
  [[nodiscard]] constexpr bool has(Right right) const { return (bits & static_cast<std::uint16_t>(right)) != 0; }
  [[nodiscard]] constexpr Rights without(Right right) const {
    return Rights{static_cast<std::uint16_t>(bits & ~static_cast<std::uint16_t>(right))};
  }
  friend constexpr Rights operator|(Rights left, Right right) {
    return Rights{static_cast<std::uint16_t>(left.bits | static_cast<std::uint16_t>(right))};
  }
  friend constexpr bool operator==(Rights, Rights) = default;
};
constexpr Rights operator|(Right left, Right right) { return Rights{} | left | right; }

}  // namespace splitnic::fabric
