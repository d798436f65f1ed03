#include "fabric/bridge/link.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <thread>

#include "tests/unit/fabric/bridge_fixtures.h"
#include "tests/unit/fabric/link_records.h"

namespace splitnic::fabric::bridge_sleep_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using test::ShmPairBridges;

/// A program at one end as an edge loop runs it: polls while there is work, else arms, looks again, sleeps until its
/// doorbell or its deadline. Counts what it gets.
class Program {
 public:
  Program(Bridge& bridge, RandomSource& random, const LinkOptions& options) : link_(bridge, options, random) {
    link_.restart();
  }

  void run(Time now) {
    if (asleep_) {
      link_.disarm();
      asleep_ = false;
    }
    link_.poll(now);
    if (link_.up()) {
      while (test::take_record(link_, VirtualLane::data)) ++received_;
      link_.return_room(VirtualLane::data, false);
      while (to_send_ > 0) {
        const std::array<std::uint64_t, 50> words{++number_};
        if (!test::send_record(link_, VirtualLane::data, std::as_bytes(std::span(words)))) break;
        --to_send_;
      }
      link_.notify();
    }
    if (link_.prepare_sleep()) {
      asleep_ = true;
      deadline_ = link_.next_deadline(now, false);
    }
  }
  /// Due: awake, or its deadline has come.
  [[nodiscard]] bool due(Time now) const { return !asleep_ || deadline_ <= now; }

  FabricLink& link() { return link_; }
  void submit(std::uint64_t records) { to_send_ += records; }
  [[nodiscard]] bool asleep() const { return asleep_; }
  [[nodiscard]] Time deadline() const { return deadline_; }
  [[nodiscard]] std::uint64_t received() const { return received_; }
  [[nodiscard]] std::uint64_t unsent() const { return to_send_; }

 private:
  FabricLink link_;
  bool asleep_ = false;
  Time deadline_{};
  std::uint64_t to_send_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t received_ = 0;
};

LinkOptions small_rings() {
  LinkOptions options;
  options.slot_bytes = {1024, 1024};
  options.payload_bytes = {4096, 4096};
  return options;
}

/// Runs both programs for a while of simulated time, each only when it is due or its doorbell has rung.
void run_both(SimBridgePair& pair, std::array<Program*, 2> programs, Time& now, Time until) {
  while (now < until) {
    Time next = pair.next_event();
    for (std::size_t i = 0; i < 2; ++i) {
      if (programs[i]->due(now) || pair.wake_pending(i)) {
        programs[i]->run(now);
        next = std::min(next, now + microseconds(5));
      }
      if (programs[i]->asleep()) next = std::min(next, programs[i]->deadline());
    }
    now = std::clamp(next, now + microseconds(1), until);
    pair.advance(now);
  }
}

}  // namespace

TEST_CASE("whatever doorbells are lost, late or spurious, every record arrives within 100 ms and a bit",
          "[fabric][link][sleep]") {
  for (std::uint64_t seed = 1; seed <= test::seeds(400); ++seed) {
    INFO("seed " << seed);
    SeededRandom random(seed);
    SimBridgeOptions options;
    options.doorbell_lost_permille = static_cast<unsigned>(random.below(600));
    options.doorbell_spurious_permille = static_cast<unsigned>(random.below(20));
    SimBridgePair pair(options, random);
    Program first(pair.end(0), random, small_rings());
    Program second(pair.end(1), random, small_rings());
    Time now{};
    run_both(pair, {&first, &second}, now, now + milliseconds(700));
    REQUIRE(first.link().up());
    REQUIRE(second.link().up());
    std::uint64_t expected = 0;
    for (int burst = 0; burst < 10; ++burst) {
      const std::uint64_t records = 1 + random.below(5);  // fits the ring: at most one doorbell decides
      expected += records;
      first.submit(records);
      first.run(now);  // something woke it, a frame from its TAP say
      // One ring may be lost, and the repeated one too, with probability p each: allow for a run of them.
      Time give_up = now + milliseconds(101);
      while (second.received() < expected && options.doorbell_lost_permille > 0 && now < give_up + milliseconds(2000)) {
        run_both(pair, {&first, &second}, now, now + milliseconds(10));
      }
      run_both(pair, {&first, &second}, now, now + microseconds(random.below(300)));
      if (options.doorbell_lost_permille == 0) run_both(pair, {&first, &second}, now, now + milliseconds(1));
      REQUIRE(second.received() == expected);
    }
    REQUIRE(first.link().doorbells_left_out() + second.link().doorbells_left_out() == 0);
  }
}

