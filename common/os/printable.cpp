#include "common/os/printable.h"

#include <cstddef>
#include <cstdint>

namespace splitnic::os {
namespace {

std::size_t sequence_length(std::uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 0;
}

// The number of bytes of the character at the start of `text`; 0 if it is malformed, overlong, a surrogate or a control
// character.
std::size_t printable_character(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(text[at]); };
  const std::size_t length = sequence_length(byte(0));
  if (length == 0 || length > text.size()) return 0;
  if (length == 1) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  std::uint32_t code = byte(0) & (0xffU >> (length + 1));
  for (std::size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xc0U) != 0x80) return 0;
    code = code << 6U | (byte(at) & 0x3fU);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0xa0, 0x800, 0x10000};  // two bytes below 0xa0 are the C1 controls
  if (code < kSmallest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return 0;
  return length;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = printable_character(text);
    if (length == 0) {
      clean += '?';
      text.remove_prefix(1);
    } else {
      clean += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return clean;
}

}  // namespace splitnic::os
