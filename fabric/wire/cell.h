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
///     header 32 | extended headers 0 .. 44 | payload | packet CRC 4 | cell CRC 4
///                `------ each only where the opcode calls for it -----'
///
///     writes             RDMA 16 (First, Only) | immediate 4 (.. with immediate)
///     sends              immediate 4 (.. with immediate) | tag to invalidate 4 (.. with invalidate)
///     datagrams          immediate 4 (.. with immediate)
///     read request       RDMA 16 | read 16
///     atomics            RDMA 16 | atomic 24
///     atomic acknowledge result 8
///     acknowledge        acknowledgement 8
///     terminate          terminate 8; its payload is the head of the cell that it refuses
///     drain              drain 8
///
/// Requests of XRC initiators have the XRC header 4 in front of these, in their First and Only cells.
///
/// Cell CRC: CRC-32C over every byte before it. Packet CRC, in Last and Only cells: CRC-32C over all cells of the
/// packet in order. In each cell it covers bytes 1 .. 3 (opcode, flags) and the bytes from 16 to the end of the
/// payload. It does not cover the version, the service level and both port addresses, because routers rewrite them, nor
/// the CRCs themselves. A direct cell has no packet CRC, because its path has no routers. Source: S1 III
/// and IV.A, Fig. 8; design, "Cells and the adapter".
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

/// In First and Only cells of an XRC initiator's requests: the peer's shared receive queue, from 1.
///
///      0 shared receive queue 24 | reserved 8
struct XrcHeader {
  boost::endian::little_uint24_buf_t shared_receives;
  boost::endian::little_uint8_buf_t reserved;
};
static_assert(sizeof(XrcHeader) == 4 && offsetof(XrcHeader, reserved) == 3 && std::is_trivially_copyable_v<XrcHeader>);

/// In First and Only cells of RDMA writes, in read requests and atomics. length: of the whole message; how many bytes
/// to read; 8 for atomics.
///
///      0 address 64
///      8 tag 32 | length 32
struct RdmaHeader {
  boost::endian::little_uint64_buf_t address;
  boost::endian::little_uint32_buf_t tag;
  boost::endian::little_uint32_buf_t length;
};
static_assert(sizeof(RdmaHeader) == 16 && std::is_trivially_copyable_v<RdmaHeader>);

/// In read requests.
///
///      0 message sequence number 32 | sink tag 32
///      8 sink address 64
///
/// The message sequence number (MSN) counts reads and atomics of the queue pair, from 1. sink: where the initiator
/// wants the bytes, for an owner who may store there directly; tag 0: no such place, the owner segments its answer.
/// Source: RFC 5040 4.4; S3 Fig. 18A.
struct ReadHeader {
  boost::endian::little_uint32_buf_t message_sequence;
  boost::endian::little_uint32_buf_t sink_tag;
  boost::endian::little_uint64_buf_t sink_address;
};
static_assert(sizeof(ReadHeader) == 16 && offsetof(ReadHeader, sink_address) == 8 &&
              std::is_trivially_copyable_v<ReadHeader>);

/// In atomics.
///
///      0 message sequence number 32 | reserved 32
///      8 swap or add 64
///     16 compare 64                     of fetch_add: 0
struct AtomicHeader {
  boost::endian::little_uint32_buf_t message_sequence;
  boost::endian::little_uint32_buf_t reserved;
  boost::endian::little_uint64_buf_t swap_or_add;
  boost::endian::little_uint64_buf_t compare;
};
static_assert(sizeof(AtomicHeader) == 24 && offsetof(AtomicHeader, swap_or_add) == 8 &&
              offsetof(AtomicHeader, compare) == 16 && std::is_trivially_copyable_v<AtomicHeader>);

/// In atomic acknowledgements: what the word held before.
struct ResultHeader {
  boost::endian::little_uint64_buf_t original;
};
static_assert(sizeof(ResultHeader) == 8 && std::is_trivially_copyable_v<ResultHeader>);

