#include "fabric/wire/datagram.h"

#include <cstddef>
#include <cstring>

#include "fabric/wire/cell.h"

namespace splitnic::fabric {
namespace {

constexpr std::uint32_t kVersion = 6U << kUnusedShift;

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
  bytes.class_and_flow =
      std::uint32_t{header.traffic_class} << kTrafficClassShift | (header.flow_label & kMaxFlowLabel);
  bytes.hop_limit = header.hop_limit;
  bytes.group = header.group;
  return bytes;
}

RouteHeader route_of(const DatagramHeader& header, const Gid& source, const Gid& receiver, std::size_t message_bytes) {
  RouteHeader route;
  // All fields before the addresses by one store, because they are copied by one load.
  const std::uint32_t version_class_flow =
      kVersion | std::uint32_t{header.traffic_class} << kTrafficClassShift | header.flow_label;
  const std::uint64_t rest = std::uint64_t{static_cast<std::uint16_t>(message_bytes)} << 16U |
                             std::uint64_t{kRouteNextHeader} << 8U | header.hop_limit;
  const boost::endian::big_uint64_buf_t fields(std::uint64_t{version_class_flow} << 32U | rest);
  static_assert(sizeof fields == offsetof(RouteHeader, source));
  std::memcpy(static_cast<void*>(&route), &fields, sizeof fields);
  route.source = source;
  route.destination = header.group.is_zero() ? receiver : header.group;
  return route;
}

}  // namespace splitnic::fabric
