#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "adapter_fixtures.h"
#include "fabric/adapter/tail_habit.h"

/// An end whose caller answers what a poll brings has its messages before it looks whether its peer sleeps.
namespace splitnic::fabric::adapter_answers_test {
namespace {

using test::Endpoint;
using test::microseconds;

constexpr VirtualLane kData = VirtualLane::data;

/// End 0 asks, and sleeps until it is told that its question was taken. End 1 answers. A message is one slot of one
/// line.
class Conversation {
 public:
  /// One question has been answered so far. takes_turns: the adapters poll the links, too.
  explicit Conversation(bool takes_turns) : takes_turns_(takes_turns) {
    ask();
    poll(1);
    REQUIRE(questions() == 1);
    REQUIRE(rung());
    answer();
    poll(1);
    poll(0);
    REQUIRE(told() == 1);
    static_cast<void>(asking().take());
  }

  Endpoint& asking() { return ends_.end(0); }
  Endpoint& answering() { return ends_.end(1); }
  [[nodiscard]] Time now() const { return ends_.pair.now(); }
  void ask() {
    REQUIRE(answering().receive(1, 0, 64) == Status::ok);
    REQUIRE(asking().send(2, 0, 10) == Status::ok);
    asking().adapter.disarm();
    while (poll(0) != 0) continue;
    static_cast<void>(rung());
    REQUIRE(asking().adapter.prepare_sleep());
    ends_.pair.advance({});  // the armed flag arrives
  }
  void answer() {
    REQUIRE(asking().receive(3, 4096, 64) == Status::ok);
    REQUIRE(answering().send(4, 4096, 10) == Status::ok);
  }
  std::size_t poll(std::size_t end) {
    ends_.pair.advance(std::chrono::nanoseconds(100));  // so soon, turns look first for what has come in
    ChannelAdapter& adapter = ends_.end(end).adapter;
    const std::size_t moved = takes_turns_ ? adapter.take_turn(now()).moved : adapter.poll(now());
    ends_.pair.advance({});
    return moved;
  }
  /// Completions of receives that the answering end has not taken yet.
  std::size_t questions() {
    std::size_t count = 0;
    for (const Completion& done : answering().take()) count += done.receive ? 1 : 0;
    return count;
  }
  /// The asking end is gone, and the answering one, which polls the links itself, notices it in its next turn.
  AdapterTurn lose_asking() {
    const Time later = now() + microseconds(10);
    ends_.pair.bridges().cut();
    ends_.pair.bridges().advance(later);
    return answering().adapter.take_turn(later);
  }
  /// How many questions the asking end knows to be settled.
  std::uint64_t told() { return ends_.pair.link(0).settled(kData); }
  /// The asking end was rung since the last call.
  bool rung() {
    const std::uint64_t before = rung_;
    rung_ = ends_.pair.bridges().counters().doorbells;
    return rung_ != before;
  }

