#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "fabric/rdmacm/address.h"

namespace splitnic::rdmacm {

/// In front of each datagram of a datagram socket: from whom it is. 28 bytes, little-endian; the address is in network
/// order:
///
///      0         4         6          8                 24        28
///     +---------+---------+----------+-----------------+---------+
///     | magic   | version | number of| address of the  | scope   |
///     |         |         | source   | source, 16 bytes|         |
///     +---------+---------+----------+-----------------+---------+
struct DatagramHeaderBytes {
  boost::endian::little_uint32_buf_t magic;
  boost::endian::little_uint16_buf_t version;
  boost::endian::little_uint16_buf_t number;
  std::array<std::uint8_t, 16> address;
  boost::endian::little_uint32_buf_t scope;
};
static_assert(sizeof(DatagramHeaderBytes) == 28 && alignof(DatagramHeaderBytes) == 1);
static_assert(offsetof(DatagramHeaderBytes, address) == 8 && offsetof(DatagramHeaderBytes, scope) == 24);
static_assert(std::is_trivially_copyable_v<DatagramHeaderBytes>);
inline constexpr std::uint32_t kDatagramMagic = 0x44524c53;  // "SLRD"
inline constexpr std::uint16_t kDatagramVersion = 1;

[[nodiscard]] DatagramHeaderBytes encode_source(const Address& source);
/// bytes: of a datagram. nullopt: not one of a datagram socket, or its source is no address of one.
[[nodiscard]] std::optional<Address> decode_source(std::span<const std::byte> bytes);

}  // namespace splitnic::rdmacm
