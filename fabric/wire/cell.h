#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tl/expected.hpp>
#include <type_traits>

#include "fabric/ids.h"

namespace splitnic::fabric {

/// What a link carries. A cell, little-endian, without padding:
///
///     header 32 | RDMA header 16 | immediate 4 | acknowledgement 8 | payload | packet CRC 4 | cell CRC 4
///                `-------------- each only where the opcode calls for it -------------'
///
/// Cell CRC: CRC-32C over every byte before it. Packet CRC: in Last and Only cells; CRC-32C over all cells of the
/// packet in order, of each the bytes 1 .. 3 (opcode, flags) and 16 .. the payload's end: everything but the version,
/// the service level, both port addresses (a router rewrites those) and the CRCs themselves. A direct cell has no
/// packet CRC: the path that stored its data has no routers, and so a write with immediate fits one 64-byte line of a
/// message FIFO. Source: S1 II, Fig. 8; design, "Cells and the adapter".
struct CellHeader {
  boost::endian::little_uint8_buf_t version_and_service_level;  // low half: version
  boost::endian::little_uint8_buf_t opcode;
  boost::endian::little_uint16_buf_t flags;
  boost::endian::little_uint48_buf_t destination_port;
  boost::endian::little_uint48_buf_t source_port;
  boost::endian::little_uint32_buf_t destination_queue_pair;
  boost::endian::little_uint32_buf_t source_queue_pair;
  boost::endian::little_uint32_buf_t packet_sequence;
  boost::endian::little_uint16_buf_t cell_sequence;
  boost::endian::little_uint16_buf_t payload_bytes;
};
static_assert(sizeof(CellHeader) == 32 && alignof(CellHeader) == 1 && std::is_trivially_copyable_v<CellHeader>);
static_assert(offsetof(CellHeader, opcode) == 1 && offsetof(CellHeader, flags) == 2);
static_assert(offsetof(CellHeader, destination_port) == 4 && offsetof(CellHeader, source_port) == 10);
static_assert(offsetof(CellHeader, destination_queue_pair) == 16 && offsetof(CellHeader, source_queue_pair) == 20);
static_assert(offsetof(CellHeader, packet_sequence) == 24 && offsetof(CellHeader, cell_sequence) == 28);
static_assert(offsetof(CellHeader, payload_bytes) == 30);

/// In First and Only cells of RDMA writes. length: of the whole message.
struct RdmaHeader {
  boost::endian::little_uint64_buf_t address;
  boost::endian::little_uint32_buf_t tag;
  boost::endian::little_uint32_buf_t length;
};
static_assert(sizeof(RdmaHeader) == 16 && std::is_trivially_copyable_v<RdmaHeader>);

struct AcknowledgementHeader {
  boost::endian::little_uint8_buf_t syndrome;
  std::array<std::uint8_t, 3> reserved;
  boost::endian::little_uint32_buf_t delay_microseconds;  // receiver_not_ready: try again no sooner; else 0
};
static_assert(sizeof(AcknowledgementHeader) == 8 && std::is_trivially_copyable_v<AcknowledgementHeader>);

inline constexpr std::uint8_t kCellVersion = 1;
inline constexpr std::uint32_t kMinCellPayload = 64;
inline constexpr std::uint32_t kMaxCellPayload = 65520;
inline constexpr std::uint32_t kDefaultCellPayload = 256;
inline constexpr std::uint32_t kMaxQueuePairNumber = 0xff'ffff;
inline constexpr std::size_t kCrcBytes = 4;
/// Header, RDMA header and immediate: the most that stands before a payload.
inline constexpr std::size_t kMaxCellHeadBytes = sizeof(CellHeader) + sizeof(RdmaHeader) + sizeof(std::uint32_t);
inline constexpr std::size_t kMaxCellOverhead = kMaxCellHeadBytes + 2 * kCrcBytes;
inline constexpr std::size_t kMaxCellBytes = kMaxCellPayload + kMaxCellOverhead;

/// Bit 0 of the flags: the message's bytes were stored through the peer window already. Only cells of RDMA writes
/// alone. The other bits are zero.
inline constexpr std::uint16_t kFlagDirect = 1;

/// Numbers as in InfiniBand's reliable-connection transport; those missing here are refused.
enum class Opcode : std::uint8_t {
  send_first = 0,
  send_middle = 1,
  send_last = 2,
  send_only = 4,
  write_first = 6,
  write_middle = 7,
  write_last = 8,
  write_last_immediate = 9,
  write_only = 10,
  write_only_immediate = 11,
  acknowledge = 17,
};
const char* to_string(Opcode opcode);

enum class MessageKind : std::uint8_t { none, send, write, acknowledgement };

/// What an opcode says about its cell.
struct OpcodeTraits {
  MessageKind kind = MessageKind::none;  ///< none: not an opcode
  bool first = false;                    ///< begins a packet; with last: an Only cell
  bool last = false;
  bool rdma_header = false;
  bool immediate = false;
};
[[nodiscard]] const OpcodeTraits& traits(std::uint8_t opcode);
[[nodiscard]] inline const OpcodeTraits& traits(Opcode opcode) { return traits(static_cast<std::uint8_t>(opcode)); }

/// ok acknowledges all packets up to the cell's packet sequence number; the others refuse that packet and acknowledge
/// all before it.
enum class Syndrome : std::uint8_t {
  ok = 0,
  receiver_not_ready = 1,
  sequence_error = 2,
  remote_access_error = 3,
  remote_operation_error = 4,
};
inline constexpr std::uint8_t kSyndromes = 5;
const char* to_string(Syndrome syndrome);

/// A cell's fields by value. The payload is apart when a cell is made, a view of the decoder's input when one is read.
struct Cell {
  std::uint8_t service_level = 0;  ///< 0 .. 15
  Opcode opcode = Opcode::send_only;
  bool direct = false;
  PortAddress destination{};
  PortAddress source{};
  QpNumber destination_queue_pair{};
  QpNumber source_queue_pair{};
  std::uint32_t packet_sequence = 0;
  std::uint16_t cell_sequence = 0;  ///< within the packet, from 0
  std::uint64_t address = 0;        ///< RDMA header
  Stag tag{};
  std::uint32_t message_bytes = 0;
  std::uint32_t immediate = 0;
  Syndrome syndrome = Syndrome::ok;  ///< acknowledgement
  std::uint32_t delay_microseconds = 0;
  std::uint32_t packet_crc = 0;  ///< as read; set by encode_cell
  std::span<const std::byte> payload{};
};

/// What stands before and behind a cell's payload on the wire.
class CellEnvelope {
 public:
  /// Seals `cell` around the payload made of `pieces` (cell.payload is not looked at), of payload_bytes altogether.
  /// packet_crc: running over the packet's cells; start a packet with kPacketCrcStart.
  CellEnvelope(const Cell& cell, std::span<const std::span<const std::byte>> pieces, std::size_t payload_bytes,
               std::uint32_t& packet_crc);
  [[nodiscard]] std::span<const std::byte> head() const { return std::span(head_).first(head_bytes_); }
  [[nodiscard]] std::span<const std::byte> tail() const { return std::span(tail_).first(tail_bytes_); }

