#include "fabric/wire/cell.h"

#include <cstring>
#include <optional>

#include "common/check.h"
#include "common/crc32c.h"
#include "fabric/wire/cell_parts.h"
#include "fabric/wire/read_at.h"

namespace splitnic::fabric {
namespace {

using Immediate = ImmediateHeader;
using InvalidateTag = InvalidateHeader;
using Crc = boost::endian::little_uint32_buf_t;

// The bytes of a header that no router changes: opcode and flags, and everything from the queue pairs on.
constexpr std::size_t kCoveredAt = offsetof(CellHeader, opcode);
constexpr std::size_t kCoveredBytes = 3;
constexpr std::size_t kCoveredTailAt = offsetof(CellHeader, destination_queue_pair);

bool has_packet_crc(const OpcodeTraits& what, bool direct) { return what.last && !direct; }

std::uint32_t cover_head(std::uint32_t crc, std::span<const std::byte> head) {
  return crc32c(head.subspan(kCoveredTailAt), crc32c(head.subspan(kCoveredAt, kCoveredBytes), crc));
}

/// Only an Only cell may be empty: a message of several cells has bytes in each, so its cells are bounded by its
/// length.
bool payload_fits_kind(const Cell& cell, const OpcodeTraits& what, std::size_t payload) {
  if (what.is(MessageKind::terminate)) return payload <= kMaxCellHeadBytes;
  if (!what.carries_message() || cell.direct) return payload == 0;
  return payload != 0 || (what.first && what.last);
}

/// The extended header of the cell's own kind, which stands last before the payload.
std::optional<CellFault> read_own_header(Cell& cell, MessageKind kind, std::span<const std::byte> bytes,
                                         std::size_t at) {
  switch (kind) {
    case MessageKind::read_request: {
      const auto read = read_at<ReadHeader>(bytes, at);
      cell.message_sequence = read.message_sequence.value();
      cell.sink_tag = Stag{read.sink_tag.value()};
      cell.sink_address = read.sink_address.value();
      return std::nullopt;
    }
    case MessageKind::atomic: {
      const auto atomic = read_at<AtomicHeader>(bytes, at);
      if (atomic.reserved.value() != 0) return CellFault::reserved;
      cell.message_sequence = atomic.message_sequence.value();
      cell.swap_or_add = atomic.swap_or_add.value();
      cell.compare = atomic.compare.value();
      return std::nullopt;
    }
    case MessageKind::atomic_response:
      cell.original = read_at<ResultHeader>(bytes, at).original.value();
      return std::nullopt;
    case MessageKind::acknowledgement: {
      const auto ack = read_at<AcknowledgementHeader>(bytes, at);
      if (ack.syndrome.value() >= kSyndromes) return CellFault::syndrome;
      if (ack.reserved != decltype(ack.reserved){}) return CellFault::reserved;
      cell.syndrome = static_cast<Syndrome>(ack.syndrome.value());
      cell.delay_microseconds = ack.delay_microseconds.value();
      return std::nullopt;
    }
    case MessageKind::terminate: {
      const auto terminate = read_at<TerminateHeader>(bytes, at);
      if (terminate.reserved != decltype(terminate.reserved){}) return CellFault::reserved;
      cell.reason = {terminate.layer.value(), terminate.type.value(), terminate.code.value()};
      return std::nullopt;
    }
    case MessageKind::drain: {
      const auto drain = read_at<DrainHeader>(bytes, at);
      cell.tag = Stag{drain.tag.value()};
      cell.generation = drain.generation.value();
      return std::nullopt;
    }
    case MessageKind::none:
    case MessageKind::send:
    case MessageKind::write:
    case MessageKind::read_response:
    case MessageKind::datagram:
    case MessageKind::not_taken:
      return std::nullopt;
  }
  return std::nullopt;
}

/// Into `cell`, whose fields are those of a new one; or why not.
std::optional<CellFault> read_cell(Cell& cell, std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(CellHeader) + kCrcBytes) return CellFault::too_short;
  const auto header = read_at<CellHeader>(bytes, 0);
  if ((header.version_and_service_level.value() & 0xfU) != kCellVersion) return CellFault::version;
  const OpcodeTraits& what = traits(header.opcode.value());
  if (what.kind == MessageKind::none) return CellFault::opcode;
  const std::uint16_t flags = header.flags.value();
  const bool direct = (flags & kFlagDirect) != 0;
  const bool solicited = (flags & kFlagSolicited) != 0;
  if ((flags & ~(kFlagDirect | kFlagSolicited)) != 0 || !cell_parts::flags_fit(what, direct, solicited)) {
    return CellFault::flags;
  }
  const std::size_t payload_bytes = header.payload_bytes.value();
  if (payload_bytes > kMaxCellPayload) return CellFault::payload_bytes;
  const std::size_t head_bytes = cell_head_bytes(static_cast<Opcode>(header.opcode.value()));
  const std::size_t packet_crc_at = head_bytes + payload_bytes;
  const std::size_t cell_crc_at = packet_crc_at + (has_packet_crc(what, direct) ? kCrcBytes : 0);
  if (bytes.size() < cell_crc_at + kCrcBytes) return CellFault::too_short;
  if (read_at<Crc>(bytes, cell_crc_at).value() != crc32c(bytes.first(cell_crc_at))) {
    return CellFault::cell_crc;
  }

