// Any bytes as the header of a datagram: refused, or given back as they were, with a route header that says the same.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/check.h"
#include "fabric/wire/datagram.h"

using namespace splitnic;
using namespace splitnic::fabric;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  DatagramBytes bytes{};
  // Not memcpy, which takes no null pointer: an empty input may be one.
  std::ranges::copy(std::as_bytes(std::span(input, std::min(size, sizeof bytes))),
                    std::as_writable_bytes(std::span(&bytes, 1)).begin());
  DatagramHeader header;
  if (!decode_datagram(bytes, header)) return 0;
  const DatagramBytes again = encode_datagram(header);
  SPLITNIC_CHECK(std::memcmp(&again, &bytes, sizeof bytes) == 0);
  SPLITNIC_CHECK(header.group == Gid{} || header.group.is_group());
  const PortAddress receiver{0x1122'3344'5566};
  const RouteHeader route = route_of(header, {port_gid(PortAddress{1}), port_gid(receiver)}, size % 65536);
  SPLITNIC_CHECK(route.version_class_flow.value() >> 28U == 6);
  SPLITNIC_CHECK(route.destination == (header.group == Gid{} ? port_gid(receiver) : header.group));
  return 0;
}
