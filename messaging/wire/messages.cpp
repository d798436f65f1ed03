#include "messaging/wire/messages.h"

#include <fmt/format.h>

#include <limits>

namespace splitnic::messaging::wire {
namespace {

using Outcome = tl::expected<Message, MessageFault>;
using Fault = std::optional<MessageFault>;

/// A message after its header was read: the view, without a cursor, that the decoders below share.
struct Envelope {
  std::span<const std::byte> bytes;
  const Limits& limits;
  std::uint32_t word;
  std::uint64_t transaction;

  [[nodiscard]] MessageFault error(DecodeReason reason, std::string_view field, std::size_t offset) const {
    return {.reason = reason,
            .offset = static_cast<std::uint32_t>(offset),
            .field = field,
            .word = word,
            .transaction = transaction};
  }
  [[nodiscard]] tl::unexpected<MessageFault> fault(DecodeReason reason, std::string_view field,
                                                   std::size_t offset) const {
    return tl::unexpected<MessageFault>(error(reason, field, offset));
  }
  template <class Head>
  [[nodiscard]] Head head() const {
    Head head;
    std::memcpy(&head, bytes.data(), sizeof(head));
    return head;
  }
};

Fault check_entry(const Envelope& in, const PoolAdvertisement& entry, std::size_t at) {
  const Limits& limits = in.limits;
  const auto bad = [&](DecodeReason reason, std::string_view field, std::size_t offset) {
    return in.error(reason, field, at + offset);
  };
  if (entry.pool.value > limits.highest_pool) {
    return bad(DecodeReason::out_of_range, "pool", offsetof(PoolEntry, pool));
  }
  if (entry.elements == 0) return bad(DecodeReason::out_of_range, "elements", offsetof(PoolEntry, elements));
  if (entry.elements > limits.pool_elements) {
    return bad(DecodeReason::count_over_limit, "elements", offsetof(PoolEntry, elements));
  }
  constexpr auto kElementBytesAt = offsetof(PoolEntry, element_bytes);
  if (entry.element_bytes < kElementGrain || entry.element_bytes > limits.element_bytes) {
    return bad(DecodeReason::out_of_range, "element bytes", kElementBytesAt);
  }
  if (entry.element_bytes % kElementGrain != 0) {
    return bad(DecodeReason::not_a_multiple, "element bytes", kElementBytesAt);
  }
  const std::uint64_t pool_bytes = std::uint64_t{entry.elements} * entry.element_bytes;
  if (entry.address > std::numeric_limits<std::uint64_t>::max() - pool_bytes) {
    return bad(DecodeReason::wraps, "address", offsetof(PoolEntry, address));
  }
  return std::nullopt;
}

Fault check_entry(const Envelope& in, const ElementRun& entry, std::size_t at) {
  if (entry.pool.value > in.limits.highest_pool) {
    return in.error(DecodeReason::out_of_range, "pool", at + offsetof(UpdateEntry, pool));
  }
  if (entry.first >= in.limits.pool_elements) {
    return in.error(DecodeReason::out_of_range, "first element", at + offsetof(UpdateEntry, first));
  }
  if (entry.elements == 0) {
    return in.error(DecodeReason::out_of_range, "elements", at + offsetof(UpdateEntry, elements));
  }
  if (entry.elements > in.limits.pool_elements - entry.first) {
    return in.error(DecodeReason::wraps, "elements", at + offsetof(UpdateEntry, elements));
  }
  return std::nullopt;
}

Fault check_entry(const Envelope& in, const FlushedPool& entry, std::size_t at) {
  if (entry.pool.value > in.limits.highest_pool) return in.error(DecodeReason::out_of_range, "pool", at);
  return std::nullopt;
}

Fault check_entry(const Envelope& in, const Indication& entry, std::size_t at) {
  if (entry.pool.value > in.limits.highest_pool) {
    return in.error(DecodeReason::out_of_range, "pool", at + offsetof(IndicateEntry, pool));
  }
  if (entry.element >= in.limits.pool_elements) {
    return in.error(DecodeReason::out_of_range, "element", at + offsetof(IndicateEntry, element));
  }
  if (entry.length < kMinFrameBytes || entry.length > in.limits.element_bytes) {
    return in.error(DecodeReason::out_of_range, "length", at + offsetof(IndicateEntry, length));
  }
  return std::nullopt;
}

/// Reads the list from `start` to the message's end and checks every entry.
template <class Value>
tl::expected<ListView<Value>, MessageFault> decode_list(const Envelope& in, std::size_t start) {
  constexpr std::size_t kEntryBytes = sizeof(typename Value::Wire);
  const auto bytes = in.bytes.subspan(start);
  if (bytes.empty()) return in.fault(DecodeReason::no_entries, "list", start);
  if (bytes.size() % kEntryBytes != 0) return in.fault(DecodeReason::not_a_multiple, "list", start);
  if (bytes.size() / kEntryBytes > in.limits.list_entries) {
    return in.fault(DecodeReason::count_over_limit, "list", start);
  }
  const ListView<Value> list(bytes);
  std::size_t at = start;
  for (const Value entry : list) {
    if (const auto fault = check_entry(in, entry, at)) return tl::unexpected<MessageFault>(*fault);
    at += kEntryBytes;
  }
  return list;
}

/// Checks that the message is a body of exactly this size.
template <class Body>
Fault check_exact_size(const Envelope& in) {
  if (in.bytes.size() < sizeof(Body)) return in.error(DecodeReason::too_short, "body", in.bytes.size());
  if (in.bytes.size() > sizeof(Body)) return in.error(DecodeReason::too_long, "body", sizeof(Body));
  return std::nullopt;
}

Outcome decode_pool(const Envelope& in) {
  if (in.bytes.size() < sizeof(BufferRecvPoolHead)) {
    return in.fault(DecodeReason::too_short, "reserved", in.bytes.size());
  }
  if (in.head<BufferRecvPoolHead>().reserved.value() != 0) {
    return in.fault(DecodeReason::reserved_not_zero, "reserved", offsetof(BufferRecvPoolHead, reserved));
  }
  return decode_list<PoolAdvertisement>(in, sizeof(BufferRecvPoolHead)).map([&](auto list) {
    return Message(BufferRecvPool{in.transaction, list});
  });
}

Outcome decode_pool_get(const Envelope& in) {
  if (const auto fault = check_exact_size<BufferRecvPoolGetBody>(in)) return tl::unexpected<MessageFault>(*fault);
  const auto body = in.head<BufferRecvPoolGetBody>();
  const std::uint32_t packet_bytes = body.packet_bytes.value();
  const std::uint32_t packets = body.packets.value();
  if (packet_bytes < kMinFrameBytes || packet_bytes > in.limits.element_bytes) {
    return in.fault(DecodeReason::out_of_range, "packet bytes", offsetof(BufferRecvPoolGetBody, packet_bytes));
  }
  if (packets == 0) return in.fault(DecodeReason::out_of_range, "packets", offsetof(BufferRecvPoolGetBody, packets));
  if (packets > in.limits.pool_elements) {
    return in.fault(DecodeReason::count_over_limit, "packets", offsetof(BufferRecvPoolGetBody, packets));
  }
  return BufferRecvPoolGet{in.transaction, packet_bytes, packets};
}

Outcome decode_send_data(const Envelope& in) {
  constexpr auto kBytesAt = offsetof(SendDataHead, bytes);
  if (in.bytes.size() < sizeof(SendDataHead)) return in.fault(DecodeReason::too_short, "bytes", in.bytes.size());
  const std::uint32_t bytes = in.head<SendDataHead>().bytes.value();
  const auto frame = in.bytes.subspan(sizeof(SendDataHead));
  if (bytes != frame.size()) return in.fault(DecodeReason::bad_length, "bytes", kBytesAt);
  if (bytes < kMinFrameBytes || bytes > in.limits.frame_bytes) {
    return in.fault(DecodeReason::out_of_range, "bytes", kBytesAt);
  }
  return SendData{in.transaction, frame};
}

/// Checks what CfgUtilRequest and CfgUtilReply share; the callers check the code.
Fault check_cfg_util(const Envelope& in) {
  if (in.bytes.size() < sizeof(CfgUtilHead)) return in.error(DecodeReason::too_short, "head", in.bytes.size());
  const auto head = in.head<CfgUtilHead>();
  if (head.data_bytes.value() != in.bytes.size() - sizeof(CfgUtilHead)) {
    return in.error(DecodeReason::bad_length, "data bytes", offsetof(CfgUtilHead, data_bytes));
  }
  if (head.reserved.value() != 0) {
    return in.error(DecodeReason::reserved_not_zero, "reserved", offsetof(CfgUtilHead, reserved));
  }
  return std::nullopt;
}

Outcome decode_cfg_util_request(const Envelope& in) {
  if (const auto fault = check_cfg_util(in)) return tl::unexpected<MessageFault>(*fault);
  return CfgUtilRequest{in.transaction, in.head<CfgUtilHead>().code.value(), in.bytes.subspan(sizeof(CfgUtilHead))};
}

Outcome decode_cfg_util_reply(const Envelope& in) {
  if (const auto fault = check_cfg_util(in)) return tl::unexpected<MessageFault>(*fault);
  const std::uint32_t status = in.head<CfgUtilHead>().code.value();
  if (status > kLastCfgStatus) return in.fault(DecodeReason::out_of_range, "status", offsetof(CfgUtilHead, code));
  return CfgUtilReply{in.transaction, static_cast<CfgStatus>(status), in.bytes.subspan(sizeof(CfgUtilHead))};
}

Outcome decode_unsupported(const Envelope& in) {
  if (const auto fault = check_exact_size<UnsupportedBody>(in)) return tl::unexpected<MessageFault>(*fault);
  const auto body = in.head<UnsupportedBody>();
  const Unsupported value{in.transaction, body.offending_word.value(), body.lowest_version.value(),
                          body.highest_version.value(), body.reason.value()};
  if (value.lowest_version == 0) {
    return in.fault(DecodeReason::out_of_range, "lowest version", offsetof(UnsupportedBody, lowest_version));
  }
  if (value.highest_version < value.lowest_version) {
    return in.fault(DecodeReason::out_of_range, "highest version", offsetof(UnsupportedBody, highest_version));
  }
  if (value.reason == 0) return in.fault(DecodeReason::out_of_range, "reason", offsetof(UnsupportedBody, reason));
  return value;
}

Outcome decode_body(const Envelope& in, Function function) {
  switch (function) {
    case Function::buffer_recv_pool:
      return decode_pool(in);
    case Function::buffer_recv_pool_get:
      return decode_pool_get(in);
    case Function::buffer_recv_pool_update:
      return decode_list<ElementRun>(in, sizeof(MessageHeader)).map([&](auto list) {
        return Message(BufferRecvPoolUpdate{in.transaction, list});
      });
    case Function::buffer_pool_flush_request:
      return decode_list<FlushedPool>(in, sizeof(MessageHeader)).map([&](auto list) {
        return Message(BufferPoolFlushRequest{in.transaction, list});
      });
    case Function::buffer_pool_flush_reply:
      if (const auto fault = check_exact_size<MessageHeader>(in)) return tl::unexpected<MessageFault>(*fault);
      return BufferPoolFlushReply{in.transaction};
    case Function::send_data:
      return decode_send_data(in);
    case Function::buffer_rdma_indicate:
      return decode_list<Indication>(in, sizeof(MessageHeader)).map([&](auto list) {
        return Message(BufferRdmaIndicate{in.transaction, list});
      });
    case Function::cfg_util_request:
      return decode_cfg_util_request(in);
    case Function::cfg_util_reply:
      return decode_cfg_util_reply(in);
    case Function::unsupported:
      return decode_unsupported(in);
  }
  return in.fault(DecodeReason::unknown_function, "function", offsetof(MessageHeader, function));
}

}  // namespace

tl::expected<Message, MessageFault> decode(std::span<const std::byte> message, const Limits& limits) {
  if (message.size() < sizeof(MessageHeader)) {
    return tl::unexpected<MessageFault>(MessageFault{
        .reason = DecodeReason::too_short, .offset = static_cast<std::uint32_t>(message.size()), .field = "header"});
  }
  MessageHeader header;
  std::memcpy(&header, message.data(), sizeof(header));
  const std::uint16_t version = header.version.value();
  const auto function = static_cast<Function>(header.function.value());
  const Envelope in{.bytes = message,
                    .limits = limits,
                    .word = static_cast<std::uint32_t>(header.function.value()) << 16U | version,
                    .transaction = header.transaction.value()};
  // Unsupported tells a peer which versions this end speaks, so it must be readable in every version.
  const bool speaks = version >= kLowestVersion && version <= kHighestVersion;
  if (!speaks && function != Function::unsupported) return in.fault(DecodeReason::bad_version, "version", 0);
  if (message.size() > limits.message_bytes) return in.fault(DecodeReason::too_long, "message", limits.message_bytes);
  return decode_body(in, function);
}

std::optional<Unsupported> unsupported_answer(const MessageFault& error) {
  const bool version = error.reason == DecodeReason::bad_version;
  if (!version && error.reason != DecodeReason::unknown_function) return std::nullopt;
  const auto function = static_cast<Function>(error.word >> 16U);
  const bool reply = function == Function::buffer_pool_flush_reply || function == Function::cfg_util_reply;
  const bool never_answered = (error.word & 0x8000'0000U) != 0;
  if (reply || never_answered) return std::nullopt;
  const auto reason = version ? UnsupportedReason::version : UnsupportedReason::unknown_function;
  return Unsupported{error.transaction, error.word, kLowestVersion, kHighestVersion,
                     static_cast<std::uint32_t>(reason)};
}

std::string_view to_string(DecodeReason reason) {
  switch (reason) {
    case DecodeReason::too_short:
      return "too short";
    case DecodeReason::too_long:
      return "too long";
    case DecodeReason::bad_version:
      return "version not spoken";
    case DecodeReason::unknown_function:
      return "unknown function";
    case DecodeReason::reserved_not_zero:
      return "reserved field is not zero";
    case DecodeReason::no_entries:
      return "list without entries";
    case DecodeReason::not_a_multiple:
      return "not a multiple";
    case DecodeReason::count_over_limit:
      return "count over the limit";
    case DecodeReason::bad_length:
      return "length does not match the bytes that follow";
    case DecodeReason::out_of_range:
      return "out of range";
    case DecodeReason::wraps:
      return "passes the end";
  }
  return "unknown";
}

std::string to_string(const MessageFault& error) {
  const auto function = static_cast<Function>(error.word >> 16U);
  return fmt::format("{} (word {:#010x}): {} at {}: {}", to_string(function), error.word, error.field, error.offset,
                     to_string(error.reason));
}

std::string_view to_string(Function function) {
  switch (function) {
    case Function::buffer_recv_pool:
      return "BufferRecvPool";
    case Function::buffer_recv_pool_get:
      return "BufferRecvPoolGet";
    case Function::buffer_recv_pool_update:
      return "BufferRecvPoolUpdate";
    case Function::buffer_pool_flush_request:
      return "BufferPoolFlushRequest";
    case Function::buffer_pool_flush_reply:
      return "BufferPoolFlushReply";
    case Function::send_data:
      return "SendData";
    case Function::buffer_rdma_indicate:
      return "BufferRDMAIndicate";
    case Function::cfg_util_request:
      return "CfgUtilRequest";
    case Function::cfg_util_reply:
      return "CfgUtilReply";
    case Function::unsupported:
      return "Unsupported";
  }
  return "unknown";
}

std::string_view to_string(CfgRequest request) {
  switch (request) {
    case CfgRequest::hello:
      return "Hello";
    case CfgRequest::set_mac_address:
      return "SetMacAddress";
    case CfgRequest::set_mtu:
      return "SetMtu";
    case CfgRequest::link_state:
      return "LinkState";
    case CfgRequest::set_receive_filter:
      return "SetReceiveFilter";
    case CfgRequest::set_vlan_filter:
      return "SetVlanFilter";
    case CfgRequest::set_moderation:
      return "SetModeration";
    case CfgRequest::statistics_report:
      return "StatisticsReport";
    case CfgRequest::statistics_clear:
      return "StatisticsClear";
    case CfgRequest::status_report:
      return "StatusReport";
    case CfgRequest::heartbeat:
      return "Heartbeat";
    case CfgRequest::reset:
      return "Reset";
  }
  return "unknown";
}

std::string_view to_string(CfgStatus status) {
  switch (status) {
    case CfgStatus::ok:
      return "ok";
    case CfgStatus::unknown_request:
      return "unknown request";
    case CfgStatus::invalid_parameter:
      return "invalid parameter";
    case CfgStatus::not_permitted:
      return "not permitted";
    case CfgStatus::busy:
      return "busy";
    case CfgStatus::no_resources:
      return "no resources";
    case CfgStatus::malformed:
      return "malformed";
  }
  return "unknown";
}

}  // namespace splitnic::messaging::wire
