#include "fabric/adapter/look_habit.h"

#include <catch2/catch.hpp>

#include "adapter_requests.h"
#include "express_world.h"

namespace splitnic::fabric::test::look_habit_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// A receiver that polls every 100 ns, and a sender whose speed depends on whether it is left alone.
struct Stream {
  /// Lines of 100 ns.
  double eager = 1;
  double away = 1;
  /// This end sends a line of its own with each poll that takes something.
  bool answers = false;

  /// The part of the polls that look away.
  double play(Duration time) {
    std::uint64_t polls = 0;
    std::uint64_t looked_away = 0;
    for (const Time end = now + time; now < end; now += nanoseconds(100), ++polls) {
      const bool looks_away = habit.looks_away(now);
      looked_away += looks_away ? 1 : 0;
      arrived += looks_away ? away : eager;
      if (looks_away || static_cast<std::uint64_t>(arrived) == consumed) continue;
      consumed = static_cast<std::uint64_t>(arrived);
      sent += answers ? 1 : 0;
      habit.emptied(now, consumed, sent);
    }
    return static_cast<double>(looked_away) / static_cast<double>(polls);
  }

  LookHabit habit{};
  Time now{milliseconds(5)};
  double arrived = 0;
  std::uint64_t consumed = 0;
  std::uint64_t sent = 0;
};

}  // namespace

TEST_CASE("a receiver of a stream looks away where that moves more", "[fabric]") {
  Stream stream;
  SECTION("it does") {
    stream.away = 1.4;
    stream.play(milliseconds(2));
    CHECK(stream.play(milliseconds(20)) > 0.8);
  }
  SECTION("it does not") {
    stream.away = 0.6;
    stream.play(milliseconds(2));
    CHECK(stream.play(milliseconds(20)) < 0.1);
  }
  SECTION("first it does, then it does not, and again") {
    for (int i = 0; i < 3; ++i) {
      stream.away = 1.4;
      stream.play(milliseconds(4));
      CHECK(stream.play(milliseconds(10)) > 0.8);
      stream.away = 0.6;
      stream.play(milliseconds(4));
      CHECK(stream.play(milliseconds(10)) < 0.1);
    }
  }
}

TEST_CASE("a receiver that answers, or to which little comes, never looks away", "[fabric]") {
  Stream stream;
  stream.away = 2;
  SECTION("it answers") { stream.answers = true; }
  SECTION("less than a line in a microsecond") { stream.eager = stream.away = 0.09; }
  CHECK(stream.play(milliseconds(20)) == 0);
}

TEST_CASE("who answers after a stream looks at once", "[fabric]") {
  Stream stream;
  stream.away = 2;
  stream.play(milliseconds(5));
  while (!stream.habit.looks_away(stream.now)) stream.play(nanoseconds(100));
  stream.habit.emptied(stream.now, stream.consumed + 1, stream.sent + 1);
  CHECK_FALSE(stream.habit.looks_away(stream.now));
}

TEST_CASE("a look away ends after its time", "[fabric]") {
  Stream stream;
  stream.away = 2;
  stream.play(milliseconds(5));
  stream.habit.emptied(stream.now, stream.consumed, stream.sent);
  CHECK(stream.habit.looks_away(stream.now + LookHabit::kAway - nanoseconds(1)));
  CHECK_FALSE(stream.habit.looks_away(stream.now + LookHabit::kAway));
}

TEST_CASE("what an earlier epoch has moved is soon forgotten", "[fabric]") {
  Stream stream;
  stream.away = GENERATE(0.5, 2);
  stream.play(milliseconds(5));
  stream.away = 1 / stream.away;
  stream.arrived = 0;
  stream.consumed = 0;
  stream.play(milliseconds(4));
  CHECK((stream.play(milliseconds(20)) > 0.5) == (stream.away > 1));
}

TEST_CASE("messages of a stream wait for no longer than a look away, and all are taken in order", "[fabric]") {
  ExpressWorld world(ExpressWorld::Way::express, 1);
  Endpoint& sender = *world.ends[0];
  Endpoint& receiver = *world.ends[1];
  const SlotReceiver& slots = world.links[1]->slots(VirtualLane::data)->receiver;
  std::uint64_t posted = 0;
  std::uint64_t taken = 0;
  std::uint64_t times_away = 0;
  Time waits_since = kNever;
  for (std::uint64_t id = 0; id < 32; ++id) world.receive(1, {id, receiver.segment(id * 64, 64)});
  for (int step = 0; step < 20'000; ++step) {
    world.now += nanoseconds(200);
    WorkRequest send = send_request(posted, sender.segment(0, 64));
    if (posted - taken < 32 && sender.adapter.post_send(sender.number, send) == Status::ok) ++posted;
    sender.adapter.poll(world.now);
    static_cast<void>(sender.take());
    receiver.adapter.poll(world.now);
    for (const Completion& done : receiver.take()) {
      REQUIRE(done.id == taken);
      const std::uint64_t id = taken++ + 32;
      world.receive(1, {id, receiver.segment(id % 32 * 64, 64)});
    }
    if (!slots.waiting()) {
      waits_since = kNever;
    } else if (waits_since == kNever) {
      waits_since = world.now;
      ++times_away;
    }
    if (waits_since != kNever) REQUIRE(world.now - waits_since <= LookHabit::kAway);
  }
  CHECK(taken > 15'000);
  CHECK(times_away > 10);
}

}  // namespace splitnic::fabric::test::look_habit_test
