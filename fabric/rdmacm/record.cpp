#include "fabric/rdmacm/record.h"

#include <algorithm>
#include <optional>

#include "fabric/rdmacm/copied_bytes.h"

namespace splitnic::rdmacm {
namespace {

constexpr std::uint8_t kDatagrams = 1;
constexpr std::uint16_t kMaxLocalId = 0xbfff;
constexpr std::uint8_t kMaxRetries = 7;

bool is_space(std::uint16_t value) {
  switch (static_cast<Space>(value)) {
    case Space::ipoib:
    case Space::tcp:
    case Space::udp:
    case Space::ib:
      return true;
  }
  return false;
}

/// Whether the record names its sender's queue pair.
bool names_queue_pair(RecordKind kind) { return kind == RecordKind::request || kind == RecordKind::reply; }

std::optional<RecordFault> fault_of(const Record& record) {
  const bool names = names_queue_pair(record.kind);
  const bool connected_only = record.kind == RecordKind::ready || record.kind == RecordKind::disconnect;
  if (connected_only && record.datagrams) return RecordFault::flags;
  if (record.queue_pair > (names ? kMax24Bits : 0)) return RecordFault::queue_pair;
  if (record.starting_psn > (names ? kMax24Bits : 0)) return RecordFault::starting_psn;
  if (names != (record.local_id != 0) || record.local_id > kMaxLocalId) return RecordFault::local_id;
  if ((record.kind == RecordKind::reject) != (record.reason != 0)) return RecordFault::reason;
  if (record.kind == RecordKind::request ? !is_space(record.space) : record.space != 0) return RecordFault::space;
  if (record.retry_count > kMaxRetries || record.rnr_retry_count > kMaxRetries) return RecordFault::retry_count;
  if (record.flow_control > 1 || record.shared_receives > 1) return RecordFault::flow_control;
  const std::size_t room = private_room(record.kind, record.datagrams);
  if (record.private_bytes > room) return RecordFault::private_bytes;
  const auto behind = std::span(record.private_data).subspan(record.private_bytes);
  if (std::ranges::any_of(behind, [](std::byte byte) { return byte != std::byte{0}; }))
    return RecordFault::private_data;
  if (record.kind != RecordKind::request && record.source.scope != 0) return RecordFault::scope;
  return std::nullopt;
}

}  // namespace

std::size_t private_room(RecordKind kind, bool datagrams) {
  switch (kind) {
    case RecordKind::request:
      return datagrams ? kDatagramRequestBytes : kRequestBytes;
    case RecordKind::reply:
      return datagrams ? kDatagramReplyBytes : kReplyBytes;
    case RecordKind::reject:
      return datagrams ? kDatagramReplyBytes : kRejectBytes;
    case RecordKind::ready:
    case RecordKind::disconnect:
      return 0;
  }
  return 0;
}

RecordBytes encode(const Record& record) {
  RecordBytes bytes{};
  bytes.magic = kRecordMagic;
  bytes.version = kRecordVersion;
  bytes.kind = static_cast<std::uint8_t>(record.kind);
  bytes.flags = record.datagrams ? kDatagrams : std::uint8_t{0};
  bytes.queue_pair = record.queue_pair;
  bytes.starting_psn = record.starting_psn;
  bytes.queue_key = record.queue_key;
  bytes.local_id = record.local_id;
  bytes.reason = record.reason;
  bytes.space = record.space;
  bytes.responder_resources = record.responder_resources;
  bytes.initiator_depth = record.initiator_depth;
  bytes.retry_count = record.retry_count;
  bytes.rnr_retry_count = record.rnr_retry_count;
  bytes.flow_control = record.flow_control;
  bytes.shared_receives = record.shared_receives;
  bytes.private_bytes = record.private_bytes;
  bytes.source = record.source.bytes;
  bytes.destination = record.destination.bytes;
  bytes.source_number = record.source.number;
  bytes.destination_number = record.destination.number;
  bytes.scope = record.source.scope;
  bytes.private_data = record.private_data;
  return bytes;
}

tl::expected<Record, RecordFault> decode(std::span<const std::byte> from) {
  if (from.size() != sizeof(RecordBytes)) return tl::unexpected(RecordFault::size);
  const auto bytes = copied_bytes<RecordBytes>(from);
  if (bytes.magic.value() != kRecordMagic) return tl::unexpected(RecordFault::magic);
  if (bytes.version.value() != kRecordVersion) return tl::unexpected(RecordFault::version);
  if (bytes.kind == 0 || bytes.kind > static_cast<std::uint8_t>(RecordKind::disconnect))
    return tl::unexpected(RecordFault::kind);
  if (bytes.flags > kDatagrams) return tl::unexpected(RecordFault::flags);
  if (bytes.reserved != decltype(bytes.reserved){}) return tl::unexpected(RecordFault::reserved);
  Record record;
  record.kind = static_cast<RecordKind>(bytes.kind);
  record.datagrams = bytes.flags == kDatagrams;
  record.queue_pair = bytes.queue_pair.value();
  record.starting_psn = bytes.starting_psn.value();
  record.queue_key = bytes.queue_key.value();
  record.local_id = bytes.local_id.value();
  record.reason = bytes.reason.value();
  record.space = bytes.space.value();
  record.responder_resources = bytes.responder_resources;
  record.initiator_depth = bytes.initiator_depth;
  record.retry_count = bytes.retry_count;
  record.rnr_retry_count = bytes.rnr_retry_count;
  record.flow_control = bytes.flow_control;
  record.shared_receives = bytes.shared_receives;
  record.private_bytes = bytes.private_bytes;
  // Link-local addresses of one connection are of one link.
  record.source = {bytes.source, bytes.source_number.value(), bytes.scope.value()};
  record.destination = {bytes.destination, bytes.destination_number.value(), bytes.scope.value()};
  record.private_data = bytes.private_data;
  if (const auto fault = fault_of(record)) return tl::unexpected(*fault);
  return record;
}

}  // namespace splitnic::rdmacm