 private:
  void put_head(const Cell& cell, std::size_t payload_bytes);

  std::array<std::byte, kMaxCellHeadBytes> head_;
  std::array<std::byte, 2 * kCrcBytes> tail_;
  std::size_t head_bytes_ = 0;
  std::size_t tail_bytes_ = 0;
};

inline constexpr std::uint32_t kPacketCrcStart = 0;

/// The field that made a cell unbelievable.
enum class DecodeError : std::uint8_t {
  too_short,
  version,
  opcode,
  flags,
  payload_bytes,
  cell_crc,
  destination_queue_pair,
  source_queue_pair,
  cell_sequence,
  message_bytes,
  syndrome,
  reserved,
};
const char* to_string(DecodeError error);

/// Reads the cell at the start of `bytes`, a private copy; what follows the cell is ignored (FIFO records end on whole
/// lines). Everything that a cell alone can show is checked; cell.payload points into `bytes`.
[[nodiscard]] tl::expected<Cell, DecodeError> decode_cell(std::span<const std::byte> bytes);

/// The running packet CRC after `cell`, which decode_cell read at the start of `bytes`.
[[nodiscard]] std::uint32_t extend_packet_crc(std::uint32_t packet_crc, const Cell& cell,
                                              std::span<const std::byte> bytes);

}  // namespace splitnic::fabric
