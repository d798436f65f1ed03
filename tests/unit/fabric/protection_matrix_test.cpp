#include "protection_fixture.h"

#include <catch2/catch.hpp>

namespace splitnic::fabric::protection_matrix_test {
namespace {

enum class Use { local, remote, response, iscsi };
constexpr std::array kEveryUse{Use::local, Use::remote, Use::response, Use::iscsi};
enum class Binding { none, mine, another_s };
constexpr std::array kEveryBinding{Binding::none, Binding::mine, Binding::another_s};
constexpr std::array kEveryKind{EntryKind::region, EntryKind::window_type_1, EntryKind::window_type_2,
                                EntryKind::iscsi};
constexpr std::array kEveryRule{DomainRules::verbs, DomainRules::strict};

/// Which kinds each use may name, as S3 and the verbs say.
bool kind_fits(Use use, EntryKind kind, DomainRules rules) {
  const bool region = kind == EntryKind::region;
  const bool window = kind == EntryKind::window_type_1 || kind == EntryKind::window_type_2;
  if (use == Use::iscsi) return kind == EntryKind::iscsi;
  if (use == Use::local) return region;
  if (rules == DomainRules::strict) return window;
  return use == Use::remote ? region || window : region;
}

Right right_needed(Use use, Right asked, DomainRules rules) {
  if (use != Use::response) return asked;
  return rules == DomainRules::strict ? Right::remote_write : Right::local_write;
}

/// Rights that an entry of the kind can have.
Rights possible(EntryKind kind) {
  if (kind == EntryKind::region) return kAllRights;
  return kind == EntryKind::iscsi ? Right::remote_read | Right::remote_write : kRemoteRights;
}

struct Cell {
  EntryKind kind;
  DomainRules rules;
  Binding binding;
  Rights rights;
};

/// A table with the one entry that the cell describes.
struct Made : ProtectionFixture {
  explicit Made(const Cell& cell) {
    table.set_rules(domain, cell.rules);
    const Consumer owner{domain, queue_pair_of(cell)};
    if (cell.kind == EntryKind::iscsi) {
      tag = table.register_iscsi(owner, all_memory(), cell.rights, 0xabcd).value();
    } else if (cell.kind == EntryKind::region) {
      EntryOptions options;
      options.rights = cell.rights;
      options.queue_pair = owner.queue_pair;
      tag = region(options);
    } else {
      tag = table.bind(binding(window(cell.kind), region(), cell.rights), owner).value();
    }
    start = cell.kind == EntryKind::iscsi ? 0 : base(tag);
    start += start % 8 == 0 ? 0 : 8 - start % 8;  // so that atomics are aligned
  }
  static QpNumber queue_pair_of(const Cell& cell) {
    if (cell.binding == Binding::none) return QpNumber{0};
    return QpNumber{cell.binding == Binding::mine ? 7U : 8U};
  }
  std::string ask(Use use, Right right, std::uint64_t address, std::uint64_t bytes) const {
    const Access what = access(tag, bytes, right);
    switch (use) {
      case Use::local:
        return verdict(table.check_local(what, address));
      case Use::remote:
        return verdict(table.check_remote(what, address));
      case Use::response:
        return verdict(table.check_response(what, address));
      case Use::iscsi:
        return verdict(table.check_iscsi(what, address));
    }
    return "?";
  }

