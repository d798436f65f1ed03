#pragma once

#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "common/check.h"
#include "fabric/ids.h"
#include "fabric/wire/cell.h"

namespace splitnic::fabric {

/// A slot: one cell of a connected queue pair on a bridge, whose two ends know each other's addresses. One or two lines
/// of 64 bytes in the receiver's memory, little-endian:
///
///         0             4              8               12            16
///        +-------------+--------------+---------------+-------------+
/// line 1 | sequence 32 | payload      | payload at 32 | settled 32  |
///        |             | bytes 32     | (a line)      |             |
///        +---------+----------+------------------+----+--+----------+---------------
///     16 | shape 8 | opcode 8 | cell sequence 16 | QP 32 | PSN 32   | 36 bytes of body
///        +---------+----------+------------------+-------+----------+---------------
///         16        17         18                 20      24         28
///        +-------------+------------------------------
/// line 2 | sequence 32 | 60 more bytes of body
///        +-------------+------------------------------
///
/// sequence: the line's number since the epoch began plus the ring's seed, so that lines of an older lap or epoch never
/// look like a slot. The sender stores the first line's sequence last; this releases the slot. Body: the opcode's
/// extended header, then the payload, if both fit 36 bytes (one line) or 96 (two). A longer payload lies contiguously
/// in the payload ring, from line `payload at` on; then only the extended header is in the body. settled: how many
/// lines of the opposite ring the sender has settled (slot_ring.h), low 32 bits; all its refusals lie before this slot.
/// shape: see slot_shape. QP: the destination queue pair, 24 bits used.
/// Source: S2 Figs. 6-9 (the write that inserts advances the head); design, "Slots and a payload ring".
struct SlotHeader {
  boost::endian::little_uint32_buf_t payload_bytes;
  boost::endian::little_uint32_buf_t payload_at;
  boost::endian::little_uint32_buf_t settled;
  boost::endian::little_uint8_buf_t shape;
  boost::endian::little_uint8_buf_t opcode;
  boost::endian::little_uint16_buf_t cell_sequence;
  boost::endian::little_uint32_buf_t queue_pair;
  boost::endian::little_uint32_buf_t packet_sequence;
};
static_assert(sizeof(SlotHeader) == 24 && alignof(SlotHeader) == 1 && std::is_trivially_copyable_v<SlotHeader>);
static_assert(offsetof(SlotHeader, shape) == 12 && offsetof(SlotHeader, queue_pair) == 16);

inline constexpr std::size_t kSlotLine = 64;
inline constexpr std::size_t kSlotSequenceBytes = 4;
inline constexpr std::size_t kSlotBodyAt = kSlotSequenceBytes + sizeof(SlotHeader);
/// Body bytes of a slot's first line, and of both.
inline constexpr std::size_t kSlotBodyInFirst = kSlotLine - kSlotBodyAt;
inline constexpr std::size_t kSlotBodyInBoth = kSlotBodyInFirst + kSlotLine - kSlotSequenceBytes;
static_assert(kSlotBodyInFirst == 36 && kSlotBodyInBoth == 96);

/// Bits of the shape byte; the others are zero.
namespace slot_shape {
inline constexpr std::uint8_t kTwoLines = 1;
inline constexpr std::uint8_t kInPayloadRing = 2;  ///< the payload; never with an empty one
inline constexpr std::uint8_t kAwaited = 4;    ///< the slot's settling acknowledges its message, if no refusal names it
inline constexpr std::uint8_t kSolicited = 8;  ///< as a cell's flag
inline constexpr std::uint8_t kDirect = 16;    ///< as a cell's flag
inline constexpr std::uint8_t kKnown = 31;
}  // namespace slot_shape

/// A slot's fields by value, except the places of its bytes.
struct SlotFields {
  std::uint8_t opcode = 0;
  bool awaited = false;
  bool solicited = false;
  bool direct = false;
  std::uint16_t cell_sequence = 0;
  QpNumber queue_pair{};
  std::uint32_t packet_sequence = 0;
  std::uint32_t settled = 0;
};

/// The places of a slot's bytes.
struct SlotLayout {
  bool two_lines = false;
  bool in_payload_ring = false;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_at = 0;  ///< line of the payload ring
  friend bool operator==(const SlotLayout&, const SlotLayout&) = default;
};

/// The layout of a slot with so many bytes of extended header and payload. The ring sets payload_at.
/// extension_bytes <= kSlotBodyInFirst.
[[nodiscard]] constexpr SlotLayout slot_layout(std::size_t extension_bytes, std::size_t payload_bytes) {
  SPLITNIC_CHECK_OP(extension_bytes, <=, kSlotBodyInFirst);
  SlotLayout layout;
  layout.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  const std::size_t body = extension_bytes + payload_bytes;
  layout.in_payload_ring = body > kSlotBodyInBoth;
  layout.two_lines = !layout.in_payload_ring && body > kSlotBodyInFirst;
  return layout;
}

/// A slot's header as three words, of which the one in the middle has the settled position, the shape, the opcode and
/// the number of the cell, in this order.
struct SlotWords {
  std::uint64_t place = 0;  ///< payload_bytes and payload_at
  std::uint64_t what = 0;
  std::uint64_t receiver = 0;  ///< the queue pair and the packet's number
};
static_assert(sizeof(SlotWords) == sizeof(SlotHeader));
inline constexpr unsigned kSlotShapeBit = 32;  ///< of SlotWords::what: where the shape begins
[[nodiscard]] inline std::uint64_t slot_word(const SlotFields& fields, const SlotLayout& layout) {
  using namespace slot_shape;
  const unsigned shape = (layout.two_lines ? kTwoLines : 0U) | (layout.in_payload_ring ? kInPayloadRing : 0U) |
                         (fields.awaited ? kAwaited : 0U) | (fields.solicited ? kSolicited : 0U) |
                         (fields.direct ? kDirect : 0U);
  const std::uint64_t what =
      shape | static_cast<unsigned>(fields.opcode) << 8U | static_cast<unsigned>(fields.cell_sequence) << 16U;
  return fields.settled | what << kSlotShapeBit;
}

/// Writes a slot's header, a word at a time: to may be memory of the peer. sizeof(SlotHeader) bytes.
inline void encode_slot(const SlotFields& fields, const SlotLayout& layout, std::byte* to) {
  const auto put = [to](std::size_t at, auto number) {
    const boost::endian::endian_buffer<boost::endian::order::little, decltype(number), sizeof number * 8> bytes(number);
    std::memcpy(to + at, &bytes, sizeof bytes);
  };
  // One by one: out of halves in memory GCC makes a whole word by loading both, and that load waits until what was just
  // stored there has left, and all that was stored before it.
  put(offsetof(SlotHeader, payload_bytes), layout.payload_bytes);
  put(offsetof(SlotHeader, payload_at), layout.payload_at);
  put(8, slot_word(fields, layout));
  put(offsetof(SlotHeader, queue_pair), fields.queue_pair.value);
  put(offsetof(SlotHeader, packet_sequence), fields.packet_sequence);
}

/// The same by four stores, where nothing of it lies in memory already, of a slot without a payload in the payload
/// ring. word: slot_word().
inline void encode_slot_at_once(std::uint32_t payload_bytes, std::uint64_t word, QpNumber queue_pair,
                                std::uint32_t packet_sequence, std::byte* to) {
  const auto put = [to](std::size_t at, auto number) {
    const boost::endian::endian_buffer<boost::endian::order::little, decltype(number), sizeof number * 8> bytes(number);
    std::memcpy(to + at, &bytes, sizeof bytes);
  };
  put(offsetof(SlotHeader, payload_bytes), std::uint64_t{payload_bytes});
  put(8, word);
  // Not as one word: GCC puts half of it aside, and a load of the whole would wait for that store.
  put(offsetof(SlotHeader, queue_pair), queue_pair.value);
  put(offsetof(SlotHeader, packet_sequence), packet_sequence);
}

/// The field that makes a slot unusable. The slot still names its queue pair, and the responder refuses the message.
enum class SlotFault : std::uint8_t { shape, payload_bytes, payload_at, queue_pair, second_line };
const char* to_string(SlotFault fault);

/// A header's fields, and the layout that it claims.
[[nodiscard]] inline SlotFields slot_fields(const SlotHeader& header) {
  using namespace slot_shape;
  const std::uint8_t shape = header.shape.value();
  SlotFields fields;
  fields.opcode = header.opcode.value();
  fields.awaited = (shape & kAwaited) != 0;
  fields.solicited = (shape & kSolicited) != 0;
  fields.direct = (shape & kDirect) != 0;
  fields.cell_sequence = header.cell_sequence.value();
  fields.queue_pair = QpNumber{header.queue_pair.value()};
  fields.packet_sequence = header.packet_sequence.value();
  fields.settled = header.settled.value();
  return fields;
}
[[nodiscard]] inline SlotLayout slot_layout(const SlotHeader& header) {
  using namespace slot_shape;
  const std::uint8_t shape = header.shape.value();
  SlotLayout layout;
  layout.two_lines = (shape & kTwoLines) != 0;
  layout.in_payload_ring = (shape & kInPayloadRing) != 0;
  layout.payload_bytes = header.payload_bytes.value();
  layout.payload_at = header.payload_at.value();
  return layout;
}

/// What is wrong with the header of a slot that claims this layout. payload_lines: of the payload ring.
[[nodiscard]] inline std::optional<SlotFault> slot_fault(const SlotHeader& header, const SlotLayout& layout,
                                                         std::size_t payload_lines) {
  if ((header.shape.value() & ~slot_shape::kKnown) != 0) return SlotFault::shape;
  if (layout.two_lines && layout.in_payload_ring) return SlotFault::shape;
  if (header.queue_pair.value() > kMaxQueuePairNumber) return SlotFault::queue_pair;
  if (!layout.in_payload_ring) {
    const std::size_t most = layout.two_lines ? kSlotBodyInBoth : kSlotBodyInFirst;
    if (layout.payload_bytes > most) return SlotFault::payload_bytes;
    return layout.payload_at == 0 ? std::nullopt : std::optional(SlotFault::payload_at);
  }
  const std::size_t lines = (std::size_t{layout.payload_bytes} + kSlotLine - 1) / kSlotLine;
  if (lines == 0 || lines > payload_lines) return SlotFault::payload_bytes;
  return layout.payload_at <= payload_lines - lines ? std::nullopt : std::optional(SlotFault::payload_at);
}

}  // namespace splitnic::fabric
