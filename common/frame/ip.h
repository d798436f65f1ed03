#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/frame/ethernet.h"
#include "common/frame/headers.h"

namespace splitnic::frame {

enum class IpVersion : std::uint8_t { v4 = 4, v6 = 6 };

/// Where things are in a frame that carries an IP packet. Offsets count from the frame's first byte.
struct IpPacket {
  IpVersion version{};
  IpProtocol protocol{};  ///< of what is at transport_offset
  bool fragment = false;  ///< not the whole of a transport message: what is at transport_offset may be no header
  /// Source routing of a kind that hides the final destination, so that no pseudo-header can be made.
  bool final_destination_unknown = false;
  std::size_t offset = 0;
  std::size_t transport_offset = 0;  ///< behind IPv4's options or IPv6's extension headers
  std::size_t end = 0;               ///< by the header's word: may lie beyond the frame, or before its padding
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

/// frame: private bytes, possibly only the first of the frame; ethernet: parsed from it, is_ip(). The headers up to
/// transport_offset lie within both frame and end. nullopt: malformed, or headers cut off.
/// IPv6: passes hop-by-hop, routing and destination options headers; any other kind is the protocol.
[[nodiscard]] std::optional<IpPacket> parse_ip(std::span<const std::byte> frame, const EthernetHeader& ethernet);

}  // namespace splitnic::frame
