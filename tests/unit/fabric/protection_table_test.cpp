#include "fabric/memory/protection_table.h"

#include <array>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace splitnic::fabric::protection_table_test {
namespace {

constexpr std::array kEveryRight{Right::local_read,   Right::local_write,   Right::remote_read,
                                 Right::remote_write, Right::remote_atomic, Right::window_binding};

struct Fixture {
  SeededRandom random{1};
  ProtectionTable table{64, random};
  std::vector<std::byte> memory = std::vector<std::byte>(4096);
  ProtectionDomain domain{1};

  Stag add(Rights rights) { return table.insert(domain, RegionMemory::of_process(memory), rights, false).value(); }
  std::string remote(Stag tag, std::uint64_t address, std::uint64_t bytes, Right right = Right::remote_write,
                     std::uint32_t in_domain = 1) {
    const auto result = table.check_remote({tag, ProtectionDomain{in_domain}, bytes, right}, address);
    return result ? "ok" : to_string(result.error());
  }
  std::string local(Stag tag, const std::byte* address, std::uint64_t bytes, Right right = Right::local_read) {
    const auto result = table.check_local({tag, domain, bytes, right}, address);
    return result ? "ok" : to_string(result.error());
  }
};

}  // namespace

TEST_CASE("every right allows its own operation and no other", "[fabric][memory]") {
  for (std::uint16_t bits = 0; bits < 64; ++bits) {
    Fixture f;
    const Stag tag = f.add(Rights{bits});
    const std::uint64_t base = f.table.find(tag)->base;
    for (const Right right : kEveryRight) {
      const std::string expected = Rights{bits}.has(right) ? "ok" : "access_rights_violation";
      REQUIRE(f.remote(tag, base, 8, right) == expected);
      REQUIRE(f.local(tag, f.memory.data(), 8, right) == expected);
    }
  }
}

TEST_CASE("remote bounds hold at -1, 0 and +1 of both ends", "[fabric][memory]") {
  Fixture f;
  const Stag tag = f.add(Rights{} | Right::remote_write);
  const std::uint64_t base = f.table.find(tag)->base;
  CHECK(f.remote(tag, base, 4096) == "ok");
  CHECK(f.remote(tag, base, 4097) == "base_or_bounds_violation");
  CHECK(f.remote(tag, base, 4095) == "ok");
  CHECK(f.remote(tag, base - 1, 1) == "base_or_bounds_violation");
  CHECK(f.remote(tag, base - 1, 4096) == "base_or_bounds_violation");
  CHECK(f.remote(tag, base + 1, 4095) == "ok");
  CHECK(f.remote(tag, base + 1, 4096) == "base_or_bounds_violation");
  CHECK(f.remote(tag, base + 4095, 1) == "ok");
  CHECK(f.remote(tag, base + 4095, 2) == "base_or_bounds_violation");
  CHECK(f.remote(tag, base + 4096, 0) == "ok");
  CHECK(f.remote(tag, base + 4096, 1) == "base_or_bounds_violation");
  CHECK(f.remote(tag, base + 4097, 0) == "base_or_bounds_violation");
  CHECK(f.remote(tag, base - 1, 0) == "base_or_bounds_violation");
}

TEST_CASE("addresses that wrap at 2^64 are told apart from those that only lie outside", "[fabric][memory]") {
  Fixture f;
  const Stag tag = f.add(Rights{} | Right::remote_write);
  const std::uint64_t top = ~std::uint64_t{0};
  CHECK(f.remote(tag, top, 1) == "base_or_bounds_violation");
  CHECK(f.remote(tag, top, 2) == "to_wrap");
  CHECK(f.remote(tag, top - 9, 10) == "base_or_bounds_violation");
  CHECK(f.remote(tag, top - 9, 11) == "to_wrap");
  CHECK(f.remote(tag, 1, top) == "base_or_bounds_violation");
  CHECK(f.remote(tag, 2, top) == "to_wrap");
  CHECK(f.remote(tag, 0, 0) == "base_or_bounds_violation");
}

TEST_CASE("local bounds hold at -1, 0 and +1 of both ends", "[fabric][memory]") {
  Fixture f;
  const Stag tag = f.add(Rights{} | Right::local_read);
  const std::byte* begin = f.memory.data();
  CHECK(f.local(tag, begin, 4096) == "ok");
  CHECK(f.local(tag, begin, 4097) == "base_or_bounds_violation");
  CHECK(f.local(tag, begin - 1, 1) == "base_or_bounds_violation");
  CHECK(f.local(tag, begin + 4095, 1) == "ok");
  CHECK(f.local(tag, begin + 4096, 0) == "ok");
  CHECK(f.local(tag, begin + 4096, 1) == "base_or_bounds_violation");
  CHECK(f.local(tag, begin + 1, ~std::uint64_t{0}) == "base_or_bounds_violation");
}

