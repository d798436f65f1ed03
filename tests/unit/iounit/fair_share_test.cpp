// How hosts share the unit: scripted turns, exact numbers.
#include <catch2/catch.hpp>

#include <map>

#include "iounit/fair_share.h"

namespace splitnic::iounit::fair_share_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Sessions that always have work, and a unit that gives them turns as IoUnit does. Time goes by as the turns cost.
struct Sharing {
  explicit Sharing(FairShareOptions options = {}) : share(options) {}

  struct Session {
    Turn turn{};  ///< each of its turns; a cost of zero: it is idle
    std::uint64_t turns = 0;
  };
  FairShare share;
  std::map<std::size_t, Session> sessions;
  Time now{std::chrono::hours(1)};

  void add(std::size_t place, const Turn& turn) {
    share.add(place, now);
    sessions[place].turn = turn;
  }
  bool give(std::size_t place) {
    Session& session = sessions.at(place);
    if (session.turn.cost == Duration::zero()) return false;
    now += session.turn.cost;
    ++session.turns;
    share.charge(place, session.turn, now);
    return true;
  }
  void poll() {
    bool work = false;
    std::vector<std::size_t> waiting;
    for (const auto& [place, session] : sessions) {
      if (share.rests(place, now)) continue;
      if (!share.has_credit(place)) {
        waiting.push_back(place);
      } else if (give(place)) {
        work = true;
      }
    }
    if (!work && share.next_round(now)) {
      for (const std::size_t place : waiting) {
        if (share.has_credit(place) && give(place)) work = true;
      }
    }
    if (!work) now += microseconds(1);
  }
  void run(Duration time) {
    for (const Time end = now + time; now < end;) poll();
  }
  [[nodiscard]] Duration spent(std::size_t place) const { return share.spent(place); }
};

/// A turn that honest frames fill.
Turn honest(Duration cost) { return {.cost = cost, .bytes = 0, .frames = 64}; }

constexpr Time kNow{seconds(1)};

FairShare two_sessions(FairShareOptions options = {}) {
  FairShare share(options);
  share.add(0, Time{});
  share.add(1, Time{});
  return share;
}

TEST_CASE("busy hosts share the processor time one to one, whatever their turns cost", "[iounit][share]") {
  Sharing sharing;
  sharing.add(0, honest(microseconds(10)));
  sharing.add(1, honest(microseconds(100)));
  sharing.add(2, honest(microseconds(1000)));
  sharing.run(milliseconds(30));
  CHECK(sharing.sessions[0].turns == 1000);
  CHECK(sharing.sessions[1].turns == 100);
  CHECK(sharing.sessions[2].turns == 10);
  for (std::size_t place = 0; place < 3; ++place) CHECK(sharing.spent(place) == milliseconds(10));
}

