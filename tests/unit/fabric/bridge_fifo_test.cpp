#include "fabric/bridge/message_fifo.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <thread>

#include "tests/unit/fabric/bridge_fixtures.h"

namespace splitnic::fabric {
namespace {

using test::random_bytes;
using test::ShmPairBridges;

constexpr std::size_t kTailAt = 64;
constexpr std::size_t kRingAt = 128;
constexpr std::uint32_t kTag = 0x5eed;

/// A FIFO from end 0 to end 1 of a pair.
struct Fifo {
  explicit Fifo(std::size_t ring_bytes) {
    bridges.end(1).local_memory().zero(0, kRingAt + ring_bytes);
    bridges.end(0).local_memory().zero(0, kRingAt);
    sender = FifoSender(bridges.end(0), {kRingAt, ring_bytes, kTailAt}, kTag);
    receiver = FifoReceiver(bridges.end(1), {kRingAt, ring_bytes, kTailAt}, kTag);
  }

  /// Takes the oldest record and compares it; its length is rounded up to the end of its last line.
  void expect(const std::vector<std::byte>& record) {
    const auto got = receiver.front();
    REQUIRE(got.has_value());
    REQUIRE(got->size() == (8 + record.size() + 63) / 64 * 64 - 8);
    std::vector<std::byte> copy(record.size());
    got->copy_out(0, copy);
    REQUIRE(copy == record);
    receiver.pop();
  }
  /// A hostile sender's head word at a line of the ring.
  void forge(std::size_t line, std::uint16_t lines_field, std::uint16_t sequence, std::uint32_t tag = kTag) {
    bridges.end(1).local_memory().store<std::uint64_t>(
        kRingAt + line * 64, std::uint64_t{lines_field} | std::uint64_t{sequence} << 16U | std::uint64_t{tag} << 32U);
  }
  void forge_tail(std::uint64_t tail) { bridges.end(0).local_memory().store<std::uint64_t>(kTailAt, tail); }

