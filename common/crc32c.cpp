#include "common/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace splitnic {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  constexpr std::size_t kLongestPiece = 1U << 30U;  // ISA-L counts in int
  std::uint32_t state = ~before;
  while (!bytes.empty()) {
    const std::size_t piece = std::min(bytes.size(), kLongestPiece);
    // ISA-L's prototype lacks the const; it only reads.
    auto* from = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    state = crc32_iscsi(from, static_cast<int>(piece), state);
    bytes = bytes.subspan(piece);
  }
  return ~state;
}

}  // namespace splitnic
