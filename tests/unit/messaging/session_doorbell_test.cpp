// When a session rings its peer: at once, or as rarely as the peer asked it to.
#include <catch2/catch.hpp>

#include "fabric/bridge/sim_bridge.h"
#include "messaging/session.h"
#include "scripted_peer.h"

using namespace splitnic;
using namespace splitnic::messaging;

namespace {

using std::chrono::milliseconds;

constexpr wire::Moderation kEveryFourth{.entries = 4, .bytes = 0, .time = milliseconds(10)};

/// A host and a unit over a bridge without faults or delays. The unit sends; the host sleeps.
class SleepingHost {
 public:
  explicit SleepingHost(const wire::Moderation& wish) {
    SessionOptions unit;
    unit.role = wire::Role::io_unit;
    unit.name = "unit";
    unit.pool_elements = 64;
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
    host_.reset();
    host_ = std::make_unique<Session>(host, pair_.end(0), random_, host_events_);
    // Not a multiple of the link's 100 ms: what it rings for the rescue of lost doorbells is far from what follows.
    for (const Time end = now_ + milliseconds(550); now_ < end; now_ += std::chrono::microseconds(50)) step();
    REQUIRE(host_->up());
    REQUIRE(unit_->up());
    REQUIRE(static_cast<std::size_t>(unit_events_.ups) == ups + 1);
  }

  void sleep() {
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
    return {.write_delay_max{},
            .scratchpad_delay_max{},
            .doorbell_delay_max{},
            .torn_permille = 0,
            .doorbell_lost_permille = 0,
            .doorbell_spurious_permille = 0,
            .memory_scribbled = false};
  }

  SeededRandom random_{11};
  fabric::SimBridgePair pair_{plain_bridge(), random_};
  test::RecordedEvents host_events_;
  test::RecordedEvents unit_events_;
  Time now_{std::chrono::hours(1)};
  std::unique_ptr<Session> unit_;
  std::unique_ptr<Session> host_;
};

}  // namespace

TEST_CASE("a sleeping peer is rung by the first frame", "[messaging][session][doorbell]") {
  SleepingHost bench({});
  bench.sleep();
  bench.send();
  REQUIRE(bench.rung());
}

TEST_CASE("a peer that asked for it is rung by the fourth frame", "[messaging][session][doorbell]") {
  SleepingHost bench(kEveryFourth);
  bench.sleep();
  for (int frame = 1; frame < 4; ++frame) {
    bench.send();
    REQUIRE_FALSE(bench.rung());
  }
  bench.send();
  REQUIRE(bench.rung());
}

TEST_CASE("a peer that asked for it is rung by so many bytes", "[messaging][session][doorbell]") {
  SleepingHost bench({.entries = 0, .bytes = 1000, .time = milliseconds(10)});
  bench.sleep();
  bench.send(999);
  REQUIRE_FALSE(bench.rung());
  bench.send(60);
  REQUIRE(bench.rung());
}

TEST_CASE("a moderated frame rings when its time is up, not before", "[messaging][session][doorbell]") {
  SleepingHost bench(kEveryFourth);
  bench.sleep();
  bench.send();
  bench.wait(milliseconds(9));
  REQUIRE_FALSE(bench.rung());
  bench.wait(milliseconds(2));
  REQUIRE(bench.rung());
}

TEST_CASE("a new session starts without the moderation of the last one", "[messaging][session][doorbell]") {
  SleepingHost bench(kEveryFourth);
  bench.start_host({});
  bench.sleep();
  bench.send();
  REQUIRE(bench.rung());
}
