#include "fabric/wire/datagram.h"

#include "fabric/wire/cell.h"

namespace splitnic::fabric {
namespace {

constexpr unsigned kClassShift = 20;
constexpr std::uint32_t kClassAndFlow = 0xfff'ffff;
constexpr std::uint32_t kVersion = 6U << 28U;

}  // namespace

Gid port_gid(PortAddress port) {
  const auto byte = [port](unsigned index) { return static_cast<std::uint8_t>(port.value >> (40 - 8 * index)); };
  Gid gid;
  gid.bytes = {0xfe, 0x80};
  gid.bytes[8] = byte(0) ^ 2U;
  gid.bytes[9] = byte(1);
  gid.bytes[10] = byte(2);
  gid.bytes[11] = 0xff;
  gid.bytes[12] = 0xfe;
  gid.bytes[13] = byte(3);
  gid.bytes[14] = byte(4);
  gid.bytes[15] = byte(5);
  return gid;
}

DatagramBytes encode_datagram(const DatagramHeader& header) {
  DatagramBytes bytes{};
  bytes.queue_key = header.queue_key;
  bytes.source_queue_pair = header.source_queue_pair.value;
  bytes.class_and_flow = std::uint32_t{header.traffic_class} << kClassShift | (header.flow_label & kMaxFlowLabel);
  bytes.hop_limit = header.hop_limit;
  bytes.group = header.group;
  return bytes;
}

std::optional<DatagramHeader> decode_datagram(const DatagramBytes& bytes) {
  const std::uint32_t class_and_flow = bytes.class_and_flow.value();
  DatagramHeader header;
  header.queue_key = bytes.queue_key.value();
  header.source_queue_pair = QpNumber{bytes.source_queue_pair.value()};
  header.flow_label = class_and_flow & kMaxFlowLabel;
  header.traffic_class = static_cast<std::uint8_t>(class_and_flow >> kClassShift);
  header.hop_limit = bytes.hop_limit.value();
  header.group = bytes.group;
  const bool good = (class_and_flow & ~kClassAndFlow) == 0 && bytes.reserved == decltype(bytes.reserved){} &&
                    header.source_queue_pair.value != 0 && header.source_queue_pair.value < kMaxQueuePairNumber &&
                    (header.group == Gid{} || header.group.is_group());
  return good ? std::optional(header) : std::nullopt;
}

RouteHeader route_of(const DatagramHeader& header, const Gid& source, const Gid& receiver, std::size_t message_bytes) {
  RouteHeader route;
  route.version_class_flow = kVersion | std::uint32_t{header.traffic_class} << kClassShift | header.flow_label;
  route.payload_bytes = static_cast<std::uint16_t>(message_bytes);
  route.next_header = kRouteNextHeader;
  route.hop_limit = header.hop_limit;
  route.source = source;
  route.destination = header.group == Gid{} ? receiver : header.group;
  return route;
}

}  // namespace splitnic::fabric
