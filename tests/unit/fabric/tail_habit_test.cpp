#include "fabric/adapter/tail_habit.h"

#include <catch2/catch.hpp>

namespace splitnic::fabric::tail_habit_test {
namespace {

constexpr std::uint64_t kPolls = TailHabit::kPolls;

/// A lane whose line is looked at by quick polls.
struct Lane {
  TailHabit habit{};
  CountedPoll poll{1, true};

  void pass(std::uint64_t polls) { poll.number += polls; }
  /// So often the line says what was taken, and `polls` later a slot comes.
  void converse(unsigned times, std::uint64_t polls) {
    for (unsigned i = 0; i < times; ++i) {
      habit.line_said_more(poll);
      pass(polls);
      habit.slots_came(poll);
    }
  }
};

}  // namespace

TEST_CASE("a tail line is left alone for some polls after a slot, once slots have followed it soon",
          "[fabric][adapter][habit]") {
  Lane lane;
  lane.converse(TailHabit::kSoonEnough - 1, kPolls);
  CHECK_FALSE(lane.habit.leaves_alone(lane.poll));
  lane.converse(1, kPolls);
  CHECK(lane.habit.leaves_alone(lane.poll));
  lane.pass(kPolls - 1);
  CHECK(lane.habit.leaves_alone(lane.poll));
  lane.pass(1);
  CHECK_FALSE(lane.habit.leaves_alone(lane.poll));
}

TEST_CASE("a poll that is not quick looks at each tail line", "[fabric][adapter][habit]") {
  Lane lane;
  lane.converse(TailHabit::kSoonEnough, 1);
  lane.poll.quick = false;
  CHECK_FALSE(lane.habit.leaves_alone(lane.poll));
}

TEST_CASE("a tail line is looked at again when its word is not followed by a slot", "[fabric][adapter][habit]") {
  Lane lane;
  lane.converse(TailHabit::kSoonEnough, 1);
  SECTION("but by another word") {
    lane.habit.line_said_more(lane.poll);
    CHECK(lane.habit.leaves_alone(lane.poll));
    lane.habit.line_said_more(lane.poll);
  }
  SECTION("until later") { lane.converse(1, kPolls + 1); }
  CHECK_FALSE(lane.habit.leaves_alone(lane.poll));
  lane.converse(TailHabit::kSoonEnough - 1, 1);
  CHECK_FALSE(lane.habit.leaves_alone(lane.poll));
  lane.converse(1, 1);
  CHECK(lane.habit.leaves_alone(lane.poll));
}

}  // namespace splitnic::fabric::tail_habit_test
