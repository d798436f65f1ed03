#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace splitnic {

/// A 48-bit IEEE 802 address, in transmission order.
struct MacAddress {
  std::array<std::uint8_t, 6> octets{};

  friend constexpr auto operator<=>(const MacAddress&, const MacAddress&) = default;
  [[nodiscard]] constexpr bool is_multicast() const { return (octets[0] & 1U) != 0; }
  [[nodiscard]] constexpr bool is_zero() const { return *this == MacAddress{}; }
  [[nodiscard]] constexpr bool is_broadcast() const {
    for (const auto octet : octets) {
      if (octet != 0xff) return false;
    }
    return true;
  }
  /// 01:80:c2:00:00:00 to 0f, between neighbours on one link (spanning tree, pause, LACP, 802.1X, LLDP): no bridge
  /// forwards frames to them. Source: IEEE 802.1Q-2018, 8.6.3.
  [[nodiscard]] constexpr bool is_link_local_group() const {
    return (as_number() & ~std::uint64_t{0xf}) == 0x0180c2000000U;
  }
  /// The address as a number, first octet most significant: a hash key.
  [[nodiscard]] constexpr std::uint64_t as_number() const {
    std::uint64_t number = 0;
    for (const auto octet : octets) number = number << 8U | octet;
    return number;
  }
};

inline constexpr MacAddress kBroadcastMac{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

/// Parses "02:00:5e:10:00:01": exactly six groups of two digits, in either case; nullopt for anything else.
std::optional<MacAddress> parse_mac(std::string_view text);
std::string to_string(const MacAddress& mac);

/// A locally administered unicast address, always the same for the same name (a hash of the name).
MacAddress stable_mac_for(std::string_view name);

}  // namespace splitnic

template <>
struct std::hash<splitnic::MacAddress> {
  std::size_t operator()(const splitnic::MacAddress& mac) const noexcept {
    return std::hash<std::uint64_t>{}(mac.as_number());
  }
};
