#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/frame/ethernet.h"
#include "common/frame/headers.h"

namespace splitnic::frame {

enum class IpVersion : std::uint8_t { v4 = 4, v6 = 6 };

/// The positions of an IP packet's parts in its frame. Offsets count from the frame's first byte.
struct IpPacket {
  IpVersion version{};
  IpProtocol protocol{};  ///< of the header at transport_offset
  bool fragment = false;  ///< only a part of a transport message: there may be no header at transport_offset
  /// The packet has source routing that hides its final destination, so that the pseudo-header is unknown.
  bool final_destination_unknown = false;
  std::size_t offset = 0;
  std::size_t transport_offset = 0;  ///< after IPv4's options or IPv6's extension headers
  std::size_t end = 0;               ///< by the header's length field: may be beyond the frame, or before its padding
  std::size_t source_offset = 0;
  std::size_t destination_offset = 0;  ///< of the final destination
  std::size_t address_bytes = 0;

  [[nodiscard]] std::span<const std::byte> source(std::span<const std::byte> frame) const {
    return frame.subspan(source_offset, address_bytes);
  }
  [[nodiscard]] std::span<const std::byte> destination(std::span<const std::byte> frame) const {
    return frame.subspan(destination_offset, address_bytes);
  }
};

/// frame: private bytes, possibly only the first part of the frame; ethernet: parsed from it, is_ip(). In the result,
/// all headers before transport_offset lie within both the frame and `end`. nullopt: malformed, or headers are cut off.
/// IPv6: skips hop-by-hop, routing and destination options headers; any other header is the protocol.
[[nodiscard]] std::optional<IpPacket> parse_ip(std::span<const std::byte> frame, const EthernetHeader& ethernet);

/// The IP packet in a frame that contains all of it, so that `end` is within the frame; nullopt: there is none.
[[nodiscard]] std::optional<IpPacket> parse_whole_ip(std::span<const std::byte> frame);
[[nodiscard]] std::optional<IpPacket> parse_whole_ip(std::span<const std::byte> frame, const EthernetHeader& ethernet);

/// The packet inside of a tunnel's packet: of IP in IP, IPv6 in IPv4, or GRE with a key or nothing but its first header
/// (its checksum would cover what is inside). packet: parsed from `frame`, its end within the frame. nullopt: it is no
/// such tunnel's, or a fragment, or what is inside is malformed, a fragment, or does not fill it.
[[nodiscard]] std::optional<IpPacket> parse_tunnelled(std::span<const std::byte> frame, const IpPacket& packet);

/// Whether a parser of the whole frame reads no headers beyond these first bytes of it: it is an IP packet of no
/// tunnel, and there is room for the longest transport header.
[[nodiscard]] bool holds_all_headers(std::span<const std::byte> head);

}  // namespace splitnic::frame
