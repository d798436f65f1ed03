#include "fabric/memory/region.h"

#include <sys/mman.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <utility>
#include <vector>

#include "common/random.h"
#include "fabric/memory/guarded_copy.h"

namespace splitnic::fabric::region_test {
namespace {

/// Address space without memory behind it until touched, so that the largest pages cost nothing.
class Space {
 public:
  explicit Space(std::size_t bytes) : bytes_(bytes + kSmallestPage) {
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(at != MAP_FAILED);
    data_ = static_cast<std::byte*>(at);
  }
  ~Space() { munmap(data_, bytes_); }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  std::byte* at(std::size_t offset) { return data_ + offset; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

/// `count` pages of the space, scattered: the last first, every second place.
std::vector<std::byte*> scattered(Space& space, std::size_t count, std::size_t page_bytes) {
  std::vector<std::byte*> pages;
  for (std::size_t i = count; i-- > 0;) pages.push_back(space.at(2 * i * page_bytes));
  return pages;
}

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  SeededRandom random(seed);
  std::vector<std::byte> result(bytes);
  for (std::byte& byte : result) byte = static_cast<std::byte>(random.next() & 0xffU);
  return result;
}

RegionMemory of_pages(const PageList& list, std::size_t per_list = PageTable::kPagesPerList) {
  const auto memory = RegionMemory::of_pages(list, per_list);
  REQUIRE(memory.has_value());
  return *memory;
}

/// Each byte's place by the definition of a page list.
std::byte* place_of(const PageList& list, std::uint64_t offset) {
  const std::uint64_t at = list.first_offset + offset;
  return list.pages[static_cast<std::size_t>(at / list.page_bytes)] + at % list.page_bytes;
}

}  // namespace

TEST_CASE("page lists that break a rule are refused", "[fabric][memory]") {
  Space space(8 * kSmallestPage);
  std::vector<std::byte*> pages = scattered(space, 3, kSmallestPage);
  const PageList good{pages, kSmallestPage, 10, 20};
  CHECK(well_formed(good));
  CHECK(bytes_of(good) == 2 * kSmallestPage + 10);
  for (std::uint64_t bytes = 1; bytes <= 1ULL << 40U; bytes *= 2) {
    PageList list = good;
    list.page_bytes = bytes;
    CHECK(well_formed(list) == (bytes >= 4096 && bytes <= 256ULL << 20U));
    list.page_bytes = bytes + 1;
    CHECK_FALSE(well_formed(list));
  }
  const auto broken = [&](auto change) {
    PageList list = good;
    change(list);
    CHECK_FALSE(well_formed(list));
    CHECK_FALSE(RegionMemory::of_pages(list).has_value());
  };
  broken([](PageList& list) { list.pages = {}; });
  broken([](PageList& list) { list.page_bytes = 0; });
  broken([](PageList& list) { list.first_offset = kSmallestPage; });
  broken([](PageList& list) { list.end_offset = 0; });
  broken([](PageList& list) { list.end_offset = kSmallestPage + 1; });
  const auto single = [&](std::uint64_t first, std::uint64_t end) {
    return well_formed(PageList{std::span(pages).first(1), kSmallestPage, first, end});
  };
  CHECK(single(0, 1));
  CHECK(single(4095, 4096));
  CHECK_FALSE(single(5, 5));
  CHECK_FALSE(single(6, 5));
  pages[1] = nullptr;
  CHECK_FALSE(well_formed(good));
  pages[1] = space.at(8);
  CHECK_FALSE(well_formed(good));
}

TEST_CASE("bytes go to their pages and come back through each level of indirection", "[fabric][memory]") {
  const std::pair<std::size_t, Indirection> shapes[] = {{1, Indirection::direct},      {4, Indirection::direct},
                                                        {5, Indirection::one_level},   {16, Indirection::one_level},
                                                        {17, Indirection::two_levels}, {70, Indirection::two_levels}};
  for (const auto& [count, indirection] : shapes) {
    Space space(2 * count * kSmallestPage);
    const std::vector<std::byte*> pages = scattered(space, count, kSmallestPage);
    for (const std::uint64_t first : {0ULL, 1ULL, 4095ULL}) {
      for (const std::uint64_t end : {1ULL, 4095ULL, 4096ULL}) {
        const PageList list{pages, kSmallestPage, first, end};
        if (!well_formed(list)) continue;
        const RegionMemory memory = of_pages(list, 4);
        REQUIRE(memory.pages()->indirection() == indirection);
        REQUIRE(memory.size() == bytes_of(list));
        const std::vector<std::byte> bytes = pattern(memory.size(), first + end);
        REQUIRE(memory.store(0, bytes));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < bytes.size(); ++i) wrong += *place_of(list, i) != bytes[i] ? 1 : 0;
        REQUIRE(wrong == 0);
        std::vector<std::byte> back(bytes.size());
        REQUIRE(memory.load(0, back));
        REQUIRE(back == bytes);
      }
    }
  }
}

TEST_CASE("real page lists take one level beyond 512 pages and two beyond 512 x 512", "[fabric][memory]") {
  Space space(kSmallestPage);
  // All pages are the same one: only the table is looked at.
  const auto indirection = [&](std::size_t count) {
    const std::vector<std::byte*> pages(count, space.at(0));
    return of_pages(PageList{pages, kSmallestPage, 0, kSmallestPage}).pages()->indirection();
  };
  CHECK(indirection(512) == Indirection::direct);
  CHECK(indirection(513) == Indirection::one_level);
  CHECK(indirection(512 * 512) == Indirection::one_level);
  CHECK(indirection(512 * 512 + 1) == Indirection::two_levels);
}

TEST_CASE("every page size places bytes around its page boundaries", "[fabric][memory]") {
  for (std::uint64_t page = kSmallestPage; page <= kLargestPage; page *= 2) {
    Space space(6 * page);
    const std::vector<std::byte*> pages = scattered(space, 3, page);
    const PageList list{pages, page, page - 3, 5};
    const RegionMemory memory = of_pages(list);
    REQUIRE(memory.size() == 3 + page + 5);
    const std::uint64_t length = memory.size();
    const std::vector<std::byte> bytes = pattern(16, page);
    for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{1}, page - 13, length - 16}) {
      REQUIRE(memory.store(at, bytes));
      for (std::size_t i = 0; i < bytes.size(); ++i) REQUIRE(*place_of(list, at + i) == bytes[i]);
      std::vector<std::byte> back(bytes.size());
      REQUIRE(memory.load(at, back));
      REQUIRE(back == bytes);
    }
  }
}

