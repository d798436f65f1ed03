#include "fabric/bridge/bridge.h"
#include "fabric/bridge/link.h"

#include <catch2/catch.hpp>

#include "tests/unit/fabric/bridge_fixtures.h"
#include "tests/unit/fabric/link_records.h"

// What every bridge promises, one test for all of them.
namespace splitnic::fabric::bridge_conformance_test {
namespace {

using test::bytes_of;
using test::random_bytes;
using test::ShmPairBridges;
using test::ShmSocketBridges;
using test::SimBridges;

std::vector<std::byte> local_copy(Bridge& bridge, std::size_t offset, std::size_t bytes) {
  std::vector<std::byte> copy(bytes);
  bridge.local_memory().copy_out(offset, copy);
  return copy;
}

}  // namespace

#define SPLITNIC_EVERY_BRIDGE ShmPairBridges, ShmSocketBridges, SimBridges

TEMPLATE_TEST_CASE("each end's window is as large as the other's local memory, in whole lines", "[fabric][bridge]",
                   SPLITNIC_EVERY_BRIDGE) {
  TestType bridges;
  CHECK(bridges.end(0).local_memory().size() == test::kTestBytes);
  CHECK(bridges.end(1).local_memory().size() == 2 * test::kTestBytes);
  CHECK(bridges.end(0).peer_window().size() == bridges.end(1).local_memory().size());
  CHECK(bridges.end(1).peer_window().size() == bridges.end(0).local_memory().size());
}

TEMPLATE_TEST_CASE("what is written through the window arrives in the other's memory and nowhere else",
                   "[fabric][bridge]", SPLITNIC_EVERY_BRIDGE) {
  TestType bridges;
  SeededRandom random(3);
  for (std::size_t from = 0; from < 2; ++from) {
    Bridge& writer = bridges.end(from);
    Bridge& reader = bridges.end(1 - from);
    reader.local_memory().zero(0, reader.local_memory().size());
    for (int i = 0; i < 50; ++i) {
      const std::size_t bytes = random.below(5000);
      const std::size_t offset = 1000 + random.below(20000);
      const auto sent = random_bytes(random, bytes);
      const auto before = local_copy(reader, offset - 100, 100);
      const auto after = local_copy(reader, offset + bytes, 100);
      writer.peer_window().write(offset, sent);
      writer.publish();
      bridges.settle();
      CHECK(local_copy(reader, offset, bytes) == sent);
      CHECK(local_copy(reader, offset - 100, 100) == before);
      CHECK(local_copy(reader, offset + bytes, 100) == after);
    }
  }
}

TEMPLATE_TEST_CASE("flush returns when everything written before has arrived", "[fabric][bridge]",
                   SPLITNIC_EVERY_BRIDGE) {
  TestType bridges;
  const auto text = bytes_of("posted");
  bridges.end(0).peer_window().write(64, text);
  bridges.end(0).flush();
  CHECK(local_copy(bridges.end(1), 64, text.size()) == text);
}

TEMPLATE_TEST_CASE("whoever sees what was written after publish sees what was written before", "[fabric][bridge]",
                   SPLITNIC_EVERY_BRIDGE) {
  TestType bridges;
  Bridge& writer = bridges.end(0);
  Bridge& reader = bridges.end(1);
  SeededRandom random(5);
  reader.local_memory().zero(0, 4096);
  for (std::uint64_t round = 1; round <= 200; ++round) {
    const std::vector<std::byte> payload(512, static_cast<std::byte>(round));
    writer.peer_window().write(64, payload);
    writer.publish();
    writer.peer_window().write_word<std::uint64_t>(0, round);
    if (random.below(3) == 0) bridges.settle();
    const auto seen = reader.local_memory().template load<std::uint64_t>(0);
    if (seen != round) continue;
    CHECK(local_copy(reader, 64, payload.size()) == payload);
  }
}

TEMPLATE_TEST_CASE("a claimed place becomes the peer's memory at commit", "[fabric][bridge]", SPLITNIC_EVERY_BRIDGE) {
  TestType bridges;
  Bridge& writer = bridges.end(1);
  const auto text = bytes_of("straight from the kernel");
  const auto place = writer.peer_window().claim(8192, 2048);
  REQUIRE(place.size() == 2048);
  std::ranges::copy(text, place.begin());
  writer.peer_window().commit(8192, place.first(text.size()));
  writer.publish();
  bridges.settle();
  CHECK(local_copy(bridges.end(0), 8192, text.size()) == text);
}

TEMPLATE_TEST_CASE("remote reads see own earlier writes and the peer's own memory", "[fabric][bridge]",
                   SPLITNIC_EVERY_BRIDGE) {
  TestType bridges;
  bridges.end(1).local_memory().template store<std::uint32_t>(128, 0xdecade);
  bridges.end(0).peer_window().template write_word<std::uint32_t>(132, 0xfacade);
  std::array<std::uint32_t, 2> words{};
  bridges.end(0).peer_window().read(128, std::as_writable_bytes(std::span(words)));
  CHECK(words[0] == 0xdecade);
  CHECK(words[1] == 0xfacade);
}

TEMPLATE_TEST_CASE("scratchpads carry a word each way, start at zero and are not part of the memory",
                   "[fabric][bridge]", SPLITNIC_EVERY_BRIDGE) {
  TestType bridges;
  std::vector<std::byte> before(bridges.end(0).local_memory().size());
  bridges.end(0).local_memory().copy_out(0, before);
  for (std::size_t i = 0; i < kScratchpads; ++i) {
    CHECK(bridges.end(0).read_scratchpad(i) == 0);
    bridges.end(0).write_scratchpad(i, static_cast<std::uint32_t>(100 + i));
    bridges.end(1).write_scratchpad(i, static_cast<std::uint32_t>(200 + i));
  }
  bridges.settle();
  for (std::size_t i = 0; i < kScratchpads; ++i) {
    CHECK(bridges.end(0).read_scratchpad(i) == 200 + i);
    CHECK(bridges.end(1).read_scratchpad(i) == 100 + i);
  }
  CHECK((local_copy(bridges.end(0), 0, before.size()) == before));
}

TEMPLATE_TEST_CASE("a doorbell rings the other end, once taken it is gone, and any number of rings never blocks",
                   "[fabric][bridge]", SPLITNIC_EVERY_BRIDGE) {
  TestType bridges;
  CHECK_FALSE(bridges.rung(1));
  bridges.end(0).ring();
  CHECK(bridges.rung(1));
  CHECK_FALSE(bridges.rung(1));
  CHECK_FALSE(bridges.rung(0));
  for (int i = 0; i < 10000; ++i) bridges.end(1).ring();
  int taken = 0;
  while (bridges.rung(0)) ++taken;
  CHECK(taken > 0);
  CHECK(bridges.end(0).link() == LinkState::up);
}

TEMPLATE_TEST_CASE("two links come up over any bridge and carry records both ways", "[fabric][bridge][link]",
                   SPLITNIC_EVERY_BRIDGE) {
  TestType bridges;
  SeededRandom random(11);
  FabricLink host(bridges.end(0), {}, random);
  FabricLink unit(bridges.end(1), {}, random);
  host.restart();
  unit.restart();
  Time now{};
  for (int i = 0; i < 20 && !(host.up() && unit.up()); ++i) {
    host.poll(now);
    bridges.settle();
    unit.poll(now);
    bridges.settle();
    now += std::chrono::milliseconds(1);
  }
  REQUIRE(host.up());
  REQUIRE(unit.up());
  for (int i = 0; i < 1000; ++i) {
    const auto record = random_bytes(random, 1 + random.below(2000));
    REQUIRE(test::send_record(host, VirtualLane::control, record));
    bridges.settle();
    REQUIRE(test::take_record(unit, VirtualLane::control) == record);
    unit.return_room(VirtualLane::control, false);
    bridges.settle();
  }
}

TEST_CASE("shm: an end that goes away is seen as hang-up, for good, by looking, by ringing and on the descriptor",
          "[fabric][bridge]") {
  const bool looking = GENERATE(true, false);
  ShmSocketBridges bridges;
  Bridge& survivor = bridges.end(1);
  CHECK(survivor.link() == LinkState::up);
  bridges.hang_up(0);
  if (looking) {
    static_cast<void>(survivor.take_doorbells());
  } else {
    survivor.ring();
  }
  CHECK(survivor.link() == LinkState::down);
  survivor.peer_window().write_word<std::uint32_t>(0, 1);  // its memory lasts as long as somebody maps it
  CHECK(survivor.link() == LinkState::down);
}

TEST_CASE("sim: a cut loses what is under way, reads all ones, and is told of even when it was short",
          "[fabric][bridge][sim]") {
  SeededRandom random(1);
  SimBridgeOptions options;
  options.memory_scribbled = false;
  SimBridgePair pair(options, random);
  pair.end(0).peer_window().write_word<std::uint32_t>(0, 7);
  pair.cut();
  std::uint32_t word = 0;
  pair.end(0).peer_window().read(0, std::as_writable_bytes(std::span(&word, 1)));
  CHECK(word == 0xffffffff);
  CHECK(pair.end(0).read_scratchpad(0) == 0xffffffff);
  pair.restore();
  pair.advance(Time{} + std::chrono::seconds(1));
  CHECK(pair.end(1).local_memory().load<std::uint32_t>(0) == 0);
  CHECK(pair.wake_pending(0));
  CHECK(pair.end(0).link() == LinkState::down);
  CHECK(pair.end(0).link() == LinkState::up);
  CHECK_FALSE(pair.wake_pending(0));
}

TEST_CASE("sim: the same seed gives the same bridge, to the byte", "[fabric][bridge][sim]") {
  const auto run = [] {
    SeededRandom random(99);
    SimBridgePair pair({}, random);
    std::vector<std::byte> seen;
    for (int i = 1; i <= 200; ++i) {
      const std::vector<std::byte> payload(100, static_cast<std::byte>(i));
      pair.end(0).peer_window().write(static_cast<std::size_t>(i % 7) * 40, payload);
      if (i % 5 == 0) pair.end(0).publish();
      pair.advance(Time{} + std::chrono::microseconds(i));
      const auto now = local_copy(pair.end(1), 0, 400);
      seen.insert(seen.end(), now.begin(), now.end());
    }
    return seen;
  };
  CHECK(run() == run());
}

}  // namespace splitnic::fabric::bridge_conformance_test
