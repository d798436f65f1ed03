#include "fabric/adapter/fetch_habit.h"

#include <catch2/catch.hpp>

namespace splitnic::fabric::fetch_habit_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// A conversation whose messages follow each other the sooner, the better the lines are asked for.
struct Conversation {
  Duration late = nanoseconds(500);
  Duration early = nanoseconds(500);

  /// The part of the messages whose answers' lines are asked for at once.
  double play(Duration time) {
    std::uint64_t messages = 0;
    std::uint64_t at_once = 0;
    for (const Time end = now + time; now < end; ++messages) {
      const bool asks = habit.came(1, now);
      at_once += asks ? 1 : 0;
      now += asks ? early : late;
    }
    return static_cast<double>(at_once) / static_cast<double>(messages);
  }

  FetchHabit habit{};
  Time now{milliseconds(5)};
};

}  // namespace

TEST_CASE("the lines of answers are asked for when that moves more messages", "[fabric][adapter][habit]") {
  Conversation talk;
  SECTION("as soon as the message is there") {
    talk.early = nanoseconds(400);
    talk.play(milliseconds(2));
    CHECK(talk.play(milliseconds(20)) > 0.8);
  }
  SECTION("with the post") {
    talk.early = nanoseconds(600);
    talk.play(milliseconds(2));
    CHECK(talk.play(milliseconds(20)) < 0.1);
  }
  SECTION("first one way, then the other, and again") {
    for (int i = 0; i < 3; ++i) {
      talk.early = nanoseconds(400);
      talk.play(milliseconds(8));
      CHECK(talk.play(milliseconds(10)) > 0.8);
      talk.early = nanoseconds(600);
      talk.play(milliseconds(8));
      CHECK(talk.play(milliseconds(10)) < 0.1);
    }
  }
}

TEST_CASE("an interrupt now and then does not make a way the worse one", "[fabric][adapter][habit]") {
  Conversation talk;
  talk.early = nanoseconds(470);
  talk.play(milliseconds(4));
  double at_once = 0;
  constexpr int kInterrupts = 50;
  for (int i = 0; i < kInterrupts; ++i) {
    talk.now += microseconds(20);
    at_once += talk.play(microseconds(700));
  }
  CHECK(at_once / kInterrupts > 0.8);
}

TEST_CASE("where messages are rare, or come after a pause, nothing is asked for before the post",
          "[fabric][adapter][habit]") {
  Conversation talk;
  SECTION("rare") {
    talk.late = microseconds(3);
    talk.early = microseconds(1);
    CHECK(talk.play(milliseconds(20)) == 0);
  }
  SECTION("after a pause") {
    talk.early = nanoseconds(400);
    talk.play(milliseconds(5));
    while (!talk.habit.came(1, talk.now)) talk.play(microseconds(10));
    talk.play(microseconds(50));
    talk.now += milliseconds(1);
    CHECK_FALSE(talk.habit.came(1, talk.now));
  }
}

}  // namespace splitnic::fabric::fetch_habit_test
