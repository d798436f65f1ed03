#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "fabric/verbs/types.h"

/// The records that programs send to each other, by any means, before and while they use the verbs. Little-endian.
namespace splitnic::verbs {

/// The key to a part of this end's memory. The address is opaque: it is not an address of the process.
struct RemoteKey {
  std::uint64_t address = 0;
  Stag tag{};
  std::uint32_t bytes = 0;

  /// The address for a work request. Not checked here; the owner checks it.
  [[nodiscard]] RemoteAddress at(std::uint64_t offset = 0) const { return {address + offset, tag}; }
  friend constexpr bool operator==(const RemoteKey&, const RemoteKey&) = default;
};

///      0               8        12         16
///     +---------------+--------+----------+
///     | address 64    | tag 32 | bytes 32 |
///     +---------------+--------+----------+
struct RemoteKeyWire {
  boost::endian::little_uint64_buf_t address;
  boost::endian::little_uint32_buf_t tag;
  boost::endian::little_uint32_buf_t bytes;
};
static_assert(sizeof(RemoteKeyWire) == 16 && std::is_trivially_copyable_v<RemoteKeyWire>);
static_assert(offsetof(RemoteKeyWire, tag) == 8 && offsetof(RemoteKeyWire, bytes) == 12);
inline constexpr std::size_t kRemoteKeyBytes = sizeof(RemoteKeyWire);

[[nodiscard]] std::array<std::byte, kRemoteKeyBytes> encode(const RemoteKey& key);
/// nullopt: not kRemoteKeyBytes long. All keys of this length are accepted; the owner decides what they open.
[[nodiscard]] std::optional<RemoteKey> decode_remote_key(std::span<const std::byte> bytes);

/// The address of a queue pair: what the peer's queue pair needs in order to become ready to receive.
struct QueuePairAddress {
  PortAddress port{};
  QpNumber queue_pair{};
  std::uint32_t first_psn = 0;  ///< of the packets that it will send
  std::uint16_t reads_in = 0;   ///< reads and atomics that it can answer at the same time

  friend constexpr bool operator==(const QueuePairAddress&, const QueuePairAddress&) = default;
};

///      0                      8                    12             16            18            24
///     +----------------------+--------------------+--------------+-------------+-------------+
///     | port address 64      | queue pair 32      | first PSN 32 | reads in 16 | reserved 48 |
///     | (lower 48 used)      | (lower 24 used)    |              |             | zero        |
///     +----------------------+--------------------+--------------+-------------+-------------+
struct QueuePairAddressWire {
  boost::endian::little_uint64_buf_t port;
  boost::endian::little_uint32_buf_t queue_pair;
  boost::endian::little_uint32_buf_t first_psn;
  boost::endian::little_uint16_buf_t reads_in;
  std::array<std::uint8_t, 6> reserved;
};
static_assert(sizeof(QueuePairAddressWire) == 24 && std::is_trivially_copyable_v<QueuePairAddressWire>);
static_assert(offsetof(QueuePairAddressWire, first_psn) == 12 && offsetof(QueuePairAddressWire, reserved) == 18);
inline constexpr std::size_t kQueuePairAddressBytes = sizeof(QueuePairAddressWire);

[[nodiscard]] std::array<std::byte, kQueuePairAddressBytes> encode(const QueuePairAddress& address);
/// nullopt: not kQueuePairAddressBytes long, unused bits are set, or queue pair 0.
[[nodiscard]] std::optional<QueuePairAddress> decode_queue_pair_address(std::span<const std::byte> bytes);

}  // namespace splitnic::verbs
