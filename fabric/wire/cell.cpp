#include "fabric/wire/cell.h"

#include <cstring>
#include <optional>

#include "common/check.h"
#include "fabric/wire/crc32c.h"

namespace splitnic::fabric {
namespace {

using Immediate = boost::endian::little_uint32_buf_t;
using Crc = boost::endian::little_uint32_buf_t;

// The bytes of a header that no router changes: opcode and flags, and everything from the queue pairs on.
constexpr std::size_t kCoveredAt = offsetof(CellHeader, opcode);
constexpr std::size_t kCoveredBytes = 3;
constexpr std::size_t kCoveredTailAt = offsetof(CellHeader, destination_queue_pair);

constexpr std::array<OpcodeTraits, 32> make_traits() {
  std::array<OpcodeTraits, 32> table{};
  const auto at = [&table](Opcode opcode) -> OpcodeTraits& { return table[static_cast<std::size_t>(opcode)]; };
  at(Opcode::send_first) = {MessageKind::send, true, false, false, false};
  at(Opcode::send_middle) = {MessageKind::send, false, false, false, false};
  at(Opcode::send_last) = {MessageKind::send, false, true, false, false};
  at(Opcode::send_only) = {MessageKind::send, true, true, false, false};
  at(Opcode::write_first) = {MessageKind::write, true, false, true, false};
  at(Opcode::write_middle) = {MessageKind::write, false, false, false, false};
  at(Opcode::write_last) = {MessageKind::write, false, true, false, false};
  at(Opcode::write_last_immediate) = {MessageKind::write, false, true, false, true};
  at(Opcode::write_only) = {MessageKind::write, true, true, true, false};
  at(Opcode::write_only_immediate) = {MessageKind::write, true, true, true, true};
  at(Opcode::acknowledge) = {MessageKind::acknowledgement, true, true, false, false};
  return table;
}
constexpr std::array<OpcodeTraits, 32> kTraits = make_traits();
constexpr OpcodeTraits kNotAnOpcode{};

std::size_t head_bytes_of(const OpcodeTraits& what) {
  std::size_t bytes = sizeof(CellHeader);
  if (what.rdma_header) bytes += sizeof(RdmaHeader);
  if (what.immediate) bytes += sizeof(Immediate);
  if (what.kind == MessageKind::acknowledgement) bytes += sizeof(AcknowledgementHeader);
  return bytes;
}

bool has_packet_crc(const OpcodeTraits& what, bool direct) { return what.last && !direct; }

template <class T>
T read_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::uint32_t cover_head(std::uint32_t crc, std::span<const std::byte> head) {
  return crc32c(head.subspan(kCoveredTailAt), crc32c(head.subspan(kCoveredAt, kCoveredBytes), crc));
}

/// The rules that tie a cell's fields together, after its CRC vouched for the bytes.
std::optional<DecodeError> check_fields(const Cell& cell, const OpcodeTraits& what) {
  const auto is_number = [](QpNumber number) { return number.value != 0 && number.value <= kMaxQueuePairNumber; };
  if (!is_number(cell.destination_queue_pair)) return DecodeError::destination_queue_pair;
  if (!is_number(cell.source_queue_pair)) return DecodeError::source_queue_pair;
  if (what.first != (cell.cell_sequence == 0)) return DecodeError::cell_sequence;
  const std::size_t payload = cell.payload.size();
  const bool only = what.first && what.last;
  // Only an Only cell may be empty: a message of several cells has bytes in each, so its cells are bounded by its
  // length.
  if (payload == 0 && !only) return DecodeError::payload_bytes;
  if (payload != 0 && (cell.direct || what.kind == MessageKind::acknowledgement)) {
    return DecodeError::payload_bytes;
  }
  if (what.rdma_header && !cell.direct) {
    const bool fits = only ? cell.message_bytes == payload : cell.message_bytes > payload;
    if (!fits) return DecodeError::message_bytes;
  }
  return std::nullopt;
}

}  // namespace

const OpcodeTraits& traits(std::uint8_t opcode) { return opcode < kTraits.size() ? kTraits[opcode] : kNotAnOpcode; }

CellEnvelope::CellEnvelope(const Cell& cell, std::span<const std::span<const std::byte>> pieces,
                           std::size_t payload_bytes, std::uint32_t& packet_crc) {
  const OpcodeTraits& what = traits(cell.opcode);
  CHECK_OP(payload_bytes, <=, kMaxCellPayload);
  CHECK(!cell.direct || (what.rdma_header && what.last && payload_bytes == 0));
  put_head(cell, payload_bytes);
  std::uint32_t cell_crc = crc32c(head());
  for (const auto piece : pieces) cell_crc = crc32c(piece, cell_crc);
  if (!cell.direct) {
    packet_crc = cover_head(packet_crc, head());
    for (const auto piece : pieces) packet_crc = crc32c(piece, packet_crc);
  }
  if (has_packet_crc(what, cell.direct)) {
    const Crc wire(packet_crc);
    std::memcpy(tail_.data(), &wire, sizeof wire);
    tail_bytes_ = sizeof wire;
    cell_crc = crc32c(tail(), cell_crc);
  }
  const Crc wire(cell_crc);
  std::memcpy(tail_.data() + tail_bytes_, &wire, sizeof wire);
  tail_bytes_ += sizeof wire;
}

void CellEnvelope::put_head(const Cell& cell, std::size_t payload_bytes) {
  const OpcodeTraits& what = traits(cell.opcode);
  const auto append = [this](const auto& part) {
    std::memcpy(head_.data() + head_bytes_, &part, sizeof part);
    head_bytes_ += sizeof part;
  };
  CellHeader header;
  header.version_and_service_level = static_cast<std::uint8_t>(kCellVersion | (cell.service_level & 0xfU) << 4U);
  header.opcode = static_cast<std::uint8_t>(cell.opcode);
  header.flags = cell.direct ? kFlagDirect : std::uint16_t{0};
  header.destination_port = cell.destination.value;
  header.source_port = cell.source.value;
  header.destination_queue_pair = cell.destination_queue_pair.value;
  header.source_queue_pair = cell.source_queue_pair.value;
  header.packet_sequence = cell.packet_sequence;
  header.cell_sequence = cell.cell_sequence;
  header.payload_bytes = static_cast<std::uint16_t>(payload_bytes);
  append(header);
  if (what.rdma_header) {
    RdmaHeader rdma;
    rdma.address = cell.address;
    rdma.tag = cell.tag.value;
    rdma.length = cell.message_bytes;
    append(rdma);
  }
  if (what.immediate) append(Immediate(cell.immediate));
  if (what.kind == MessageKind::acknowledgement) {
    AcknowledgementHeader ack{};
    ack.syndrome = static_cast<std::uint8_t>(cell.syndrome);
    ack.delay_microseconds = cell.delay_microseconds;
    append(ack);
  }
}

tl::expected<Cell, DecodeError> decode_cell(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(CellHeader) + kCrcBytes) return tl::unexpected(DecodeError::too_short);
  const auto header = read_at<CellHeader>(bytes, 0);
  if ((header.version_and_service_level.value() & 0xfU) != kCellVersion) return tl::unexpected(DecodeError::version);
  const OpcodeTraits& what = traits(header.opcode.value());
  if (what.kind == MessageKind::none) return tl::unexpected(DecodeError::opcode);
  const bool direct = header.flags.value() == kFlagDirect;
  if (header.flags.value() != 0 && !(direct && what.rdma_header && what.last)) {
    return tl::unexpected(DecodeError::flags);
  }
  const std::size_t payload_bytes = header.payload_bytes.value();
  if (payload_bytes > kMaxCellPayload) return tl::unexpected(DecodeError::payload_bytes);
  const std::size_t head_bytes = head_bytes_of(what);
  const std::size_t packet_crc_at = head_bytes + payload_bytes;
  const std::size_t cell_crc_at = packet_crc_at + (has_packet_crc(what, direct) ? kCrcBytes : 0);
  if (bytes.size() < cell_crc_at + kCrcBytes) return tl::unexpected(DecodeError::too_short);
  if (read_at<Crc>(bytes, cell_crc_at).value() != crc32c(bytes.first(cell_crc_at))) {
    return tl::unexpected(DecodeError::cell_crc);
  }

