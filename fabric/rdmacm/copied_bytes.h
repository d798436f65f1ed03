#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

namespace splitnic::rdmacm {

/// A copy of the record that begins at from[0]. from: at least sizeof(Bytes). Bytes: a struct of a wire format, without
/// alignment. Thread: any.
template <class Bytes>
[[nodiscard]] Bytes copied_bytes(std::span<const std::byte> from) {
  static_assert(std::is_trivially_copyable_v<Bytes> && alignof(Bytes) == 1);
  Bytes bytes{};
  std::ranges::copy(from.first(sizeof bytes), std::as_writable_bytes(std::span(&bytes, 1)).begin());
  return bytes;
}

}  // namespace splitnic::rdmacm