TEST_CASE("without losses nobody waits for a deadline: a record reaches a sleeper by its doorbell alone",
          "[fabric][link][sleep]") {
  for (std::uint64_t seed = 1; seed <= test::seeds(400); ++seed) {
    INFO("seed " << seed);
    SeededRandom random(seed);
    SimBridgeOptions options;
    options.doorbell_lost_permille = 0;
    options.doorbell_spurious_permille = 0;
    SimBridgePair pair(options, random);
    Program first(pair.end(0), random, small_rings());
    Program second(pair.end(1), random, small_rings());
    Time now{};
    run_both(pair, {&first, &second}, now, now + milliseconds(500));
    REQUIRE(first.link().up());
    REQUIRE(second.link().up());
    std::uint64_t expected = 0;
    for (int burst = 0; burst < 30; ++burst) {
      const std::uint64_t records = 1 + random.below(60);  // up to several times the ring: room is waited for, too
      expected += records;
      first.submit(records);
      first.run(now);
      // Much less than the 100 ms after which lost doorbells would be made up for.
      run_both(pair, {&first, &second}, now, now + milliseconds(20));
      REQUIRE(second.received() == expected);
      REQUIRE(first.unsent() == 0);
    }
    REQUIRE(first.link().doorbells_left_out() + second.link().doorbells_left_out() == 0);
  }
}

TEST_CASE("two idle ends sleep without a deadline, and nobody rings", "[fabric][link][sleep]") {
  SeededRandom random(1);
  SimBridgeOptions options;
  options.doorbell_lost_permille = 0;
  options.doorbell_spurious_permille = 0;
  SimBridgePair pair(options, random);
  Program first(pair.end(0), random, small_rings());
  Program second(pair.end(1), random, small_rings());
  Time now{};
  first.submit(3);
  run_both(pair, {&first, &second}, now, now + milliseconds(300));
  REQUIRE(second.received() == 3);
  const auto before = pair.counters().doorbells;
  run_both(pair, {&first, &second}, now, now + std::chrono::hours(1));
  CHECK(pair.counters().doorbells == before);
  CHECK(first.asleep());
  CHECK(first.deadline() == kNever);
  CHECK(second.deadline() == kNever);
}

/// The two ends of a bridge in shared memory.
struct ShmLinks {
  void come_up(const std::function<void()>& before_each_step = [] {}) {
    producer.restart();
    consumer.restart();
    while (!producer.up() || !consumer.up()) {
      before_each_step();
      producer.poll(now);
      consumer.poll(now);
    }
  }

  ShmPairBridges bridges;
  SeededRandom random{1};
  FabricLink producer{bridges.end(0), {}, random};
  FabricLink consumer{bridges.end(1), {}, random};
  Time now{};
};

TEST_CASE_METHOD(ShmLinks,
                 "prepare_sleep refuses when a record came in, and arms otherwise; the producer rings once per arming",
                 "[fabric][link][sleep]") {
  come_up();
  while (bridges.end(1).take_doorbells()) {
  }
  const auto record = test::bytes_of("record");
  REQUIRE(test::send_record(producer, VirtualLane::control, record));
  producer.notify();
  CHECK_FALSE(bridges.end(1).take_doorbells());  // awake: no doorbell
  CHECK_FALSE(consumer.prepare_sleep());
  REQUIRE(test::take_record(consumer, VirtualLane::control));
  CHECK(consumer.prepare_sleep());
  REQUIRE(test::send_record(producer, VirtualLane::data, record));
  producer.notify();
  CHECK(bridges.end(1).take_doorbells());
  REQUIRE(test::send_record(producer, VirtualLane::data, record));
  producer.notify();
  CHECK_FALSE(bridges.end(1).take_doorbells());  // rung for already
  consumer.disarm();
  CHECK_FALSE(consumer.prepare_sleep());
}

