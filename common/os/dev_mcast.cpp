#include "common/os/dev_mcast.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "common/os/read_file.h"

namespace splitnic::os {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{8} << 20U;

std::string_view next_word(std::string_view& line) {
  const auto begin = std::min(line.find_first_not_of(" \t"), line.size());
  line.remove_prefix(begin);
  const auto end = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

template <class Number>
std::optional<Number> parse_whole(std::string_view word, int base) {
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, base);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

std::optional<MacAddress> parse_hex_mac(std::string_view word) {
  if (word.size() != 12) return std::nullopt;  // other link types have longer addresses
  MacAddress mac;
  for (std::size_t octet = 0; octet < mac.octets.size(); ++octet) {
    const auto value = parse_whole<std::uint8_t>(word.substr(2 * octet, 2), 16);
    if (!value) return std::nullopt;
    mac.octets[octet] = *value;
  }
  return mac;
}

std::optional<MacAddress> parse_line(std::string_view line, int interface_index) {
  if (parse_whole<int>(next_word(line), 10) != interface_index) return std::nullopt;
  if (next_word(line).empty()) return std::nullopt;
  if (!parse_whole<std::uint32_t>(next_word(line), 10) || !parse_whole<std::uint32_t>(next_word(line), 10)) {
    return std::nullopt;
  }
  const auto mac = parse_hex_mac(next_word(line));
  if (!next_word(line).empty()) return std::nullopt;
  return mac;
}

}  // namespace

std::vector<MacAddress> parse_dev_mcast(std::string_view text, int interface_index) {
  std::vector<MacAddress> addresses;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto mac = parse_line(text.substr(0, end), interface_index);
    if (mac && mac->is_multicast()) addresses.push_back(*mac);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

Result<std::string> read_dev_mcast(int descriptor) { return read_file(descriptor, kThreadDevMcast, kMaxBytes); }

}  // namespace splitnic::os
