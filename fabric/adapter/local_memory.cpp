#include "fabric/adapter/local_memory.h"

#include "fabric/memory/guarded_copy.h"

namespace splitnic::fabric {
namespace {

/// Whether the segment names its bytes as peers would.
bool by_peers_address(const AdapterContext& context, const LocalSegment& segment) {
  const ProtectionEntry* entry = context.table.find(segment.tag);
  return entry != nullptr && (entry->named_by_base || is_window(entry->kind) || entry->memory.in_bridge() ||
                              entry->memory.pages() != nullptr);
}

}  // namespace

ProtectionTable::Checked<Placement> check_segment_in_table(const AdapterContext& context, const Consumer& user,
                                                           const LocalSegment& segment, std::uint32_t offset,
                                                           std::uint32_t bytes, Right right,
                                                           RememberedRegion& remembered) {
  Access access;
  access.tag = segment.tag;
  access.domain = user.domain;
  access.bytes = bytes;
  access.right = right;
  access.queue_pair = user.queue_pair;
  const auto granted = by_peers_address(context, segment)
                           ? context.table.check_local(access, segment.as_number() + offset)
                           : context.table.check_local(access, segment.address + offset);
  if (granted) remembered.remember(segment.tag, segment.as_number() + offset, *granted);
  return granted;
}

ProtectionTable::Checked<Placement> check_sink(const AdapterContext& context, const Consumer& user,
                                               const LocalSegment& segment, std::uint32_t offset, std::uint32_t bytes,
                                               std::optional<std::uint32_t> psn) {
  Access access;
  access.tag = segment.tag;
  access.domain = user.domain;
  access.bytes = bytes;
  access.queue_pair = user.queue_pair;
  access.sequence = psn.value_or(0);
  access.by = psn ? AccessBy::answer : AccessBy::unstarted;
  return context.table.check_response(access, peers_address(context, segment) + offset);
}

Access access_of(const QueuePair& queue_pair, Stag tag, std::uint64_t bytes, Right right, std::uint32_t psn) {
  Access access;
  access.tag = tag;
  access.domain = queue_pair.domain;
  access.bytes = bytes;
  access.right = right;
  access.queue_pair = queue_pair.number;
  access.sequence = psn;
  return access;
}

Status post_status(ProtectionError refusal) {
  const bool beyond = refusal == ProtectionError::base_or_bounds_violation || refusal == ProtectionError::to_wrap;
  return beyond ? Status::bad_length : Status::bad_tag;
}

std::uint64_t peers_address(const AdapterContext& context, const LocalSegment& segment) {
  if (by_peers_address(context, segment)) return segment.as_number();
  return context.table.address_of(segment.tag, segment.address).value_or(segment.as_number());
}

std::uint64_t message_bytes(const WorkRequest& request) {
  std::uint64_t bytes = 0;
  for (const LocalSegment& segment : std::span(request.segments).first(request.segment_count)) bytes += segment.bytes;
  return bytes;
}

bool copy_inline(const WorkRequest& request, std::span<std::byte> to) {
  for (const LocalSegment& segment : std::span(request.segments).first(request.segment_count)) {
    if (segment.bytes != 0 && !guarded_copy(to.data(), segment.address, segment.bytes)) return false;
    to = to.subspan(segment.bytes);
  }
  return true;
}

bool load_placement(const Placement& placement, ClaimedPayload& to, std::size_t bytes) {
  for (std::uint64_t offset = placement.offset; bytes != 0;) {
    const std::span<std::byte> piece = to.next(bytes);
    if (!placement.memory->load(offset, piece, to.stores())) return false;
    offset += piece.size();
    bytes -= piece.size();
  }
  return true;
}

bool store_placement(const Placement& placement, const CellPayload& from) {
  std::uint64_t offset = placement.offset;
  for (const PeerMemory& piece : from.pieces()) {
    if (piece.size() == 0) continue;
    if (!placement.memory->store(offset, piece)) return false;
    offset += piece.size();
  }
  return true;
}

bool still_there(const Placement& placement, std::size_t bytes) {
  const std::uint64_t first = placement.memory->first_byte_in_page();
  const std::uint64_t end = placement.offset + bytes;
  std::byte seen{};
  for (std::uint64_t offset = placement.offset; offset < end;) {
    if (!placement.memory->load(offset, std::span(&seen, 1))) return false;
    offset += kSmallestPage - (first + offset) % kSmallestPage;
  }
  return true;
}

bool packet_is_whole(std::uint32_t& packet_crc, const ReceivedCell& received) {
  packet_crc = extend_packet_crc(packet_crc, received.cell, received.bytes);
  return !traits(received.cell.opcode).last || packet_crc == received.cell.packet_crc;
}

void report_gone(AdapterContext& context, QpNumber queue_pair, Stag tag) {
  AsyncEvent event;
  event.kind = AsyncEventKind::memory_gone;
  event.queue_pair = queue_pair;
  event.tag = tag;
  context.report(event);
}

}  // namespace splitnic::fabric
