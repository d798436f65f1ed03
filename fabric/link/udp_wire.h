#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tl/expected.hpp>
#include <type_traits>
#include <variant>

#include "common/strong_id.h"
#include "fabric/ids.h"

namespace splitnic::fabric {

/// The key that a datagram must carry: random, drawn anew for each incarnation of a link; 0 is none. It stops only
/// forgers that cannot see the datagrams: it is neither encryption nor authentication.
using UdpKey = StrongId<struct UdpKeyTag, std::uint64_t>;

/// Opens every datagram. check: CRC-32C over the whole datagram without these four bytes.
///
///         0          2         3      4        8
///        +----------+---------+------+--------+-----------------+
///        | magic 16 | version | kind | check  | receiver key 64 |
///        +----------+---------+------+--------+-----------------+
struct UdpCommon {
  boost::endian::little_uint16_buf_t magic;
  boost::endian::little_uint8_buf_t version;
  boost::endian::little_uint8_buf_t kind;
  boost::endian::little_uint32_buf_t check;
  boost::endian::little_uint64_buf_t receiver_key;
};
static_assert(sizeof(UdpCommon) == 16 && alignof(UdpCommon) == 1 && std::is_trivially_copyable_v<UdpCommon>);
static_assert(offsetof(UdpCommon, check) == 4 && offsetof(UdpCommon, receiver_key) == 8);

/// Sets a link up. receiver key 0: the sender does not know it yet. Windows: how many bytes of records the sender of
/// the hello takes in each lane before it grants more.
///
///         0                                16              24
///        +--------------------------------+---------------+-----------------+
///        | common                         | sender key 64 | sender epoch 64 |
///        +-----------------+--------------+---------------+-----------------+
///     32 | port address 64 | control 32   | data 32       | datagram 32 | 0  |
///        +-----------------+--------------+---------------+-------------+----+
///                          40 windows      44              48            52 reserved 96
struct UdpHelloBytes {
  UdpCommon common;
  boost::endian::little_uint64_buf_t sender_key;
  boost::endian::little_uint64_buf_t epoch;
  boost::endian::little_uint64_buf_t port_address;
  std::array<boost::endian::little_uint32_buf_t, kLanes> window_bytes;
  boost::endian::little_uint32_buf_t datagram_bytes;
  std::array<std::uint8_t, 12> reserved;
};
static_assert(sizeof(UdpHelloBytes) == 64 && std::is_trivially_copyable_v<UdpHelloBytes>);
static_assert(offsetof(UdpHelloBytes, port_address) == 32 && offsetof(UdpHelloBytes, datagram_bytes) == 48);

/// Carries records of one lane, or none. epochs: epoch_tag(sender, receiver). position: bytes of records that were sent
/// in this lane before these. granted: up to which position the peer may send, in each lane. Records follow, each of
/// them its length in 16 bits and that many bytes: one cell.
///
///         0                                16          20        21         22
///        +--------------------------------+-----------+---------+----------+-------------+
///        | common                         | epochs 32 | lane  8 | flags  8 | reserved 16 |
///        +-------------+------------------+-----------+---------+----------+-------------+
///     24 | position 64 | granted control 64 | granted data 64 | 48: records
///        +-------------+--------------------+-----------------+---------------------------
struct UdpDataBytes {
  UdpCommon common;
  boost::endian::little_uint32_buf_t epochs;
  boost::endian::little_uint8_buf_t lane;
  boost::endian::little_uint8_buf_t flags;
  boost::endian::little_uint16_buf_t reserved;
  boost::endian::little_uint64_buf_t position;
  std::array<boost::endian::little_uint64_buf_t, kLanes> granted;
};
static_assert(sizeof(UdpDataBytes) == 48 && std::is_trivially_copyable_v<UdpDataBytes>);
static_assert(offsetof(UdpDataBytes, lane) == 20 && offsetof(UdpDataBytes, position) == 24);

inline constexpr std::uint16_t kUdpMagic = 0x4e53;  // "SN"
inline constexpr std::uint8_t kUdpVersion = 1;
inline constexpr std::uint8_t kUdpHello = 1;
inline constexpr std::uint8_t kUdpData = 2;
/// The sender of the datagram has no room left in the lane and asks for an answer that grants some.
inline constexpr std::uint8_t kUdpFlagAsk = 1;
inline constexpr std::size_t kUdpRecordHead = 2;
/// The shortest cell: its header and its CRC.
inline constexpr std::size_t kUdpMinRecord = 36;
/// A datagram's size, including its header: at least, and at most (UDP over IPv4).
inline constexpr std::uint32_t kUdpMinDatagram = 512;
inline constexpr std::uint32_t kUdpMaxDatagram = 65507;

struct UdpHello {
  UdpKey receiver_key{};
  UdpKey sender_key{};
  Epoch epoch{};
  PortAddress port_address{};
  std::array<std::uint32_t, kLanes> window_bytes{};
  std::uint32_t datagram_bytes = 0;  ///< the largest that its sender takes
  friend bool operator==(const UdpHello&, const UdpHello&) = default;
};

struct UdpData {
  UdpKey receiver_key{};
  std::uint32_t epochs = 0;
  VirtualLane lane = VirtualLane::control;
  bool ask = false;
  std::uint64_t position = 0;
  std::array<std::uint64_t, kLanes> granted{};
  std::span<const std::byte> records{};  ///< inside the bytes that were decoded; whole records
};

/// The field that makes a datagram unbelievable.
enum class UdpFault : std::uint8_t {
  length,
  magic,
  version,
  check,
  kind,
  reserved,
  key,
  epoch,
  port_address,
  window,
  datagram_bytes,
  lane,
  flags,
  records,
};
inline constexpr std::size_t kUdpFaults = 14;
const char* to_string(UdpFault fault);

[[nodiscard]] UdpHelloBytes encode_udp(const UdpHello& hello);
/// Completes a datagram whose records stand behind the room for its header: writes the header and the check into
/// `datagram`. data.records is not looked at.
void seal_udp(const UdpData& data, std::span<std::byte> datagram);

using UdpDatagram = std::variant<UdpHello, UdpData>;
/// Reads a whole datagram, a private copy, and checks everything that the datagram alone can show.
[[nodiscard]] tl::expected<UdpDatagram, UdpFault> decode_udp(std::span<const std::byte> datagram);

/// The first record of `records`, which decode_udp() checked and which are not empty; moves them on.
template <class Byte>
[[nodiscard]] std::span<Byte> next_udp_record(std::span<Byte>& records) {
  boost::endian::little_uint16_buf_t length;
  std::memcpy(&length, records.data(), sizeof length);
  const auto record = records.subspan(kUdpRecordHead, length.value());
  records = records.subspan(kUdpRecordHead + length.value());
  return record;
}

}  // namespace splitnic::fabric
