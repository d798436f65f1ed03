// A million random operations on the table and on a plain model of it: the same verdict, by the same code, each time.
#include "protection_model.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <memory>

#include "protection_fixture.h"

namespace splitnic::fabric::protection_model_test {
namespace {

using Entry = ProtectionModel::Entry;
using Side = ProtectionModel::Side;

constexpr std::size_t kCapacity = 48;
constexpr int kPaged = 3;  // the memory made of pages

struct Run {
  explicit Run(std::uint64_t seed) : random(seed), table_random(seed + 1), table(kCapacity, table_random) {
    for (const std::uint32_t domain : {1U, 2U}) {
      const DomainRules rules = domain == 2 ? DomainRules::strict : DomainRules::verbs;
      table.set_rules(ProtectionDomain{domain}, rules);
      model.rules[ProtectionDomain{domain}] = rules;
    }
    for (std::byte& byte : std::span(bytes)) byte = std::byte{0};
  }

  SeededRandom random;
  SeededRandom table_random;
  ProtectionTable table;
  ProtectionModel model;
  alignas(4096) std::array<std::byte, 4 * 4096> bytes{};
  std::array<std::byte*, 2> pages{bytes.data() + 8192, bytes.data()};
  std::array<Stag, 256> known{};  // tags that were handed out, most of them long dead
  std::size_t noted = 0;
  std::map<std::string, std::uint64_t> verdicts;

  std::uint64_t below(std::uint64_t bound) { return random.below(bound); }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  RegionMemory memory(int which) {
    const std::size_t sizes[] = {4096, 100, 8000};
    return RegionMemory::of_process(std::span(bytes).first(sizes[which]));
  }
  Consumer consumer() {
    return {ProtectionDomain{1 + static_cast<std::uint32_t>(one_in(3))},
            QpNumber{1 + static_cast<std::uint32_t>(below(2))}};
  }
  /// Mostly one that the tag would let in.
  Consumer consumer_for(Stag tag) {
    Consumer result = consumer();
    const auto found = model.entries.find(tag.index());
    if (found == model.entries.end() || one_in(4)) return result;
    result.domain = found->second.domain;
    if (found->second.queue_pair != QpNumber{}) result.queue_pair = found->second.queue_pair;
    return result;
  }
  Rights rights() { return one_in(3) ? kAllRights : Rights{static_cast<std::uint16_t>(below(64))}; }
  TouchControl touch() { return one_in(3) ? static_cast<TouchControl>(1 + below(2)) : TouchControl::unlimited; }
  void note(Stag tag) { known[noted++ % known.size()] = tag; }
  /// Mostly a live tag, mostly of the kind that is asked for; at times a dead one, or one never seen.
  Stag tag(bool (*is_kind)(EntryKind) = nullptr) {
    if (one_in(50)) return Stag{random.next32() % (1U << 16U)};
    if (one_in(8) || model.entries.empty()) return known[below(known.size())];
    for (int attempt = 0;; ++attempt) {
      const auto& [index, entry] = *std::next(model.entries.begin(), static_cast<int>(below(model.entries.size())));
      if (is_kind == nullptr || is_kind(entry.kind) || attempt == 4) return Stag::from(index, entry.instance);
    }
  }

  /// The table's answer beside the model's. True: allowed by both.
  bool agree(const char* what, const std::string& table_says, const std::string& model_says) {
    if (table_says != model_says) {
      FAIL(what << ": the table says " << table_says << ", the model " << model_says);
    }
    ++verdicts[std::string(what) + " " + table_says];
    return table_says == "ok";
  }
  Entry& adopt(Stag tag, EntryKind kind, ProtectionDomain domain) {
    REQUIRE(model.entries.count(tag.index()) == 0);
    note(tag);
    return model.adopt(tag, kind, domain);
  }
  std::uint64_t base_of(Stag tag, const EntryOptions& options) const {
    return options.base ? *options.base : table.find(tag)->base;
  }
  EntryOptions options() {
    EntryOptions result;
    result.rights = rights();
    result.touch = touch();
    result.placeable = one_in(8);
    result.invalidatable = one_in(2);
    if (one_in(4)) result.queue_pair = consumer().queue_pair;
    if (one_in(4)) result.base = below(3) * 4096;
    return result;
  }
  std::string full_or(const std::string& otherwise) const {
    return model.entries.size() == kCapacity && otherwise == "ok" ? "table_full" : otherwise;
  }

