#include "fabric/connect/connection_message.h"

#include <boost/describe.hpp>
#include <cstring>

#include "fabric/wire/datagram.h"

namespace splitnic::fabric {

BOOST_DESCRIBE_ENUM(ConnectionMessageKind, request, received, reject, reply, ready, disconnect_request,
                    disconnect_reply)

BOOST_DESCRIBE_ENUM(RejectReason, none, no_queue_pair, no_resources, timeout, unknown_connection, no_listener,
                    by_program)
const char* to_string(RejectReason reason) { return boost::describe::enum_to_string(reason, "?"); }

BOOST_DESCRIBE_ENUM(ConnectionFault, length, version, kind, flags, sender, receiver, queue_pair, unused, reason,
                    service, private_bytes)
const char* to_string(ConnectionFault fault) { return boost::describe::enum_to_string(fault, "?"); }

namespace {

using Kind = ConnectionMessageKind;
using Fault = ConnectionFault;

/// Whether the number is that of an enumerator.
template <class Enum>
bool known(Enum number) {
  return boost::describe::enum_to_string(number, nullptr) != nullptr;
}

/// What the fields of a head say that is wrong, whatever follows them.
std::optional<Fault> fault_of(const ConnectionHead& head, Kind kind) {
  const bool request = kind == Kind::request;
  const bool has_end = request || kind == Kind::reply;
  const bool reject = kind == Kind::reject;
  if ((head.flags.value() & ~(request ? kConnectionUnacknowledged : 0)) != 0) return Fault::flags;
  if (head.sender.value() == 0 && !reject) return Fault::sender;
  if ((head.receiver.value() == 0) != request) return Fault::receiver;
  const std::uint32_t number = head.queue_pair.value();
  if (has_end && (number <= kConnectionQueuePair.value || number >= kMulticastQueuePair.value)) {
    return Fault::queue_pair;
  }
  const bool end_clear =
      number == 0 && head.first_psn.value() == 0 && head.reads_in.value() == 0 && head.reads_out.value() == 0;
  if ((!has_end && !end_clear) || head.reserved.value() != 0) return Fault::unused;
  const auto reason = static_cast<RejectReason>(head.reason.value());
  const bool has_reason = reason != RejectReason::none;
  if (!known(reason) || has_reason != reject) return Fault::reason;
  return std::nullopt;
}

}  // namespace

ConnectionMessageBytes encode_connection(const ConnectionMessage& message) {
  ConnectionHead head{};
  head.version = kConnectionVersion;
  head.kind = static_cast<std::uint8_t>(message.kind);
  head.flags = message.end.acknowledged ? std::uint8_t{0} : kConnectionUnacknowledged;
  head.private_bytes = static_cast<std::uint8_t>(message.data.size());
  head.sender = message.sender.value;
  head.receiver = message.receiver.value;
  head.queue_pair = message.end.queue_pair.value;
  head.first_psn = message.end.first_psn;
  head.reads_in = message.end.reads_in;
  head.reads_out = message.end.reads_out;
  head.reason = static_cast<std::uint16_t>(message.reason);
  ConnectionMessageBytes made;
  const auto append = [&made](std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, made.bytes.begin() + static_cast<std::ptrdiff_t>(made.size));
    made.size += bytes.size();
  };
  append(std::as_bytes(std::span(&head, 1)));
  if (message.kind == Kind::request) {
    ConnectionService service{};
    service.service = message.service.value;
    append(std::as_bytes(std::span(&service, 1)));
  }
  append(message.data.bytes());
  return made;
}

tl::expected<ConnectionMessage, ConnectionFault> decode_connection(std::span<const std::byte> bytes) {
  ConnectionHead head{};
  if (bytes.size() < sizeof head) return tl::unexpected(Fault::length);
  std::memcpy(&head, bytes.data(), sizeof head);
  std::span<const std::byte> rest = bytes.subspan(sizeof head);
  if (head.version.value() != kConnectionVersion) return tl::unexpected(Fault::version);
  ConnectionMessage message;
  message.kind = static_cast<Kind>(head.kind.value());
  if (!known(message.kind)) return tl::unexpected(Fault::kind);
  const bool request = message.kind == Kind::request;
  if (bytes.size() != connection_message_bytes(message.kind, head.private_bytes.value())) {
    return tl::unexpected(Fault::length);
  }
  if (const auto fault = fault_of(head, message.kind)) return tl::unexpected(*fault);
  if (request) {
    ConnectionService service{};
    std::memcpy(&service, rest.data(), sizeof service);
    rest = rest.subspan(sizeof service);
    message.service = ServiceNumber{service.service.value()};
    if (message.service.value == 0) return tl::unexpected(Fault::service);
  }
  const auto data = PrivateData::of(rest);
  if (!data || (request && rest.size() > kMaxRequestPrivateBytes)) return tl::unexpected(Fault::private_bytes);
  message.data = *data;
  message.sender = ConnectionNumber{head.sender.value()};
  message.receiver = ConnectionNumber{head.receiver.value()};
  message.end = {QpNumber{head.queue_pair.value()}, head.first_psn.value(), head.reads_in.value(),
                 head.reads_out.value(), (head.flags.value() & kConnectionUnacknowledged) == 0};
  message.reason = static_cast<RejectReason>(head.reason.value());
  return message;
}

}  // namespace splitnic::fabric
