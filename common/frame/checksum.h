#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace splitnic::frame {

/// A ones' complement sum (RFC 1071) over the pieces of a packet, added in any order.
class InternetSum {
 public:
  /// piece: of even length, unless it is the last of the packet. Less than 2^32 pieces.
  InternetSum& add(std::span<const std::byte> piece);
  /// Adds one 16-bit word of the packet, given as a number.
  InternetSum& add_number(std::uint16_t number);

  /// The sum as a number: the value of a partial checksum's field. 0 only if nothing but zeros was added.
  [[nodiscard]] std::uint16_t folded() const;
  /// Its complement: the value of a complete checksum's field, if the field was zero in the sum.
  [[nodiscard]] std::uint16_t checksum() const { return static_cast<std::uint16_t>(~folded()); }
  /// Whether the checksum's field is right, if the sum includes that field.
  [[nodiscard]] bool is_valid() const { return folded() == 0xffff; }

 private:
  std::uint64_t sum_ = 0;  // of words in memory order
};

/// The sum of the pseudo-header of TCP and UDP, which is the same over IPv4 (RFC 9293, 3.1) and IPv6 (RFC 8200, 8.1).
/// source, destination: 4 or 16 bytes; bytes: of the transport header and its payload.
[[nodiscard]] InternetSum pseudo_header_sum(std::span<const std::byte> source, std::span<const std::byte> destination,
                                            std::uint8_t protocol, std::uint16_t bytes);

/// The checksum of an IPv4 header with its options, 20 to 60 bytes. The value in its checksum field does not matter.
[[nodiscard]] std::uint16_t ipv4_header_checksum(std::span<const std::byte> header);

}  // namespace splitnic::frame
