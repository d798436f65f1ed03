#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>

#include "fabric/bridge/peer_memory.h"

namespace splitnic::fabric::peer_lines_test {

TEST_CASE("lines of memory wrap, whatever their number", "[fabric]") {
  alignas(64) std::array<std::byte, 4 * PeerLines::kLine> bytes{};
  const PeerMemory memory = PeerMemory::over(bytes.data(), bytes.size());
  const PeerLines lines(memory);
  for (std::uint32_t line = 0; line < 4; ++line) memory.store(line * PeerLines::kLine, line + 10);
  for (const std::uint64_t lap : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{1} << 40U, ~std::uint64_t{3}}) {
    for (std::uint32_t line = 0; line < 4; ++line) {
      lines.next_message(lap + line);
      CHECK(lines.watch<std::uint32_t>(lap + line) == line + 10);
      CHECK(lines.load<std::uint32_t>(lap + line) == line + 10);
    }
  }
}

TEST_CASE("a line is copied from where the caller says to its end", "[fabric]") {
  alignas(64) std::array<std::byte, 2 * PeerLines::kLine> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const PeerLines lines(PeerMemory::over(bytes.data(), bytes.size()));
  std::array<std::byte, PeerLines::kLine - 4> copy{};
  lines.copy_out(3, 4, copy);
  for (std::size_t i = 0; i < copy.size(); ++i) REQUIRE(copy[i] == bytes[PeerLines::kLine + 4 + i]);
}

}  // namespace splitnic::fabric::peer_lines_test
