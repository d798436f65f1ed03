// When a session rings its peer: at once, or as rarely as the peer asked it to.
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "messaging/session.h"
#include "scripted_peer.h"
#include "tests/sim_bridge/sim_bridge.h"

namespace splitnic::messaging::session_doorbell_test {

namespace {

using std::chrono::milliseconds;

constexpr wire::Moderation kEveryFourth{.entries = 4, .bytes = 0, .time = milliseconds(10)};

/// A host and a unit over a bridge without faults or delays. The unit sends; the host sleeps.
class SleepingHost {
 public:
  explicit SleepingHost(const wire::Moderation& wish, std::uint32_t unit_elements = 64, bool data_channel = true)
      : data_channel_(data_channel) {
    SessionOptions unit;
    unit.role = wire::Role::io_unit;
    unit.name = "unit";
    unit.pool_elements = unit_elements;
    unit_ = std::make_unique<Session>(unit, pair_.end(1), random_, unit_events_);
    start_host(wish);
  }

  /// The host's program starts, again too, and comes up.
  void start_host(const wire::Moderation& wish) {
    const std::size_t ups = static_cast<std::size_t>(unit_events_.ups);
    SessionOptions host;
    host.name = "host";
    host.pool_elements = 64;
    host.moderation = wish;
    host.data_channel = data_channel_;
    host_.reset();
    host_ = std::make_unique<Session>(host, pair_.end(0), random_, host_events_);
    // Not a multiple of the link's 100 ms: what it rings for the rescue of lost doorbells is far from what follows.
    for (const Time end = now_ + milliseconds(550); now_ < end; now_ += std::chrono::microseconds(50)) step();
    REQUIRE(host_->up());
    REQUIRE(unit_->up());
    REQUIRE(static_cast<std::size_t>(unit_events_.ups) == ups + 1);
  }

  void go_to_sleep() {
    for (int round = 0; round < 20; ++round) step();
    REQUIRE(host_->prepare_sleep());
    REQUIRE_FALSE(rung());
  }
  [[nodiscard]] bool rung() {
    pair_.advance(now_);
    return pair_.wake_pending(0);
  }
  /// One frame and the end of its batch.
  void send(std::uint32_t bytes = 60) {
    REQUIRE_FALSE(unit_->claim().empty());
    unit_->commit(bytes);
    unit_->flush();
  }
  /// The host's driver sends frames in one batch, and goes to sleep.
  void send_and_sleep(std::size_t frames) {
    for (std::size_t frame = 0; frame < frames; ++frame) {
      REQUIRE_FALSE(host_->claim(60).empty());
      host_->commit(60, {});
    }
    host_->flush();
    REQUIRE(host_->prepare_sleep());
    REQUIRE_FALSE(rung());
  }
  /// The host's driver ends the session, and sleeps until the unit has answered.
  void reset_and_sleep(std::string_view reason) {
    go_to_sleep();
    host_->disarm();
    host_->reset(reason);
    host_->flush();
    REQUIRE(host_->prepare_sleep());
    REQUIRE_FALSE(rung());
  }
  [[nodiscard]] std::vector<std::string> downs_of_host() {
    host_->disarm();
    host_->poll(now_);
    return host_events_.downs;
  }
  [[nodiscard]] std::size_t received_by_unit() const { return unit_events_.frames.size(); }
  [[nodiscard]] Time host_wakes_by() const { return host_->next_deadline(); }
  [[nodiscard]] Time now() const { return now_; }
  /// The host's driver wakes by itself, and goes to sleep again.
  void wake_host() {
    host_->disarm();
    now_ = std::max(now_, host_->next_deadline());
    host_->poll(now_);
    REQUIRE(host_->prepare_sleep());
  }
  /// The unit's driver has nothing to do.
  void put_unit_to_sleep() { REQUIRE(unit_->prepare_sleep()); }
  [[nodiscard]] Time unit_wakes_by() const { return unit_->next_deadline(); }
  /// It wakes by itself.
  void wake_unit() {
    unit_->disarm();
    now_ = std::max(now_, unit_->next_deadline());
    unit_->poll(now_);
    unit_->flush();
  }
  /// The unit queues a message, and what follows has not ended its batch yet.
  void begin_request() {
    REQUIRE(unit_->request(wire::StatusReport{1, "words"}));
    unit_->poll(now_);
  }
  /// The unit's driver sends back a frame for each one that it gets.
  void let_unit_answer() {
    unit_events_.after_frame = [this] {
      REQUIRE_FALSE(unit_->claim().empty());
      unit_->commit(60);
    };
  }
  [[nodiscard]] bool host_may_sleep() { return host_->prepare_sleep(); }
  /// The unit's driver goes on polling.
  void wait(Duration time) {
    for (const Time end = now_ + time; now_ < end; now_ += std::chrono::microseconds(100)) {
      unit_->poll(now_);
      unit_->flush();
    }
  }

 private:
  void step() {
    pair_.advance(now_);
    for (Session* session : {host_.get(), unit_.get()}) {
      session->poll(now_);
      session->flush();
      pair_.advance(now_);
    }
  }

  static fabric::SimBridgeOptions plain_bridge() {
    // Room for more slots and elements than a send queue has requests.
    return {.local_bytes{4U << 20U, 4U << 20U},
            .write_delay_max{},
            .scratchpad_delay_max{},
            .doorbell_delay_max{},
            .torn_permille = 0,
            .doorbell_lost_permille = 0,
            .doorbell_spurious_permille = 0,
            .memory_scribbled = false};
  }

