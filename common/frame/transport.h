#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "common/frame/headers.h"
#include "common/frame/ip.h"

namespace splitnic::frame {

/// The bytes from the transport header to the packet's end. packet: parsed from `frame`, its end within the frame.
[[nodiscard]] inline std::span<const std::byte> transport_bytes(std::span<const std::byte> frame,
                                                                const IpPacket& packet) {
  return frame.subspan(packet.transport_offset, packet.end - packet.transport_offset);
}

/// Bytes of the TCP header with its options. nullopt: no TCP header, or an impossible length.
[[nodiscard]] inline std::optional<std::size_t> tcp_header_bytes(std::span<const std::byte> transport) {
  if (!holds<TcpHeader>(transport, 0)) return std::nullopt;
  const std::size_t bytes = (load<TcpHeader>(transport, 0).offset_and_reserved >> 4U) * 4U;
  if (bytes < sizeof(TcpHeader) || bytes > transport.size()) return std::nullopt;
  return bytes;
}

/// Bytes of a UDP datagram with its header, by its own length field. nullopt: no UDP header, or an impossible length.
[[nodiscard]] inline std::optional<std::size_t> udp_datagram_bytes(std::span<const std::byte> transport) {
  if (!holds<UdpHeader>(transport, 0)) return std::nullopt;
  const std::size_t bytes = load<UdpHeader>(transport, 0).bytes.value();
  if (bytes < sizeof(UdpHeader) || bytes > transport.size()) return std::nullopt;
  return bytes;
}

}  // namespace splitnic::frame
