#include "fabric/wire/datagram.h"

#include <cstddef>
#include <cstring>

#include "fabric/wire/cell.h"

namespace splitnic::fabric {
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

RouteHeader route_of(const DatagramHeader& header, const RouteAddresses& addresses, std::size_t message_bytes) {
  RouteHeader route;
  const auto fields = route_fields(header, message_bytes);
  static_assert(sizeof fields == offsetof(RouteHeader, source));
  std::memcpy(static_cast<void*>(&route), &fields, sizeof fields);
  route.source = addresses.source;
  route.destination = header.group.is_zero() ? addresses.destination : header.group;
  return route;
}

}  // namespace splitnic::fabric