/// Why a stream ends. The payload is the head (header and extended headers) of the refused request or answer; it is
/// empty if no cell of the peer was at fault.
///
///      0 layer 8 | error type 8 | error code 8 | reserved 8
///      4 reserved 32
///
/// Layer, type and code are RFC 5040's (section 4.8) and, for layer 1, RFC 5041's (section 7).
struct TerminateHeader {
  boost::endian::little_uint8_buf_t layer;
  boost::endian::little_uint8_buf_t type;
  boost::endian::little_uint8_buf_t code;
  std::array<std::uint8_t, 5> reserved;
};
static_assert(sizeof(TerminateHeader) == 8 && std::is_trivially_copyable_v<TerminateHeader>);

/// Between adapters; the numbers of both queue pairs are 0. The owner of the memory asks whether direct writes through
/// a revoked grant are over. The initiator answers when they are; the answer is behind the last of them in the lane.
///
///      0 tag 32 | generation 32        of the grant; a number that the owner chooses for this request
struct DrainHeader {
  boost::endian::little_uint32_buf_t tag;
  boost::endian::little_uint32_buf_t generation;
};
static_assert(sizeof(DrainHeader) == 8 && std::is_trivially_copyable_v<DrainHeader>);

/// The last four bytes of the head of a cell with immediate data, or of a send with invalidate.
using ImmediateHeader = boost::endian::little_uint32_buf_t;
using InvalidateHeader = boost::endian::little_uint32_buf_t;

struct AcknowledgementHeader {
  boost::endian::little_uint8_buf_t syndrome;
  std::array<std::uint8_t, 3> reserved;
  boost::endian::little_uint32_buf_t delay_microseconds;  // receiver_not_ready: try again no sooner; else 0
};
static_assert(sizeof(AcknowledgementHeader) == 8 && std::is_trivially_copyable_v<AcknowledgementHeader>);

inline constexpr std::uint8_t kCellVersion = 1;
inline constexpr std::uint32_t kMinCellPayload = 64;
inline constexpr std::uint32_t kMaxCellPayload = 65520;
/// 64 KiB are four cells, and the ring of a data lane takes eight: so one end fills while the other empties it. A link
/// with smaller rings makes them shorter.
inline constexpr std::uint32_t kDefaultCellPayload = 16384;
inline constexpr std::uint32_t kMaxQueuePairNumber = 0xff'ffff;
inline constexpr std::size_t kCrcBytes = 4;
/// Of an XRC initiator's atomic: the longest head there is.
inline constexpr std::size_t kMaxCellHeadBytes =
    sizeof(CellHeader) + sizeof(XrcHeader) + sizeof(RdmaHeader) + sizeof(AtomicHeader);
inline constexpr std::size_t kMaxCellOverhead = kMaxCellHeadBytes + 2 * kCrcBytes;
inline constexpr std::size_t kMaxCellBytes = kMaxCellPayload + kMaxCellOverhead;

/// The flags. direct: the message's bytes were stored through the peer window already; only in Only cells of RDMA
/// writes and read responses. solicited: the sender wants the receiver's program to be woken; only in cells that
/// complete a receive, the Last and Only cells of sends and writes with immediate. The other bits are zero.
inline constexpr std::uint16_t kFlagDirect = 1;
inline constexpr std::uint16_t kFlagSolicited = 2;
/// What an atomic works on: an aligned word.
inline constexpr std::uint32_t kAtomicBytes = 8;

/// Numbers as in InfiniBand: of its reliable connections up to 23, and of its extended reliable connections (XRC) from
/// 160 on; those from 24 to 31 are free there. Only the first cell of an XRC message has such a number. The payload of
/// a datagram begins with its own header (fabric/wire/datagram.h). not_taken is between adapters: it names the
/// destination queue pair and the packet sequence number of a cell that was consumed and not taken; queue pair 0:
/// perhaps of any that was sent so far. A receiver refuses all other numbers.
enum class Opcode : std::uint8_t {
  send_first = 0,
  send_middle = 1,
  send_last = 2,
  send_last_immediate = 3,
  send_only = 4,
  send_only_immediate = 5,
  write_first = 6,
  write_middle = 7,
  write_last = 8,
  write_last_immediate = 9,
  write_only = 10,
  write_only_immediate = 11,
  read_request = 12,
  read_response_first = 13,
  read_response_middle = 14,
  read_response_last = 15,
  read_response_only = 16,
  acknowledge = 17,
  atomic_acknowledge = 18,
  compare_swap = 19,
  fetch_add = 20,
  send_last_invalidate = 22,
  send_only_invalidate = 23,
  terminate = 24,
  drain_request = 25,
  drain_acknowledge = 26,
  datagram = 27,
  not_taken = 28,
  datagram_immediate = 29,
  xrc_send_first = 160,
  xrc_send_only = 164,
  xrc_send_only_immediate = 165,
  xrc_write_first = 166,
  xrc_write_only = 170,
  xrc_write_only_immediate = 171,
  xrc_read_request = 172,
  xrc_compare_swap = 179,
  xrc_fetch_add = 180,
  xrc_send_only_invalidate = 183,
};
inline constexpr unsigned kXrcOpcodes = 160;
const char* to_string(Opcode opcode);

