#include <catch2/catch.hpp>
#include <chrono>
#include <iostream>

#include "verbs_fixture.h"

// Again last, as in the fixture.

namespace splitnic::verbs::test::verbs_guess_test {

namespace {

constexpr std::uint32_t kGuesses = 1U << 16U;
constexpr std::size_t kVictims = 256;
constexpr std::size_t kVictimBytes = 512;

/// Live entries of the owner that are none of the guesser's: regions and windows of both types, all of whose addresses
/// begin at 0 where that can be, so that a guess needs no luck with the address.
struct Victims {
  explicit Victims(Pair& pair)
      : domain(made(pair.b.context.allocate_domain())), bytes(pattern(kVictims * kVictimBytes, 1)) {
    for (std::size_t i = 0; i < kVictims; ++i) {
      RegionOptions options;
      options.rights = kEverything;
      options.base = 0;
      const auto part = std::span(bytes).subspan(i * kVictimBytes, kVictimBytes);
      regions.push_back(made(domain.register_memory(part, options)));
      tags.push_back(regions.back().tag());
    }
    for (std::size_t i = 0; i < 64; ++i) {
      windows.push_back(made(pair.b.domain.allocate_window(i % 2 == 0 ? WindowType::type_1 : WindowType::type_2)));
      Binding binding;
      binding.bytes = 8;
      binding.rights = Right::remote_read | Right::remote_write;
      binding.key = static_cast<std::uint8_t>(i);
      binding.zero_based = i % 2 != 0;
      tags.push_back(bound(pair, pair.b, windows.back(), binding));
    }
  }

  ProtectionDomain domain;
  std::vector<std::byte> bytes;
  std::vector<MemoryRegion> regions;
  std::vector<MemoryWindow> windows;
  std::vector<Stag> tags;
};

/// A connection into a domain of the owner that has no entries.
class Guesser {
 public:
  explicit Guesser(Pair& pair)
      : pair_(pair), nothing_(made(pair.b.context.allocate_domain())), own_(pair.a.another(plain())) {
    QueuePairOptions shape = plain();
    shape.send_completions = shape.receive_completions = &pair.b.completions;
    owners_ = made(nothing_.create_queue_pair(shape));
    Pair::connect(own_, owners_);
  }

  /// Whether it was refused, with one terminate; the connection is new afterwards.
  [[nodiscard]] bool refused(const WorkRequest& guess) {
    if (own_.post_send(guess) != Status::ok) return false;
    std::array<Completion, 2> ends;
    std::size_t ended = 0;
    for (int i = 0; i < 20 && ended == 0; ++i) {
      pair_.step();
      ended = pair_.a.completions.poll(ends);
    }
    std::array<AsyncEvent, 4> told;
    const std::size_t events = pair_.a.context.poll_events(told);
    const bool terminated = events == 1 && told[0].kind == AsyncEventKind::queue_pair_fatal && told[0].from_peer;
    static_cast<void>(pair_.b.context.poll_events(told));
    if (own_.modify(QueuePairState::reset) != Status::ok) return false;
    if (owners_.modify(QueuePairState::reset) != Status::ok) return false;
    if (own_.connect(owners_.address()) != Status::ok || owners_.connect(own_.address()) != Status::ok) return false;
    return ended == 1 && ends[0].status == CompletionStatus::remote_access_error && terminated;
  }

 private:
  Pair& pair_;
  ProtectionDomain nothing_;
  QueuePair own_;
  QueuePair owners_;
};

}  // namespace

TEST_CASE("verbs: 65 536 guessed tags, a connection for each, open nothing, and neighbours notice nothing",
          "[fabric][verbs]") {
  Pair pair(plain(), DomainRules::verbs, 1024);
  Victims victims(pair);
  Guesser guesser(pair);
  const auto bytes_before = victims.bytes;
  const AdapterCounters before = pair.b.context.counters();
  pair.b.fill(0, pattern(End::kBytes, 2));
  const auto memory_before = pair.b.memory;
  const LocalSegment word = pair.a.region.segment(0, 8);
  const RemoteAddress neighbours = pair.b.region.remote_key().at(1024);
  pair.a.fill(512, pattern(8, 3));
  const auto own_before = pair.a.memory;
  SeededRandom random(7);

  const auto begun = std::chrono::steady_clock::now();
  std::uint32_t refused = 0;
  std::uint32_t neighbour_writes = 0;
  for (std::uint32_t i = 0; i < kGuesses; ++i) {
    Stag guess{random.next32()};
    if (i % 4 == 1) guess = Stag{i};                                          // in sequence
    if (i % 4 == 2) guess = Stag{i << 7U | i % 128};                          // all indices
    if (i % 4 == 3) guess = victims.tags[random.below(victims.tags.size())];  // even the right one
    const RemoteAddress there{0, guess};
    refused += guesser.refused(i / 4 % 2 == 0 ? rdma_write(i, {word}, there) : rdma_read(i, {word}, there)) ? 1 : 0;
    if (i % 1024 != 0) continue;
    REQUIRE(pair.a.queue_pair.post_send(rdma_write(1, {pair.a.region.segment(512, 8)}, neighbours)) == Status::ok);
    neighbour_writes += pair.one(pair.a).status == CompletionStatus::success ? 1 : 0;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  std::cout << "guessing end to end: " << took.count() << " s, " << took.count() * 1e6 / kGuesses << " us a guess\n";

  CHECK(refused == kGuesses);
  CHECK(neighbour_writes == kGuesses / 1024);
  CHECK(pair.a.queue_pair.state() == QueuePairState::ready_to_send);
  CHECK(victims.bytes == bytes_before);
  CHECK(pair.a.memory == own_before);
  CHECK(pair.b.holds(1024, pattern(8, 3)));
  pair.b.fill(1024, std::span(memory_before).subspan(1024, 8));
  CHECK(pair.b.memory == memory_before);
  const AdapterCounters after = pair.b.context.counters();
  CHECK(after.access_refused - before.access_refused == kGuesses);
  CHECK(after.terminates_sent - before.terminates_sent == kGuesses);
  for (const MemoryRegion& region : victims.regions) CHECK(region.valid());
  for (const MemoryWindow& window : victims.windows) CHECK(window.valid());
}

}  // namespace splitnic::verbs::test::verbs_guess_test
