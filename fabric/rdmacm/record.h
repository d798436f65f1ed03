#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tl/expected.hpp>
#include <type_traits>

#include "fabric/rdmacm/address.h"

namespace splitnic::rdmacm {

/// What the ends of a connection tell each other through their socket, one record each time.
enum class RecordKind : std::uint8_t {
  request = 1,     ///< from the end that connects
  reply = 2,       ///< the other end accepts
  ready = 3,       ///< the first end has moved its queue pair, too
  reject = 4,      ///< there is no connection
  disconnect = 5,  ///< the sender's queue pair is in error
};

/// A port space of the C interface: what kind of service the number of an address names.
enum class Space : std::uint16_t { ipoib = 0x0002, tcp = 0x0106, udp = 0x0111, ib = 0x013f };

/// Bytes of the programs that each kind carries. Source: InfiniBand, 12.6; a request has 36 bytes less, in which the
/// kernel's connection manager carries the addresses.
inline constexpr std::size_t kRequestBytes = 56;
inline constexpr std::size_t kReplyBytes = 196;
inline constexpr std::size_t kRejectBytes = 148;
inline constexpr std::size_t kDatagramRequestBytes = 180;
inline constexpr std::size_t kDatagramReplyBytes = 136;
inline constexpr std::size_t kMaxPrivateBytes = 196;
/// The numbers of queue pairs, and of packets.
inline constexpr std::uint32_t kMax24Bits = 0xff'ffff;

/// Why a request is rejected. Source: InfiniBand, table 108 (REJ) and table 133 (SIDR_REP).
inline constexpr std::uint16_t kTimedOut = 4;
inline constexpr std::uint16_t kNoListener = 8;
inline constexpr std::uint16_t kConsumerDefined = 28;
inline constexpr std::uint16_t kVendorOption = 35;
inline constexpr std::uint16_t kNoDatagramListener = 1;
inline constexpr std::uint16_t kDatagramsRejected = 2;

/// A record by value.
struct Record {
  RecordKind kind = RecordKind::request;
  bool datagrams = false;          ///< a service of datagrams: request, reply and reject only
  std::uint32_t queue_pair = 0;    ///< request, reply: the sender's
  std::uint32_t starting_psn = 0;  ///< request, reply: of the sender's packets
  std::uint32_t queue_key = 0;     ///< a datagram service's reply
  std::uint16_t local_id = 0;      ///< request, reply: the sender's endnode
  std::uint16_t reason = 0;        ///< reject
  std::uint16_t space = 0;         ///< request: a Space
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;  ///< for the receiver of the record to use
  std::uint8_t flow_control = 0;
  std::uint8_t shared_receives = 0;  ///< the sender's queue pair uses a shared receive queue
  std::uint8_t private_bytes = 0;
  Address source{};       ///< request
  Address destination{};  ///< request
  std::array<std::byte, kMaxPrivateBytes> private_data{};

  friend bool operator==(const Record&, const Record&) = default;
};

/// A record on its socket, a datagram of 272 bytes, little-endian; addresses are in network order:
///
///      0         4        6        7        8          12         16         20         22       24
///     +---------+--------+--------+--------+----------+----------+----------+----------+--------+
///     | magic   | version| kind   | flags  | queue    | starting | queue    | local ID | reason |
///     |         |        |        |        | pair     | PSN      | key      |          |        |
///     +---------+--------+--------+--------+----------+----------+----------+----------+--------+
///      24       26           27         28      29       30       31       32        33
///     +--------+------------+----------+-------+--------+--------+--------+---------+-----------+
///     | space  | responder  | initiator| retry | RNR    | flow   | shared | private | reserved, |
///     |        | resources  | depth    | count | retries| control| receive| bytes   | 3 bytes   |
///     +--------+------------+----------+-------+--------+--------+--------+---------+-----------+
///      36               52            68       70            72      76
///     +----------------+-------------+--------+-------------+-------+---------------------------+
///     | source address | destination | source | destination | scope | private data, 196 bytes   |
///     |                | address     | number | number      |       |                           |
///     +----------------+-------------+--------+-------------+-------+---------------------------+
///
/// flags: bit 0, a service of datagrams. scope: of link-local addresses. Unused bytes are zero.
struct RecordBytes {
  boost::endian::little_uint32_buf_t magic;
  boost::endian::little_uint16_buf_t version;
  std::uint8_t kind;
  std::uint8_t flags;
  boost::endian::little_uint32_buf_t queue_pair;
  boost::endian::little_uint32_buf_t starting_psn;
  boost::endian::little_uint32_buf_t queue_key;
  boost::endian::little_uint16_buf_t local_id;
  boost::endian::little_uint16_buf_t reason;
  boost::endian::little_uint16_buf_t space;
  std::uint8_t responder_resources;
  std::uint8_t initiator_depth;
  std::uint8_t retry_count;
  std::uint8_t rnr_retry_count;
  std::uint8_t flow_control;
  std::uint8_t shared_receives;
  std::uint8_t private_bytes;
  std::array<std::uint8_t, 3> reserved;
  std::array<std::uint8_t, 16> source;
  std::array<std::uint8_t, 16> destination;
  boost::endian::little_uint16_buf_t source_number;
  boost::endian::little_uint16_buf_t destination_number;
  boost::endian::little_uint32_buf_t scope;
  std::array<std::byte, kMaxPrivateBytes> private_data;
};
static_assert(sizeof(RecordBytes) == 272 && alignof(RecordBytes) == 1);
static_assert(offsetof(RecordBytes, space) == 24 && offsetof(RecordBytes, source) == 36);
static_assert(offsetof(RecordBytes, private_data) == 76);
static_assert(std::is_trivially_copyable_v<RecordBytes>);
inline constexpr std::uint32_t kRecordMagic = 0x4d434c53;  // "SLCM"
inline constexpr std::uint16_t kRecordVersion = 1;

/// What is wrong with a record.
enum class RecordFault : std::uint8_t {
  size,
  magic,
  version,
  kind,
  flags,
  queue_pair,
  starting_psn,
  local_id,
  reason,
  space,
  retry_count,
  flow_control,
  private_bytes,
  private_data,  ///< something behind its end
  reserved,
  scope,
};
inline constexpr std::size_t kRecordFaults = 16;

/// The most bytes of private data that this kind of record has room for.
[[nodiscard]] std::size_t private_room(RecordKind kind, bool datagrams);

[[nodiscard]] RecordBytes encode(const Record& record);
/// bytes: what the socket delivered.
[[nodiscard]] tl::expected<Record, RecordFault> decode(std::span<const std::byte> bytes);

}  // namespace splitnic::rdmacm
