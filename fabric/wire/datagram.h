#pragma once

#include <array>
#include <bit>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "fabric/ids.h"

namespace splitnic::fabric {

/// Global identifier: an IPv6 address, in the order of the wire. One that begins with ff is a multicast group.
struct Gid {
  std::array<std::uint8_t, 16> bytes{};
  [[nodiscard]] constexpr bool is_group() const { return bytes[0] == 0xff; }
  [[nodiscard]] constexpr bool is_zero() const {
    const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(bytes);
    return (words[0] | words[1]) == 0;
  }
  friend constexpr bool operator==(const Gid&, const Gid&) = default;
};
/// Of a channel adapter's port: fe80::/64 and the port address as a modified EUI-64. Source: RFC 4291, appendix A.
[[nodiscard]] Gid port_gid(PortAddress port);

/// The first 40 bytes of every receive buffer that takes a datagram: where it came from, in the layout that verbs
/// programs know (struct ibv_grh). Big-endian.
///
///      0 version 4 (6) | traffic class 8 | flow label 20
///      4 payload bytes 16 | next header 8 (0x1b) | hop limit 8
///      8 source GID 128
///     24 destination GID 128       of the receiver's port, or the multicast group
///
/// payload bytes: of the message. Source: the InfiniBand architecture, 8.3 (global route header).
struct RouteHeader {
  boost::endian::big_uint32_buf_t version_class_flow;
  boost::endian::big_uint16_buf_t payload_bytes;
  boost::endian::big_uint8_buf_t next_header;
  boost::endian::big_uint8_buf_t hop_limit;
  Gid source;
  Gid destination;
};
static_assert(sizeof(RouteHeader) == 40 && alignof(RouteHeader) == 1 && std::is_trivially_copyable_v<RouteHeader>);
static_assert(offsetof(RouteHeader, source) == 8 && offsetof(RouteHeader, destination) == 24);

/// How a RouteHeader ends: the same for each datagram that comes on a path, unless it is for a group.
struct RouteAddresses {
  Gid source;
  Gid destination;
};
static_assert(offsetof(RouteHeader, source) + sizeof(RouteAddresses) == sizeof(RouteHeader) &&
              offsetof(RouteAddresses, destination) == sizeof(Gid) && alignof(RouteAddresses) == 1);

inline constexpr std::uint32_t kRouteHeaderBytes = sizeof(RouteHeader);
inline constexpr std::uint8_t kRouteNextHeader = 0x1b;
inline constexpr std::uint32_t kMaxFlowLabel = 0xf'ffff;
/// Of the word with flow label and traffic class, here and in a datagram's cell.
inline constexpr unsigned kTrafficClassShift = 20;
inline constexpr unsigned kUnusedShift = 28;
/// Every multicast datagram goes to this queue pair. Source: InfiniBand, 10.5.
inline constexpr QpNumber kMulticastQueuePair{0xff'ffff};

/// Opens the payload of a datagram cell; the message follows. Little-endian.
///
///      0 queue key 32 | source queue pair 32
///      8 flow label 20, traffic class 8, zero 4 | hop limit 8 | reserved 24
///     16 group 128                 all zero: not a multicast datagram
struct DatagramBytes {
  boost::endian::little_uint32_buf_t queue_key;
  boost::endian::little_uint32_buf_t source_queue_pair;
  boost::endian::little_uint32_buf_t class_and_flow;
  boost::endian::little_uint8_buf_t hop_limit;
  std::array<std::uint8_t, 3> reserved;
  Gid group;
};
static_assert(sizeof(DatagramBytes) == 32 && alignof(DatagramBytes) == 1 &&
              std::is_trivially_copyable_v<DatagramBytes>);
static_assert(offsetof(DatagramBytes, class_and_flow) == 8 && offsetof(DatagramBytes, group) == 16);

struct DatagramHeader {
  std::uint32_t queue_key = 0;
  QpNumber source_queue_pair{};
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  Gid group{};
  friend bool operator==(const DatagramHeader&, const DatagramHeader&) = default;
};

[[nodiscard]] DatagramBytes encode_datagram(const DatagramHeader& header);
/// The same of a datagram that is for no group, word by word: nothing loads what was stored in parts, and waits until
/// these have left.
class DatagramWords {
 public:
  DatagramWords() = default;
  /// queue_key: of put().
  explicit DatagramWords(const DatagramHeader& header)
      : words_{header.source_queue_pair.value,
               std::uint32_t{header.traffic_class} << kTrafficClassShift | (header.flow_label & kMaxFlowLabel),
               header.hop_limit} {}
  /// Writes sizeof(DatagramBytes) bytes.
  void put(std::byte* to, std::uint32_t queue_key) const {
    const auto store = [to](std::size_t at, std::uint32_t word) {
      const boost::endian::little_uint32_buf_t bytes(word);
      std::memcpy(to + at, &bytes, sizeof bytes);
    };
    store(offsetof(DatagramBytes, queue_key), queue_key);
    store(offsetof(DatagramBytes, source_queue_pair), words_[0]);
    store(offsetof(DatagramBytes, class_and_flow), words_[1]);
    store(offsetof(DatagramBytes, hop_limit), words_[2]);  // and zero
    std::memset(to + offsetof(DatagramBytes, group), 0, sizeof(Gid));
  }

 private:
  std::array<std::uint32_t, 3> words_{};  // after the queue key
};
/// False: reserved bits are set, or the source queue pair or the group is impossible.
[[nodiscard]] inline bool decode_datagram(const DatagramBytes& bytes, DatagramHeader& header) {
  constexpr std::uint64_t kReserved = 0xffff'ff00'f000'0000;  // of the word with the hop limit
  using Words = std::array<boost::endian::little_uint64_buf_t, sizeof bytes / sizeof(std::uint64_t)>;
  const std::uint64_t rest = std::bit_cast<Words>(bytes)[1].value();
  const auto class_and_flow = static_cast<std::uint32_t>(rest);
  header.queue_key = bytes.queue_key.value();
  header.source_queue_pair = QpNumber{bytes.source_queue_pair.value()};
  header.flow_label = class_and_flow & kMaxFlowLabel;
  header.traffic_class = static_cast<std::uint8_t>(class_and_flow >> kTrafficClassShift);
  header.hop_limit = static_cast<std::uint8_t>(rest >> 32U);
  header.group = bytes.group;
  return (rest & kReserved) == 0 && header.source_queue_pair.value != 0 &&
         header.source_queue_pair.value < kMulticastQueuePair.value &&
         (bytes.group.is_zero() || bytes.group.is_group());
}
/// What a RouteHeader says before its addresses, as one word.
[[nodiscard]] inline boost::endian::big_uint64_buf_t route_fields(const DatagramHeader& header,
                                                                  std::size_t message_bytes) {
  constexpr std::uint32_t kVersion = 6U << kUnusedShift;
  const std::uint32_t version_class_flow =
      kVersion | std::uint32_t{header.traffic_class} << kTrafficClassShift | header.flow_label;
  const std::uint64_t rest = std::uint64_t{static_cast<std::uint16_t>(message_bytes)} << 16U |
                             std::uint64_t{kRouteNextHeader} << 8U | header.hop_limit;
  return boost::endian::big_uint64_buf_t(std::uint64_t{version_class_flow} << 32U | rest);
}
/// The header that the receiver finds in front of the message. addresses: the path's ports, the sender's first.
[[nodiscard]] RouteHeader route_of(const DatagramHeader& header, const RouteAddresses& addresses,
                                   std::size_t message_bytes);

}  // namespace splitnic::fabric
