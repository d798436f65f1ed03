#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace splitnic {

/// CRC-32C (Castagnoli, reflected, initial and final inversion; RFC 3720 B.4). To compute it over several pieces, pass
/// the result for the earlier pieces. crc32c("123456789") is 0xe3069283. Thread: any.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace splitnic