 private:
  test::TwoEndpoints ends_;
  bool takes_turns_;
  std::uint64_t rung_ = 0;
};

}  // namespace

TEST_CASE("who answers each message has it, and the peer knows, before a doorbell is looked at",
          "[fabric][adapter][answers]") {
  Conversation talk(GENERATE(false, true));
  talk.ask();
  CHECK(talk.poll(1) != 0);
  CHECK(talk.questions() == 1);
  CHECK(talk.told() == 2);
  CHECK_FALSE(talk.rung());
  SECTION("and one ring is enough, after the answer") { talk.answer(); }
  SECTION("or if there is none") {}
  talk.poll(1);
  CHECK(talk.rung());
  talk.poll(1);
  CHECK_FALSE(talk.rung());
}

TEST_CASE("who does not answer rings the peer at once", "[fabric][adapter][answers]") {
  Conversation talk(GENERATE(false, true));
  talk.ask();
  talk.poll(1);
  talk.poll(1);
  REQUIRE(talk.rung());
  talk.ask();
  talk.poll(1);
  CHECK(talk.rung());
  SECTION("also where it answers later, after a poll that brought nothing") {
    talk.poll(1);
    talk.answer();
    talk.poll(0);
    talk.ask();
    talk.poll(1);
    CHECK(talk.rung());
  }
}

TEST_CASE("of two polls in a row that bring messages, the second rings the peer", "[fabric][adapter][answers]") {
  Conversation talk(GENERATE(false, true));
  talk.ask();
  talk.poll(1);
  REQUIRE_FALSE(talk.rung());
  talk.answer();
  talk.ask();
  talk.poll(1);
  CHECK(talk.questions() == 2);
  CHECK(talk.rung());
}

TEST_CASE("an end that owes the peer a look does not sleep", "[fabric][adapter][answers]") {
  Conversation talk(GENERATE(false, true));
  ChannelAdapter& adapter = talk.answering().adapter;
  talk.ask();
  talk.poll(1);
  CHECK(adapter.next_deadline() <= talk.now());
  CHECK_FALSE(adapter.rests(talk.now()));
  CHECK_FALSE(adapter.rearm());
  CHECK_FALSE(adapter.prepare_sleep());
  talk.poll(1);
  CHECK(adapter.next_deadline() > talk.now());
  CHECK(adapter.prepare_sleep());
}

TEST_CASE("what a question answers completes with the poll after it", "[fabric][adapter][answers]") {
  Conversation talk(true);
  constexpr int kQuestions = 40;
  const auto completed_answers = [&] {
    return std::ranges::count_if(talk.answering().take(), [](const Completion& done) { return !done.receive; });
  };
  std::ptrdiff_t before_answering = 0;
  std::ptrdiff_t later = 0;
  for (int i = 0; i < kQuestions; ++i) {
    talk.ask();
    REQUIRE(talk.poll(1) != 0);
    before_answering += completed_answers();
    talk.answer();
    talk.poll(1);
    later += completed_answers();  // not of this answer, which the other end has not taken yet
    talk.poll(0);
    static_cast<void>(talk.asking().take());
  }
  CHECK(later > 0);
  for (std::uint64_t i = 0; i <= TailHabit::kPolls; ++i) talk.poll(1);
  CHECK(before_answering + later + completed_answers() == kQuestions + 1);
}

TEST_CASE("what a poll has left to the next one ends well, also if the peer is gone by then",
          "[fabric][adapter][answers]") {
  Conversation talk(/*takes_turns=*/true);
  std::vector<Completion> brought;
  for (int i = 0; i < 40 && brought.size() != 1; ++i) {  // until the last answer's completion is left
    if (i != 0) {
      talk.answer();
      talk.poll(1);
      talk.poll(0);
      static_cast<void>(talk.asking().take());
    }
    talk.ask();
    talk.poll(1);
    brought = talk.answering().take();
  }
  REQUIRE(brought.size() == 1);
  REQUIRE(brought[0].receive);
  CHECK(talk.lose_asking().links_changed);
  const auto left = talk.answering().take();
  REQUIRE(left.size() == 1);
  CHECK_FALSE(left[0].receive);
  CHECK(left[0].status == CompletionStatus::success);
}

TEST_CASE("in a conversation, too, an end soon sees that its question was taken and not answered",
          "[fabric][adapter][answers]") {
  Conversation talk(true);
  for (int i = 0; i < 40; ++i) {
    talk.ask();
    talk.poll(1);
    static_cast<void>(talk.answering().take());
    talk.answer();
    talk.poll(1);
    while (talk.poll(0) != 0) continue;
    static_cast<void>(talk.asking().take());
  }
  REQUIRE(talk.answering().receive(1, 0, 64) == Status::ok);
  REQUIRE(talk.asking().send(2, 0, 10) == Status::ok);
  talk.poll(1);
  std::uint64_t polls = 0;
  while (talk.asking().take().empty()) {
    REQUIRE(polls++ <= TailHabit::kPolls);
    talk.poll(0);
  }
}

TEST_CASE("an answer of the adapter's own does not wait for the caller's", "[fabric][adapter][answers]") {
  Conversation talk(GENERATE(false, true));
  Endpoint& answering = talk.answering();
  const auto readable = answering.adapter.register_memory(answering.domain, std::span(answering.buffer).first(64),
                                                          Right::local_read | Right::remote_read);
  REQUIRE(readable.has_value());
  talk.ask();
  WorkRequest read;
  read.operation = Operation::rdma_read;
  read.segments[0] = talk.asking().segment(0, 8);
  read.segment_count = 1;
  read.remote = {answering.adapter.region_address(*readable), *readable};
  REQUIRE(talk.asking().adapter.post_send(talk.asking().number, read) == Status::ok);
  const std::uint64_t before = answering.adapter.counters().cells_sent;
  talk.poll(1);
  CHECK(talk.questions() == 1);
  CHECK(answering.adapter.counters().cells_sent == before + 1);
}

}  // namespace splitnic::fabric::adapter_answers_test