  cell.service_level = header.version_and_service_level.value() >> 4U;
  cell.opcode = static_cast<Opcode>(header.opcode.value());
  cell.direct = direct;
  cell.solicited = solicited;
  cell.destination = PortAddress{header.destination_port.value()};
  cell.source = PortAddress{header.source_port.value()};
  cell.destination_queue_pair = QpNumber{header.destination_queue_pair.value()};
  cell.source_queue_pair = QpNumber{header.source_queue_pair.value()};
  cell.packet_sequence = header.packet_sequence.value();
  cell.cell_sequence = header.cell_sequence.value();
  cell.payload = bytes.subspan(head_bytes, payload_bytes);
  const auto extensions = bytes.subspan(sizeof(CellHeader), head_bytes - sizeof(CellHeader));
  if (const auto error = cell_parts::read_extensions(cell, extensions)) return error;
  if (has_packet_crc(what, direct)) cell.packet_crc = read_at<Crc>(bytes, packet_crc_at).value();
  return cell_parts::check_fields(cell, payload_bytes, true);
}

/// The extended header of the cell's own kind, which stands last before the payload.
void put_own_header(const Cell& cell, MessageKind kind, std::byte* to) {
  const auto append = [to](const auto& part) { std::memcpy(to, &part, sizeof part); };
  switch (kind) {
    case MessageKind::read_request: {
      ReadHeader read;
      read.message_sequence = cell.message_sequence;
      read.sink_tag = cell.sink_tag.value;
      read.sink_address = cell.sink_address;
      return append(read);
    }
    case MessageKind::atomic: {
      AtomicHeader atomic;
      atomic.message_sequence = cell.message_sequence;
      atomic.reserved = 0;
      atomic.swap_or_add = cell.swap_or_add;
      atomic.compare = cell.compare;
      return append(atomic);
    }
    case MessageKind::atomic_response:
      return append(ResultHeader{boost::endian::little_uint64_buf_t(cell.original)});
    case MessageKind::acknowledgement: {
      AcknowledgementHeader ack{};
      ack.syndrome = static_cast<std::uint8_t>(cell.syndrome);
      ack.delay_microseconds = cell.delay_microseconds;
      return append(ack);
    }
    case MessageKind::terminate: {
      TerminateHeader terminate{};
      terminate.layer = cell.reason.layer;
      terminate.type = cell.reason.type;
      terminate.code = cell.reason.code;
      return append(terminate);
    }
    case MessageKind::drain: {
      DrainHeader drain;
      drain.tag = cell.tag.value;
      drain.generation = cell.generation;
      return append(drain);
    }
    case MessageKind::none:
    case MessageKind::send:
    case MessageKind::write:
    case MessageKind::read_response:
    case MessageKind::datagram:
    case MessageKind::not_taken:
      return;
  }
}

}  // namespace