  SeededRandom random_{11};
  fabric::SimBridgePair pair_{plain_bridge(), random_};
  bool data_channel_;
  test::RecordedEvents host_events_;
  test::RecordedEvents unit_events_;
  Time now_{std::chrono::hours(1)};
  std::unique_ptr<Session> unit_;
  std::unique_ptr<Session> host_;
};

}  // namespace

TEST_CASE("a sleeping peer is rung by the first frame", "[messaging][session][doorbell]") {
  SleepingHost bench({});
  bench.go_to_sleep();
  bench.send();
  REQUIRE(bench.rung());
}

TEST_CASE("a peer that asked for it is rung by the fourth frame", "[messaging][session][doorbell]") {
  SleepingHost bench(kEveryFourth);
  bench.go_to_sleep();
  for (int frame = 1; frame < 4; ++frame) {
    bench.send();
    REQUIRE_FALSE(bench.rung());
  }
  bench.send();
  REQUIRE(bench.rung());
}

TEST_CASE("a peer that asked for it is rung by so many bytes", "[messaging][session][doorbell]") {
  SleepingHost bench({.entries = 0, .bytes = 1000, .time = milliseconds(10)});
  bench.go_to_sleep();
  bench.send(999);
  REQUIRE_FALSE(bench.rung());
  bench.send(60);
  REQUIRE(bench.rung());
}

TEST_CASE("a moderated frame rings when its time is up, not before", "[messaging][session][doorbell]") {
  SleepingHost bench(kEveryFourth);
  bench.go_to_sleep();
  bench.send();
  bench.wait(milliseconds(9));
  REQUIRE_FALSE(bench.rung());
  bench.wait(milliseconds(2));
  REQUIRE(bench.rung());
}

TEST_CASE("a moderated frame rings when its time is up, also if its sender sleeps", "[messaging][session][doorbell]") {
  SleepingHost bench(kEveryFourth);
  bench.go_to_sleep();
  const Time sent = bench.now();
  bench.send();
  bench.put_unit_to_sleep();
  REQUIRE_FALSE(bench.rung());
  REQUIRE(bench.unit_wakes_by() == sent + kEveryFourth.time);
  // Something else wakes it meanwhile.
  bench.wait(milliseconds(5));
  bench.send();
  bench.put_unit_to_sleep();
  REQUIRE_FALSE(bench.rung());
  REQUIRE(bench.unit_wakes_by() == sent + kEveryFourth.time);
  bench.wake_unit();
  REQUIRE(bench.rung());
  bench.put_unit_to_sleep();
  REQUIRE(bench.unit_wakes_by() > bench.now() + 2 * kEveryFourth.time);
}

TEST_CASE("a message rings for a moderated frame too, whose sender then does not wake for it",
          "[messaging][session][doorbell]") {
  SleepingHost bench(kEveryFourth);
  bench.go_to_sleep();
  bench.send();
  bench.begin_request();
  bench.put_unit_to_sleep();
  REQUIRE(bench.rung());
  REQUIRE(bench.unit_wakes_by() > bench.now() + 2 * kEveryFourth.time);
}

TEST_CASE("a host that waits until the unit has its frame is rung when the unit sleeps, whatever is postponed",
          "[messaging][session][doorbell]") {
  SleepingHost bench(kEveryFourth, 64, false);
  bench.let_unit_answer();
  bench.send_and_sleep(1);
  bench.wait(std::chrono::microseconds(100));
  REQUIRE(bench.received_by_unit() == 1);
  REQUIRE_FALSE(bench.rung());
  bench.put_unit_to_sleep();
  REQUIRE(bench.rung());
  REQUIRE(bench.unit_wakes_by() > bench.now() + 2 * kEveryFourth.time);
}

TEST_CASE("no sender wakes for a moderated frame that its peer finds before it sleeps",
          "[messaging][session][doorbell]") {
  SleepingHost bench(kEveryFourth);
  bench.send();
  bench.put_unit_to_sleep();
  REQUIRE(bench.unit_wakes_by() > bench.now() + 2 * kEveryFourth.time);
  REQUIRE_FALSE(bench.host_may_sleep());
}

TEST_CASE("a new session starts without the moderation of the last one", "[messaging][session][doorbell]") {
  SleepingHost bench(kEveryFourth);
  bench.start_host({});
  bench.go_to_sleep();
  bench.send();
  REQUIRE(bench.rung());
}

TEST_CASE("an end that sleeps until its reset is answered is rung for the answer", "[messaging][session][doorbell]") {
  SleepingHost bench({});
  bench.reset_and_sleep("enough");
  bench.wait(milliseconds(1));
  REQUIRE(bench.rung());
  REQUIRE(bench.downs_of_host() == std::vector<std::string>{"enough"});
}

TEST_CASE("a host that sleeps after a few frames is not rung because the unit has them",
          "[messaging][session][doorbell]") {
  SleepingHost bench({}, 256);
  const std::size_t frames = GENERATE(1, 20);
  bench.send_and_sleep(frames);
  bench.wait(milliseconds(1));
  REQUIRE(bench.received_by_unit() == frames);
  REQUIRE_FALSE(bench.rung());
  // It learns of it by itself before long, and then has nothing more to wait for.
  REQUIRE(bench.host_wakes_by() <= bench.now() + milliseconds(100));
  bench.wake_host();
  REQUIRE(bench.host_wakes_by() > bench.now() + milliseconds(100));
}

TEST_CASE("a host that sleeps while half of its send queue is in flight is rung when the unit has the frames",
          "[messaging][session][doorbell]") {
  SleepingHost bench({}, 1400);  // so many that none are returned yet
  bench.send_and_sleep(300);
  bench.wait(milliseconds(1));
  REQUIRE(bench.received_by_unit() == 300);
  REQUIRE(bench.rung());
}

}  // namespace splitnic::messaging::session_doorbell_test