TEST_CASE("random stores to pages change the bytes named and no others", "[fabric][memory]") {
  SeededRandom random(11);
  Space space(40 * kSmallestPage);
  const std::vector<std::byte*> pages = scattered(space, 20, kSmallestPage);
  const PageList list{pages, kSmallestPage, 77, 1234};
  const RegionMemory memory = of_pages(list, 2);
  std::vector<std::byte> model(memory.size());
  for (int round = 0; round < 2000; ++round) {
    const std::size_t at = static_cast<std::size_t>(random.below(model.size() + 1));
    const std::size_t count =
        static_cast<std::size_t>(random.below(std::min<std::size_t>(9000, model.size() - at) + 1));
    const std::vector<std::byte> bytes = pattern(count, static_cast<std::uint64_t>(round));
    REQUIRE(memory.store(at, bytes));
    if (count != 0) std::memcpy(model.data() + at, bytes.data(), count);
  }
  std::vector<std::byte> back(model.size());
  REQUIRE(memory.load(0, back));
  REQUIRE(back == model);
  // Between the pages lies what nobody may write.
  std::size_t outside = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    for (std::size_t b = 0; b < kSmallestPage; ++b) {
      outside += *space.at((2 * i + 1) * kSmallestPage + b) == std::byte{0} ? 0 : 1;
    }
  }
  for (std::size_t b = 0; b < 77; ++b) outside += pages.front()[b] == std::byte{0} ? 0 : 1;
  for (std::size_t b = 1234; b < kSmallestPage; ++b) outside += pages.back()[b] == std::byte{0} ? 0 : 1;
  CHECK(outside == 0);
}