enum class MessageKind : std::uint8_t {
  none,
  send,
  write,
  read_request,
  read_response,
  atomic,
  atomic_response,
  acknowledgement,
  terminate,
  drain,
  datagram,
  not_taken,
};

/// What an opcode says about its cell.
struct OpcodeTraits {
  MessageKind kind = MessageKind::none;  ///< none: not an opcode
  bool first = false;                    ///< begins a packet; with last: an Only cell
  bool last = false;
  bool rdma_header = false;
  bool immediate = false;
  bool invalidate = false;
  bool xrc = false;                   ///< names a shared receive queue
  std::uint8_t own_header_bytes = 0;  ///< of the header that only this kind of message has
  std::uint8_t head_bytes = 0;        ///< of header and extended headers

  [[nodiscard]] constexpr bool is(MessageKind which) const { return kind == which; }
  /// Whether the cell may carry bytes of a message.
  [[nodiscard]] constexpr bool carries_message() const {
    return is(MessageKind::send) || is(MessageKind::write) || is(MessageKind::read_response) ||
           is(MessageKind::datagram);
  }
  [[nodiscard]] constexpr bool may_be_direct() const {
    return first && last && (is(MessageKind::write) || is(MessageKind::read_response));
  }
  /// Whether it completes a receive of the peer.
  [[nodiscard]] constexpr bool may_be_solicited() const {
    return last && (is(MessageKind::send) || is(MessageKind::datagram) || immediate);
  }
};

