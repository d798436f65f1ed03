#include "fabric/adapter/queue_pair_turns.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "adapter_fixtures.h"
#include "adapter_requests.h"
#include "fabric/adapter/context.h"

/// Polls do work for queue pairs that have something to do, and what is settled or due finds those that wait.
namespace splitnic::fabric::test::queue_pair_turns_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Time at(std::int64_t milliseconds_later) { return Time(milliseconds(milliseconds_later)); }

/// Queue pairs on one path, numbered from 1.
struct Some {
  static constexpr std::size_t kCount = 4;

  Some() {
    turns.reserve(kCount);
    for (std::uint32_t number = 1; number <= kCount; ++number) {
      all.push_back(std::make_unique<QueuePair>(QpNumber{number}, QueuePairAttributes{}, QueuePairTimes(options)));
      all.back()->path = &path;
    }
  }
  QueuePair& operator[](std::size_t number) { return *all[number - 1]; }
  /// Activates it, and lets it wait at the end of the poll.
  void wait(std::size_t number, Time until) {
    turns.activate((*this)[number]);
    turns.release(
        [&](QueuePair& queue_pair) { return &queue_pair == &(*this)[number] ? until : QueuePairTurn::kStays; });
  }
  std::vector<std::uint32_t> active() const {
    std::vector<std::uint32_t> numbers;
    for (const QueuePair* queue_pair : turns.active()) numbers.push_back(queue_pair->number.value);
    return numbers;
  }

  AdapterOptions options;
  LinkedPair pair;
  AdapterContext context{options, pair.random()};
  Path path{context, PathNumber{1}, pair.link(0), 256};
  std::vector<std::unique_ptr<QueuePair>> all;
  QueuePairTurns turns;
};

using Numbers = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("those that wait become active at their deadlines, and none before", "[fabric][adapter]") {
  Some some;
  some.wait(1, at(30));
  some.wait(2, at(10));
  some.wait(3, kNever);
  some.wait(4, at(20));
  CHECK(some.active().empty());
  CHECK(some.path.waiting == 4);
  CHECK(some.path.owes());
  CHECK(some.turns.first_deadline() == at(10));
  some.turns.activate_due(at(9));
  CHECK(some.active().empty());
  some.turns.activate_due(at(20));
  CHECK(some.active() == Numbers{2, 4});
  CHECK(some.path.waiting == 2);
  some.turns.activate_due(at(1'000'000));
  CHECK(some.active() == Numbers{2, 4, 1});
  some.turns.end_wait(some[3]);
  CHECK(some.active() == Numbers{2, 4, 1, 3});
  CHECK_FALSE(some.turns.any_waiting());
  CHECK_FALSE(some.path.owes());
}

TEST_CASE("a deadline that moved holds, and one that was before does not", "[fabric][adapter]") {
  Some some;
  some.wait(1, at(10));
  some.wait(1, at(30));  // later, in its old place
  some.wait(2, at(20));
  CHECK(some.turns.earliest() <= at(20));
  CHECK(some.turns.first_deadline() == at(20));
  some.turns.activate_due(at(20));
  CHECK(some.active() == Numbers{2});
  some.wait(1, at(25));  // earlier
  some.turns.activate_due(at(25));
  CHECK(some.active() == Numbers{2, 1});
}

TEST_CASE("what waits no more has no deadline", "[fabric][adapter]") {
  Some some;
  some.wait(1, at(10));
  some.wait(2, at(20));
  some.turns.end_wait(some[1]);
  CHECK(some.turns.first_deadline() == at(20));
  some.turns.release([](QueuePair&) { return QueuePairTurn::kIdle; });
  some.turns.activate_due(at(15));
  CHECK(some.active().empty());
  some.turns.forget(some[2]);
  CHECK(some.turns.first_deadline() == kNever);
  CHECK(some.path.waiting == 0);
  some.wait(3, at(5));
  some.turns.activate(some[4]);
  some.turns.forget(some[3]);
  some.turns.forget(some[4]);
  some.turns.activate_due(at(100));
  CHECK(some.active().empty());
}

TEST_CASE("each active queue pair has its two turns, whoever leaves between them", "[fabric][adapter]") {
  Some some;
  for (std::size_t number = 1; number <= Some::kCount; ++number) some.turns.activate(some[number]);
  Numbers whose;
  for (int i = 0; i < 3; ++i) whose.push_back(some.turns.next().queue_pair.number.value);
  CHECK(whose == Numbers{1, 2, 2});
  some.turns.release([](QueuePair& queue_pair) {
    return queue_pair.number.value == 1 ? QueuePairTurn::kIdle : QueuePairTurn::kStays;
  });
  std::size_t answers = 0;
  for (int i = 0; i < 6; ++i) {
    const auto turn = some.turns.next();
    whose.push_back(turn.queue_pair.number.value);
    answers += turn.answers ? 1 : 0;
  }
  CHECK(whose == Numbers{1, 2, 2, 3, 3, 4, 4, 2, 2});
  CHECK(answers == 3);
}

