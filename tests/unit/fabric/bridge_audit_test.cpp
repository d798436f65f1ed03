#include "fabric/bridge/link.h"

#include <catch2/catch.hpp>

#include "tests/unit/fabric/bridge_fixtures.h"
#include "tests/unit/fabric/link_records.h"

#ifdef SPLITNIC_AUDIT_LOADS

namespace splitnic::fabric::bridge_audit_test {
namespace {

struct Words {
  alignas(64) std::byte bytes[256]{};
  PeerMemory memory = PeerMemory::over(bytes, sizeof bytes);
};

/// Listens for the length of a test.
struct Listening {
  explicit Listening(std::initializer_list<PeerMemory> memories) {
    for (const auto& memory : memories) audit.watch(memory);
  }
  LoadAudit audit;
};

}  // namespace

TEST_CASE("a second load of any byte of a message is seen", "[fabric][audit]") {
  Words words;
  Listening listening({words.memory});
  static_cast<void>(words.memory.load<std::uint32_t>(8));
  static_cast<void>(words.memory.load<std::uint32_t>(12));
  CHECK(listening.audit.double_loads() == 0);
  std::array<std::byte, 8> copy{};
  SECTION("the same word") { static_cast<void>(words.memory.load<std::uint32_t>(8)); }
  SECTION("a part of it") { static_cast<void>(words.memory.load<std::uint8_t>(15)); }
  SECTION("in a copy that only touches it") { words.memory.copy_out(1, copy); }
  SECTION("by the kernel") { static_cast<void>(words.memory.for_kernel(0, 16)); }
  SECTION("through another view") { static_cast<void>(words.memory.slice(8, 8).load<std::uint16_t>(2)); }
  CHECK(listening.audit.double_loads() == 1);
  words.memory.next_message(8, 4);
  static_cast<void>(words.memory.load<std::uint32_t>(8));
  CHECK(listening.audit.double_loads() == 1);
  static_cast<void>(words.memory.load<std::uint32_t>(12));  // of the message before
  CHECK(listening.audit.double_loads() == 2);
}

TEST_CASE("a second load of a line's byte is seen, until the line holds another message", "[fabric][audit]") {
  Words words;
  Listening listening({words.memory});
  const PeerLines lines(words.memory);
  std::array<std::byte, 60> copy{};
  static_cast<void>(lines.watch<std::uint32_t>(1));
  lines.copy_out(1, 4, copy);
  static_cast<void>(lines.load<std::uint32_t>(1));
  CHECK(listening.audit.double_loads() == 0);
  lines.copy_out(1 + sizeof words.bytes / PeerLines::kLine, 4, copy);  // the same line, a lap later
  CHECK(listening.audit.double_loads() == 1);
  lines.next_message(1);
  lines.copy_out(1, 4, copy);
  CHECK(listening.audit.double_loads() == 1);
}

TEST_CASE("watched counters and flags may be looked at again", "[fabric][audit]") {
  Words words;
  Listening listening({words.memory});
  for (int i = 0; i < 10; ++i) static_cast<void>(words.memory.watch<std::uint64_t>(0));
  CHECK(listening.audit.double_loads() == 0);
}

TEST_CASE("links load no byte of a slot or a payload twice, from the handshake to the last cell", "[fabric][audit]") {
  test::ShmPairBridges bridges;
  SeededRandom random(1);
  Listening listening({bridges.end(0).local_memory(), bridges.end(1).local_memory()});
  FabricLink first(bridges.end(0), {}, random);
  FabricLink second(bridges.end(1), {}, random);
  first.restart();
  second.restart();
  Time now{};
  while (!first.up() || !second.up()) {
    first.poll(now);
    second.poll(now);
  }
  for (int i = 0; i < 2000; ++i) {
    const auto record = test::random_bytes(random, 1 + random.below(3000));
    REQUIRE(test::send_record(first, VirtualLane::data, record));
    first.notify();
    if (random.below(2) == 0) static_cast<void>(second.prepare_sleep());
    REQUIRE(second.front(VirtualLane::data) != nullptr);  // asking again loads nothing
    REQUIRE(test::take_record(second, VirtualLane::data) == record);
    second.return_room(VirtualLane::data, false);
    second.notify();
    second.disarm();
  }
  CHECK(listening.audit.double_loads() == 0);
  // And a reader that does it wrong is caught here, too.
  const auto record = test::random_bytes(random, 500);  // too long for a slot's lines, which are copied
  REQUIRE(test::send_record(first, VirtualLane::data, record));
  const ReceivedCell* got = second.front(VirtualLane::data);
  REQUIRE(got != nullptr);
  std::vector<std::byte> copy(record.size());
  got->payload.copy_out(copy);
  CHECK(listening.audit.double_loads() == 0);
  got->payload.copy_out(std::span(copy).first(4));
  CHECK(listening.audit.double_loads() == 1);
}

}  // namespace splitnic::fabric::bridge_audit_test

#endif