  void register_region() {
    const int which = static_cast<int>(below(3));
    const EntryOptions asked = options();
    const ProtectionDomain domain = consumer().domain;
    const RegionMemory behind = memory(which);
    const auto made = table.register_region(domain, behind, asked);
    const std::string expected = full_or(ProtectionModel::conflict(asked) ? "options_conflict" : "ok");
    if (!agree("register", verdict(made), expected)) return;
    Entry& entry = adopt(*made, EntryKind::region, domain);
    entry.memory = which;
    model.describe(made->index(), asked, base_of(*made, asked), behind.size());
  }
  void reregister() {
    const Stag old = tag();
    Reregister change;
    change.rights = rights();
    const auto made = table.reregister(old, change);
    if (!agree("reregister", verdict(made), model.reregister(old, *change.rights))) return;
    const Stag next = model.reregistered(old, *change.rights);
    REQUIRE(*made == next);
    note(*made);
  }
  void deregister() {
    const Stag gone = tag(is_region);
    const std::string expected = model.deregister(gone);
    if (agree("deregister", verdict(table.deregister(gone)), expected)) model.entries.erase(gone.index());
  }
  void allocate_region() {
    const ProtectionDomain domain = consumer().domain;
    const std::size_t max_pages = 1 + static_cast<std::size_t>(below(2));
    const auto made = table.allocate_region(domain, max_pages);
    if (!agree("allocate region", verdict(made), full_or("ok"))) return;
    Entry& entry = adopt(*made, EntryKind::region, domain);
    entry.fast = true;
    entry.max_pages = max_pages;
    entry.memory = kPaged;
  }
  void fast_register() {
    FastRegister request;
    request.tag = tag(is_region);
    const Consumer by = consumer_for(request.tag);
    request.key = static_cast<std::uint8_t>(below(256));
    request.pages = PageList{std::span(pages).first(1 + below(2)), kSmallestPage, 8 * below(4), 2048};
    request.options = options();
    const std::string expected = model.fast_register(request, by);
    const auto made = table.fast_register(request, by);
    if (!agree("fast register", verdict(made), expected)) return;
    REQUIRE(*made == Stag::from(request.tag.index(), request.key));
    model.entries.at(made->index()).instance = request.key;
    model.describe(made->index(), request.options, base_of(*made, request.options), bytes_of(request.pages));
    note(*made);
  }
  void allocate_window() {
    const ProtectionDomain domain = consumer().domain;
    const EntryKind kind = one_in(2) ? EntryKind::window_type_1 : EntryKind::window_type_2;
    std::array<Stag, 1> made{};
    if (agree("allocate window", verdict(table.allocate_windows(domain, kind, made)), full_or("ok"))) {
      adopt(made[0], kind, domain);
    }
  }
  void bind() {
    Bind request;
    request.window = tag(is_window);
    const Consumer by = consumer_for(request.window);
    request.region = tag(is_region);
    const auto region = model.entries.find(request.region.index());
    request.address = (region == model.entries.end() ? 0 : region->second.base) + 8 * below(20) - 8;
    request.length = one_in(5) ? 0 : 8 * below(600);
    request.rights = one_in(4) ? rights() : Rights{static_cast<std::uint16_t>(4 * below(8))};
    request.key = static_cast<std::uint8_t>(below(256));
    request.zero_based = one_in(6);
    request.invalidatable = one_in(2);
    request.touch = touch();
    const std::string expected = model.bind(request, by);
    const auto made = table.bind(request, by);
    if (!agree("bind", verdict(made), expected)) return;
    const Stag next = model.bound(request, by);
    REQUIRE(*made == next);
    note(*made);
  }
  void deallocate() {
    const Stag gone = tag(is_window);
    const std::string expected = model.named(gone, is_window);
    if (agree("deallocate", verdict(table.deallocate(gone)), expected)) model.entries.erase(gone.index());
  }
  void invalidate() {
    const Stag gone = tag();
    const Consumer by = consumer_for(gone);
    const bool by_peer = one_in(2);
    const std::string expected = model.invalidate(gone, by, by_peer);
    const auto done = by_peer ? table.invalidate_remote(gone, by) : table.invalidate_local(gone, by);
    if (agree("invalidate", verdict(done), expected)) model.end(gone.index());
  }
  void register_iscsi() {
    const Consumer by = consumer();
    const Rights asked{static_cast<std::uint16_t>(4 * below(4))};
    const auto made = table.register_iscsi(by, memory(0), asked, 77);
    if (!agree("register iSCSI", verdict(made), full_or("ok"))) return;
    Entry& entry = adopt(*made, EntryKind::iscsi, by.domain);
    entry.valid = true;
    entry.length = 4096;
    entry.rights = asked;
    entry.queue_pair = by.queue_pair;
  }
  void finish_iscsi() {
    const Stag gone = tag([](EntryKind kind) { return kind == EntryKind::iscsi; });
    const Consumer by = consumer_for(gone);
    const Access access{gone, by.domain, 0, Right::remote_read, by.queue_pair, 0};
    const std::string expected = model.identify(access, Side::iscsi);
    if (agree("finish iSCSI", verdict(table.finish_iscsi(gone, by)), expected)) model.entries.erase(gone.index());
  }