  Cell cell;
  cell.service_level = header.version_and_service_level.value() >> 4U;
  cell.opcode = static_cast<Opcode>(header.opcode.value());
  cell.direct = direct;
  cell.destination = PortAddress{header.destination_port.value()};
  cell.source = PortAddress{header.source_port.value()};
  cell.destination_queue_pair = QpNumber{header.destination_queue_pair.value()};
  cell.source_queue_pair = QpNumber{header.source_queue_pair.value()};
  cell.packet_sequence = header.packet_sequence.value();
  cell.cell_sequence = header.cell_sequence.value();
  cell.payload = bytes.subspan(head_bytes, payload_bytes);
  if (what.rdma_header) {
    const auto rdma = read_at<RdmaHeader>(bytes, sizeof(CellHeader));
    cell.address = rdma.address.value();
    cell.tag = Stag{rdma.tag.value()};
    cell.message_bytes = rdma.length.value();
  }
  if (what.immediate) cell.immediate = read_at<Immediate>(bytes, head_bytes - sizeof(Immediate)).value();
  if (what.kind == MessageKind::acknowledgement) {
    const auto ack = read_at<AcknowledgementHeader>(bytes, sizeof(CellHeader));
    if (ack.syndrome.value() >= kSyndromes) return tl::unexpected(DecodeError::syndrome);
    if (ack.reserved != std::array<std::uint8_t, 3>{}) return tl::unexpected(DecodeError::reserved);
    cell.syndrome = static_cast<Syndrome>(ack.syndrome.value());
    cell.delay_microseconds = ack.delay_microseconds.value();
  }
  if (has_packet_crc(what, direct)) cell.packet_crc = read_at<Crc>(bytes, packet_crc_at).value();
  if (const auto error = check_fields(cell, what)) return tl::unexpected(*error);
  return cell;
}

