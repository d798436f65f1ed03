#include "bench/fabric/tables.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <utility>

#include "bench/fabric/contents.h"
#include "common/check.h"
#include "common/random.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/memory/protection_table.h"
#include "fabric/verbs/verbs.h"

namespace splitnic::bench {

namespace {

using namespace fabric;

constexpr std::size_t kSame = 10;
constexpr std::size_t kAsked = 1U << 16U;  // accesses drawn beforehand; a power of two
constexpr std::size_t kRounds = 64;        // between two looks at the clock
constexpr std::size_t kSpare = 8;          // tags beside those that fill the table
constexpr std::size_t kPages = 16;
constexpr std::size_t kPageBytes = 4096;

/// Keeps a value from being optimized away.
template <class T>
void use(const T& value) {
  asm volatile("" : : "m"(value) : "memory");
}

/// Mean seconds of one call, after a run-up; operation(i) with i counting up.
template <class Operation>
double time_of(Duration length, Operation&& operation) {
  std::size_t calls = 0;
  const auto run_for = [&](Duration time) {
    const std::size_t before = calls;
    const Time begin = monotonic_now();
    Time now = begin;
    do {
      for (std::size_t i = 0; i < kRounds; ++i) operation(calls++);
      now = monotonic_now();
    } while (now - begin < time);
    return std::chrono::duration<double>(now - begin).count() / static_cast<double>(calls - before);
  };
  run_for(length / kRunUpShare);
  return run_for(length);
}

/// A table with so many regions of one domain.
class FullTable {
 public:
  explicit FullTable(std::size_t entries) : table_(entries + kSpare, random_), memory_(kPages * kPageBytes) {
    options_.rights =
        Right::local_read | Right::local_write | Right::remote_read | Right::remote_write | Right::window_binding;
    const RegionMemory all = RegionMemory::of_process(memory_);
    tags_.reserve(entries);
    for (std::size_t i = 0; i < entries; ++i) {
      tags_.push_back(table_.register_region(consumer_.domain, all, options_).value());
    }
  }

  [[nodiscard]] std::size_t bytes() const { return table_.memory_bytes(); }

  double look_up(std::size_t among, Duration length) {
    std::vector<Access> accesses(kAsked);
    std::vector<std::uint64_t> addresses(kAsked);
    for (std::size_t i = 0; i < kAsked; ++i) {
      const Stag tag = tags_[random_.below(std::min(among, tags_.size()))];
      accesses[i] = {tag, consumer_.domain, 64, Right::remote_write, consumer_.queue_pair, 0};
      addresses[i] = table_.find(tag)->base;
    }
    return time_of(length, [&](std::size_t i) {
      const auto placement = table_.check_remote(accesses[i % kAsked], addresses[i % kAsked]);
      SPLITNIC_CHECK(placement.has_value());
      use(placement);
    });
  }

  double register_and_deregister(Duration length) {
    const RegionMemory memory = RegionMemory::of_process(memory_);
    return time_of(length, [&](std::size_t) {
      const auto tag = table_.register_region(consumer_.domain, memory, options_);
      SPLITNIC_CHECK(tag && table_.deregister(*tag));
    });
  }

  double bind_and_unbind(Duration length) {
    std::array<Stag, 1> window{};
    SPLITNIC_CHECK(table_.allocate_windows(consumer_.domain, EntryKind::window_type_2, window));
    Bind bind;
    bind.window = window[0];
    bind.length = 100;
    bind.rights = Right::remote_read | Right::remote_write;
    Bind nothing;
    const double cost = time_of(length, [&](std::size_t i) {
      bind.region = tags_[i % std::min(kSame, tags_.size())];
      bind.address = table_.find(bind.region)->base + 33;
      ++bind.key;
      nothing.window = table_.bind(bind, consumer_).value();
      bind.window = table_.bind(nothing, consumer_).value();
    });
    SPLITNIC_CHECK(table_.deallocate(bind.window));
    return cost;
  }

  double fast_register_and_invalidate(Duration length) {
    std::vector<std::byte*> pages;
    for (std::size_t page = 0; page < kPages; ++page) pages.push_back(memory_.data() + page * kPageBytes);
    FastRegister request;
    request.tag = table_.allocate_region(consumer_.domain, pages.size()).value();
    request.pages.pages = pages;
    request.pages.page_bytes = kPageBytes;
    request.pages.end_offset = kPageBytes;
    request.options = options_;
    const double cost = time_of(length, [&](std::size_t) {
      ++request.key;
      request.tag = table_.fast_register(request, consumer_).value();
      SPLITNIC_CHECK(table_.invalidate_local(request.tag, consumer_));
    });
    SPLITNIC_CHECK(table_.deregister(request.tag));
    return cost;
  }

 private:
  SeededRandom random_{1};
  Consumer consumer_{ProtectionDomain{1}, QpNumber{1}};
  EntryOptions options_;
  ProtectionTable table_;
  AlignedBytes memory_;
  std::vector<Stag> tags_;
};

/// What a program sees: registering also asks whether the process may access the memory, and makes a handle.
Result<double> register_by_verbs(std::size_t entries, Duration length) {
  verbs::ContextOptions options;
  options.adapter.max_regions = entries + kSpare;
  auto context = verbs::Context::open(options);
  SPLITNIC_CHECK(context.has_value());
  auto domain = context->allocate_domain();
  SPLITNIC_CHECK(domain.has_value());
  AlignedBytes memory(kPageBytes);
  const auto make = [&] {
    auto region = domain->register_memory(memory, Right::local_read | Right::local_write | Right::remote_write);
    SPLITNIC_CHECK(region.has_value());
    return std::move(*region);
  };
  std::vector<verbs::MemoryRegion> regions;
  regions.reserve(entries);
  for (std::size_t i = 0; i < entries; ++i) regions.push_back(make());
  return time_of(length, [&](std::size_t) { use(make()); });
}

/// One read after the other, each from where the last one said: nothing is read ahead.
double bare_read(std::size_t bytes, Duration length) {
  constexpr std::size_t kLineWords = 64 / sizeof(std::uint32_t);
  const std::size_t lines = std::max<std::size_t>(bytes / 64, 1);
  std::vector<std::uint32_t> order(lines);
  std::iota(order.begin(), order.end(), 0U);
  SeededRandom random(1);
  for (std::size_t i = lines - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  std::vector<std::uint32_t> memory(lines * kLineWords);
  for (std::size_t i = 0; i < lines; ++i) memory[order[i] * kLineWords] = order[(i + 1) % lines];
  std::uint32_t at = 0;
  const double cost = time_of(length, [&](std::size_t) { at = memory[at * kLineWords]; });
  use(at);
  return cost;
}

}  // namespace

Result<std::vector<TableCosts>> measure_tables(Duration length) {
  std::vector<TableCosts> all;
  for (const std::size_t entries : kTableSizes) {
    const auto by_verbs = register_by_verbs(entries, length);
    if (!by_verbs) return tl::unexpected(by_verbs.error());
    FullTable table(entries);
    TableCosts costs;
    costs.entries = entries;
    costs.bytes_per_entry = static_cast<double>(table.bytes()) / static_cast<double>(entries);
    costs.seconds = {table.look_up(kSame, length),
                     table.bind_and_unbind(length),
                     table.fast_register_and_invalidate(length),
                     table.look_up(entries, length),
                     table.register_and_deregister(length),
                     *by_verbs,
                     bare_read(table.bytes(), length)};
    all.push_back(costs);
  }
  return all;
}

}  // namespace splitnic::bench
