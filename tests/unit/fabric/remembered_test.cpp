#include "fabric/memory/remembered.h"

#include <catch2/catch.hpp>
#include <limits>

#include "protection_fixture.h"

/// Checks that are remembered by the generation of their entry, and everything that ends them.
namespace splitnic::fabric::remembered_test {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

/// Remembers the region by its first byte, as a peer would name it.
RememberedRegion remembered(const ProtectionFixture& of, Stag tag) {
  const std::uint64_t base = of.base(tag);
  RememberedRegion region;
  region.remember(tag, base, of.table.check_local(of.access(tag, 1, Right::local_read), base).value());
  return region;
}

}  // namespace

TEST_CASE("what is remembered of a region grants exactly what the table grants", "[fabric][memory][remembered]") {
  ProtectionFixture of;
  const Rights rights = GENERATE(Right::local_read | Right::local_read, Right::local_read | Right::local_write);
  const Stag tag = of.region(rights);
  const RememberedRegion region = remembered(of, tag);
  const std::uint64_t base = of.base(tag);
  for (const std::uint64_t address :
       {base - 1, base, base + 1, base + 4095, base + 4096, base + 4097, kMost, base / 2}) {
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4095}, std::uint64_t{4096},
                                      std::uint64_t{4097}, kMost, kMost - base}) {
      for (const Right right : {Right::local_read, Right::local_write, Right::remote_write}) {
        const auto checked = of.table.check_local(of.access(tag, bytes, right), address);
        const auto known = region.find(tag, address, bytes, right);
        CAPTURE(address - base, bytes, right);
        REQUIRE(known.has_value() == checked.has_value());
        if (known) CHECK((known->entry == checked->entry && known->memory == checked->memory));
        if (known) CHECK(known->offset == checked->offset);
      }
    }
  }
  const Stag other = Stag::from(tag.index(), static_cast<std::uint8_t>(tag.instance() + 1));
  CHECK_FALSE(region.find(other, base, 1, Right::local_read));
  CHECK_FALSE(RememberedRegion{}.find(tag, base, 1, Right::local_read));
  CHECK_FALSE(RememberedRegion{}.find(Stag{}, 0, 0, Right::local_read));
}

TEST_CASE("whatever changes a region ends what was remembered of it", "[fabric][memory][remembered]") {
  ProtectionFixture of;
  EntryOptions options;
  options.rights = kAllRights;
  const int change = GENERATE(range(0, 5));
  options.invalidatable = change == 2;
  if (change == 3) {
    options.touch = TouchControl::one_touch;
    options.rights = Right::local_read | Right::remote_write;
  }
  const Stag tag = of.region(options);
  const std::uint64_t base = of.base(tag);
  const RememberedRegion region = remembered(of, tag);
  const RememberedEntry entry(*of.table.find(tag));
  REQUIRE(region.find(tag, base, 1, Right::local_read));
  REQUIRE(entry.current() != nullptr);
  static_cast<void>(of.region());  // of another entry: changes nothing here
  REQUIRE(entry.current() != nullptr);
  Reregister changed;
  switch (change) {
    case 0:
      REQUIRE(of.table.deregister(tag));
      break;
    case 1:
      changed.rights = Right::local_read | Right::local_write;
      REQUIRE(of.table.reregister(tag, changed));
      break;
    case 2:
      REQUIRE(of.table.invalidate_remote(tag, of.me));
      break;
    case 3:
      REQUIRE(of.table.touch(of.access(tag, 1, Right::remote_write), {true, 5, 6, 1}) ==
              TouchAction::place_and_invalidate);
      break;
    default:
      changed.memory = RegionMemory::of_process(std::span(of.memory).first(64));
      REQUIRE(of.table.reregister(tag, changed));
  }
  CHECK(entry.current() == nullptr);
  CHECK_FALSE(region.find(tag, base, 1, Right::local_read));
}

TEST_CASE("a region that was registered anew is not the one that was remembered", "[fabric][memory][remembered]") {
  ProtectionFixture of;
  alignas(kSmallestPage) static std::array<std::byte, 2 * kSmallestPage> pages{};
  const std::array first{pages.data()};
  const std::array second{pages.data() + kSmallestPage};
  FastRegister request;
  request.tag = of.table.allocate_region(of.domain, 1).value();
  request.key = 3;
  request.pages.pages = first;
  request.options.rights = kAllRights;
  request.options.base = 0x1000;
  const Stag tag = of.table.fast_register(request, of.me).value();
  const RememberedRegion region = remembered(of, tag);
  const RememberedEntry entry(*of.table.find(tag));
  REQUIRE(of.table.invalidate_local(tag, of.me));
  CHECK(entry.current() == nullptr);
  request.tag = tag;
  request.pages.pages = second;
  REQUIRE(of.table.fast_register(request, of.me).value() == tag);  // the same tag, base and length
  CHECK(entry.current() == nullptr);
  CHECK_FALSE(region.find(tag, 0x1000, 1, Right::local_read));
}

TEST_CASE("whatever changes a window ends what was remembered of it", "[fabric][memory][remembered]") {
  ProtectionFixture of;
  const Stag region = of.region();
  const EntryKind kind = GENERATE(EntryKind::window_type_1, EntryKind::window_type_2);
  const Stag window = of.bound(kind, region);
  const RememberedEntry entry(*of.table.find(window));
  REQUIRE(entry.current() != nullptr);
  SECTION("unbound") {
    Bind nothing;
    nothing.window = window;
    REQUIRE(of.table.bind(nothing, of.me));
  }
  SECTION("unbound, and bound again where it was") {
    Bind bind;
    bind.window = window;
    const Stag unbound = of.table.bind(bind, of.me).value();
    bind = of.binding(unbound, region);
    bind.key = window.instance();
    REQUIRE(of.table.bind(bind, of.me));
  }
  SECTION("deallocated") { REQUIRE(of.table.deallocate(window)); }
  CHECK(entry.current() == nullptr);
}

TEST_CASE("bridge memory that ends takes along what was remembered of it", "[fabric][memory][remembered]") {
  ProtectionFixture of;
  const PathNumber path{1};
  const auto bridge = RegionMemory::of_bridge(PeerMemory::over(of.memory.data(), of.memory.size()), 0, path);
  const Stag tag = of.table.insert(of.domain, bridge, kAllRights, true).value();
  const Stag window = of.bound(EntryKind::window_type_1, tag);
  const RememberedEntry region_entry(*of.table.find(tag));
  const RememberedEntry window_entry(*of.table.find(window));
  of.table.end_bridge_memory(path, std::array{tag.index()});
  CHECK(region_entry.current() == nullptr);
  CHECK(window_entry.current() == nullptr);
}

}  // namespace splitnic::fabric::remembered_test