TEST_CASE("bytes count as the time that they take after the turn", "[iounit][share]") {
  FairShareOptions options;
  options.quantum_bytes = 100'000;  // a nanosecond each
  Sharing sharing(options);
  sharing.add(0, {.cost = microseconds(25), .bytes = 75'000, .frames = 64});
  sharing.add(1, honest(microseconds(25)));
  sharing.run(microseconds(25) * 500);
  CHECK(sharing.sessions[0].turns == 100);
  CHECK(sharing.sessions[1].turns == 400);
}

TEST_CASE("a host that is alone with work gets every turn", "[iounit][share]") {
  Sharing sharing;
  sharing.add(0, {.cost = milliseconds(1), .bytes = 0, .frames = 0});
  sharing.add(1, {});
  sharing.run(seconds(1));
  CHECK(sharing.sessions[0].turns == 1000);
  CHECK(sharing.share.rests_taken(0) == 0);
  CHECK(sharing.share.wasted(0) == Duration::zero());
  CHECK(sharing.share.completions(0) == 128);
}

TEST_CASE("an idle host saves up no credit, and a debt is not forgotten by idling", "[iounit][share]") {
  Sharing sharing;
  sharing.add(0, honest(microseconds(50)));
  sharing.add(1, {});
  sharing.add(2, honest(microseconds(50)));
  sharing.run(milliseconds(10));
  CHECK(sharing.sessions[0].turns == 100);
  CHECK(sharing.sessions[2].turns == 100);
  // After 10 ms of idling it gets one quantum, two turns, and then its third.
  sharing.sessions[1].turn = honest(microseconds(50));
  sharing.run(milliseconds(3));
  CHECK(sharing.sessions[1].turns == 22);
  CHECK(sharing.sessions[0].turns == 120);
  CHECK(sharing.sessions[2].turns == 120);
  // One turn of 1 ms, then nothing: when it returns, the others have had theirs.
  sharing.sessions[1].turn = honest(milliseconds(1));
  sharing.poll();
  CHECK_FALSE(sharing.share.has_credit(1));
  sharing.sessions[1].turn = {};
  sharing.run(microseconds(500));
  sharing.sessions[1].turn = honest(microseconds(50));
  const auto before = sharing.sessions[1].turns;
  sharing.run(microseconds(1100));
  CHECK(sharing.sessions[1].turns == before);
  sharing.run(microseconds(400));
  CHECK(sharing.sessions[1].turns > before);
}

TEST_CASE("what the LAN costs is divided by frames among the hosts that sent them", "[iounit][share]") {
  FairShare share;
  for (std::size_t place = 0; place < 3; ++place) share.add(place, Time{});
  share.charge_lan(microseconds(7));  // nobody has sent
  for (unsigned frame = 0; frame < 3; ++frame) share.sent_to_lan(0);
  share.sent_to_lan(2);
  share.charge_lan(microseconds(100));
  share.charge_lan(microseconds(100));
  CHECK(share.spent(0) == microseconds(75));
  CHECK(share.spent(1) == Duration::zero());
  CHECK(share.spent(2) == microseconds(25));
  CHECK(share.has_credit(0));
  share.sent_to_lan(0);
  share.sent_to_lan(2);
  share.remove(2);
  share.charge_lan(microseconds(25));
  CHECK(share.spent(0) == microseconds(100));
  CHECK_FALSE(share.has_credit(0));
}

TEST_CASE("rounds and the LAN's cost look at busy hosts only, however many are idle", "[iounit][share]") {
  const std::size_t idle = GENERATE(std::size_t{0}, std::size_t{253});
  FairShare share;
  for (std::size_t place = 0; place < idle + 2; ++place) share.add(place, Time{});
  for (unsigned poll = 0; poll < 100; ++poll) {
    for (const std::size_t place : {idle, idle + 1}) {
      share.charge(place, honest(microseconds(110)), kNow);
      share.sent_to_lan(place);
    }
    share.charge_lan(microseconds(10));
    CHECK(share.next_round(kNow));
  }
  CHECK(share.looks() == 400);
  for (unsigned round = 0; round < 10; ++round) share.next_round(kNow);
  const auto looks = share.looks();
  CHECK_FALSE(share.next_round(kNow));
  CHECK(share.looks() == looks);  // nobody is in debt
  for (std::size_t place = 0; place < idle; ++place) CHECK(share.has_credit(place));
}

TEST_CASE("a place that is given to another leaves no debt and no frames behind", "[iounit][share]") {
  FairShare share;
  share.add(0, Time{});
  share.add(1, Time{});
  share.charge(0, honest(milliseconds(1)), kNow);
  share.sent_to_lan(0);
  share.remove(0);
  share.add(0, kNow);
  share.sent_to_lan(1);
  share.charge_lan(microseconds(10));
  CHECK(share.spent(0) == Duration::zero());
  CHECK(share.spent(1) == microseconds(10));
  CHECK_FALSE(share.next_round(kNow));
  CHECK(share.looks() == 1);
}

TEST_CASE("a long turn without use is followed by a rest that grows with its square", "[iounit][share]") {
  struct Row {
    Duration cost;
    std::uint64_t frames;
    Duration rest;
  };
  const auto row = GENERATE(Row{microseconds(250), 0, {}}, Row{microseconds(500), 0, milliseconds(4)},
                            Row{milliseconds(1), 0, milliseconds(16)}, Row{milliseconds(17), 0, milliseconds(200)},
                            Row{milliseconds(1), 10, {}}, Row{milliseconds(1), 5, milliseconds(4)});
  FairShareOptions options;
  options.free_waste = Duration::zero();
  FairShare share = two_sessions(options);
  share.charge(1, honest(microseconds(1)), kNow - microseconds(99'999));
  share.charge(0, {.cost = row.cost, .bytes = 0, .frames = row.frames}, kNow);
  CHECK(share.rest_until(0) == (row.rest == Duration::zero() ? Time{} : kNow + row.rest));
  CHECK(share.rests_taken(0) == (row.rest == Duration::zero() ? 0U : 1U));
  CHECK(share.rests(0, kNow) == (row.rest != Duration::zero()));
  CHECK_FALSE(share.rests(0, kNow + row.rest));
}

TEST_CASE("nobody rests for turns that held up no one", "[iounit][share]") {
  FairShareOptions options;
  options.free_waste = Duration::zero();
  FairShare share = two_sessions(options);
  share.charge(1, honest(microseconds(1)), kNow - milliseconds(100));
  share.charge(0, {.cost = milliseconds(1), .bytes = 0, .frames = 0}, kNow);
  CHECK(share.rests_taken(0) == 0);
}

TEST_CASE("the long turns of a session that comes up are free", "[iounit][share]") {
  FairShare share = two_sessions();
  share.charge(1, honest(microseconds(1)), kNow);
  for (unsigned turn = 0; turn < 5; ++turn) share.charge(0, {.cost = milliseconds(1)}, kNow);
  CHECK(share.rests_taken(0) == 0);
  share.charge(0, {.cost = milliseconds(1)}, kNow);
  CHECK(share.rests_taken(0) == 1);
}

TEST_CASE("a turn that took too long is shorter the next time, and grows again", "[iounit][share]") {
  FairShare share = two_sessions();
  share.charge(1, honest(microseconds(1)), kNow);
  CHECK(share.completions(0) == 128);
  share.charge(0, honest(microseconds(1000)), kNow);
  CHECK(share.completions(0) == 32);
  share.charge(0, honest(microseconds(500)), kNow);
  CHECK(share.completions(0) == 16);
  share.charge(0, honest(milliseconds(100)), kNow);
  CHECK(share.completions(0) == 4);
  share.charge(0, honest(microseconds(250)), kNow);
  CHECK(share.completions(0) == 8);
  for (unsigned turn = 0; turn < 5; ++turn) share.charge(0, honest(microseconds(10)), kNow);
  CHECK(share.completions(0) == 64);
}

TEST_CASE("turns are shorter while others compete", "[iounit][share]") {
  FairShare share = two_sessions();
  share.charge(1, honest(microseconds(1)), kNow);
  CHECK(share.completions(1) == 128);
  share.charge(0, honest(microseconds(10)), kNow);
  CHECK(share.completions(0) == 64);
  share.charge(1, honest(microseconds(10)), kNow);
  CHECK(share.completions(1) == 64);
  share.charge(1, honest(microseconds(10)), kNow + seconds(1));
  CHECK(share.completions(1) == 128);
}

TEST_CASE("a host that wastes time for three seconds in succession while others work is wasteful", "[iounit][share]") {
  struct Row {
    Duration waste;  // in each tenth of a second
    bool others;
    Duration pause;  // in the middle
    bool wasteful;
  };
  const auto row =
      GENERATE(Row{microseconds(5001), true, {}, true}, Row{microseconds(5000), true, {}, false},
               Row{microseconds(9000), false, {}, false}, Row{microseconds(5001), true, seconds(2), false});
  FairShare share = two_sessions();
  Time now = kNow;
  const auto run = [&](unsigned tenths) {
    for (unsigned tenth = 0; tenth < tenths; ++tenth) {
      if (row.others) share.charge(1, honest(microseconds(1)), now);
      for (unsigned part = 0; part < 100; ++part) share.charge(0, {.cost = row.waste / 100}, now);
      now += milliseconds(100);
    }
  };
  run(20);
  now += row.pause;
  run(10);
  CHECK_FALSE(share.is_wasteful(0));  // the third second is not over
  run(1);
  CHECK(share.is_wasteful(0) == row.wasteful);
  CHECK_FALSE(share.is_wasteful(1));
}

TEST_CASE("a place starts anew with each session", "[iounit][share]") {
  FairShare share;
  const Time now{seconds(1)};
  share.add(0, now + milliseconds(5));
  CHECK(share.rests(0, now));
  CHECK_FALSE(share.rests(0, now + milliseconds(5)));
  share.charge(0, honest(milliseconds(1)), now);
  CHECK_FALSE(share.has_credit(0));
  share.remove(0);
  CHECK_FALSE(share.next_round(now));
  share.add(0, now);
  CHECK(share.has_credit(0));
  CHECK(share.spent(0) == Duration::zero());
}

}  // namespace
}  // namespace splitnic::iounit::fair_share_test
