#pragma once

#include <cstdint>

namespace splitnic {

/// `bytes` bytes from `offset` on. A peer may choose both numbers, so that their sum may not fit into 64 bits: the
/// questions below are answered without it.
struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  /// Every byte of `inner` is a byte of this range. An empty `inner` has an offset all the same, which must lie within
  /// this range or at its end.
  [[nodiscard]] constexpr bool contains(const ByteRange& inner) const {
    if (inner.offset < offset) return false;
    const std::uint64_t from_start = inner.offset - offset;
    return from_start <= bytes && inner.bytes <= bytes - from_start;
  }

  /// Some byte belongs to both ranges. An empty range has none.
  [[nodiscard]] constexpr bool overlaps(const ByteRange& other) const {
    if (bytes == 0 || other.bytes == 0) return false;
    return other.offset >= offset ? other.offset - offset < bytes : offset - other.offset < other.bytes;
  }
};

/// [offset, offset + bytes) lies within the first `size` bytes.
[[nodiscard]] constexpr bool within(std::uint64_t size, const ByteRange& range) {
  return ByteRange{0, size}.contains(range);
}

}  // namespace splitnic