namespace cell_parts {

std::size_t put_xrc(const Cell& cell, std::byte* to) {
  if (!traits(cell.opcode).xrc) return 0;
  XrcHeader xrc;
  xrc.shared_receives = cell.shared_receives.value;
  xrc.reserved = 0;
  std::memcpy(to, &xrc, sizeof xrc);
  return sizeof xrc;
}

bool read_xrc(Cell& cell, std::span<const std::byte> bytes) {
  if (!traits(cell.opcode).xrc) return true;
  const auto xrc = read_at<XrcHeader>(bytes, 0);
  cell.shared_receives = SrqNumber{xrc.shared_receives.value()};
  return xrc.reserved.value() == 0;
}

std::size_t put_extensions(const Cell& cell, std::byte* to) {
  const OpcodeTraits& what = traits(cell.opcode);
  if (what.head_bytes == sizeof(CellHeader)) return 0;  // most cells have none
  std::size_t used = put_xrc(cell, to);
  const auto append = [&](const auto& part) {
    std::memcpy(to + used, &part, sizeof part);
    used += sizeof part;
  };
  if (what.rdma_header) {
    RdmaHeader rdma;
    rdma.address = cell.address;
    rdma.tag = cell.tag.value;
    rdma.length = cell.message_bytes;
    append(rdma);
  }
  if (what.immediate) append(Immediate(cell.immediate));
  if (what.invalidate) append(InvalidateTag(cell.invalidate.value));
  const std::size_t own = what.own_header_bytes;
  if (own != 0) put_own_header(cell, what.kind, to + used);
  return used + own;
}

std::optional<CellFault> read_extensions(Cell& cell, std::span<const std::byte> bytes) {
  if (bytes.empty()) return std::nullopt;
  const OpcodeTraits& what = traits(cell.opcode);
  const std::size_t own = what.own_header_bytes;
  if (!read_xrc(cell, bytes)) return CellFault::reserved;
  if (what.rdma_header) {
    const auto rdma = read_at<RdmaHeader>(bytes, what.xrc ? sizeof(XrcHeader) : 0);
    cell.address = rdma.address.value();
    cell.tag = Stag{rdma.tag.value()};
    cell.message_bytes = rdma.length.value();
  }
  if (what.immediate) cell.immediate = read_at<Immediate>(bytes, bytes.size() - sizeof(Immediate)).value();
  if (what.invalidate) {
    cell.invalidate = Stag{read_at<InvalidateTag>(bytes, bytes.size() - sizeof(InvalidateTag)).value()};
  }
  return own == 0 ? std::nullopt : read_own_header(cell, what.kind, bytes, bytes.size() - own);
}

bool flags_fit(const OpcodeTraits& what, bool direct, bool solicited) {
  return (!direct || what.may_be_direct()) && (!solicited || what.may_be_solicited());
}

std::optional<CellFault> check_fields(const Cell& cell, std::size_t payload_bytes, bool carries_source) {
  const OpcodeTraits& what = traits(cell.opcode);
  // Cells between adapters, not queue pairs, come from none, and are for none.
  const auto fits = [](QpNumber number, bool none) {
    return none ? number.value == 0 : number.value != 0 && number.value <= kMaxQueuePairNumber;
  };
  const bool not_taken = what.is(MessageKind::not_taken);  // names one of the peer's, or none
  const bool adapters = what.is(MessageKind::drain) || not_taken;
  const bool names = not_taken && cell.destination_queue_pair.value != 0;
  if (!fits(cell.destination_queue_pair, adapters && !names)) return CellFault::destination_queue_pair;
  if (carries_source && !fits(cell.source_queue_pair, adapters)) return CellFault::source_queue_pair;
  if (what.xrc && cell.shared_receives.value == 0) return CellFault::shared_receives;
  if (what.first != (cell.cell_sequence == 0)) return CellFault::cell_sequence;
  if (!payload_fits_kind(cell, what, payload_bytes)) return CellFault::payload_bytes;
  if (what.rdma_header && what.is(MessageKind::write) && !cell.direct) {
    const bool agrees = what.last ? cell.message_bytes == payload_bytes : cell.message_bytes > payload_bytes;
    if (!agrees) return CellFault::message_bytes;
  }
  if (what.is(MessageKind::atomic)) {
    if (cell.message_bytes != kAtomicBytes) return CellFault::message_bytes;
    if (without_xrc(cell.opcode) == Opcode::fetch_add && cell.compare != 0) return CellFault::atomic;
  }
  return std::nullopt;
}

}  // namespace cell_parts

std::size_t encode_cell_head(const Cell& cell, std::size_t payload_bytes, std::span<std::byte, kMaxCellHeadBytes> to) {
  CellHeader header;
  header.version_and_service_level = static_cast<std::uint8_t>(kCellVersion | (cell.service_level & 0xfU) << 4U);
  header.opcode = static_cast<std::uint8_t>(cell.opcode);
  header.flags = static_cast<std::uint16_t>((cell.direct ? kFlagDirect : 0U) | (cell.solicited ? kFlagSolicited : 0U));
  header.destination_port = cell.destination.value;
  header.source_port = cell.source.value;
  header.destination_queue_pair = cell.destination_queue_pair.value;
  header.source_queue_pair = cell.source_queue_pair.value;
  header.packet_sequence = cell.packet_sequence;
  header.cell_sequence = cell.cell_sequence;
  header.payload_bytes = static_cast<std::uint16_t>(payload_bytes);
  std::memcpy(to.data(), &header, sizeof header);
  return sizeof header + cell_parts::put_extensions(cell, to.data() + sizeof header);
}

CellEnvelope::CellEnvelope(const Cell& cell, std::span<const std::span<const std::byte>> pieces,
                           std::size_t payload_bytes, std::uint32_t& packet_crc) {
  const OpcodeTraits& what = traits(cell.opcode);
  SPLITNIC_CHECK_OP(payload_bytes, <=, kMaxCellPayload);
  SPLITNIC_CHECK(!cell.direct || (what.may_be_direct() && payload_bytes == 0));
  head_bytes_ = encode_cell_head(cell, payload_bytes, head_);
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

tl::expected<Cell, CellFault> decode_cell(std::span<const std::byte> bytes) {
  tl::expected<Cell, CellFault> result;  // one variable, so that the cell is not copied out
  if (const auto error = read_cell(*result, bytes)) result = tl::unexpected(*error);
  return result;
}

std::uint32_t extend_packet_crc(std::uint32_t packet_crc, const Cell& cell, std::span<const std::byte> bytes) {
  return cover_head(packet_crc, bytes.first(cell_head_bytes(cell.opcode) + cell.payload.size()));
}

}  // namespace splitnic::fabric
