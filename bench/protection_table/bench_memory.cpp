// What the protection table costs, by the number of its entries: looking up, registering, binding.
//   bench-memory [--benchmark_filter=...] [--benchmark_format=json]
// And what a stranger gets who tries every tag there is, in about a minute and a half; exit code 1: something.
//   bench-memory --guess
#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "fabric/memory/protection_table.h"

namespace splitnic::fabric {
namespace {

constexpr std::size_t kAsked = 1U << 16U;  // accesses prepared, so that drawing them is not measured
constexpr std::size_t kHot = 64;

/// A table full but for 64 tags, all of one domain.
struct Filled {
  explicit Filled(std::size_t entries) : table(entries + 64, random) {
    const RegionMemory all = RegionMemory::of_process(memory);
    options.rights = Rights{0x3f};
    for (std::size_t i = 0; i < entries; ++i)
      tags.push_back(table.register_region(consumer.domain, all, options).value());
  }

  /// kAsked accesses to the first `among` entries, at random.
  std::vector<Access> accesses(std::size_t among) {
    std::vector<Access> result;
    while (result.size() < kAsked) {
      const Stag tag = tags[random.below(std::min(among, tags.size()))];
      result.push_back({tag, consumer.domain, 64, Right::remote_write, consumer.queue_pair, 0});
    }
    return result;
  }