  Stag tag{};
  std::uint64_t start = 0;
};

/// The cells that can exist: a type 2 window is always bound to a queue pair, a type 1 window never.
template <class Visit>
void for_each_cell(Visit visit) {
  for (const EntryKind kind : kEveryKind) {
    for (const DomainRules rules : kEveryRule) {
      for (const Binding binding : kEveryBinding) {
        if (kind == EntryKind::window_type_1 && binding != Binding::none) continue;
        if (kind == EntryKind::window_type_2 && binding == Binding::none) continue;
        for (std::uint16_t bits = 0; bits <= kAllRights.bits; ++bits) {
          if ((bits & ~possible(kind).bits) == 0) visit(Cell{kind, rules, binding, Rights{bits}});
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("every use of every kind of entry gets what its rights, rules and binding say", "[fabric][memory]") {
  std::size_t asked = 0;
  for_each_cell([&](const Cell& cell) {
    const Made made(cell);
    for (const Use use : kEveryUse) {
      for (const Right right : kEveryRight) {
        std::string expected = "ok";
        if (!kind_fits(use, cell.kind, cell.rules)) {
          expected = "wrong_kind";
        } else if (cell.binding == Binding::another_s) {
          expected = "wrong_queue_pair";
        } else if (!cell.rights.has(right_needed(use, right, cell.rules))) {
          expected = "access_rights_violation";
        }
        INFO("kind " << int(cell.kind) << " rules " << int(cell.rules) << " binding " << int(cell.binding) << " rights "
                     << cell.rights.bits << " use " << int(use) << " right " << int(right));
        const std::string got = made.ask(use, right, made.start, 8);
        if (got != expected) REQUIRE(got == expected);
        ++asked;
      }
    }
  });
  CHECK(asked == 2 * (64 * 3 + 8 + 8 * 2 + 4 * 3) * 4 * 6);
}

TEST_CASE("bounds hold at -1, 0 and +1 of both ends for every kind of entry", "[fabric][memory]") {
  for_each_cell([&](const Cell& cell) {
    if (cell.rights != possible(cell.kind) || cell.binding == Binding::another_s) return;
    const Made made(cell);
    const bool iscsi = cell.kind == EntryKind::iscsi;
    const std::uint64_t first = iscsi ? 0 : made.base(made.tag);
    const std::uint64_t length = made.table.find(made.tag)->length;
    for (const Use use : kEveryUse) {
      if (!kind_fits(use, cell.kind, cell.rules)) continue;
      if (use == Use::response && cell.rules == DomainRules::verbs && cell.kind != EntryKind::region) continue;
      const auto ask = [&](std::uint64_t address, std::uint64_t bytes) {
        return made.ask(use, Right::remote_write, address, bytes);
      };
      const std::string out = "base_or_bounds_violation";
      for (int start = -1; start <= 1; ++start) {
        for (int end = -1; end <= 1; ++end) {
          const std::uint64_t address = first + static_cast<std::uint64_t>(start);
          const std::uint64_t bytes = length + static_cast<std::uint64_t>(end - start);
          const bool below_zero = iscsi && start < 0;
          INFO("use " << int(use) << " kind " << int(cell.kind) << " start " << start << " end " << end);
          REQUIRE(ask(address, bytes) == (below_zero ? "to_wrap" : start < 0 || end > 0 ? out : "ok"));
        }
      }
      REQUIRE(ask(first, 0) == "ok");
      REQUIRE(ask(first + length, 0) == "ok");
      REQUIRE(ask(first + length + 1, 0) == out);
      REQUIRE(ask(first - 1, 0) == out);
      REQUIRE(ask(first + length - 1, 1) == "ok");
      REQUIRE(ask(first + length, 1) == out);
      REQUIRE(ask(~std::uint64_t{0}, 1) == out);
      REQUIRE(ask(~std::uint64_t{0}, 2) == "to_wrap");
      REQUIRE(ask(first + 2, ~std::uint64_t{0}) == "to_wrap");
      REQUIRE(ask(first, ~std::uint64_t{0} - first) == out);
    }
  });
}

TEST_CASE("what several things are wrong with is refused for the first of S3's order", "[fabric][memory]") {
  // From nothing at all wrong to everything: each step adds the fault that is checked one earlier.
  for (const EntryKind kind : kEveryKind) {
    const Use use = kind == EntryKind::iscsi ? Use::iscsi : Use::remote;
    Made made(Cell{kind, DomainRules::verbs, kind == EntryKind::window_type_1 ? Binding::none : Binding::mine,
                   Rights{} | Right::remote_read});
    Access what = made.access(made.tag, 8, Right::remote_read);
    const auto ask = [&](std::uint64_t address, Use as) {
      if (as == Use::local) return verdict(made.table.check_local(what, address));
      return verdict(as == Use::iscsi ? made.table.check_iscsi(what, address) : made.table.check_remote(what, address));
    };
    CHECK(ask(made.start, use) == "ok");
    what.right = Right::remote_write;
    CHECK(ask(made.start, use) == "access_rights_violation");
    CHECK(ask(made.start + 4096, use) == "base_or_bounds_violation");
    CHECK(ask(~std::uint64_t{0}, use) == "to_wrap");
    if (kind != EntryKind::window_type_1) {
      what.queue_pair = QpNumber{8};
      CHECK(ask(~std::uint64_t{0}, use) == "wrong_queue_pair");
    }
    what.tag = Stag::from(made.tag.index(), static_cast<std::uint8_t>(made.tag.instance() + 1));
    CHECK(ask(~std::uint64_t{0}, use) == "stale_stag");
    what.domain = ProtectionDomain{2};
    CHECK(ask(~std::uint64_t{0}, use) == "stag_not_associated");
    const Use wrong = kind == EntryKind::region ? Use::iscsi : kind == EntryKind::iscsi ? Use::remote : Use::local;
    CHECK(ask(~std::uint64_t{0}, wrong) == "wrong_kind");
    if (kind == EntryKind::region) REQUIRE(made.table.deregister(made.tag));
    if (is_window(kind)) REQUIRE(made.table.deallocate(made.tag));
    if (kind == EntryKind::iscsi) REQUIRE(made.table.finish_iscsi(made.tag, made.me));
    CHECK(ask(~std::uint64_t{0}, wrong) == "invalid_stag");
  }
}

TEST_CASE("atomics are 8 bytes at a multiple of 8", "[fabric][memory]") {
  ProtectionFixture f;
  const Stag tag = f.region();
  const std::uint64_t base = f.base(tag);
  REQUIRE(base % 8 == 0);
  for (std::uint64_t bytes = 0; bytes <= 16; ++bytes) {
    for (std::uint64_t at = 0; at <= 16; ++at) {
      const bool whole = bytes == 8 && at % 8 == 0;
      CHECK(f.remote(tag, base + at, bytes, Right::remote_atomic) == (whole ? "ok" : "misaligned_atomic"));
    }
  }
  CHECK(f.remote(tag, base + 4088, 8, Right::remote_atomic) == "ok");
  CHECK(f.remote(tag, base + 4089, 8, Right::remote_atomic) == "base_or_bounds_violation");
  // A zero-based window that starts off a word: aligned to the peer, not in memory.
  Bind bind = f.binding(f.window(EntryKind::window_type_2), tag);
  bind.address = base + 1;
  bind.zero_based = true;
  const Stag odd = f.table.bind(bind, f.me).value();
  CHECK(f.remote(odd, 0, 8, Right::remote_atomic) == "misaligned_atomic");
  CHECK(f.remote(odd, 7, 8, Right::remote_atomic) == "misaligned_atomic");
  CHECK(f.remote(odd, 0, 8, Right::remote_write) == "ok");
}

TEST_CASE("a window gives its own range and no byte of its region beyond it", "[fabric][memory]") {
  ProtectionFixture f;
  for (const EntryKind kind : {EntryKind::window_type_1, EntryKind::window_type_2}) {
    const Stag region = f.region();
    const Stag window = f.bound(kind, region);
    for (const Right right : {Right::remote_read, Right::remote_write}) {
      const std::uint64_t first = f.base(region) + 100;
      CHECK(f.remote(window, first, 1000, right) == "ok");
      CHECK(f.remote(window, first - 1, 1, right) == "base_or_bounds_violation");
      CHECK(f.remote(window, first, 1001, right) == "base_or_bounds_violation");
      CHECK(f.remote(window, first + 1000, 1, right) == "base_or_bounds_violation");
    }
    const auto placement = f.table.check_remote(f.access(window, 3, Right::remote_write), f.base(region) + 105);
    const std::array bytes{std::byte{1}, std::byte{2}, std::byte{3}};
    REQUIRE(placement->store(bytes));
    CHECK(f.memory[104] == std::byte{0});
    CHECK(f.memory[105] == std::byte{1});
    CHECK(f.memory[107] == std::byte{3});
    CHECK(f.memory[108] == std::byte{0});
    f.memory.fill(std::byte{0});
  }
}

}  // namespace splitnic::fabric::protection_matrix_test
