#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tl/expected.hpp>
#include <type_traits>

namespace splitnic::rdmacm {

/// What the end of a stream socket has for the other one: both ends say it when they connect.
struct StreamSetUp {
  std::uint64_t ring_address = 0;  ///< where the other end writes the stream
  std::uint32_t ring_key = 0;
  std::uint32_t ring_bytes = 0;
  std::uint32_t messages = 0;  ///< receives that it keeps posted
  std::uint32_t io_maps = 0;   ///< how many buffers the other end may map for it

  friend bool operator==(const StreamSetUp&, const StreamSetUp&) = default;
};
inline constexpr std::uint32_t kMinRingBytes = 4096;
inline constexpr std::uint32_t kMaxRingBytes = 1U << 28U;
inline constexpr std::uint32_t kMinMessages = 32;
inline constexpr std::uint32_t kMaxMessages = 8192;
inline constexpr std::uint32_t kMaxIoMaps = 1024;

/// In the private data of the request and of the reply, 32 bytes, little-endian:
///
///      0         4         6          8             16        20           24           28        32
///     +---------+---------+----------+-------------+---------+------------+------------+---------+
///     | magic   | version | reserved | address     | key of  | bytes of   | messages   | I/O     |
///     |         |         | 0        | of the ring | the ring| the ring   |            | maps    |
///     +---------+---------+----------+-------------+---------+------------+------------+---------+
struct StreamSetUpBytes {
  boost::endian::little_uint32_buf_t magic;
  boost::endian::little_uint16_buf_t version;
  boost::endian::little_uint16_buf_t reserved;
  boost::endian::little_uint64_buf_t ring_address;
  boost::endian::little_uint32_buf_t ring_key;
  boost::endian::little_uint32_buf_t ring_bytes;
  boost::endian::little_uint32_buf_t messages;
  boost::endian::little_uint32_buf_t io_maps;
};
static_assert(sizeof(StreamSetUpBytes) == 32 && alignof(StreamSetUpBytes) == 1);
static_assert(offsetof(StreamSetUpBytes, ring_address) == 8 && offsetof(StreamSetUpBytes, messages) == 24);
static_assert(std::is_trivially_copyable_v<StreamSetUpBytes>);
inline constexpr std::uint32_t kStreamMagic = 0x53524c53;  // "SLRS"
inline constexpr std::uint16_t kStreamVersion = 1;

/// What is wrong with a set-up or a control message.
enum class StreamFault : std::uint8_t { size, magic, version, reserved, ring, messages, io_maps, kind, map };
inline constexpr std::size_t kStreamFaults = 9;

[[nodiscard]] StreamSetUpBytes encode(const StreamSetUp& set_up);
/// private_data: of a request or a reply; what follows the set-up must be zero.
[[nodiscard]] tl::expected<StreamSetUp, StreamFault> decode_set_up(std::span<const std::byte> private_data);

/// A Send from one end to the other. The stream's own bytes are written into the ring, with their number as immediate
/// data.
enum class ControlKind : std::uint8_t {
  credits = 1,  ///< nothing but the credits, which all kinds have
  end = 2,      ///< the stream's end: the sender writes no more bytes into the ring
  map = 3,      ///< the sender's buffer can be written at an offset; bytes 0: it can't be any more
};
struct StreamControl {
  ControlKind kind = ControlKind::credits;
  std::uint64_t consumed_bytes = 0;     ///< of the ring, since the connection began
  std::uint64_t consumed_messages = 0;  ///< so many receives were posted again
  // Of a map.
  std::uint32_t key = 0;
  std::uint64_t offset = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const StreamControl&, const StreamControl&) = default;
};

/// 48 bytes, little-endian:
///
///      0      1          4        8              16             24         32          40        48
///     +------+----------+--------+--------------+--------------+----------+-----------+---------+
///     | kind | reserved | key of | consumed     | consumed     | offset   | address   | bytes   |
///     |      | 0        | a map  | bytes        | messages     | of a map | of a map  | of a map|
///     +------+----------+--------+--------------+--------------+----------+-----------+---------+
struct StreamControlBytes {
  std::uint8_t kind;
  std::array<std::uint8_t, 3> reserved;
  boost::endian::little_uint32_buf_t key;
  boost::endian::little_uint64_buf_t consumed_bytes;
  boost::endian::little_uint64_buf_t consumed_messages;
  boost::endian::little_uint64_buf_t offset;
  boost::endian::little_uint64_buf_t address;
  boost::endian::little_uint64_buf_t bytes;
};
static_assert(sizeof(StreamControlBytes) == 48 && alignof(StreamControlBytes) == 1);
static_assert(offsetof(StreamControlBytes, consumed_bytes) == 8 && offsetof(StreamControlBytes, offset) == 24);
static_assert(std::is_trivially_copyable_v<StreamControlBytes>);

[[nodiscard]] StreamControlBytes encode(const StreamControl& control);
/// bytes: what a receive took.
[[nodiscard]] tl::expected<StreamControl, StreamFault> decode_control(std::span<const std::byte> bytes);

}  // namespace splitnic::rdmacm
