// The bytes of a board: docs/protocol.md, "The placement board".
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "fabric/placement/board.h"

namespace splitnic::fabric::test::placement_board_test {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// The descriptor of the board's memfd, found as a peer finds it; -1: there is none.
int find_board(std::uint16_t local_id) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto link = std::filesystem::read_symlink(entry.path(), gone).string();
    if (link == "/memfd:" + Board::name(local_id) + " (deleted)") return std::stoi(entry.path().filename().string());
  }
  return -1;
}

/// A board of the endnode 7, and what is in its file.
struct Shown {
  explicit Shown(bool shows_witness = false) {
    SeededRandom random(5);
    auto made = Board::create(7, shows_witness, random);
    REQUIRE(made.has_value());
    board = std::move(*made);
    file = find_board(7);
    REQUIRE(file >= 0);
  }
  [[nodiscard]] Bytes at(std::size_t offset, std::size_t bytes) const {
    Bytes read(bytes);
    REQUIRE(pread(file, read.data(), bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes));
    return read;
  }
  [[nodiscard]] std::uint64_t word(std::size_t offset) const {
    std::uint64_t value = 0;
    std::memcpy(&value, at(offset, sizeof value).data(), sizeof value);
    return value;
  }

  std::unique_ptr<Board> board;
  int file = -1;
};

Bytes little_endian(std::initializer_list<std::pair<std::uint64_t, unsigned>> fields) {
  Bytes bytes;
  for (const auto& [value, size] : fields) {
    for (unsigned byte = 0; byte < size; ++byte) bytes.push_back(static_cast<std::uint8_t>(value >> 8U * byte));
  }
  return bytes;
}

BoardRegion region_of(std::uint32_t tag) {
  BoardRegion region{};
  region.tag = tag;
  region.base = 0x1112'1314'1516'1718;
  region.length = 0x2122'2324'2526'2728;
  region.domain = 0x31;
  region.rights = 0x0c;
  region.memory = BoardMemory::file;
  region.descriptor = 9;
  region.device = 0x4142;
  region.inode = 0x5152;
  region.place = 0x6000;
  return region;
}

}  // namespace

