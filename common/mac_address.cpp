#include "common/mac_address.h"

#include <fmt/format.h>

namespace splitnic {
namespace {

std::optional<std::uint8_t> hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return static_cast<std::uint8_t>(digit - '0');
  if (digit >= 'a' && digit <= 'f') return static_cast<std::uint8_t>(digit - 'a' + 10);
  if (digit >= 'A' && digit <= 'F') return static_cast<std::uint8_t>(digit - 'A' + 10);
  return std::nullopt;
}

// FNV-1a, 64 bits. Written here because a library's hash may change with its version, and all hosts' addresses with it.
std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

std::optional<MacAddress> parse_mac(std::string_view text) {
  constexpr std::size_t kTextBytes = 17;
  if (text.size() != kTextBytes) return std::nullopt;
  MacAddress mac;
  for (std::size_t group = 0; group < mac.octets.size(); ++group) {
    const std::size_t at = group * 3;
    const auto high = hex_digit(text[at]);
    const auto low = hex_digit(text[at + 1]);
    if (!high || !low || (at + 2 < kTextBytes && text[at + 2] != ':')) return std::nullopt;
    mac.octets[group] = static_cast<std::uint8_t>(*high << 4U | *low);
  }
  return mac;
}

std::string to_string(const MacAddress& mac) { return fmt::format("{:02x}", fmt::join(mac.octets, ":")); }

MacAddress stable_mac_for(std::string_view name) {
  const std::uint64_t hash = stable_hash(name);
  const std::uint64_t folded = hash ^ hash >> 48U;
  MacAddress mac;
  for (std::size_t i = 0; i < mac.octets.size(); ++i) {
    mac.octets[i] = static_cast<std::uint8_t>(folded >> (40U - 8U * i));
  }
  constexpr unsigned kMulticastBit = 1;
  constexpr unsigned kLocallyAdministeredBit = 2;
  mac.octets[0] = static_cast<std::uint8_t>((mac.octets[0] | kLocallyAdministeredBit) & ~kMulticastBit);
  return mac;
}

}  // namespace splitnic