namespace opcode_table {

/// Of the header that only this kind of message has.
constexpr std::size_t own_header_bytes(MessageKind kind) {
  switch (kind) {
    case MessageKind::read_request:
      return sizeof(ReadHeader);
    case MessageKind::atomic:
      return sizeof(AtomicHeader);
    case MessageKind::atomic_response:
      return sizeof(ResultHeader);
    case MessageKind::acknowledgement:
      return sizeof(AcknowledgementHeader);
    case MessageKind::terminate:
      return sizeof(TerminateHeader);
    case MessageKind::drain:
      return sizeof(DrainHeader);
    case MessageKind::none:
    case MessageKind::send:
    case MessageKind::write:
    case MessageKind::read_response:
    case MessageKind::datagram:
    case MessageKind::not_taken:
      return 0;
  }
  return 0;
}

constexpr std::array<OpcodeTraits, 256> make() {
  std::array<OpcodeTraits, 256> table{};
  const auto at = [&table](Opcode opcode) -> OpcodeTraits& { return table[static_cast<std::size_t>(opcode)]; };
  at(Opcode::send_first) = {.kind = MessageKind::send, .first = true};
  at(Opcode::send_middle) = {.kind = MessageKind::send};
  at(Opcode::send_last) = {.kind = MessageKind::send, .last = true};
  at(Opcode::send_only) = {.kind = MessageKind::send, .first = true, .last = true};
  at(Opcode::send_last_immediate) = {.kind = MessageKind::send, .last = true, .immediate = true};
  at(Opcode::send_only_immediate) = {.kind = MessageKind::send, .first = true, .last = true, .immediate = true};
  at(Opcode::send_last_invalidate) = {.kind = MessageKind::send, .last = true, .invalidate = true};
  at(Opcode::send_only_invalidate) = {.kind = MessageKind::send, .first = true, .last = true, .invalidate = true};
  at(Opcode::write_first) = {.kind = MessageKind::write, .first = true, .rdma_header = true};
  at(Opcode::write_middle) = {.kind = MessageKind::write};
  at(Opcode::write_last) = {.kind = MessageKind::write, .last = true};
  at(Opcode::write_last_immediate) = {.kind = MessageKind::write, .last = true, .immediate = true};
  at(Opcode::write_only) = {.kind = MessageKind::write, .first = true, .last = true, .rdma_header = true};
  at(Opcode::write_only_immediate) = {
      .kind = MessageKind::write, .first = true, .last = true, .rdma_header = true, .immediate = true};
  at(Opcode::read_request) = {.kind = MessageKind::read_request, .first = true, .last = true, .rdma_header = true};
  at(Opcode::read_response_first) = {.kind = MessageKind::read_response, .first = true};
  at(Opcode::read_response_middle) = {.kind = MessageKind::read_response};
  at(Opcode::read_response_last) = {.kind = MessageKind::read_response, .last = true};
  at(Opcode::read_response_only) = {.kind = MessageKind::read_response, .first = true, .last = true};
  at(Opcode::acknowledge) = {.kind = MessageKind::acknowledgement, .first = true, .last = true};
  at(Opcode::atomic_acknowledge) = {.kind = MessageKind::atomic_response, .first = true, .last = true};
  at(Opcode::compare_swap) =
      at(Opcode::fetch_add) = {.kind = MessageKind::atomic, .first = true, .last = true, .rdma_header = true};
  at(Opcode::terminate) = {.kind = MessageKind::terminate, .first = true, .last = true};
  at(Opcode::drain_request) = at(Opcode::drain_acknowledge) = {.kind = MessageKind::drain, .first = true, .last = true};
  at(Opcode::datagram) = {.kind = MessageKind::datagram, .first = true, .last = true};
  at(Opcode::datagram_immediate) = {.kind = MessageKind::datagram, .first = true, .last = true, .immediate = true};
  at(Opcode::not_taken) = {.kind = MessageKind::not_taken, .first = true, .last = true};
  for (const Opcode request : {Opcode::send_first, Opcode::send_only, Opcode::send_only_immediate, Opcode::write_first,
                               Opcode::write_only, Opcode::write_only_immediate, Opcode::read_request,
                               Opcode::compare_swap, Opcode::fetch_add, Opcode::send_only_invalidate}) {
    OpcodeTraits& what = table[kXrcOpcodes + static_cast<std::size_t>(request)];
    what = at(request);
    what.xrc = true;
  }
  for (OpcodeTraits& what : table) {
    std::size_t bytes = sizeof(CellHeader) + own_header_bytes(what.kind);
    if (what.xrc) bytes += sizeof(XrcHeader);
    if (what.rdma_header) bytes += sizeof(RdmaHeader);
    if (what.immediate) bytes += sizeof(ImmediateHeader);
    if (what.invalidate) bytes += sizeof(InvalidateHeader);
    what.own_header_bytes = static_cast<std::uint8_t>(own_header_bytes(what.kind));
    what.head_bytes = static_cast<std::uint8_t>(bytes);
  }
  return table;
}

}  // namespace opcode_table

/// By the byte on the wire: every value has its place, so that a look-up is one load.
inline constexpr std::array<OpcodeTraits, 256> kOpcodeTraits = opcode_table::make();
[[nodiscard]] constexpr const OpcodeTraits& traits(std::uint8_t opcode) { return kOpcodeTraits[opcode]; }
[[nodiscard]] constexpr const OpcodeTraits& traits(Opcode opcode) { return traits(static_cast<std::uint8_t>(opcode)); }

/// The opcode of the same cell of an XRC initiator; opcode: of the first cell of a request.
[[nodiscard]] constexpr Opcode xrc_of(Opcode opcode) {
  return static_cast<Opcode>(kXrcOpcodes + static_cast<unsigned>(opcode));
}
/// The opcode of the same cell of an ordinary connection.
[[nodiscard]] constexpr Opcode without_xrc(Opcode opcode) {
  return traits(opcode).xrc ? static_cast<Opcode>(static_cast<unsigned>(opcode) - kXrcOpcodes) : opcode;
}
static_assert(xrc_of(Opcode::fetch_add) == Opcode::xrc_fetch_add && traits(Opcode::xrc_send_only_invalidate).xrc);
static_assert(without_xrc(Opcode::xrc_write_first) == Opcode::write_first);

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