TEST_CASE("a board's header", "[fabric][placement]") {
  const bool shows_witness = GENERATE(false, true);
  const Shown shown(shows_witness);
  const std::uint64_t identity = shown.board->identity();
  CHECK(identity != 0);
  const std::uint64_t witness = shown.word(24);
  CHECK(shown.at(0, 72) == little_endian({{0x31647262'636e7073, 8},
                                          {1, 4},
                                          {7, 4},
                                          {identity, 8},
                                          {witness, 8},
                                          {0, 8},
                                          {0, 8},
                                          {0, 8},
                                          {0, 8},
                                          {0, 8}}));
  CHECK((witness != 0) == shows_witness);
  if (shows_witness) {
    CHECK(*reinterpret_cast<const std::uint64_t*>(witness) == identity);  // NOLINT(performance-no-int-to-ptr)
  }
}

TEST_CASE("a board's size, and that its owner alone may write it", "[fabric][placement]") {
  const Shown shown;
  struct stat status {};
  REQUIRE(fstat(shown.file, &status) == 0);
  CHECK(status.st_size == 324 * 1024 + 65536 * 8);
  CHECK(fcntl(shown.file, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL));
  CHECK(pwrite(shown.file, "x", 1, 0) == -1);
}

TEST_CASE("who works where, and who is admitted", "[fabric][placement]") {
  const Shown shown;
  shown.board->enter(0x1234);
  CHECK(shown.word(64) == 0x1234);
  CHECK(shown.word(56) == 0);
  shown.board->leave();
  CHECK(shown.word(64) == 0);
  CHECK(shown.word(56) == 1);
  shown.board->admit_peer(3, 0x0102'0304'0506'0708);
  CHECK(shown.word(324 * 1024 + 3 * 8) == 0x0102'0304'0506'0708);
  shown.board->admit_peer(3, 0);
  CHECK(shown.word(324 * 1024 + 3 * 8) == 0);
}

TEST_CASE("a connected queue pair on a board", "[fabric][placement]") {
  const Shown shown;
  const PlacementUser user{QpNumber{0x00'1005}, QpNumber{0xaa'bbcc}, PathNumber{}, ProtectionDomain{6},
                           Right::remote_read | Right::remote_write};
  CHECK(shown.board->connect(user, 0x0203) == std::nullopt);
  constexpr std::size_t kPlace = 4096 + 5 * 16;  // 0x1005 modulo 4096
  CHECK(shown.at(kPlace, 16) == little_endian({{0x00'1005, 3}, {0xaa'bbcc, 3}, {0x0203, 2}, {6, 4}, {0x0c, 4}}));
  CHECK(shown.board->disconnect(QpNumber{5}) == std::nullopt);  // of the same place, but not connected
  CHECK(shown.word(kPlace) != 0);
  CHECK(shown.board->disconnect(user.number) == BoardAccess{user.number, 0x0203});
  CHECK(shown.word(kPlace) == 0);
  CHECK(shown.board->disconnect(user.number) == std::nullopt);
}

TEST_CASE("a board says whose access a connection has ended or changed", "[fabric][placement]") {
  const Shown shown;
  PlacementUser user{QpNumber{0x1005}, QpNumber{2}, PathNumber{}, ProtectionDomain{6}, Rights{} | Right::remote_write};
  CHECK(shown.board->connect(user, 3) == std::nullopt);
  CHECK(shown.board->connect(user, 3) == std::nullopt);  // as before
  const BoardAccess access{user.number, 3};
  user.remote_rights = Rights{} | Right::remote_read;
  CHECK(shown.board->connect(user, 3) == access);
  user.domain = ProtectionDomain{7};
  CHECK(shown.board->connect(user, 3) == access);
  user.peer = QpNumber{4};
  CHECK(shown.board->connect(user, 3) == access);
  PlacementUser other = user;
  other.number = QpNumber{0x2005};  // of the same place
  CHECK(shown.board->connect(other, 5) == access);
}

TEST_CASE("a region on a board, and its generations", "[fabric][placement]") {
  const Shown shown;
  const Stag tag{0x0004'0277};  // index 0x402: set 2
  constexpr std::size_t kPlace = 68 * 1024 + 2 * 4 * 64;
  const auto expected = [](std::uint32_t generation) {
    return little_endian({{generation, 4},
                          {0x0004'0277, 4},
                          {0x1112'1314'1516'1718, 8},
                          {0x2122'2324'2526'2728, 8},
                          {0x31, 4},
                          {0x0c, 4},
                          {1, 4},
                          {9, 4},
                          {0x4142, 8},
                          {0x5152, 8},
                          {0x6000, 8}});
  };
  for (std::uint32_t generation = 1; generation <= 3; ++generation) {
    REQUIRE(shown.board->publish(region_of(tag.value)));
    CHECK(shown.at(kPlace, 64) == expected(generation));
    CHECK(shown.board->revoke(tag));
    // Empty, and the tag's word keeps the generation.
    CHECK(shown.at(kPlace, 8) == little_endian({{0, 4}, {generation, 4}}));
    CHECK_FALSE(shown.board->revoke(tag));
  }
}

TEST_CASE("of the regions of one set, peers see four", "[fabric][placement]") {
  const Shown shown;
  const auto tag_of = [](std::uint32_t number) { return (number * 1024 + 2) << 8U; };
  for (std::uint32_t number = 0; number < 4; ++number) CHECK(shown.board->publish(region_of(tag_of(number))));
  CHECK_FALSE(shown.board->publish(region_of(tag_of(4))));
  CHECK_FALSE(shown.board->revoke(Stag{tag_of(4)}));
  CHECK(shown.board->revoke(Stag{tag_of(1)}));
  REQUIRE(shown.board->publish(region_of(tag_of(4))));
  CHECK(shown.at(68 * 1024 + (2 * 4 + 1) * 64, 8) == little_endian({{2, 4}, {tag_of(4), 4}}));
  shown.board->clear();
  CHECK(shown.at(4096, 320 * 1024) == Bytes(320 * 1024));
}

}  // namespace splitnic::fabric::test::placement_board_test
