#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace splitnic::fabric {

/// A part of a wire format, from private memory, which holds it.
template <class T>
[[nodiscard]] T read_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace splitnic::fabric