TEST_CASE("who leaves after a turn costs those behind it none", "[fabric][adapter]") {
  Some some;
  for (std::size_t number = 1; number <= Some::kCount; ++number) some.turns.activate(some[number]);
  const std::uint32_t leaves = GENERATE(1U, 2U, 3U, 4U);
  const bool answers = GENERATE(false, true);
  for (;;) {
    const auto turn = some.turns.next();
    if (turn.queue_pair.number.value == leaves && turn.answers == answers) break;
  }
  some.turns.release([leaves](QueuePair& queue_pair) {
    return queue_pair.number.value == leaves ? QueuePairTurn::kIdle : QueuePairTurn::kStays;
  });
  const std::uint32_t behind = leaves % Some::kCount + 1;
  for (const bool answers_first : {true, false}) {
    const auto turn = some.turns.next();
    CHECK(turn.queue_pair.number.value == behind);
    CHECK(turn.answers == answers_first);
  }
}

TEST_CASE("what is settled finds those who await it, in the order of the lane", "[fabric][adapter]") {
  AwaitedPositions awaited;
  awaited.start(8);
  const std::uint64_t first = std::uint64_t{1} << 32U;  // positions are kept by their low bits
  awaited.note(first - 3, QpNumber{1});
  awaited.note(first - 2, QpNumber{1});
  awaited.note(first - 1, QpNumber{2});
  awaited.note(first + 2, QpNumber{1});
  const auto found = [&](std::uint64_t settled) {
    Numbers numbers;
    CHECK(awaited.take(settled, [&](QpNumber number) { numbers.push_back(number.value); }));
    return numbers;
  };
  CHECK(found(first - 3) == Numbers{1});  // and it awaits more
  CHECK(found(first + 1) == Numbers{1, 2, 1});
  CHECK(found(first + 2) == Numbers{1});
  CHECK(found(first + 3).empty());
}

TEST_CASE("for whom there was no room among those who await, others are asked", "[fabric][adapter]") {
  AwaitedPositions awaited;
  awaited.start(8);
  constexpr std::uint64_t kLast = 20;
  for (std::uint64_t position = 1; position <= kLast; ++position) {
    awaited.note(position, QpNumber{static_cast<std::uint32_t>(position)});
  }
  const auto none = [](QpNumber) {};
  CHECK_FALSE(awaited.take(4, none));
  awaited.note(kLast + 1, QpNumber{77});
  CHECK_FALSE(awaited.take(kLast - 1, none));
  CHECK_FALSE(awaited.take(kLast, none));
  bool found = false;
  CHECK(awaited.take(kLast + 1, [&](QpNumber number) { found = number == QpNumber{77}; }));
  CHECK(found);
  awaited.start(0);
  CHECK_FALSE(awaited.kept());
}

TEST_CASE("requests that wait complete when the peer has taken them, and end with their path", "[fabric][adapter]") {
  constexpr std::size_t kPairs = 50;
  AdapterOptions options = test::small_cells();
  options.max_queue_pairs = 2 * kPairs;
  TwoEndpoints two(options);
  Endpoint& near = two.end(0);
  Endpoint& far = two.end(1);
  std::vector<std::pair<QpNumber, QpNumber>> pairs;
  for (std::size_t i = 0; i < kPairs; ++i) {
    const QpNumber one = near.make_queue_pair({});
    const QpNumber other = far.make_queue_pair({});
    REQUIRE(near.adapter.connect(one, {other, 1, 2}) == Status::ok);
    REQUIRE(far.adapter.connect(other, {one, 2, 1}) == Status::ok);
    pairs.emplace_back(one, other);
  }
  const auto send_all = [&] {
    for (const auto& [from, to] : pairs) {
      REQUIRE(far.adapter.post_receive(to, {1, far.segment(0, 100)}) == Status::ok);
      REQUIRE(near.adapter.post_send(from, send_request(2, near.segment(0, 100))) == Status::ok);
    }
  };
  const auto poll_near = [&] {
    for (int i = 0; i < 20; ++i) {
      two.pair.advance(microseconds(10));
      near.adapter.poll(two.pair.now());
    }
  };
  send_all();
  poll_near();
  CHECK(near.take().empty());
  CHECK(near.adapter.outstanding());
  const Time before = two.pair.now();
  REQUIRE(two.settle());
  CHECK(two.pair.now() - before < options.ack_timeout / 2);  // nobody waited for a deadline
  CHECK(near.take().size() == kPairs);
  CHECK(far.take().size() == kPairs);
  CHECK(near.adapter.counters().timeouts == 0);

  send_all();
  poll_near();
  two.pair.bridges().cut();
  const auto ended = [&] { return !near.adapter.outstanding(); };
  for (int i = 0; i < 100'000 && !ended(); ++i) {
    two.pair.advance(milliseconds(1));
    near.adapter.poll(two.pair.now());
  }
  CHECK(ended());
  const auto left = near.take();
  CHECK(left.size() == kPairs);
  for (const Completion& completion : left) CHECK(completion.status == CompletionStatus::outcome_unknown);
}

}  // namespace splitnic::fabric::test::queue_pair_turns_test
