#pragma once

#include <cstdint>

namespace splitnic {

/// `bytes` bytes from `offset` on. A peer may choose both numbers, so their sum may not fit into 64 bits. The functions
/// below never compute that sum.
struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  /// Whether every byte of `inner` is a byte of this range. The offset of an empty `inner` must lie within this range
  /// or at its end.
  [[nodiscard]] constexpr bool contains(const ByteRange& inner) const {
    if (inner.offset < offset) return false;
    const std::uint64_t from_start = inner.offset - offset;
    return from_start <= bytes && inner.bytes <= bytes - from_start;
  }

  /// Whether some byte belongs to both ranges. An empty range has no bytes.
  [[nodiscard]] constexpr bool overlaps(const ByteRange& other) const {
    if (bytes == 0 || other.bytes == 0) return false;
    return other.offset >= offset ? other.offset - offset < bytes : offset - other.offset < other.bytes;
  }
};

/// Whether `range` lies within the first `size` bytes.
[[nodiscard]] constexpr bool within(std::uint64_t size, const ByteRange& range) {
  return ByteRange{0, size}.contains(range);
}

/// The least multiple of `to` that is not below the number. Neither it nor number + to may pass 32 bits.
[[nodiscard]] constexpr std::uint32_t round_up(std::uint32_t number, std::uint32_t to) {
  return (number + to - 1) / to * to;
}

}  // namespace splitnic