TEST_CASE("compare-and-swap and fetch-and-add work on every kind of memory", "[fabric][memory]") {
  alignas(8) std::array<std::byte, 64> process{};
  alignas(8) std::array<std::byte, 64> bridge{};
  Space space(4 * kSmallestPage);
  const std::vector<std::byte*> pages = scattered(space, 2, kSmallestPage);
  const std::pair<RegionMemory, std::uint64_t> memories[] = {
      {RegionMemory::of_process(process), 16},
      {RegionMemory::of_bridge(PeerMemory::over(bridge.data(), bridge.size()), 4096, PathNumber{1}), 16},
      {of_pages(PageList{pages, kSmallestPage, 0, kSmallestPage}), 4088},
      {of_pages(PageList{pages, kSmallestPage, 0, kSmallestPage}), 4096},
      {of_pages(PageList{pages, kSmallestPage, 4, kSmallestPage}), 4084},
  };
  for (const auto& [memory, at] : memories) {
    const std::uint64_t start = 40;
    REQUIRE(memory.can_atomic(at));
    REQUIRE(memory.store(at, std::as_bytes(std::span(&start, 1))));
    std::uint64_t before = 0;
    REQUIRE(memory.fetch_add(at, 2, before));
    CHECK(before == 40);
    REQUIRE(memory.compare_swap(at, 41, 7, before));
    CHECK(before == 42);
    REQUIRE(memory.compare_swap(at, 42, 0xffff'ffff'ffff'ffff, before));
    CHECK(before == 42);
    REQUIRE(memory.fetch_add(at, 3, before));
    CHECK(before == 0xffff'ffff'ffff'ffff);
    std::uint64_t now = 0;
    REQUIRE(memory.load(at, std::as_writable_bytes(std::span(&now, 1))));
    CHECK(now == 2);
    for (std::uint64_t off = 1; off < 8; ++off) CHECK_FALSE(memory.can_atomic(at + off));
    CHECK_FALSE(memory.can_atomic(memory.size() - 4));
    CHECK_FALSE(memory.can_atomic(memory.size()));
    CHECK_FALSE(memory.can_atomic(~std::uint64_t{0}));
  }
  CHECK_FALSE(RegionMemory().can_atomic(0));
}

TEST_CASE("memory of the process is found by its address, other memory is not", "[fabric][memory]") {
  std::array<std::byte, 102> around{};
  const std::span bytes = std::span(around).subspan(1, 100);
  const RegionMemory memory = RegionMemory::of_process(bytes);
  CHECK(memory.holds(bytes.data(), 100));
  CHECK(memory.holds(bytes.data() + 100, 0));
  CHECK_FALSE(memory.holds(bytes.data() + 1, 100));
  CHECK_FALSE(memory.holds(bytes.data() - 1, 1));
  CHECK_FALSE(memory.holds(bytes.data() + 1, ~std::uint64_t{0}));
  CHECK(memory.offset_of(bytes.data() + 7) == 7);
  const RegionMemory bridge = RegionMemory::of_bridge(PeerMemory::over(bytes.data(), bytes.size()), 640, PathNumber{1});
  CHECK(bridge.in_bridge());
  CHECK(bridge.bridge_offset() == 640);
  CHECK_FALSE(bridge.holds(bytes.data(), 1));
  CHECK_FALSE(RegionMemory().holds(bytes.data(), 0));
}

TEST_CASE("copies share one translation, and new pages for one leave the others theirs", "[fabric][memory]") {
  Space space(8 * kSmallestPage);
  const std::vector<std::byte*> pages = scattered(space, 4, kSmallestPage);
  RegionMemory memory = RegionMemory::for_pages(4);
  CHECK(memory.size() == 0);
  memory.assign(PageList{std::span(pages).first(1), kSmallestPage, 0, kSmallestPage});
  CHECK(memory.sharers() == 1);
  {
    const RegionMemory copy = memory;
    CHECK(memory.sharers() == 2);
    CHECK(copy.pages() == memory.pages());
    memory.assign(PageList{std::span(pages).last(2), kSmallestPage, 0, kSmallestPage});
    CHECK(copy.pages() != memory.pages());
    CHECK(copy.size() == kSmallestPage);
    CHECK(memory.size() == 2 * kSmallestPage);
    REQUIRE(copy.store(0, std::array{std::byte{1}}));
    CHECK(*pages[0] == std::byte{1});
    REQUIRE(memory.store(0, std::array{std::byte{2}}));
    CHECK(*pages[2] == std::byte{2});
  }
  CHECK(memory.sharers() == 1);
}

TEST_CASE("memory that was unmapped since is reported gone, on every path", "[fabric][memory]") {
  enable_guarded_copy();  // Catch has put its own handlers over it
  Space space(4 * kSmallestPage);
  const std::vector<std::byte*> pages = scattered(space, 2, kSmallestPage);
  const RegionMemory memories[] = {RegionMemory::of_process({space.at(0), 2 * kSmallestPage}),
                                   of_pages(PageList{pages, kSmallestPage, 0, kSmallestPage})};
  std::array<std::byte, 16> bytes{};
  std::uint64_t before = 0;
  REQUIRE(mprotect(space.at(0), kSmallestPage, PROT_NONE) == 0);  // the span's first page, the list's second
  const std::uint64_t bad[] = {0, kSmallestPage};
  const std::uint64_t good[] = {kSmallestPage, 0};
  const std::uint64_t across[] = {kSmallestPage - 8, kSmallestPage - 8};
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK_FALSE(memories[i].store(bad[i], bytes));
    CHECK_FALSE(memories[i].load(bad[i], bytes));
    CHECK_FALSE(memories[i].store(across[i], bytes));
    CHECK_FALSE(memories[i].load(across[i], bytes));
    CHECK_FALSE(memories[i].fetch_add(bad[i], 1, before));
    CHECK_FALSE(memories[i].compare_swap(bad[i], 0, 1, before));
    CHECK(memories[i].store(good[i], bytes));
    CHECK(memories[i].load(good[i], bytes));
    CHECK(memories[i].fetch_add(good[i], 1, before));
  }
}

}  // namespace splitnic::fabric::region_test