  ShmPairBridges bridges;
  FifoSender sender;
  FifoReceiver receiver;
};

}  // namespace

TEST_CASE("a record of every length passes at every place of the ring", "[fabric][fifo]") {
  constexpr std::size_t kRing = 1024;  // 16 lines
  Fifo fifo(kRing);
  SeededRandom random(1);
  REQUIRE(fifo.sender.max_record_bytes() == 15 * 64 - 8);
  std::uint64_t sent = 0;
  for (std::size_t bytes = 1; bytes <= fifo.sender.max_record_bytes(); ++bytes) {
    // A ring of 16 lines and records of every length from each line of it: a short record moves the start on.
    for (std::size_t start = 0; start < 16; ++start) {
      const auto record = random_bytes(random, bytes);
      if (!fifo.sender.send({record})) {
        REQUIRE_FALSE(fifo.receiver.front().has_value());  // takes the padding that a long record left at the end
        fifo.receiver.push_tail(true);
        REQUIRE(fifo.sender.send({record}));
      }
      fifo.expect(record);
      const auto step = random_bytes(random, 1);
      fifo.receiver.push_tail(true);
      REQUIRE(fifo.sender.send({step}));
      fifo.expect(step);
      fifo.receiver.push_tail(true);
      sent += 2;
    }
  }
  CHECK(fifo.sender.records_sent() == sent);
  CHECK(fifo.sender.drained());
}

TEST_CASE("pieces are joined in order", "[fabric][fifo]") {
  Fifo fifo(4096);
  SeededRandom random(2);
  const auto record = random_bytes(random, 300);
  const std::span<const std::byte> all(record);
  REQUIRE(fifo.sender.send({all.first(7), all.subspan(7, 0), all.subspan(7, 200), all.subspan(207)}));
  fifo.expect(record);
}

TEST_CASE("a full ring refuses, says that it wants room, and takes more once the tail has come back",
          "[fabric][fifo]") {
  Fifo fifo(4096);
  const std::vector<std::byte> record(56, std::byte{1});  // one line
  std::size_t accepted = 0;
  while (fifo.sender.send({record})) ++accepted;
  CHECK(accepted == 63);  // one line stays free for the zeroed head
  CHECK(fifo.sender.wants_room());
  CHECK_FALSE(fifo.sender.room_again());
  CHECK_FALSE(fifo.sender.drained());
  for (int i = 0; i < 15; ++i) fifo.expect(record);
  fifo.receiver.push_tail(false);  // less than a quarter: kept back
  CHECK_FALSE(fifo.sender.room_again());
  fifo.receiver.push_tail(true);
  CHECK(fifo.sender.room_again());
  CHECK(fifo.sender.send({record}));
  CHECK_FALSE(fifo.sender.wants_room());
  CHECK_FALSE(fifo.sender.faulty());
}

TEST_CASE("old payload that looks like the next head word is never taken for a record", "[fabric][fifo]") {
  Fifo fifo(4096);  // 64 lines
  // One record over 63 lines whose payload has, where lines begin, the very head words that the next lap will look for.
  std::vector<std::uint64_t> words((63 * 64 - 8) / 8);
  for (std::uint64_t line = 1; line < 63; ++line) {
    words[line * 8 - 1] = std::uint64_t{1} | (line + 2) << 16U | std::uint64_t{kTag} << 32U;
  }
  REQUIRE(fifo.sender.send({std::as_bytes(std::span(words))}));
  const std::vector<std::byte> one_line(56, std::byte{1});
  std::vector<std::byte> long_record(words.size() * 8);
  std::ranges::copy(std::as_bytes(std::span(words)), long_record.begin());
  fifo.expect(long_record);
  fifo.receiver.push_tail(true);
  for (int line = 0; line < 64; ++line) {  // line 63, then from the start again
    REQUIRE(fifo.sender.send({one_line}));
    fifo.expect(one_line);
    REQUIRE_FALSE(fifo.receiver.front().has_value());
    fifo.receiver.push_tail(true);
  }
}

TEST_CASE("a record of another epoch or out of sequence is not there", "[fabric][fifo]") {
  Fifo fifo(4096);
  fifo.forge(0, 1, 0, kTag + 1);
  CHECK_FALSE(fifo.receiver.front().has_value());
  fifo.forge(0, 1, 1);
  CHECK_FALSE(fifo.receiver.front().has_value());
  fifo.forge(0, 1, 0xffff);
  CHECK_FALSE(fifo.receiver.front().has_value());
  CHECK_FALSE(fifo.receiver.faulty());
  fifo.forge(0, 1, 0);
  CHECK(fifo.receiver.front().has_value());
}

TEST_CASE("a hostile length is a fault, at every boundary", "[fabric][fifo]") {
  struct Row {
    std::uint16_t lines_field;
    bool at_start_good;
    bool at_line_1_good;
  };
  // A ring of 64 lines.
  const auto row = GENERATE(Row{0, false, false}, Row{1, true, true}, Row{62, true, true}, Row{63, true, true},
                            Row{64, false, false}, Row{65, false, false}, Row{0x7fff, false, false},
                            Row{0x8000, false, false}, Row{0x8001, false, false}, Row{0x803e, false, false},
                            Row{0x8040, false, false}, Row{0xffff, false, false});
  INFO("lines field " << row.lines_field);
  Fifo fifo(4096);
  fifo.forge(0, row.lines_field, 0);
  CHECK(fifo.receiver.front().has_value() == row.at_start_good);
  CHECK(fifo.receiver.faulty() == !row.at_start_good);

  Fifo second(4096);
  second.forge(0, 1, 0);
  REQUIRE(second.receiver.front().has_value());
  second.receiver.pop();
  second.forge(1, row.lines_field, 1);
  CHECK(second.receiver.front().has_value() == row.at_line_1_good);
  CHECK(second.receiver.faulty() == !row.at_line_1_good);
  if (second.receiver.faulty()) {
    second.forge(1, 1, 1);
    CHECK_FALSE(second.receiver.front().has_value());  // once faulty, nothing more is believed
  }
}

TEST_CASE("padding leads to the ring's start and is good only if it ends exactly there", "[fabric][fifo]") {
  Fifo fifo(4096);
  fifo.forge(0, 1, 0);
  REQUIRE(fifo.receiver.front().has_value());
  fifo.receiver.pop();
  fifo.forge(1, 0x8000 | 63, 1);
  fifo.forge(0, 2, 2);
  const auto record = fifo.receiver.front();
  REQUIRE(record.has_value());
  CHECK(record->size() == 120);
  fifo.receiver.pop();
  // A padding that follows a padding would be one at the ring's start.
  Fifo second(4096);
  second.forge(0, 0x8000 | 64, 0);
  CHECK_FALSE(second.receiver.front().has_value());
  CHECK(second.receiver.faulty());
}

TEST_CASE("a hostile tail means no room, and a fault", "[fabric][fifo]") {
  Fifo fifo(4096);
  const std::vector<std::byte> record(56);
  for (int i = 0; i < 63; ++i) REQUIRE(fifo.sender.send({record}));
  fifo.forge_tail(10);
  REQUIRE(fifo.sender.send({record}));
  SECTION("going back") { fifo.forge_tail(9); }
  SECTION("beyond the head") { fifo.forge_tail(1000); }
  SECTION("all ones") { fifo.forge_tail(~std::uint64_t{0}); }
  while (!fifo.sender.faulty() && fifo.sender.send({record})) {
  }
  CHECK(fifo.sender.faulty());
  fifo.forge_tail(64);
  CHECK_FALSE(fifo.sender.send({record}));
}

TEST_CASE("the FIFO does what a queue does, whatever the order of events, over a bridge that delays and tears",
          "[fabric][fifo]") {
  for (std::uint64_t seed = 1; seed <= test::seeds(300); ++seed) {
    INFO("seed " << seed);
    SeededRandom random(seed);
    SimBridgeOptions options;
    options.local_bytes = {16384, 16384};
    options.torn_permille = 500;
    SimBridgePair pair(options, random);
    pair.end(1).local_memory().zero(0, 8192);
    pair.end(0).local_memory().zero(0, 128);
    const FifoPlace place{kRingAt, 2048, kTailAt};
    FifoSender sender(pair.end(0), place, kTag);
    FifoReceiver receiver(pair.end(1), place, kTag);
    std::deque<std::vector<std::byte>> model;
    Time now{};
    for (int step = 0; step < 500; ++step) {
      switch (random.below(4)) {
        case 0: {
          auto record = random_bytes(random, 1 + random.below(random.below(5) == 0 ? sender.max_record_bytes() : 200));
          if (sender.send({record})) model.push_back(std::move(record));
          break;
        }
        case 1:
          while (const auto got = receiver.front()) {
            REQUIRE_FALSE(model.empty());
            std::vector<std::byte> copy(model.front().size());
            REQUIRE(got->size() >= copy.size());
            got->copy_out(0, copy);
            REQUIRE(copy == model.front());
            model.pop_front();
            receiver.pop();
            if (random.below(3) == 0) break;
          }
          receiver.push_tail(random.below(2) == 0);
          break;
        default:
          now += std::chrono::microseconds(random.below(15));
          pair.advance(now);
      }
      REQUIRE_FALSE(sender.faulty());
      REQUIRE_FALSE(receiver.faulty());
    }
    // Whatever is left arrives.
    pair.advance(now + std::chrono::milliseconds(1));
    while (const auto got = receiver.front()) {
      REQUIRE_FALSE(model.empty());
      model.pop_front();
      receiver.pop();
    }
    REQUIRE(model.empty());
  }
}

// Two threads over one mapping, because ThreadSanitizer sees nothing across processes or across two mappings. It checks
// that F1/A1 and R1/tail order the bytes between threads on this processor. It does not prove the order of posted PCIe
// writes (the simulated bridge stands for those), nor what a weaker processor might do, nor anything about a peer that
// cheats.
TEST_CASE("a producer and a consumer thread pass every record whole and in order", "[fabric][fifo][stress]") {
  Fifo fifo(8192);
  constexpr std::uint64_t kRecords = 200000;
  std::thread producer([&] {
    std::array<std::uint64_t, 40> words{};
    for (std::uint64_t number = 0; number < kRecords; ++number) {
      const std::size_t count = 1 + number * 7 % words.size();
      for (std::size_t i = 0; i < count; ++i) words[i] = number * 1000003 + i;
      while (!fifo.sender.send({std::as_bytes(std::span(words).first(count))})) std::this_thread::yield();
    }
  });
  bool whole = true;
  for (std::uint64_t number = 0; number < kRecords;) {
    const auto record = fifo.receiver.front();
    if (!record) {
      fifo.receiver.push_tail(true);
      std::this_thread::yield();
      continue;
    }
    const std::size_t count = 1 + number * 7 % 40;
    for (std::size_t i = 0; i < count; ++i) whole &= record->load<std::uint64_t>(i * 8) == number * 1000003 + i;
    fifo.receiver.pop();
    fifo.receiver.push_tail(false);
    ++number;
  }
  producer.join();
  CHECK(whole);
  CHECK_FALSE(fifo.sender.faulty());
  CHECK_FALSE(fifo.receiver.faulty());
}

}  // namespace splitnic::fabric