TEST_CASE_METHOD(ShmLinks,
                 "an end that leaves its link armed while the peer owes it something rings again when that is due",
                 "[fabric][link][sleep]") {
  CHECK_FALSE(producer.armed_until_deadline());
  come_up([this] {
    CHECK((producer.armed_until_deadline() || producer.up()));  // the peer rings for its steps
    CHECK(producer.next_deadline(now, true) <= now + milliseconds(50));
  });
  CHECK_FALSE(producer.armed_until_deadline());
  producer.poll(now);
  REQUIRE(consumer.prepare_sleep());
  REQUIRE(test::send_record(producer, VirtualLane::control, test::bytes_of("record")));
  producer.notify();
  REQUIRE(bridges.end(1).take_doorbells());  // and the process is stopped before it polls, or the doorbell is lost
  for (int times = 0; times < 3; ++times) {
    producer.set_patient(false);
    REQUIRE(producer.prepare_sleep());
    CHECK_FALSE(producer.stays_armed());
    CHECK(producer.armed_until_deadline());
    const Time due = producer.next_deadline(now, true);
    CHECK(due > now);
    CHECK(due <= now + milliseconds(100));
    // Something else of its peer wakes it before.
    producer.resume(now = due - milliseconds(1));
    producer.poll(now);
    CHECK_FALSE(bridges.end(1).take_doorbells());
    REQUIRE(producer.prepare_sleep());
    CHECK(producer.next_deadline(now, true) == due);
    producer.resume(now = due);
    CHECK_FALSE(producer.armed_until_deadline());
    producer.poll(now);
    CHECK(bridges.end(1).take_doorbells());
  }
}

TEST_CASE("an announcement that stays torn keeps nobody awake, and one that follows it is read",
          "[fabric][link][sleep]") {
  constexpr std::size_t kCheckWord = 7;
  ShmPairBridges bridges;
  SeededRandom random(1);
  FabricLink peer(bridges.end(0), {}, random);
  FabricLink sleeper(bridges.end(1), {}, random);
  peer.restart();
  sleeper.restart();
  Time now{};
  const auto come_up = [&] {
    for (int steps = 0; !peer.up() || !sleeper.up(); ++steps) {
      REQUIRE(steps < 1000);
      now += milliseconds(1);
      peer.poll(now);
      sleeper.poll(now);
    }
  };
  const auto look_and_arm = [&] {
    now += milliseconds(1);
    sleeper.poll(now);
    return sleeper.prepare_sleep();
  };
  come_up();
  REQUIRE(look_and_arm());
  CHECK(sleeper.stays_armed());
  sleeper.disarm();

  const std::uint32_t whole = bridges.end(1).read_scratchpad(kCheckWord);
  bridges.end(0).write_scratchpad(kCheckWord, ~whole);
  CHECK_FALSE(sleeper.prepare_sleep());  // not looked at yet
  REQUIRE(look_and_arm());
  CHECK(sleeper.up());
  CHECK_FALSE(sleeper.stays_armed());
  const Time look_again = sleeper.next_deadline(now, false);
  CHECK(look_again > now);
  CHECK(look_again <= now + milliseconds(100));
  sleeper.disarm();
  bridges.end(0).ring();
  CHECK_FALSE(sleeper.prepare_sleep());  // it may be whole
  bridges.end(0).write_scratchpad(kCheckWord, whole);
  REQUIRE(look_and_arm());
  CHECK(sleeper.stays_armed());
  CHECK(sleeper.next_deadline(now, false) == kNever);
  sleeper.disarm();

  bridges.end(0).write_scratchpad(kCheckWord, ~whole);
  REQUIRE(look_and_arm());
  const std::uint64_t before = sleeper.incarnation();
  peer.restart();
  CHECK(bridges.end(1).take_doorbells());
  sleeper.disarm();
  sleeper.poll(now += milliseconds(1));
  CHECK_FALSE(sleeper.up());
  come_up();
  CHECK(sleeper.incarnation() == before + 1);
}