  SeededRandom random{1};
  std::array<std::byte, 4096> memory{};
  Consumer consumer{ProtectionDomain{1}, QpNumber{1}};
  EntryOptions options;
  ProtectionTable table;
  std::vector<Stag> tags;
};

/// Tables are kept from one measurement to the next: filling the largest takes longer than measuring it.
Filled& filled(std::size_t entries) {
  static std::unique_ptr<Filled> kept;
  static std::size_t kept_entries = 0;
  if (kept_entries != entries) {
    kept = std::make_unique<Filled>(entries);
    kept_entries = entries;
  }
  return *kept;
}

void report(benchmark::State& state, const Filled& f) {
  state.counters["bytes/entry"] = static_cast<double>(f.table.memory_bytes()) / static_cast<double>(f.tags.size());
}

void look_up(benchmark::State& state, std::size_t among) {
  Filled& f = filled(static_cast<std::size_t>(state.range(0)));
  const std::vector<Access> accesses = f.accesses(among);
  std::vector<std::uint64_t> addresses;
  for (const Access& access : accesses) addresses.push_back(f.table.find(access.tag)->base);
  std::size_t i = 0;
  for (auto _ : state) {
    const auto placement = f.table.check_remote(accesses[i], addresses[i]);
    benchmark::DoNotOptimize(placement);
    i = (i + 1) % kAsked;
  }
  report(state, f);
}

/// Entries that the cache holds: the cost of the checks.
void look_up_hot(benchmark::State& state) { look_up(state, kHot); }
/// Any of all: with many entries, the checks and one miss of the cache and of the TLB.
void look_up_any(benchmark::State& state) { look_up(state, ~std::size_t{0}); }

void look_up_refused(benchmark::State& state) {
  Filled& f = filled(static_cast<std::size_t>(state.range(0)));
  Access access{Stag{}, ProtectionDomain{2}, 64, Right::remote_write, f.consumer.queue_pair, 0};
  std::uint32_t guess = 0;
  for (auto _ : state) {
    access.tag = Stag{guess += 0x9e37'79b9};
    benchmark::DoNotOptimize(f.table.check_remote(access, 0));
  }
  report(state, f);
}

void register_and_deregister(benchmark::State& state) {
  Filled& f = filled(static_cast<std::size_t>(state.range(0)));
  const RegionMemory memory = RegionMemory::of_process(f.memory);
  for (auto _ : state) {
    const auto tag = f.table.register_region(f.consumer.domain, memory, f.options);
    SPLITNIC_CHECK(tag && f.table.deregister(*tag));
  }
  report(state, f);
}

void fast_register_and_invalidate(benchmark::State& state) {
  alignas(4096) static std::array<std::byte, 16 * 4096> paged;
  std::vector<std::byte*> pages;
  for (std::size_t page = 0; page < 16; ++page) pages.push_back(paged.data() + page * 4096);
  Filled& f = filled(static_cast<std::size_t>(state.range(0)));
  FastRegister request;
  request.tag = f.table.allocate_region(f.consumer.domain, pages.size()).value();
  request.pages = PageList{pages};
  request.options = f.options;
  for (auto _ : state) {
    ++request.key;
    request.tag = f.table.fast_register(request, f.consumer).value();
    SPLITNIC_CHECK(f.table.invalidate_local(request.tag, f.consumer));
  }
  SPLITNIC_CHECK(f.table.deregister(request.tag));
  report(state, f);
}

void bind_and_unbind(benchmark::State& state, EntryKind kind) {
  Filled& f = filled(static_cast<std::size_t>(state.range(0)));
  std::array<Stag, 1> window{};
  SPLITNIC_CHECK(f.table.allocate_windows(f.consumer.domain, kind, window));
  Bind bind;
  bind.window = window[0];
  bind.length = 100;
  bind.rights = Right::remote_read | Right::remote_write;
  const std::vector<Access> accesses = f.accesses(kHot);
  std::size_t i = 0;
  for (auto _ : state) {
    bind.region = accesses[i].tag;
    bind.address = f.table.find(bind.region)->base + 33;
    ++bind.key;
    const Stag bound = f.table.bind(bind, f.consumer).value();
    Bind nothing;
    nothing.window = bound;
    bind.window = f.table.bind(nothing, f.consumer).value();
    i = (i + 1) % kAsked;
  }
  SPLITNIC_CHECK(f.table.deallocate(bind.window));
  report(state, f);
}
void bind_type_1(benchmark::State& state) { bind_and_unbind(state, EntryKind::window_type_1); }
void bind_type_2(benchmark::State& state) { bind_and_unbind(state, EntryKind::window_type_2); }

constexpr void (*kMeasured[])(benchmark::State&) = {
    look_up_hot, look_up_any, look_up_refused, register_and_deregister, fast_register_and_invalidate,
    bind_type_1, bind_type_2};
constexpr const char* kNames[] = {"look_up_hot",
                                  "look_up_any",
                                  "look_up_refused",
                                  "register_and_deregister",
                                  "fast_register_16_pages_and_invalidate",
                                  "bind_and_unbind_type_1",
                                  "bind_and_unbind_type_2"};

// ---- guessing

constexpr std::uint32_t kLive = 100'000;
constexpr std::uint32_t kOwners = 50;

/// Live regions and bound windows of many owners, each with a domain and a queue pair, all at address 0 with every
/// right: nothing but the tag stands in the way.
class Crowd {
 public:
  Crowd() : table_(kLive, random_) {
    EntryOptions options;
    options.rights = Rights{0x3f};
    options.base = 0;
    const RegionMemory all = RegionMemory::of_process(memory_);
    for (std::uint32_t i = 0; i < kLive / 2; ++i) {
      Bind bind;
      bind.region = table_.register_region(owner(i).domain, all, options).value();
      bind.length = memory_.size();
      bind.rights = Right::remote_read | Right::remote_write | Right::remote_atomic;
      bind.key = static_cast<std::uint8_t>(i);
      std::array<Stag, 1> window{};
      const EntryKind kind = i % 2 == 0 ? EntryKind::window_type_1 : EntryKind::window_type_2;
      SPLITNIC_CHECK(table_.allocate_windows(owner(i).domain, kind, window));
      bind.window = window[0];
      tags_.push_back(bind.region);
      tags_.push_back(table_.bind(bind, owner(i)).value());
    }
  }

  static Consumer owner(std::uint32_t i) { return {ProtectionDomain{1 + i % kOwners}, QpNumber{1 + i % kOwners}}; }
  /// Of every live entry, by who may: what a guess would have to find.
  [[nodiscard]] std::uint64_t owners_let_in() const {
    std::uint64_t let = 0;
    for (std::uint32_t i = 0; i < tags_.size(); ++i) let += lets_in(tags_[i], owner(i / 2)) ? 1 : 0;
    return let;
  }
  [[nodiscard]] bool lets_in(Stag tag, const Consumer& who) const {
    return table_.check_remote({tag, who.domain, 1, Right::remote_read, who.queue_pair, 0}, 0).has_value();
  }

 private:
  SystemRandom random_;
  std::array<std::byte, 64> memory_{};
  ProtectionTable table_;
  std::vector<Stag> tags_;
};

int guess_every_tag() {
  const Crowd crowd;
  std::printf("%u live entries of %u owners; their owners are let in with %llu of them\n", kLive, kOwners,
              static_cast<unsigned long long>(crowd.owners_let_in()));
  const Consumer stranger = {ProtectionDomain{kOwners + 1}, QpNumber{kOwners + 1}};
  std::uint64_t let_in = 0;
  std::uint64_t tried = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint32_t tag = 0; tried <= 0xffff'ffffU; ++tag, ++tried) let_in += crowd.lets_in(Stag{tag}, stranger);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("a stranger tried %llu tags, every one there is, in %.0f s (%.1f ns each), and was let in with %llu\n",
              static_cast<unsigned long long>(tried), took.count(), took.count() * 1e9 / static_cast<double>(tried),
              static_cast<unsigned long long>(let_in));
  return let_in == 0 && crowd.owners_let_in() == kLive ? 0 : 1;
}

}  // namespace

}  // namespace splitnic::fabric

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--guess") == 0) return splitnic::fabric::guess_every_tag();
  using splitnic::fabric::kMeasured;
  using splitnic::fabric::kNames;
  for (const std::int64_t entries : {10, 100, 1000, 10'000, 100'000, 1'000'000}) {
    for (std::size_t i = 0; i < std::size(kMeasured); ++i) {
      benchmark::RegisterBenchmark(kNames[i], kMeasured[i])->Arg(entries);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("entry", std::to_string(sizeof(splitnic::fabric::ProtectionEntry)) + " bytes");
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
