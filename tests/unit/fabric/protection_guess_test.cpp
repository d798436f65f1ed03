// What a stranger gets who tries tags: nothing, however many.
#include <catch2/catch.hpp>
#include <chrono>
#include <iostream>

#include "protection_fixture.h"

namespace splitnic::fabric::protection_guess_test {
namespace {

constexpr std::size_t kLive = 100'000;
constexpr std::uint32_t kGuesses = 1U << 24U;

/// 10^5 live regions and windows of others, in 50 domains, all at the same address: only the tag stands in the way.
struct Crowd {
  Crowd() : table(2 * kLive, random) {
    EntryOptions options;
    options.rights = kAllRights;
    options.base = 0;
    const RegionMemory all = RegionMemory::of_process(memory);
    for (std::uint32_t i = 0; i < kLive / 2; ++i) {
      const Consumer owner{ProtectionDomain{1 + i % 50}, QpNumber{1 + i % 50}};
      Bind bind;
      bind.region = table.register_region(owner.domain, all, options).value();
      bind.length = memory.size();
      bind.rights = kRemoteRights;
      bind.key = static_cast<std::uint8_t>(i);
      std::array<Stag, 1> window{};
      const EntryKind kind = i % 2 == 0 ? EntryKind::window_type_1 : EntryKind::window_type_2;
      REQUIRE(table.allocate_windows(owner.domain, kind, window));
      bind.window = window[0];
      REQUIRE(table.bind(bind, owner));
    }
  }
  bool lets_in(std::uint32_t guess, const Consumer& by) const {
    return table.check_remote({Stag{guess}, by.domain, 1, Right::remote_read, by.queue_pair, 0}, 0).has_value();
  }

  SeededRandom random{5};
  std::array<std::byte, 64> memory{};
  ProtectionTable table;
};

}  // namespace

TEST_CASE("2^24 guesses against 10^5 live entries of others find nothing", "[fabric][memory]") {
  const Crowd crowd;
  const Consumer stranger{ProtectionDomain{51}, QpNumber{51}};
  const auto begin = std::chrono::steady_clock::now();
  std::size_t found = 0;
  SeededRandom guesses(6);
  for (std::uint32_t i = 0; i < kGuesses / 2; ++i) found += crowd.lets_in(guesses.next32(), stranger) ? 1 : 0;
  for (std::uint32_t i = 0; i < kGuesses / 2; ++i) found += crowd.lets_in(i << 3U | 5U, stranger) ? 1 : 0;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::cout << "guessing: " << took.count() * 1e9 / kGuesses << " ns a guess\n";
  CHECK(found == 0);
}

TEST_CASE("a member of a domain finds what is valid there, not bound to another, by its whole tag alone",
          "[fabric][memory]") {
  const Crowd crowd;
  const Consumer member{ProtectionDomain{1}, QpNumber{1}};
  std::size_t found = 0;
  std::size_t wrong = 0;
  for (std::uint32_t tag = 0; tag < kGuesses; ++tag) {
    const ProtectionEntry* entry = crowd.table.find(Stag{tag});
    const bool own = entry != nullptr && entry->domain == member.domain &&
                     (entry->queue_pair == QpNumber{} || entry->queue_pair == member.queue_pair);
    const bool in = crowd.lets_in(tag, member);
    found += in ? 1 : 0;
    wrong += in == own ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(found > 100);
}

}  // namespace splitnic::fabric::protection_guess_test