  void check() {
    const Stag asked = tag();
    const Consumer by = consumer_for(asked);
    const Right right = kEveryRight[below(kEveryRight.size())];
    const Access access{asked, by.domain,     one_in(20) ? random.next() : 8 * below(8),
                        right, by.queue_pair, static_cast<std::uint32_t>(below(2))};
    const auto found = model.entries.find(access.tag.index());
    std::uint64_t address = random.next();
    if (found != model.entries.end()) {
      const bool iscsi = found->second.kind == EntryKind::iscsi;
      address =
          (iscsi ? 0 : found->second.base) + (one_in(4) ? found->second.length - 16 + below(32) : 8 * below(10) - 8);
    }
    const Side side = one_in(2) ? Side::remote : static_cast<Side>(below(4));
    const auto placed = side == Side::local    ? table.check_local(access, address)
                        : side == Side::remote ? table.check_remote(access, address)
                        : side == Side::iscsi  ? table.check_iscsi(access, address)
                                               : table.check_response(access, address);
    if (!agree("check", verdict(placed), model.check(access, side, address))) return;
    REQUIRE(placed->offset == model.offset_of(access.tag, address));
    REQUIRE((placed->memory->pages() != nullptr) == (found->second.memory == kPaged));
    if (side == Side::remote) use(access, found->second);
  }
  void use(const Access& access, const Entry& entry) {
    const bool last = one_in(2);
    const TouchAction action = table.touch(access, {last, 9, 10, 1});
    const bool one_shot = entry.touch == TouchControl::one_shot;
    const bool one_touch = entry.touch == TouchControl::one_touch && access.right != Right::remote_read;
    const bool ends = last && (one_shot || one_touch);
    REQUIRE(action == (ends ? TouchAction::place_and_invalidate : TouchAction::place));
    model.touch(access, ends);
  }

  void step() {
    constexpr void (Run::*kOperations[])() = {&Run::register_region,
                                              &Run::reregister,
                                              &Run::deregister,
                                              &Run::allocate_region,
                                              &Run::fast_register,
                                              &Run::fast_register,
                                              &Run::allocate_window,
                                              &Run::bind,
                                              &Run::bind,
                                              &Run::bind,
                                              &Run::deallocate,
                                              &Run::invalidate,
                                              &Run::invalidate,
                                              &Run::register_iscsi,
                                              &Run::finish_iscsi,
                                              &Run::deregister,
                                              &Run::deregister,
                                              &Run::deallocate};
    if (one_in(2)) return check();
    (this->*kOperations[below(std::size(kOperations))])();
  }
  void compare_all() {
    for (const auto& [index, entry] : model.entries) {
      const ProtectionEntry* there = table.find(Stag::from(index, entry.instance));
      REQUIRE(there != nullptr);
      REQUIRE(there->valid == entry.valid);
      if (entry.kind == EntryKind::region) REQUIRE(there->bound == model.windows_of(index));
    }
    for (const auto& [domain, rules] : model.rules) REQUIRE(table.tags_in(domain) == model.tags_in(domain));
  }
};

}  // namespace

TEST_CASE("a million random operations end as in a plain model of the table", "[fabric][memory][model]") {
  // SPLITNIC_SEED replays one run.
  const char* given = std::getenv("SPLITNIC_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : SystemRandom().next();
  CAPTURE(seed);
  auto run = std::make_unique<Run>(seed);
  for (int i = 0; i < 1'000'000; ++i) {
    run->step();
    if (i % 1000 == 0) run->compare_all();
  }
  std::uint64_t allowed = 0;
  for (const auto& [what, count] : run->verdicts) allowed += what.ends_with(" ok") ? count : 0;
  std::cout << "protection model: seed " << seed << ", " << allowed << " allowed, " << run->verdicts.size()
            << " kinds of verdict\n";
  CHECK(allowed > 100'000);
  CHECK(run->verdicts.size() > 60);
}

}  // namespace splitnic::fabric::protection_model_test
