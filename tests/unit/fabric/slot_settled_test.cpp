// What the two ends of a ring know of each other's progress: lines consumed, and lines settled.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/unit/fabric/slot_ring_fixture.h"

namespace splitnic::fabric::test::slot_settled_test {
namespace {

SlotMessage short_message(bool awaited) {
  SlotMessage message;
  message.payload = Bytes(4);
  message.fields.awaited = awaited;
  return message;
}

}  // namespace

TEST_CASE("a receiver has something to tell until it was told, by the tail line or by a slot", "[fabric][slot]") {
  TestRing ring;
  SeededRandom random(5);
  const SlotMessage seven = draw(random, 0, 7 * 64);
  REQUIRE(send(ring.sender, seven));
  CHECK_FALSE(ring.receiver.unreported());
  check_front(ring.receiver, seven);
  CHECK(ring.receiver.unreported());
  SECTION("that the room is free, before it is settled") {
    ring.receiver.push_tail(0);
    CHECK_FALSE(ring.receiver.unreported());
    CHECK(ring.sender.refresh_tail() == 1);
    CHECK(ring.sender.refresh_settled(0) == 0);
    ring.receiver.reported_by_slot();  // one that says nothing new
    CHECK_FALSE(ring.receiver.unreported());
    ring.receiver.settle();
    CHECK(ring.receiver.unreported());
    ring.receiver.push_tail(0);
    CHECK_FALSE(ring.receiver.unreported());
    CHECK(ring.sender.refresh_settled(0) == 1);
  }
  SECTION("by a slot, as far as it is settled") {
    ring.receiver.settle();
    const std::uint64_t before = ring.receiver.reported();
    ring.receiver.reported_by_slot();
    CHECK(ring.receiver.reported() != before);
    CHECK_FALSE(ring.receiver.unreported());
    CHECK(ring.receiver.line_behind());
    REQUIRE(send(ring.sender, seven));
    check_front(ring.receiver, seven);
    ring.receiver.reported_by_slot();
    CHECK(ring.receiver.unreported());
  }
}

TEST_CASE("a sender awaits the settling of the slots that say so", "[fabric][slot]") {
  TestRing ring;
  REQUIRE(send(ring.sender, short_message(false)));
  CHECK_FALSE(ring.sender.awaits());
  REQUIRE(send(ring.sender, short_message(true)));
  REQUIRE(send(ring.sender, short_message(false)));
  ring.forge_settled(0, 1);
  CHECK(ring.sender.settled_again(0));
  CHECK_FALSE(ring.sender.settled_again(0));
  CHECK(ring.sender.awaits());
  ring.forge_settled(0, 2);
  CHECK(ring.sender.refresh_settled(0) == 2);
  CHECK_FALSE(ring.sender.awaits());
}

TEST_CASE("what is settled is believed when the answers before it have been taken", "[fabric][slot]") {
  TestRing ring;
  for (int i = 0; i < 8; ++i) REQUIRE(send(ring.sender, short_message(true)));
  ring.forge_settled(3, 4);
  CHECK(ring.sender.refresh_settled(2) == 0);
  // Something newer, with more answers, does not put off what was said before.
  ring.forge_settled(9, 7);
  CHECK(ring.sender.refresh_settled(2) == 0);
  CHECK(ring.sender.refresh_settled(3) == 4);
  CHECK(ring.sender.refresh_settled(8) == 4);
  CHECK(ring.sender.refresh_settled(9) == 7);
  CHECK(ring.sender.tail() == 7);  // what is settled was consumed
  CHECK_FALSE(ring.sender.faulty());
}

TEST_CASE("an impossible position to which slots are settled is a fault, and completes nothing",
          "[fabric][slot][hostile]") {
  TestRing ring;
  const SlotMessage message = short_message(false);
  for (int i = 0; i < 16; ++i) REQUIRE(send(ring.sender, message));
  ring.forge_settled(5, 10);
  CHECK(ring.sender.refresh_settled(5) == 10);
  SECTION("beyond what was sent") { ring.forge_settled(5, 17); }
  SECTION("all ones") { ring.forge_settled(5, ~std::uint64_t{0}); }
  SECTION("taken back") { ring.forge_settled(5, 9); }
  SECTION("answers that are taken back") { ring.forge_settled(4, 11); }
  CHECK(ring.sender.refresh_settled(5) == 10);
  CHECK(ring.sender.faulty());
}

TEST_CASE("what a slot says is settled counts as the tail line does, whichever comes first", "[fabric][slot]") {
  TestRing ring;
  const SlotMessage message = short_message(false);
  for (int i = 0; i < 12; ++i) REQUIRE(send(ring.sender, message));
  ring.sender.note_settled(5);
  CHECK(ring.sender.settled() == 5);
  CHECK(ring.sender.tail() == 5);
  ring.forge_tail(3);  // pushed before the slot was written
  ring.forge_settled(0, 3);
  CHECK(ring.sender.refresh_tail() == 5);
  CHECK(ring.sender.refresh_settled(0) == 5);
  ring.forge_settled(0, 9);
  CHECK(ring.sender.refresh_settled(0) == 9);
  CHECK(ring.sender.tail() == 9);
  ring.sender.note_settled(5);
  CHECK(ring.sender.settled() == 9);
  CHECK_FALSE(ring.sender.faulty());
  SECTION("more than was sent") { ring.sender.note_settled(13); }
  SECTION("far more") { ring.sender.note_settled(9U + 0x7fff'ffffU); }
  CHECK(ring.sender.faulty());
  CHECK(ring.sender.settled() == 9);
}

TEST_CASE("a tail line that slots have left many rings behind is no fault, and says nothing new", "[fabric][slot]") {
  TestRing ring;
  const SlotMessage message = short_message(false);
  constexpr std::uint64_t kLaps = 10;
  for (std::uint64_t sent = 1; sent <= kLaps * kSlotPlace.slot_lines; ++sent) {
    REQUIRE(send(ring.sender, message));
    ring.sender.note_settled(static_cast<std::uint32_t>(sent));
  }
  CHECK(ring.sender.refresh_tail() == kLaps * kSlotPlace.slot_lines);
  CHECK(ring.sender.refresh_settled(0) == kLaps * kSlotPlace.slot_lines);
  CHECK_FALSE(ring.sender.faulty());
}

TEST_CASE("a slot that waited while the tail line moved on by many rings says nothing new", "[fabric][slot]") {
  TestRing ring;
  const SlotMessage message = short_message(false);
  constexpr std::uint64_t kLaps = 10;
  for (std::uint64_t sent = 1; sent <= kLaps * kSlotPlace.slot_lines; ++sent) {
    REQUIRE(send(ring.sender, message));
    ring.forge_tail(sent);
    ring.forge_settled(0, sent);
    REQUIRE(ring.sender.refresh_tail() == sent);
    REQUIRE(ring.sender.refresh_settled(0) == sent);
  }
  ring.sender.note_settled(5);
  CHECK(ring.sender.settled() == kLaps * kSlotPlace.slot_lines);
  CHECK_FALSE(ring.sender.faulty());
  CHECK(send(ring.sender, message));
}

TEST_CASE("what is settled never reaches the sender before the count of answers that was published with it",
          "[fabric][slot]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SeededRandom random(seed);
    SimBridgeOptions options;
    options.local_bytes = {16384, 16384};
    SimBridgePair pair(options, random);
    pair.end(1).local_memory().zero(0, 8192);
    pair.end(0).local_memory().zero(0, 64);
    SlotSender sender(pair.end(0), kSlotPlace, kSlotSeed);
    SlotReceiver receiver(pair.end(1), kSlotPlace, kSlotSeed);
    Time now{};
    std::uint64_t believed = 0;
    // Each slot is answered: what is settled to n lines comes with n answers, or more, and is not believed with fewer.
    for (int step = 0; step < 100; ++step) {
      static_cast<void>(send(sender, short_message(false)));
      while (receiver.front() != nullptr) receiver.pop();
      receiver.settle();
      if (receiver.unreported()) receiver.push_tail(receiver.consumed());
      now += std::chrono::microseconds(random.below(4));
      pair.advance(now);
      const std::uint64_t taken = receiver.consumed() - random.below(receiver.consumed() + 1);
      REQUIRE(sender.refresh_settled(taken) <= std::max(taken, believed));
      believed = sender.settled();
      REQUIRE_FALSE(sender.faulty());
    }
    REQUIRE(sender.refresh_settled(receiver.consumed()) > 0);
  }
}

}  // namespace splitnic::fabric::test::slot_settled_test