std::uint32_t extend_packet_crc(std::uint32_t packet_crc, const Cell& cell, std::span<const std::byte> bytes) {
  return cover_head(packet_crc, bytes.first(head_bytes_of(traits(cell.opcode)) + cell.payload.size()));
}

const char* to_string(Opcode opcode) {
  switch (opcode) {
    case Opcode::send_first:
      return "send_first";
    case Opcode::send_middle:
      return "send_middle";
    case Opcode::send_last:
      return "send_last";
    case Opcode::send_only:
      return "send_only";
    case Opcode::write_first:
      return "write_first";
    case Opcode::write_middle:
      return "write_middle";
    case Opcode::write_last:
      return "write_last";
    case Opcode::write_last_immediate:
      return "write_last_immediate";
    case Opcode::write_only:
      return "write_only";
    case Opcode::write_only_immediate:
      return "write_only_immediate";
    case Opcode::acknowledge:
      return "acknowledge";
  }
  return "?";
}

const char* to_string(Syndrome syndrome) {
  switch (syndrome) {
    case Syndrome::ok:
      return "ok";
    case Syndrome::receiver_not_ready:
      return "receiver_not_ready";
    case Syndrome::sequence_error:
      return "sequence_error";
    case Syndrome::remote_access_error:
      return "remote_access_error";
    case Syndrome::remote_operation_error:
      return "remote_operation_error";
  }
  return "?";
}

const char* to_string(DecodeError error) {
  switch (error) {
    case DecodeError::too_short:
      return "too_short";
    case DecodeError::version:
      return "version";
    case DecodeError::opcode:
      return "opcode";
    case DecodeError::flags:
      return "flags";
    case DecodeError::payload_bytes:
      return "payload_bytes";
    case DecodeError::cell_crc:
      return "cell_crc";
    case DecodeError::destination_queue_pair:
      return "destination_queue_pair";
    case DecodeError::source_queue_pair:
      return "source_queue_pair";
    case DecodeError::cell_sequence:
      return "cell_sequence";
    case DecodeError::message_bytes:
      return "message_bytes";
    case DecodeError::syndrome:
      return "syndrome";
    case DecodeError::reserved:
      return "reserved";
  }
  return "?";
}

}  // namespace splitnic::fabric
