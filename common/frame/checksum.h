#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace splitnic::frame {

/// A ones' complement sum in progress (RFC 1071): of a packet's pieces, in any order.
class InternetSum {
 public:
  /// Every piece that another one follows in the packet has an even length. Less than 2^32 pieces.
  InternetSum& add(std::span<const std::byte> piece);
  /// One 16-bit word of the packet, as a number.
  InternetSum& add_number(std::uint16_t number);

  /// The sum as a number: what a partial checksum's field holds. 0 only if nothing but zeros was added.
  [[nodiscard]] std::uint16_t folded() const;
  /// Its complement: what a complete checksum's field holds, the sum having been taken over a field of zeros.
  [[nodiscard]] std::uint16_t checksum() const { return static_cast<std::uint16_t>(~folded()); }
  /// The sum was taken over everything, the checksum's field included: whether that field is right.
  [[nodiscard]] bool is_valid() const { return folded() == 0xffff; }

 private:
  std::uint64_t sum_ = 0;  // of words in the order in which they lie in memory
};

/// The pseudo-header of TCP and UDP over IPv4 (RFC 9293, 3.1) or IPv6 (RFC 8200, 8.1), which add up alike.
/// Addresses of 4 or 16 bytes; bytes: of the transport header and what it carries.
[[nodiscard]] InternetSum pseudo_header_sum(std::span<const std::byte> source, std::span<const std::byte> destination,
                                            std::uint8_t protocol, std::uint16_t bytes);

/// The checksum of an IPv4 header with its options, whose field is taken as zero whatever it holds. 20 to 60 bytes.
[[nodiscard]] std::uint16_t ipv4_header_checksum(std::span<const std::byte> header);

}  // namespace splitnic::frame
