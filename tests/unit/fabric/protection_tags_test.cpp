// The life of tags: windows, send-queue registration, invalidation, re-registration, iSCSI entries.
#include "protection_fixture.h"

#include <algorithm>
#include <set>

#include <catch2/catch.hpp>

namespace splitnic::fabric::protection_tags_test {
namespace {

constexpr std::array kWindowKinds{EntryKind::window_type_1, EntryKind::window_type_2};

Stag next_instance(Stag tag) { return Stag::from(tag.index(), static_cast<std::uint8_t>(tag.instance() + 1)); }

struct Fixture : ProtectionFixture {
  std::string bind(const Bind& request, const Consumer& by) { return verdict(table.bind(request, by)); }
  std::string bind(const Bind& request) { return bind(request, me); }

  /// Two pages of 4 KiB, from the middle of the first to the middle of the second.
  FastRegister fast(Stag tag) {
    pages = {paged.data(), paged.data() + kSmallestPage};
    FastRegister request;
    request.tag = tag;
    request.key = 0x33;
    request.pages = PageList{pages, kSmallestPage, 1024, 2048};
    request.options.rights = kAllRights;
    return request;
  }
  std::string fast_register(const FastRegister& request) { return verdict(table.fast_register(request, me)); }

  alignas(4096) std::array<std::byte, 2 * kSmallestPage> paged{};
  std::vector<std::byte*> pages;
};

}  // namespace

TEST_CASE("allocated windows name nothing until they are bound", "[fabric][memory]") {
  for (const EntryKind kind : kWindowKinds) {
    Fixture f;
    std::array<Stag, 10> tags{};
    REQUIRE(f.table.allocate_windows(f.domain, kind, tags));
    CHECK(f.table.tags_in(f.domain) == 10);
    std::set<std::uint32_t> indices;
    for (const Stag tag : tags) {
      CHECK(indices.insert(tag.index()).second);
      CHECK(f.use(tag) == "invalid_stag");
      CHECK(f.table.deallocate(tag));
      CHECK(f.use(f.region()) == "ok");
      CHECK(verdict(f.table.deallocate(tag)) == "invalid_stag");
    }
  }
}

TEST_CASE("windows are allocated all or none", "[fabric][memory]") {
  Fixture f;
  std::array<Stag, 65> tags{};
  CHECK(verdict(f.table.allocate_windows(f.domain, EntryKind::window_type_1, tags)) == "table_full");
  CHECK(f.table.tags_in(f.domain) == 0);
  CHECK(f.table.allocate_windows(f.domain, EntryKind::window_type_1, std::span(tags).first(64)));
  CHECK(verdict(f.table.allocate_windows(f.domain, EntryKind::window_type_1, std::span(tags).first(1))) ==
        "table_full");
  CHECK(verdict(f.table.register_region(f.domain, f.all_memory(), {})) == "table_full");
  CHECK(verdict(f.table.allocate_region(f.domain, 1)) == "table_full");
  CHECK(verdict(f.table.register_iscsi(f.me, f.all_memory(), {}, 1)) == "table_full");
}

TEST_CASE("a binding of type 1 takes the next instance, and moves the window", "[fabric][memory]") {
  Fixture f;
  const Stag first_region = f.region();
  const Stag second_region = f.region();
  Stag tag = f.window(EntryKind::window_type_1);
  for (int round = 0; round < 600; ++round) {  // instances wrap at 256
    const Stag region = round % 2 == 0 ? first_region : second_region;
    Bind bind = f.binding(tag, region);
    bind.address += static_cast<std::uint64_t>(round);
    const auto bound = f.table.bind(bind, f.me);
    REQUIRE(bound);
    REQUIRE(*bound == next_instance(tag));
    REQUIRE(f.use(*bound) == "ok");
    REQUIRE(f.remote(tag, bind.address) == "stale_stag");
    REQUIRE(f.table.find(first_region)->bound == (round % 2 == 0 ? 1 : 0));
    REQUIRE(f.table.find(second_region)->bound == (round % 2 == 0 ? 0 : 1));
    tag = *bound;
  }
}

TEST_CASE("a type 2 window has the instance that its consumer chose, and one queue pair", "[fabric][memory]") {
  Fixture f;
  const Stag region = f.region();
  for (unsigned key = 0; key < 256; ++key) {
    Bind bind = f.binding(f.window(EntryKind::window_type_2), region);
    bind.key = static_cast<std::uint8_t>(key);
    const Stag tag = f.table.bind(bind, f.me).value();
    REQUIRE(tag == Stag::from(bind.window.index(), bind.key));
    REQUIRE(f.use(tag) == "ok");
    Access access = f.access(tag, 1, Right::remote_write);
    access.queue_pair = f.another.queue_pair;
    REQUIRE(verdict(f.table.check_remote(access, f.base(tag))) == "wrong_queue_pair");
    REQUIRE(f.bind(bind) == (key == bind.window.instance() ? "already_valid" : "stale_stag"));
    REQUIRE(f.table.deallocate(tag));
  }
}

TEST_CASE("a bound type 2 window is not bound again before it is invalidated", "[fabric][memory]") {
  Fixture f;
  const Stag region = f.region();
  Bind bind = f.binding(f.bound(EntryKind::window_type_2, region), region);
  CHECK(f.bind(bind) == "already_valid");
  CHECK(f.bind(bind, f.another) == "wrong_queue_pair");
  REQUIRE(f.table.invalidate_local(bind.window, f.me));
  CHECK(f.use(bind.window) == "invalid_stag");
  CHECK(f.bind(bind, f.another) == "ok");  // unbound, it is the domain's
}

TEST_CASE("binding nothing unbinds", "[fabric][memory]") {
  for (const EntryKind kind : kWindowKinds) {
    Fixture f;
    const Stag region = f.region();
    const Stag tag = f.bound(kind, region);
    Bind nothing;
    nothing.window = tag;
    if (kind == EntryKind::window_type_2) CHECK(f.bind(nothing, f.another) == "wrong_queue_pair");
    CHECK(f.bind(nothing, f.foreigner) == "stag_not_associated");
    CHECK(f.use(tag) == "ok");
    const auto unbound = f.table.bind(nothing, f.me);
    REQUIRE(unbound);
    CHECK(*unbound == (kind == EntryKind::window_type_1 ? next_instance(tag) : tag));
    CHECK(f.use(*unbound) == "invalid_stag");
    CHECK(f.remote(tag, f.base(*unbound)) == "invalid_stag");
    CHECK(f.table.find(region)->bound == 0);
    CHECK(f.bind(f.binding(*unbound, region)) == "ok");
  }
}

TEST_CASE("one tag protects one range at a time", "[fabric][memory]") {
  Fixture f;
  const Stag region = f.region();
  Bind bind = f.binding(f.window(EntryKind::window_type_1), region);
  bind.length = 10;
  const Stag first = f.table.bind(bind, f.me).value();
  bind.window = first;
  bind.address += 500;
  const Stag second = f.table.bind(bind, f.me).value();
  CHECK(f.remote(second, bind.address, 10) == "ok");
  CHECK(f.remote(second, bind.address - 500, 10) == "base_or_bounds_violation");
  CHECK(f.remote(first, bind.address - 500, 10) == "stale_stag");
}

TEST_CASE("windows are bound at any byte to any length of their region, and no further", "[fabric][memory]") {
  for (const EntryKind kind : kWindowKinds) {
    Fixture f;
    const Stag region = f.region();
    const std::uint64_t base = f.base(region);
    const auto bind = [&](std::uint64_t address, std::uint64_t length) {
      Bind request = f.binding(f.window(kind), region);
      request.address = address;
      request.length = length;
      const auto bound = f.table.bind(request, f.me);
      REQUIRE(f.table.deallocate(bound ? *bound : request.window));
      return verdict(bound);
    };
    for (std::uint64_t at : {0, 1, 2, 3, 7, 4093, 4095}) {
      for (std::uint64_t length : {1, 2, 3, 1000, 4093, 4096}) {
        const std::string expected = at + length <= 4096 ? "ok" : "base_or_bounds_violation";
        CHECK(bind(base + at, length) == expected);
      }
    }
    CHECK(bind(base - 1, 1) == "base_or_bounds_violation");
    CHECK(bind(base + 4096, 1) == "base_or_bounds_violation");
    CHECK(bind(base + 1, ~std::uint64_t{0}) == "to_wrap");
    CHECK(bind(0, ~std::uint64_t{0}) == "base_or_bounds_violation");
  }
}

TEST_CASE("a window's rights are remote ones that build on its region's local rights", "[fabric][memory]") {
  for (std::uint16_t region_bits = 0; region_bits < 64; ++region_bits) {
    Fixture f;
    const Stag region = f.region(Rights{region_bits});
    for (std::uint16_t bits = 0; bits < 64; ++bits) {
      const Rights has{region_bits};
      const Rights wants{bits};
      const bool local = wants.has(Right::local_read) || wants.has(Right::local_write);
      const bool allowed = has.has(Right::window_binding) &&
                           (!wants.has(Right::remote_read) || has.has(Right::local_read)) &&
                           (!wants.has(Right::remote_write) || has.has(Right::local_write)) &&
                           (!wants.has(Right::remote_atomic) || has.has(Right::local_write));
      const bool conflict = local || wants.has(Right::window_binding);
      const Bind request = f.binding(f.window(EntryKind::window_type_1), region, wants);
      const auto bound = f.table.bind(request, f.me);
      REQUIRE(verdict(bound) == (conflict ? "options_conflict" : allowed ? "ok" : "binding_not_allowed"));
      REQUIRE(f.table.deallocate(bound ? *bound : request.window));
    }
  }
}

TEST_CASE("a bind that fails is refused for the first reason in order, and changes nothing", "[fabric][memory]") {
  for (const EntryKind kind : kWindowKinds) {
    Fixture f;
    const Stag region = f.region(Rights{} | Right::local_read);  // no binding
    const Stag elsewhere = f.table.insert(f.other_domain, f.all_memory(), kAllRights, false).value();
    EntryOptions another_s;
    another_s.rights = kAllRights;
    another_s.queue_pair = f.another.queue_pair;
    Bind bind = f.binding(f.window(kind), region, kRemoteRights);
    CHECK(f.bind(bind) == "binding_not_allowed");
    bind.length = 4096;
    CHECK(f.bind(bind) == "base_or_bounds_violation");
    bind.length = ~std::uint64_t{0};
    CHECK(f.bind(bind) == "to_wrap");
    bind.region = f.region(another_s);
    CHECK(f.bind(bind) == "wrong_queue_pair");
    bind.region = next_instance(region);
    CHECK(f.bind(bind) == "stale_stag");
    bind.region = elsewhere;
    CHECK(f.bind(bind) == "stag_not_associated");
    bind.region = bind.window;
    CHECK(f.bind(bind) == "invalid_stag");
    bind.region = f.bound(EntryKind::window_type_1, f.region());
    CHECK(f.bind(bind) == "wrong_kind");
    bind.region = f.table.allocate_region(f.domain, 1).value();
    CHECK(f.bind(bind) == "invalid_stag");
    bind.rights = kAllRights;
    CHECK(f.bind(bind) == "options_conflict");
    bind.zero_based = true;
    bind.rights = kRemoteRights;
    CHECK(f.bind(bind) == (kind == EntryKind::window_type_1 ? "options_conflict" : "invalid_stag"));
    const Stag window = bind.window;
    bind.window = next_instance(window);
    CHECK(f.bind(bind) == "stale_stag");
    CHECK(f.bind(bind, f.foreigner) == "stag_not_associated");
    bind.window = region;
    CHECK(f.bind(bind, f.foreigner) == "wrong_kind");
    bind.window = Stag{};
    CHECK(f.bind(bind) == "invalid_stag");
    bind.window = Stag{0xffff'ffff};
    CHECK(f.bind(bind) == "invalid_stag");
    if (kind == EntryKind::window_type_2) {
      bind.window = window;
      CHECK(f.bind(bind, Consumer{f.domain, QpNumber{0}}) == "wrong_queue_pair");
    }
    CHECK(f.bind(f.binding(window, f.region())) == "ok");
  }
}

TEST_CASE("a region is not deregistered, re-registered or invalidated under its windows", "[fabric][memory]") {
  Fixture f;
  EntryOptions options;
  options.rights = kAllRights;
  options.invalidatable = true;
  const Stag region = f.region(options);
  const Stag window = f.bound(EntryKind::window_type_1, region);
  CHECK(verdict(f.table.deregister(region)) == "windows_bound");
  CHECK(verdict(f.table.reregister(region, {})) == "windows_bound");
  CHECK(verdict(f.table.invalidate_remote(region, f.me)) == "windows_bound");
  CHECK(f.use(window) == "ok");
  CHECK(f.table.deallocate(window));
  CHECK(f.table.deregister(region));
  CHECK(verdict(f.table.deregister(region)) == "invalid_stag");
}

TEST_CASE("each verb refuses the other kinds' tags", "[fabric][memory]") {
  Fixture f;
  const Stag region = f.region();
  const Stag window = f.window(EntryKind::window_type_1);
  const Stag iscsi = f.table.register_iscsi(f.me, f.all_memory(), {}, 1).value();
  CHECK(verdict(f.table.deregister(window)) == "wrong_kind");
  CHECK(verdict(f.table.deregister(iscsi)) == "wrong_kind");
  CHECK(verdict(f.table.deallocate(region)) == "wrong_kind");
  CHECK(verdict(f.table.deallocate(iscsi)) == "wrong_kind");
  CHECK(verdict(f.table.reregister(window, {})) == "wrong_kind");
  CHECK(verdict(f.table.finish_iscsi(region, f.me)) == "wrong_kind");
  CHECK(f.fast_register(f.fast(window)) == "wrong_kind");
  CHECK(f.fast_register(f.fast(region)) == "wrong_kind");  // not allocated for it
  CHECK(f.bind(f.binding(region, region)) == "wrong_kind");
  CHECK(f.table.find(Stag{}) == nullptr);
  for (const Stag tag : {Stag{}, Stag{0xffff'ffff}}) {
    CHECK(verdict(f.table.deregister(tag)) == "invalid_stag");
    CHECK(verdict(f.table.deallocate(tag)) == "invalid_stag");
    CHECK(verdict(f.table.reregister(tag, {})) == "invalid_stag");
  }
  CHECK(verdict(f.table.deregister(next_instance(region))) == "stale_stag");
  CHECK(verdict(f.table.deallocate(next_instance(window))) == "stale_stag");
}

TEST_CASE("an allocated region becomes valid by a fast-register, over its pages", "[fabric][memory]") {
  Fixture f;
  const Stag allocated = f.table.allocate_region(f.domain, 2).value();
  CHECK(f.use(allocated) == "invalid_stag");
  const Stag tag = f.table.fast_register(f.fast(allocated), f.me).value();
  CHECK(tag == Stag::from(allocated.index(), 0x33));
  const std::uint64_t base = f.base(tag);
  CHECK(base % 4096 == 1024);
  CHECK(f.remote(tag, base, 4096 + 1024) == "ok");
  CHECK(f.remote(tag, base, 4096 + 1025) == "base_or_bounds_violation");
  const auto placement = f.table.check_remote(f.access(tag, 2, Right::remote_write), base + 3071);
  REQUIRE(placement->store(std::array{std::byte{1}, std::byte{2}}));
  CHECK(f.paged[4095] == std::byte{1});
  CHECK(f.paged[4096] == std::byte{2});
  CHECK(verdict(f.table.check_local(f.access(tag, 8, Right::local_read), base)) == "ok");
  CHECK(verdict(f.table.check_local(f.access(tag, 8, Right::local_read), f.paged.data() + 1024)) ==
        "base_or_bounds_violation");  // pages have no address of the process's
  CHECK(f.fast_register(f.fast(tag)) == "already_valid");
  CHECK(f.table.invalidate_local(tag, f.me));
  CHECK(f.remote(tag, base, 1) == "invalid_stag");
  CHECK(verdict(f.table.invalidate_local(tag, f.me)) == "invalid_stag");
  FastRegister again = f.fast(tag);
  again.key = 0x34;
  again.options.base = 0;
  const Stag zero_based = f.table.fast_register(again, f.me).value();
  CHECK(f.remote(tag, base, 1) == "stale_stag");
  CHECK(f.remote(zero_based, 0, 4096 + 1024) == "ok");
  CHECK(f.table.deregister(zero_based));
}

TEST_CASE("a fast-register that fails is refused for the first reason in order, and changes nothing",
          "[fabric][memory]") {
  Fixture f;
  const Stag tag = f.table.allocate_region(f.domain, 1).value();
  FastRegister request = f.fast(tag);
  CHECK(f.fast_register(request) == "bad_page_list");  // one page too many
  request.pages = PageList{std::span(f.pages).first(1), kSmallestPage, 0, kSmallestPage};
  request.options.base = ~std::uint64_t{0} - 4094;
  CHECK(f.fast_register(request) == "bad_range");
  request.pages.page_bytes = 4095;
  CHECK(f.fast_register(request) == "bad_page_list");
  request.options.placeable = true;
  CHECK(f.fast_register(request) == "options_conflict");
  request.options.placeable = false;
  request.options.touch = TouchControl::one_touch;  // with window binding
  CHECK(f.fast_register(request) == "options_conflict");
  request.tag = next_instance(tag);
  CHECK(f.fast_register(request) == "stale_stag");
  CHECK(verdict(f.table.fast_register(request, f.foreigner)) == "stag_not_associated");
  request = f.fast(tag);
  request.pages = PageList{std::span(f.pages).first(1), kSmallestPage, 0, kSmallestPage};
  request.options.base = ~std::uint64_t{0} - 4095;  // its last byte is the last of all
  const Stag top = f.table.fast_register(request, f.me).value();
  CHECK(f.remote(top, ~std::uint64_t{0}, 1) == "ok");
  CHECK(f.remote(top, ~std::uint64_t{0}, 2) == "to_wrap");
}

TEST_CASE("a peer's message invalidates only what was opened to it", "[fabric][memory]") {
  Fixture f;
  EntryOptions options;
  options.rights = kAllRights;
  const Stag closed_region = f.region(options);
  options.invalidatable = true;
  options.queue_pair = f.me.queue_pair;
  const Stag open_region = f.region(options);
  Bind bind = f.binding(f.window(EntryKind::window_type_2), closed_region);
  const Stag open_window = f.table.bind(bind, f.me).value();
  bind = f.binding(f.window(EntryKind::window_type_2), closed_region);
  bind.invalidatable = false;
  const Stag closed_window = f.table.bind(bind, f.me).value();
  const Stag type_1 = f.bound(EntryKind::window_type_1, closed_region);
  const Stag iscsi = f.table.register_iscsi(f.me, f.all_memory(), {}, 1).value();
  const auto ask = [&](Stag tag, const Consumer& by) { return verdict(f.table.invalidate_remote(tag, by)); };

  for (const Stag tag : {open_region, open_window}) {
    CHECK(ask(next_instance(tag), f.foreigner) == "stag_not_associated");
    CHECK(ask(next_instance(tag), f.another) == "stale_stag");
    CHECK(ask(tag, f.another) == "wrong_queue_pair");
    CHECK(ask(tag, f.foreigner) == "stag_not_associated");
    CHECK(f.use(tag) == "ok");
    CHECK(ask(tag, f.me) == "ok");
    CHECK(f.use(tag) == "invalid_stag");
    CHECK(ask(tag, f.me) == "invalid_stag");
  }
  CHECK(ask(closed_region, f.me) == "cannot_invalidate");
  CHECK(ask(closed_window, f.me) == "cannot_invalidate");
  CHECK(ask(type_1, f.foreigner) == "wrong_kind");
  CHECK(ask(iscsi, f.foreigner) == "wrong_kind");
  CHECK(ask(Stag{}, f.me) == "wrong_kind");
  CHECK(ask(Stag{0xffff'ffff}, f.me) == "invalid_stag");
  for (const Stag tag : {closed_region, closed_window, type_1}) CHECK(f.use(tag) == "ok");
}

TEST_CASE("a work request invalidates fast-registered regions and type 2 windows", "[fabric][memory]") {
  Fixture f;
  const Stag region = f.region();
  const Stag window = f.bound(EntryKind::window_type_2, region);
  const Stag type_1 = f.bound(EntryKind::window_type_1, region);
  const Stag fast = f.table.fast_register(f.fast(f.table.allocate_region(f.domain, 2).value()), f.me).value();
  const Stag on_fast = f.bound(EntryKind::window_type_1, fast);
  const auto ask = [&](Stag tag, const Consumer& by) { return verdict(f.table.invalidate_local(tag, by)); };
  CHECK(ask(region, f.me) == "cannot_invalidate");
  CHECK(ask(type_1, f.me) == "wrong_kind");
  CHECK(ask(window, f.foreigner) == "stag_not_associated");
  CHECK(ask(window, f.another) == "wrong_queue_pair");
  CHECK(ask(window, f.me) == "ok");
  CHECK(ask(fast, f.another) == "windows_bound");
  CHECK(f.table.deallocate(on_fast));
  CHECK(ask(fast, f.another) == "ok");  // not bound to a queue pair
}

TEST_CASE("re-registration changes what is asked for, under the next instance", "[fabric][memory]") {
  Fixture f;
  std::vector<std::byte> bytes(100);
  const Stag first = f.region();
  const std::uint64_t base = f.base(first);
  Reregister change;
  change.rights = Rights{} | Right::remote_read;
  const Stag second = f.table.reregister(first, change).value();
  CHECK(second == next_instance(first));
  CHECK(f.remote(first, base) == "stale_stag");
  CHECK(f.base(second) == base);
  CHECK(f.use(second, Right::remote_read) == "ok");
  CHECK(f.use(second, Right::remote_write) == "access_rights_violation");
  change = Reregister{};
  change.memory = RegionMemory::of_process(bytes);
  const Stag third = f.table.reregister(second, change).value();
  CHECK(f.remote(third, f.base(third), 100, Right::remote_read) == "ok");
  CHECK(f.remote(third, f.base(third), 101, Right::remote_read) == "base_or_bounds_violation");
  change = Reregister{};
  change.domain = f.other_domain;
  f.table.set_rules(f.other_domain, DomainRules::strict);
  change.keeps_tag = true;
  const Stag fourth = f.table.reregister(third, change).value();
  CHECK(fourth == third);
  CHECK(f.table.tags_in(f.domain) == 0);
  CHECK(f.table.tags_in(f.other_domain) == 1);
  CHECK(f.use(fourth, Right::remote_read) == "wrong_kind");  // its new domain is strict
  change.memory = RegionMemory::of_process(bytes);
  CHECK(f.table.reregister(fourth, change).value() == next_instance(fourth));  // new memory: a new tag all the same
  const Stag fast = f.table.fast_register(f.fast(f.table.allocate_region(f.domain, 2).value()), f.me).value();
  CHECK(verdict(f.table.reregister(fast, {})) == "wrong_kind");
}

TEST_CASE("options that can't go together are refused", "[fabric][memory]") {
  Fixture f;
  for (const TouchControl touch : {TouchControl::unlimited, TouchControl::one_touch, TouchControl::one_shot}) {
    for (const bool placeable : {false, true}) {
      for (const bool invalidatable : {false, true}) {
        for (const bool binding : {false, true}) {
          EntryOptions options;
          options.rights = Rights{static_cast<std::uint16_t>(binding ? 32 : 0)};
          options.touch = touch;
          options.placeable = placeable;
          options.invalidatable = invalidatable;
          const bool limited = touch != TouchControl::unlimited;
          const bool conflict = (placeable && (limited || invalidatable)) || (limited && binding);
          const auto made = f.table.register_region(f.domain, f.all_memory(), options);
          CHECK(verdict(made) == (conflict ? "options_conflict" : "ok"));
          if (made && placeable) CHECK(verdict(f.table.reregister(*made, {})) == "options_conflict");
          if (!made || !limited) continue;
          Reregister change;
          change.rights = Rights{} | Right::window_binding;
          CHECK(verdict(f.table.reregister(*made, change)) == "options_conflict");
        }
      }
    }
  }
  EntryOptions options;
  options.base = ~std::uint64_t{0} - 4094;
  CHECK(verdict(f.table.register_region(f.domain, f.all_memory(), options)) == "bad_range");
  options.base = ~std::uint64_t{0} - 4095;
  CHECK(verdict(f.table.register_region(f.domain, f.all_memory(), options)) == "ok");
  CHECK(verdict(f.table.register_iscsi(f.me, f.all_memory(), Rights{} | Right::local_read, 1)) == "options_conflict");
}

TEST_CASE("an iSCSI entry is zero-based and leads back to its send request", "[fabric][memory]") {
  Fixture f;
  const Rights rights = Right::remote_read | Right::remote_write;
  const Stag tag = f.table.register_iscsi(f.me, f.all_memory(), rights, 0xfeed'0000'0001).value();
  const Access access = f.access(tag, 512, Right::remote_write);
  const auto placement = f.table.check_iscsi(access, 1024);
  REQUIRE(placement);
  CHECK(placement->entry->base == 0xfeed'0000'0001);
  CHECK(placement->offset == 1024);
  CHECK(verdict(f.table.check_iscsi(access, 4096 - 511)) == "base_or_bounds_violation");
  CHECK(verdict(f.table.finish_iscsi(tag, f.foreigner)) == "stag_not_associated");
  CHECK(verdict(f.table.finish_iscsi(next_instance(tag), f.me)) == "stale_stag");
  CHECK(verdict(f.table.finish_iscsi(tag, f.another)) == "wrong_queue_pair");
  CHECK(f.table.finish_iscsi(tag, f.me).value() == 0xfeed'0000'0001);
  CHECK(verdict(f.table.finish_iscsi(tag, f.me)) == "invalid_stag");
}

TEST_CASE("a domain's rules hold for what is made in it from then on, and end with it", "[fabric][memory]") {
  Fixture f;
  const Stag before = f.region();
  f.table.set_rules(f.domain, DomainRules::strict);
  const Stag strict = f.region();
  CHECK(f.use(before) == "ok");
  CHECK(f.use(strict) == "wrong_kind");
  const Stag window = f.bound(EntryKind::window_type_1, strict);
  CHECK(f.use(window) == "ok");
  CHECK(f.table.deallocate(window));
  for (const Stag tag : {before, strict}) CHECK(f.table.deregister(tag));
  const Stag after = f.region();
  CHECK(f.use(after) == "wrong_kind");
  CHECK(f.table.deregister(after));
  f.table.forget_domain(f.domain);
  CHECK(f.use(f.region()) == "ok");
}

TEST_CASE("entries may share one translation", "[fabric][memory]") {
  Fixture f;
  const RegionMemory memory = f.all_memory();
  const Stag first = f.table.insert(f.domain, memory, kAllRights, false).value();
  const Stag second = f.table.insert(f.other_domain, memory, kAllRights, false).value();
  CHECK(memory.sharers() == 3);
  CHECK(f.table.deregister(first));
  CHECK(memory.sharers() == 2);
  CHECK(f.table.find(second)->memory.holds(f.memory.data(), 4096));
  CHECK(f.table.deregister(second));
  CHECK(memory.sharers() == 1);
}

TEST_CASE("peers' addresses of regions are drawn, and keep the alignment of the memory", "[fabric][memory]") {
  Fixture f;
  std::set<std::uint64_t> bases;
  const auto address = reinterpret_cast<std::uintptr_t>(f.memory.data());
  for (int i = 0; i < 64; ++i) {
    const Stag tag = f.region();
    const std::uint64_t base = f.base(tag);
    CHECK(bases.insert(base & ~std::uint64_t{0xfff}).second);
    CHECK(base % 4096 == address % 4096);
    CHECK(f.table.address_of(tag, f.memory.data() + 9) == base + 9);
    CHECK_FALSE(f.table.address_of(tag, f.memory.data() + 4097).has_value());
  }
  CHECK_FALSE(f.table.address_of(Stag{}, f.memory.data()).has_value());
}

TEST_CASE("windows on a bridge's memory are bound no more when its epoch ends, and can be bound elsewhere",
          "[fabric][memory]") {
  Fixture f;
  const PeerMemory bytes = PeerMemory::over(f.memory.data(), f.memory.size());
  const RegionMemory bridge = RegionMemory::of_bridge(bytes, 0, PathNumber{3});
  const Stag gone = f.table.insert(f.domain, bridge, kAllRights, false).value();
  const Stag region = f.region();
  const std::array ended{f.bound(EntryKind::window_type_1, gone), f.bound(EntryKind::window_type_2, gone)};
  const std::array kept{f.bound(EntryKind::window_type_1, region), f.bound(EntryKind::window_type_2, region)};
  const std::array indices{gone.index(), region.index()};
  f.table.end_bridge_memory(PathNumber{3}, indices);
  CHECK(f.table.find(gone) == nullptr);
  for (const Stag window : ended) {
    REQUIRE(f.table.find(window) != nullptr);
    CHECK_FALSE(f.table.find(window)->valid);
    CHECK(f.table.bind(f.binding(window, region), f.me));
  }
  for (const Stag window : kept) CHECK(f.use(window) == "ok");
  CHECK(f.table.find(region)->bound == 4);
}

}  // namespace splitnic::fabric::protection_tags_test