TEST_CASE("checks run in S3's order: the first that fails is told", "[fabric][memory]") {
  Fixture f;
  const Stag tag = f.add(Rights{});  // no rights at all
  const std::uint64_t base = f.table.find(tag)->base;
  const Stag stale = Stag::from(tag.index(), static_cast<std::uint8_t>(tag.instance() + 1));
  CHECK(f.remote(Stag{0xffff'ff00}, 0, 1, Right::remote_write, 2) == "invalid_stag");
  CHECK(f.remote(Stag{0}, 0, 1, Right::remote_write, 2) == "wrong_kind");
  CHECK(f.remote(stale, 0, 1, Right::remote_write, 2) == "stag_not_associated");
  CHECK(f.remote(stale, 0, 1) == "stale_stag");
  CHECK(f.remote(tag, 0, 1) == "base_or_bounds_violation");
  CHECK(f.remote(tag, base, 1) == "access_rights_violation");
}

TEST_CASE("a stale tag is refused after deregistration and after the index is used again", "[fabric][memory]") {
  Fixture f;
  const Stag first = f.add(Rights{} | Right::remote_write);
  const std::uint64_t base = f.table.find(first)->base;
  CHECK(f.table.deregister(first));
  CHECK_FALSE(f.table.deregister(first));
  CHECK(f.remote(first, base, 1) == "invalid_stag");
  for (int i = 0; i < 10'000; ++i) {
    const Stag again = f.add(Rights{} | Right::remote_write);
    if (again.index() == first.index()) {
      CHECK(again.instance() != first.instance());
      CHECK(f.remote(first, base, 1) == "stale_stag");
      CHECK(f.table.find(first) == nullptr);
      return;
    }
    REQUIRE(f.table.deregister(again));
  }
  FAIL("the index never came again");
}

TEST_CASE("the end of a path's epoch voids the regions of its bridge's memory and no other", "[fabric][memory]") {
  Fixture f;
  std::vector<std::byte> window(4096);
  const PeerMemory bridge = PeerMemory::over(window.data(), window.size());
  const auto in_bridge = [&](std::uint32_t path) {
    const auto memory = RegionMemory::of_bridge(bridge, 0, PathNumber{path});
    return f.table.insert(f.domain, memory, Rights{} | Right::remote_write, false).value();
  };
  std::vector<Stag> ended;
  std::vector<Stag> kept;
  std::vector<std::uint32_t> indices;
  for (int i = 0; i < 20; ++i) {
    ended.push_back(in_bridge(1));
    kept.push_back(in_bridge(2));
    kept.push_back(f.add(Rights{} | Right::remote_write));
  }
  for (const Stag tag : ended) indices.push_back(tag.index());
  // Indices of what has been deregistered since, of what is somebody else's now, and twice the same do no harm.
  indices.push_back(kept[0].index());
  indices.push_back(kept[1].index());
  indices.push_back(ended[0].index());
  REQUIRE(f.table.deregister(ended[7]));
  f.table.end_bridge_memory(PathNumber{1}, indices);
  for (const Stag tag : ended) CHECK(f.remote(tag, 0, 0) == "invalid_stag");
  for (const Stag tag : kept) CHECK(f.remote(tag, f.table.find(tag)->base, 1) == "ok");
  CHECK(f.table.tags_in(f.domain) == kept.size());
  for (int i = 0; i < 24; ++i) f.add(Rights{});
}

TEST_CASE("no guess over a table's whole tag space but the live one's is let in", "[fabric][memory]") {
  Fixture f;
  const Stag tag = f.add(Rights{} | Right::remote_write);
  const std::uint64_t base = f.table.find(tag)->base;
  std::size_t let_in = 0;
  for (std::uint32_t guess = 0; guess < 1U << 20U; ++guess) {
    const auto result = f.table.check_remote({Stag{guess}, f.domain, 1, Right::remote_write}, base);
    if (result) {
      ++let_in;
      CHECK(Stag{guess} == tag);
    }
  }
  CHECK(let_in == 1);
}

TEST_CASE("a table takes no more than 292 bytes for each tag of its capacity", "[fabric][memory]") {
  static_assert(sizeof(ProtectionEntry) + TagSpace::kBytesPerSlot == 73);
  SeededRandom random(1);
  for (std::size_t capacity = 1; capacity <= 100'000; capacity = capacity * 3 / 2 + 1) {
    INFO("capacity " << capacity);
    const ProtectionTable table(capacity, random);
    CHECK(table.memory_bytes() >= 2 * 73 * capacity);
    CHECK(table.memory_bytes() <= 4 * 73 * capacity);
  }
}

}  // namespace splitnic::fabric::protection_table_test