/// Why a stream ends, in RFC 5040's numbers.
struct TerminateReason {
  std::uint8_t layer = 0;  ///< 0 RDMAP, 1 DDP
  std::uint8_t type = 0;
  std::uint8_t code = 0;
  friend constexpr bool operator==(TerminateReason, TerminateReason) = default;
};

/// A cell's fields by value. An encoder gets the payload separately; a decoder sets it to a view of its input.
struct Cell {
  std::uint8_t service_level = 0;  ///< 0 .. 15
  Opcode opcode = Opcode::send_only;
  bool direct = false;
  bool solicited = false;
  bool awaited =
      false;  ///< consumption acknowledges the message (LinkProperties::reports_settled); only slots carry it
  PortAddress destination{};
  PortAddress source{};
  QpNumber destination_queue_pair{};
  QpNumber source_queue_pair{};
  std::uint32_t packet_sequence = 0;
  std::uint16_t cell_sequence = 0;  ///< within the packet, from 0
  SrqNumber shared_receives{};      ///< XRC header: at the destination
  std::uint64_t address = 0;        ///< RDMA header
  Stag tag{};                       ///< RDMA header, drain
  std::uint32_t message_bytes = 0;
  std::uint32_t immediate = 0;
  Stag invalidate{};                   ///< sends with invalidate
  std::uint32_t message_sequence = 0;  ///< read requests and atomics
  Stag sink_tag{};                     ///< read requests
  std::uint64_t sink_address = 0;
  std::uint64_t swap_or_add = 0;  ///< atomics
  std::uint64_t compare = 0;
  std::uint64_t original = 0;        ///< atomic acknowledgements
  TerminateReason reason{};          ///< terminate
  std::uint32_t generation = 0;      ///< drain
  Syndrome syndrome = Syndrome::ok;  ///< acknowledgement
  std::uint32_t delay_microseconds = 0;
  std::uint32_t packet_crc = 0;  ///< as read; set by encode_cell
  std::span<const std::byte> payload{};
};

/// Writes header and extended headers of the cell into `to`; returns how many bytes. Ignores cell.payload.
std::size_t encode_cell_head(const Cell& cell, std::size_t payload_bytes, std::span<std::byte, kMaxCellHeadBytes> to);

/// What stands before and behind a cell's payload on the wire.
class CellEnvelope {
 public:
  /// Seals `cell` around the payload made of `pieces`, payload_bytes altogether. Ignores cell.payload.
  /// packet_crc: running over the packet's cells; start a packet with kPacketCrcStart.
  CellEnvelope(const Cell& cell, std::span<const std::span<const std::byte>> pieces, std::size_t payload_bytes,
               std::uint32_t& packet_crc);
  [[nodiscard]] std::span<const std::byte> head() const { return std::span(head_).first(head_bytes_); }
  [[nodiscard]] std::span<const std::byte> tail() const { return std::span(tail_).first(tail_bytes_); }

 private:
  std::array<std::byte, kMaxCellHeadBytes> head_;
  std::array<std::byte, 2 * kCrcBytes> tail_;
  std::size_t head_bytes_ = 0;
  std::size_t tail_bytes_ = 0;
};

inline constexpr std::uint32_t kPacketCrcStart = 0;

/// The field that made a cell unbelievable.
enum class CellFault : std::uint8_t {
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
  atomic,
  shared_receives,
  port_address,  ///< found by the link
  slot_shape,
  payload_at,   ///< of a slot: no place in the payload ring
  second_line,  ///< of a slot: not there
};
const char* to_string(CellFault error);

/// Reads the cell at the start of `bytes`, a private copy. Ignores the bytes behind the cell (a record may be longer).
/// Checks everything that a cell alone can show. cell.payload points into `bytes`.
[[nodiscard]] tl::expected<Cell, CellFault> decode_cell(std::span<const std::byte> bytes);

/// Header and extended headers of such a cell, in bytes.
[[nodiscard]] constexpr std::size_t cell_head_bytes(Opcode opcode) { return traits(opcode).head_bytes; }

/// The running packet CRC after `cell`, which decode_cell read at the start of `bytes`.
[[nodiscard]] std::uint32_t extend_packet_crc(std::uint32_t packet_crc, const Cell& cell,
                                              std::span<const std::byte> bytes);

}  // namespace splitnic::fabric