/// Keeps this thread on the core that it is on.
class OnOneCore {
 public:
  OnOneCore() {
    REQUIRE(::sched_getaffinity(0, sizeof before_, &before_) == 0);
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &here);
    REQUIRE(::sched_setaffinity(0, sizeof here, &here) == 0);
  }
  ~OnOneCore() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

 private:
  cpu_set_t before_{};
};

TEST_CASE("a peer that is awake on this core is seen to wait for it, asleep or silent for long it is not",
          "[fabric][link][sleep]") {
  const OnOneCore pinned;
  ShmPairBridges bridges;
  SeededRandom random(1);
  FabricLink link(bridges.end(0), {}, random);
  FabricLink peer(bridges.end(1), {}, random);
  link.restart();
  peer.restart();
  Time now{};
  while (!link.up() || !peer.up()) {
    link.poll(now);
    peer.poll(now);
  }
  CHECK_FALSE(link.peer_waits_for_core(now));  // it has not said yet where it is
  REQUIRE(peer.prepare_sleep());
  CHECK_FALSE(link.peer_waits_for_core(now));
  peer.disarm();
  CHECK(link.peer_waits_for_core(now));
  CHECK(link.peer_waits_for_core(now + milliseconds(9)));
  CHECK_FALSE(link.peer_waits_for_core(now + milliseconds(10)));  // it may have been stopped
  REQUIRE(peer.prepare_sleep());
  peer.disarm();
  CHECK(link.peer_waits_for_core(now + milliseconds(20)));
}

// Two threads, each asleep in poll(2) on its doorbell when there is nothing. No deadline is used here, so that a single
// lost wake-up leaves both asleep until the test's patience ends, and fails it. It does not prove the order on other
// processors or on posted bridges.
TEST_CASE("two threads play ping-pong through real sleep and lose no wake-up", "[fabric][link][sleep][stress]") {
  ShmPairBridges bridges;
  constexpr std::uint64_t kRounds = 20000;
  constexpr int kPatienceMs = 10'000;
  std::array<bool, 2> finished{};
  std::array<std::uint64_t, 2> lost{};
  const auto play = [&](std::size_t index) {
    SeededRandom random(index + 1);
    FabricLink link(bridges.end(index), {}, random);
    link.restart();
    std::uint64_t got = 0;
    std::uint64_t sent = 0;
    Time now = monotonic_now();
    Time give_up = now + milliseconds(kPatienceMs);
    while ((got < kRounds || sent < kRounds) && now < give_up) {
      link.poll(now);
      now = monotonic_now();
      if (!link.up()) continue;
      while (test::take_record(link, VirtualLane::data)) {
        ++got;
        give_up = now + milliseconds(kPatienceMs);
      }
      if (sent < kRounds && (index == 0 ? sent == got : sent < got) &&
          test::send_record(link, VirtualLane::data, std::as_bytes(std::span(&sent, 1)))) {
        ++sent;
      }
      link.notify();
      if (got == kRounds && sent == kRounds) break;
      if (!link.prepare_sleep()) continue;
      pollfd bell{bridges.end(index).doorbell_descriptor(), POLLIN, 0};
      lost[index] += ::poll(&bell, 1, kPatienceMs) == 0 ? 1 : 0;
      link.disarm();
    }
    finished[index] = got == kRounds && sent == kRounds;
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  CHECK(finished[0]);
  CHECK(finished[1]);
  CHECK(lost[0] + lost[1] == 0);
}

}  // namespace splitnic::fabric::bridge_sleep_test
