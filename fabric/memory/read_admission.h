#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fabric/memory/protection_error.h"

namespace splitnic::fabric {

/// Whether a peer's read request or atomic may enter the queue of requests that wait for their response; nullopt: yes,
/// else the error. sequence: its message sequence number, 32 bits that wrap; the first is 1. taken, answered: requests
/// since the connection began, answered <= taken. depth: negotiated. The transport has dropped duplicates before.
/// Source: S3 Fig. 18A (steps 1804, 1806); RFC 5041 section 7.1 for the two errors.
[[nodiscard]] constexpr std::optional<ProtectionError> read_refusal(std::uint32_t sequence, std::uint64_t taken,
                                                                    std::uint64_t answered, std::size_t depth) {
  // The transport delivers in order, so exactly one number is expected.
  if (sequence != static_cast<std::uint32_t>(taken + 1)) return ProtectionError::unexpected_sequence;
  if (taken - answered >= depth) return ProtectionError::no_read_resource;
  return std::nullopt;
}

}  // namespace splitnic::fabric
