#pragma once

#include <cstdint>

#include "common/check.h"
#include "messaging/wire/entries.h"

/// The immediate data of a data-channel write: an indication in 32 bits (S1 IV.A.2 and IV.B.2).
///
///   31       24 23       16 15                     0
///  +-----------+-----------+------------------------+
///  |   pool    |  element  |         length         |   length 0 means 65536
///  +-----------+-----------+------------------------+
namespace splitnic::messaging::wire {

inline constexpr std::uint32_t kImmediatePools = 256;
inline constexpr std::uint32_t kImmediateElements = 256;
inline constexpr std::uint32_t kMaxImmediateLength = 65'536;

/// True if immediate data indicates writes into a pool of this shape, false if BufferRDMAIndicate does. A pool uses one
/// form only, which its advertisement determines for both sides.
constexpr bool uses_immediate(PoolNumber pool, std::uint32_t elements, std::uint32_t element_bytes) {
  return pool.value < kImmediatePools && elements <= kImmediateElements && element_bytes <= kMaxImmediateLength;
}

/// The indication must be of a pool that uses_immediate().
inline std::uint32_t encode_immediate(const Indication& indication) {
  SPLITNIC_CHECK_OP(indication.pool.value, <, kImmediatePools);
  SPLITNIC_CHECK_OP(indication.element, <, kImmediateElements);
  SPLITNIC_CHECK_OP(indication.length, >, 0U);
  SPLITNIC_CHECK_OP(indication.length, <=, kMaxImmediateLength);
  return indication.pool.value << 24U | indication.element << 16U | (indication.length & 0xffffU);
}

/// Every value decodes. The caller checks that it lies inside its pool (OwnedPool::indicate); that also limits length 0
/// to pools with elements of 65536 bytes, or whose frames span elements.
constexpr Indication decode_immediate(std::uint32_t immediate) {
  const std::uint32_t length = immediate & 0xffffU;
  return {.pool = PoolNumber{immediate >> 24U},
          .element = immediate >> 16U & 0xffU,
          .length = length == 0 ? kMaxImmediateLength : length};
}

}  // namespace splitnic::messaging::wire
