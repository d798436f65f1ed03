// Built by a compiler and pkg-config alone: one function of each of the two lowest layers.
#include <array>
#include <cstdio>

#include "common/crc32c.h"
#include "common/mac_address.h"

int main() {
  const std::array<std::byte, 2> bytes{std::byte{1}, std::byte{2}};
  const auto address = splitnic::parse_mac("02:00:5e:10:00:01");
  if (!address) return 1;
  std::printf("%s %08x\n", splitnic::to_string(*address).c_str(), splitnic::crc32c(bytes));
  return 0;
}
