#include "fabric/memory/local_protection.h"

#include <sys/resource.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "fabric/memory/guarded_copy.h"
#include "mapped_memory.h"

namespace splitnic::fabric::local_protection_test {
namespace {

constexpr auto kRead = LocalAccess::read;
constexpr auto kWrite = LocalAccess::write;

/// Each way to an answer: by the kernel page by page, by the record and a look at the ends, by a record read again.
struct Way {
  std::size_t bytes;
  bool known;  ///< to the record
};
const std::array<Way, 6> kWays{{{LocalProtection::kExactBytesMax, false},
                                {LocalProtection::kExactBytesMax, true},
                                {8 * LocalProtection::kExactBytesMax, false},
                                {8 * LocalProtection::kExactBytesMax, true},
                                {LocalProtection::kFillBytesMax + 65536, false},
                                {LocalProtection::kFillBytesMax + 65536, true}}};

const int kConstant = 5;

}  // namespace

TEST_CASE("memory that the process has is accessible: heap, stack, data, code for reading", "[fabric][memory]") {
  LocalProtection protection;
  CHECK(protection.mappings() > 2);
  std::vector<std::byte> heap(3 * LocalProtection::kExactBytesMax);
  int local = 0;
  static int data = 0;
  for (const auto access : {kRead, kWrite}) {
    CHECK(protection.accessible(heap.data(), heap.size(), access));
    CHECK(protection.accessible(heap.data() + 7, 1, access));
    CHECK(protection.accessible(&local, sizeof(local), access));
    CHECK(protection.accessible(&data, sizeof(data), access));
  }
  CHECK(protection.accessible(&kConstant, sizeof(kConstant), kRead));
  CHECK_FALSE(protection.accessible(&kConstant, sizeof(kConstant), kWrite));
}

TEST_CASE("null, wrapping ranges and the kernel's addresses are refused", "[fabric][memory]") {
  LocalProtection protection;
  const int local = 0;
  const auto refused = [&](std::uintptr_t at, std::size_t bytes) {
    const auto* const address = reinterpret_cast<const void*>(at);
    return !protection.accessible(address, bytes, kRead) && !protection.accessible(address, bytes, kWrite) &&
           !protection.recorded(address, bytes, kRead);
  };
  const auto here = reinterpret_cast<std::uintptr_t>(&local);
  CHECK(refused(0, 1));
  CHECK(refused(0, ~std::size_t{0}));
  CHECK(refused(1, 8));
  CHECK(refused(here, ~std::size_t{0}));
  CHECK(refused(here, ~std::size_t{0} - here));
  CHECK(refused(here, ~std::size_t{0} - here + 2));
  CHECK(refused(~std::uintptr_t{0}, 1));
  CHECK(refused(0xffff'8000'0000'0000, 4096));
  CHECK(refused(0xffff'ffff'ff60'0000, 8));
  CHECK(refused(0x7fff'ffff'ffff'f000, 0x1000));
  CHECK(refused(0x7fff'ffff'ffff'f000, 0x1001));
  CHECK(refused(0x1234'5678'9abc'def0, 8));
}

TEST_CASE("no bytes are accessible anywhere", "[fabric][memory]") {
  LocalProtection protection;
  CHECK(protection.accessible(nullptr, 0, kWrite));
  CHECK(protection.recorded(nullptr, 0, kWrite));
  CHECK(protection.accessible(reinterpret_cast<const void*>(~std::uintptr_t{0}), 0, kRead));
}

TEST_CASE("rights are those of the mapping", "[fabric][memory]") {
  LocalProtection protection;
  for (const auto& [bytes, known] : kWays) {
    CAPTURE(bytes, known);
    const MappedMemory memory(bytes);
    if (known) protection.refresh();
    CHECK(protection.accessible(memory.data(), bytes, kRead));
    CHECK(protection.accessible(memory.data(), bytes, kWrite));
    memory.protect(PROT_READ);
    CHECK(protection.accessible(memory.data(), bytes, kRead));
    CHECK_FALSE(protection.accessible(memory.data(), bytes, kWrite));
    memory.protect(PROT_NONE);
    CHECK_FALSE(protection.accessible(memory.data(), bytes, kRead));
    CHECK_FALSE(protection.accessible(memory.data(), bytes, kWrite));
    memory.protect(PROT_READ | PROT_WRITE);
    CHECK(protection.accessible(memory.data(), bytes, kWrite));
  }
}

TEST_CASE("the first and the last byte decide", "[fabric][memory]") {
  LocalProtection protection;
  const std::size_t page = page_bytes();
  for (const auto& [bytes, known] : kWays) {
    CAPTURE(bytes, known);
    const MappedMemory memory(bytes + 2 * page);
    if (known) protection.refresh();
    memory.protect(0, page, PROT_NONE);
    memory.protect(bytes + page, page, PROT_NONE);
    const std::byte* const begin = memory.at(page);
    CHECK(protection.accessible(begin, bytes, kWrite));
    CHECK_FALSE(protection.accessible(begin - 1, bytes, kWrite));
    CHECK_FALSE(protection.accessible(begin + 1, bytes, kWrite));
    CHECK_FALSE(protection.accessible(begin - 1, bytes + 2, kRead));
    CHECK(protection.accessible(begin + 1, bytes - 2, kRead));
  }
}

TEST_CASE("memory unmapped between two questions is refused the second time", "[fabric][memory]") {
  LocalProtection protection;
  for (const auto& [bytes, known] : kWays) {
    CAPTURE(bytes, known);
    MappedMemory memory(bytes);
    if (known) protection.refresh();
    CHECK(protection.accessible(memory.data(), bytes, kWrite));
    memory.unmap(bytes / 2, page_bytes());
    const bool with_hole = protection.accessible(memory.data(), bytes, kWrite);
    memory.map_again();
    CHECK_FALSE(with_hole);
    CHECK(protection.accessible(memory.data(), bytes, kWrite));
    memory.unmap();
    const bool without_memory = protection.accessible(memory.data(), bytes, kRead);
    memory.map_again();
    CHECK_FALSE(without_memory);
    CHECK(protection.accessible(memory.data(), bytes, kRead));
  }
}

TEST_CASE("a range over several mappings needs the right in each", "[fabric][memory]") {
  LocalProtection protection;
  for (const auto& [bytes, known] : kWays) {
    CAPTURE(bytes, known);
    const MappedMemory memory(bytes);
    memory.protect(bytes / 2, page_bytes(), PROT_READ);
    if (known) protection.refresh();
    CHECK(protection.accessible(memory.data(), bytes, kRead));
    CHECK_FALSE(protection.accessible(memory.data(), bytes, kWrite));
    CHECK_FALSE(protection.recorded(memory.data(), bytes, kWrite));
    CHECK(protection.accessible(memory.data(), bytes / 2, kWrite));
    if (known) CHECK(protection.recorded(memory.data(), bytes, kRead));
  }
}

TEST_CASE("a mapping beyond its file's end is refused", "[fabric][memory]") {
  LocalProtection protection;
  const std::size_t page = page_bytes();
  for (const auto& [bytes, known] : kWays) {
    CAPTURE(bytes, known);
    const MemoryFile file(bytes);
    const MappedMemory memory(file.descriptor(), bytes);
    if (known) protection.refresh();
    CHECK(protection.accessible(memory.data(), bytes, kWrite));
    file.resize(bytes - page);
    CHECK_FALSE(protection.accessible(memory.data(), bytes, kRead));
    CHECK_FALSE(protection.accessible(memory.data(), bytes, kWrite));
    CHECK(protection.accessible(memory.data(), bytes - page, kWrite));
  }
}

TEST_CASE("an enormous untouched range is accessible without being filled", "[fabric][memory]") {
  LocalProtection protection;
  constexpr std::size_t kBytes = std::size_t{1} << 36U;
  void* const reserved =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(reserved != MAP_FAILED);
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_SELF, &before);
  CHECK(protection.accessible(reserved, kBytes, kWrite));
  getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_minflt - before.ru_minflt < 1000);
  munmap(reserved, kBytes);
}

TEST_CASE("the map is not read again for each question", "[fabric][memory]") {
  LocalProtection protection;
  const MappedMemory small(page_bytes());
  const MappedMemory large(1U << 20U);
  protection.refresh();
  const auto reads = protection.refreshes();
  for (int n = 0; n < 100; ++n) {
    CHECK(protection.accessible(small.data(), small.size(), kWrite));
    CHECK(protection.accessible(large.data(), large.size(), kWrite));
  }
  CHECK(protection.refreshes() == reads);
}

TEST_CASE("memory mapped since the record was made is found without reading the map", "[fabric][memory]") {
  LocalProtection protection;
  const auto reads = protection.refreshes();
  const MappedMemory small(page_bytes());
  const MappedMemory large(1U << 20U);
  CHECK(protection.accessible(small.data(), small.size(), kWrite));
  CHECK(protection.accessible(large.data(), large.size(), kWrite));
  CHECK(protection.refreshes() == reads);
}

TEST_CASE("what was recorded after a yes needs no further question", "[fabric][memory]") {
  LocalProtection protection;
  const std::size_t page = page_bytes();
  const MappedMemory memory(5 * page, PROT_NONE);
  protection.refresh();
  const auto reads = protection.refreshes();
  memory.protect(page, 3 * page, PROT_READ | PROT_WRITE);
  CHECK_FALSE(protection.recorded(memory.at(page), 1, kRead));
  protection.record(memory.at(2 * page + 1), 1, kRead);
  CHECK(protection.recorded(memory.at(2 * page), page, kRead));
  CHECK_FALSE(protection.recorded(memory.at(2 * page), page, kWrite));
  protection.record(memory.at(page + 7), 2 * page, kWrite);  // it begins and ends within a page
  for (const auto access : {kRead, kWrite}) {
    CHECK(protection.recorded(memory.at(page), 3 * page, access));
    CHECK_FALSE(protection.recorded(memory.at(page - 1), 2, access));
    CHECK_FALSE(protection.recorded(memory.at(4 * page - 1), 2, access));
  }
  CHECK(protection.refreshes() == reads);
}

TEST_CASE("what is recorded replaces a part of a mapping and leaves the rest", "[fabric][memory]") {
  const std::size_t page = page_bytes();
  const MappedMemory memory(5 * page, PROT_READ);
  LocalProtection protection;
  const std::size_t before = protection.mappings();
  memory.protect(page, 3 * page, PROT_READ | PROT_WRITE);
  protection.record(memory.at(page), 3 * page, kWrite);
  CHECK(protection.mappings() == before + 2);
  CHECK(protection.recorded(memory.data(), memory.size(), kRead));
  CHECK(protection.recorded(memory.at(page), 3 * page, kWrite));
  CHECK_FALSE(protection.recorded(memory.data(), 2 * page, kWrite));
  CHECK_FALSE(protection.recorded(memory.at(3 * page), 2 * page, kWrite));
  protection.record(memory.at(2 * page), page, kWrite);  // known already
  protection.record(nullptr, 0, kWrite);
  protection.record(nullptr, 8, kWrite);
  CHECK(protection.mappings() == before + 2);
}

TEST_CASE("a program that registers here and there does not make the record grow without end", "[fabric][memory]") {
  const std::size_t page = page_bytes();
  const std::size_t pages = 4 * LocalProtection::kAddedMax;
  const MappedMemory memory(pages * page, PROT_READ);
  LocalProtection protection;
  const std::size_t before = protection.mappings();
  for (std::size_t n = 0; n < pages; ++n) protection.record(memory.at(n * page), page, kWrite);
  CHECK(protection.mappings() <= before + LocalProtection::kAddedMax + 1);
}

TEST_CASE("untouched pages are faulted in, copied-on-write ones by asking to write", "[fabric][memory]") {
  LocalProtection protection;
  const MappedMemory memory(4 * page_bytes());
  std::array<unsigned char, 4> resident{};
  REQUIRE(protection.accessible(memory.at(page_bytes()), 2 * page_bytes(), kWrite));
  REQUIRE(mincore(memory.data(), memory.size(), resident.data()) == 0);
  CHECK((resident[1] & 1U) == 1);
  CHECK((resident[2] & 1U) == 1);
  CHECK((resident[3] & 1U) == 0);
}

TEST_CASE("without a free descriptor good memory is accessible, is not filled, and the record stays",
          "[fabric][memory]") {
  LocalProtection protection;
  const auto recorded = protection.mappings();
  constexpr std::size_t kBytes = LocalProtection::kFillBytesMax + 65536;
  const MappedMemory memory(kBytes);
  MappedMemory torn(kBytes);
  torn.unmap(kBytes / 2 / page_bytes() * page_bytes(), page_bytes());
  const MappedMemory constant(kBytes, PROT_READ);
  rlimit descriptors{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  const rlimit none{0, descriptors.rlim_max};
  rusage before{};
  rusage after{};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  getrusage(RUSAGE_SELF, &before);
  const bool read_again = protection.refresh();
  const bool first = protection.accessible(memory.data(), kBytes, kWrite);
  const bool second = protection.accessible(memory.data(), kBytes, kWrite);
  const bool with_gap = protection.accessible(torn.data(), kBytes, kWrite);
  const bool without_right = protection.accessible(constant.data(), kBytes, kWrite);
  getrusage(RUSAGE_SELF, &after);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  CHECK_FALSE(read_again);
  CHECK(first);
  CHECK(second);
  CHECK_FALSE(with_gap);
  CHECK_FALSE(without_right);
  CHECK(after.ru_minflt - before.ru_minflt < 1000);
  CHECK(protection.mappings() == recorded);
}

TEST_CASE("memory unmapped after a yes makes a guarded copy fail, not the process", "[fabric][memory]") {
  LocalProtection protection;
  MappedMemory memory(1U << 20U);
  std::vector<std::byte> other(memory.size());
  protection.refresh();
  REQUIRE_FALSE(guarded_copy(other.data(), nullptr, 1));  // ThreadSanitizer maps memory at the first fault
  REQUIRE(protection.accessible(memory.data(), memory.size(), kWrite));
  REQUIRE(guarded_copy(memory.data(), other.data(), other.size()));
  memory.unmap();
  const bool to = guarded_copy(memory.data(), other.data(), other.size());
  const bool from = guarded_copy(other.data(), memory.data(), other.size());
  CHECK_FALSE(to);
  CHECK_FALSE(from);
  CHECK(protection.recorded(memory.data(), memory.size(), kWrite));  // a stale yes, as said
}

TEST_CASE("questions are answered while another thread maps and unmaps", "[fabric][memory]") {
  LocalProtection protection;
  const MappedMemory steady(1U << 20U);
  MappedMemory moving(1U << 20U);
  std::atomic<bool> stop = false;
  std::atomic<int> laps = 0;
  std::thread mapper([&] {
    while (!stop) {
      moving.protect(PROT_NONE);
      moving.map_again();
      moving.protect(moving.size() / 4, moving.size() / 4, PROT_READ);
      ++laps;
    }
  });
  // Until the mapper has had its turns: on a busy machine the questions may all be asked before its first.
  for (int n = 0; n < 300 || laps < 10; ++n) {
    // Either answer is right for what moves, as long as there is one.
    static_cast<void>(protection.accessible(moving.data(), moving.size(), n % 2 == 0 ? kRead : kWrite));
    static_cast<void>(protection.accessible(moving.data(), page_bytes(), kWrite));
    CHECK(protection.accessible(steady.data(), steady.size(), kWrite));
  }
  stop = true;
  mapper.join();
  protection.refresh();  // it ended with a right missing in the middle, which only a record of now shows
  CHECK_FALSE(protection.accessible(moving.data(), moving.size(), kWrite));
  moving.map_again();
  CHECK(protection.accessible(moving.data(), moving.size(), kWrite));
}

TEST_CASE("the record of ten thousand mappings answers like that of ten", "[fabric][memory]") {
  const std::size_t page = page_bytes();
  const MappedMemory memory(20'000 * page, PROT_READ);
  for (std::size_t n = 0; n < 20'000; n += 2) memory.protect(n * page, page, PROT_READ | PROT_WRITE);
  LocalProtection protection;
  CHECK(protection.mappings() >= 20'000);
  for (std::size_t n = 0; n < 20'000; n += 97) {
    REQUIRE(protection.recorded(memory.at(n * page), page, kWrite) == (n % 2 == 0));
    REQUIRE(protection.recorded(memory.at(n * page), page + 1, kWrite) == false);
  }
  CHECK(protection.recorded(memory.data(), memory.size(), kRead));
}

}  // namespace splitnic::fabric::local_protection_test
