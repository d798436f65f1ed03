#include "common/zeroed_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

namespace splitnic::zeroed_memory_test {
namespace {

TEST_CASE("zeroed memory is zero, however large it is", "[common][memory]") {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{1} << 20U}) {
    const ZeroedMemory memory(bytes);
    CHECK(memory.bytes().size() == bytes);
    CHECK(std::ranges::all_of(memory.bytes(), [](std::byte one) { return one == std::byte{0}; }));
  }
}

TEST_CASE("memory that cannot be had is an error", "[common][memory]") {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process
  CHECK_THROWS_AS(ZeroedMemory(SIZE_MAX / 2), std::bad_alloc);
#endif
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they have an allocator of their own
TEST_CASE("of zeroed memory only what is used takes pages", "[common][memory]") {
  const ZeroedMemory memory(std::size_t{64} << 20U);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto start = (reinterpret_cast<std::uintptr_t>(memory.bytes().data()) + page - 1) / page * page;
  const std::size_t pages = memory.bytes().size() / page - 1;
  const auto present = [&] {
    std::vector<unsigned char> states(pages);
    REQUIRE(mincore(reinterpret_cast<void*>(start), pages * page, states.data()) == 0);
    return static_cast<std::size_t>(std::ranges::count_if(states, [](unsigned char state) { return state & 1U; }));
  };
  CHECK(present() == 0);
  reinterpret_cast<std::byte*>(start)[pages / 2 * page] = std::byte{1};
  CHECK(present() > 0);
  CHECK(present() <= (std::size_t{2} << 20U) / page);  // a large page at most
}
#endif

}  // namespace
}  // namespace splitnic::zeroed_memory_test
