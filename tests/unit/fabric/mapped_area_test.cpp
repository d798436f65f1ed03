#include "fabric/memory/mapped_area.h"

#include <sys/sysmacros.h>

#include <catch2/catch.hpp>
#include <cstdint>

#include "mapped_memory.h"

namespace splitnic::fabric::mapped_area_test {

TEST_CASE("a line of the kernel's list of mappings is read field by field", "[fabric][memory]") {
  const auto file = parse_mapped_area("7f12a000-7f12c000 rw-s 0001f000 103:0a 4294967296   /tmp/two words (deleted)");
  REQUIRE(file);
  CHECK(file->begin == 0x7f12a000);
  CHECK(file->end == 0x7f12c000);
  CHECK(file->readable);
  CHECK(file->writable);
  CHECK(file->shared);
  CHECK(file->offset == 0x1f000);
  CHECK(file->device == makedev(0x103, 0x0a));
  CHECK(file->inode == 4294967296);
  CHECK(file->path == "/tmp/two words (deleted)");

  const auto unnamed = parse_mapped_area("1000-2000 ---p 00000000 00:00 0 ");
  REQUIRE(unnamed);
  CHECK_FALSE(unnamed->readable);
  CHECK_FALSE(unnamed->writable);
  CHECK_FALSE(unnamed->shared);
  CHECK(unnamed->inode == 0);
  CHECK(unnamed->path.empty());
}

TEST_CASE("what is no line of that list is no mapping", "[fabric][memory]") {
  for (const char* line :
       {"", "1000", "1000-", "1000-2000", "1000-2000 r", "1000-2000 rw-s", "1000-2000 rw-s 0", "1000-2000 rw-s 0 1:2",
        "1000-2000 rw-s 0 1:2 3", "2000-1000 rw-s 0 1:2 3 ", "1000-1000 rw-s 0 1:2 3 ", "x000-2000 rw-s 0 1:2 3 ",
        "1000-2000 rw-s 0 12 3 ", "1000-2000 rw-s 0 1:2 a ", "10000000000000000-2 rw-s 0 1:2 3 "}) {
    INFO(line);
    CHECK_FALSE(parse_mapped_area(line));
  }
}

TEST_CASE("each mapping of the process is visited once, by ascending addresses, until the visitor has seen enough",
          "[fabric][memory]") {
  const MappedMemory memory(3 * 4096);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  std::uint64_t last = 0;
  int found = 0;
  visit_mapped_areas([&](const MappedArea& area) {
    CHECK(area.begin >= last);
    last = area.begin;
    if (begin < area.begin || begin >= area.end) return true;
    ++found;
    CHECK(area.end - begin >= 3 * 4096);
    CHECK(area.readable);
    return false;
  });
  CHECK(found == 1);
}

}  // namespace splitnic::fabric::mapped_area_test
