#include "common/frame/flow.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/bit_mix.h"
#include "common/frame/ip.h"
#include "common/frame/transport.h"

namespace splitnic::frame {

namespace {

/// One end of a flow. The sum of both ends' numbers is the same in both directions.
std::uint64_t end_number(std::span<const std::byte> address, std::uint16_t port, std::uint64_t key) {
  std::uint64_t number = key + port;
  while (!address.empty()) {
    std::uint64_t word = 0;
    const std::size_t bytes = std::min(address.size(), sizeof word);
    std::memcpy(&word, address.data(), bytes);
    number = mix(number ^ word);
    address = address.subspan(bytes);
  }
  return mix(number);
}

}  // namespace

std::uint64_t flow_number(std::span<const std::byte> frame, const EthernetHeader& header, std::uint64_t key) {
  const auto number = [key](std::uint64_t protocol, std::uint64_t ends) { return mix(mix(key ^ protocol) + ends); };
  const auto packet = header.is_ip() ? parse_ip(frame, header) : std::nullopt;
  if (!packet) {
    const std::uint64_t ends = mix(key ^ header.destination.as_number()) + mix(key ^ header.source.as_number());
    return number(header.ethertype, ends);
  }
  // Both transport headers begin with the ports.
  const bool has_ports = (packet->protocol == IpProtocol::tcp || packet->protocol == IpProtocol::udp) &&
                         !packet->fragment && holds<UdpHeader>(frame, packet->transport_offset);
  std::uint16_t from = 0;
  std::uint16_t to = 0;
  if (has_ports) {
    const auto ports = load<UdpHeader>(frame, packet->transport_offset);
    from = ports.source_port.value();
    to = ports.destination_port.value();
  }
  const std::uint64_t ends =
      end_number(packet->source(frame), from, key) + end_number(packet->destination(frame), to, key);
  return number(static_cast<std::uint64_t>(packet->protocol) | 1U << 16U, ends);
}

}  // namespace splitnic::frame
