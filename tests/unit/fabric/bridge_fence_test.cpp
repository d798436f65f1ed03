// The orders that lose no wake-up and no old write, each tried at the one moment where it decides.
#include <atomic>
#include <functional>
#include <thread>

#include "fabric/bridge/link.h"
#include "tests/unit/fabric/bridge_fixtures.h"
#include "tests/unit/fabric/link_records.h"

namespace splitnic::fabric::bridge_fence_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using test::ShmPairBridges;

/// A bridge on which something happens at the very moment of a fence.
class WatchedBridge final : public Bridge {
 public:
  explicit WatchedBridge(Bridge& bridge) : bridge_(bridge) {}
  std::function<void()> at_before_doorbell = [] {};
  std::function<void()> at_fence = [] {};
  std::function<void()> at_flush = [] {};

  PeerMemory local_memory() override { return bridge_.local_memory(); }
  PeerWindow& peer_window() override { return bridge_.peer_window(); }
  std::uint32_t read_scratchpad(std::size_t index) override { return bridge_.read_scratchpad(index); }
  void write_scratchpad(std::size_t index, std::uint32_t value) override { bridge_.write_scratchpad(index, value); }
  void publish() override { bridge_.publish(); }
  void fence() override {
    bridge_.fence();
    at_fence();
  }
  void before_doorbell() override {
    bridge_.before_doorbell();
    at_before_doorbell();
  }
  void flush() override {
    bridge_.flush();
    at_flush();
  }
  void ring() override { bridge_.ring(); }
  bool take_doorbells() override { return bridge_.take_doorbells(); }
  int doorbell_descriptor() const override { return bridge_.doorbell_descriptor(); }
  LinkState link() override { return bridge_.link(); }

 private:
  Bridge& bridge_;
};

/// `link` over the watched end 0, `peer` over end 1. The peer's armed flag is written by the test where it wants to.
struct TwoLinks {
  static constexpr std::size_t kArmedFlag = 640;  // docs/protocol.md, "Local memory"
  static constexpr std::uint64_t kAsleep = 1;

  TwoLinks() {
    link.restart();
    peer.restart();
    while (!link.up() || !peer.up()) poll();
    while (bridges.end(1).take_doorbells()) {
    }
  }
  void poll() {
    link.poll(now);
    peer.poll(now);
  }
  void peer_falls_asleep() { bridges.end(1).peer_window().write_word(kArmedFlag, ++sequence << 18U | kAsleep); }
  void send() { REQUIRE(test::send_record(link, VirtualLane::data, test::bytes_of("record"))); }
  [[nodiscard]] bool peer_rung() { return bridges.end(1).take_doorbells(); }

  ShmPairBridges bridges;
  SeededRandom random{1};
  WatchedBridge watched{bridges.end(0)};
  FabricLink link{watched, {}, random};
  FabricLink peer{bridges.end(1), {}, random};
  Time now{};
  std::uint64_t sequence = 100;
};

}  // namespace

TEST_CASE("a producer looks at the armed flag behind its fence: a consumer that armed until then is rung",
          "[fabric][link][sleep]") {
  TwoLinks two;
  two.send();
  two.watched.at_before_doorbell = [&] { two.peer_falls_asleep(); };
  two.link.notify();
  CHECK(two.peer_rung());
  CHECK(two.link.doorbells_left_out() == 0);
}

TEST_CASE("a consumer looks again behind its fence: a record that came until then keeps it awake",
          "[fabric][link][sleep]") {
  TwoLinks two;
  bool armed = false;
  two.watched.at_fence = [&] {
    // The producer sees the flag that the fence has made visible, and sends.
    const PeerMemory at_peer = two.bridges.end(1).local_memory();
    armed = (at_peer.watch<std::uint64_t>(TwoLinks::kArmedFlag) & TwoLinks::kAsleep) != 0;
    REQUIRE(test::send_record(two.peer, VirtualLane::data, test::bytes_of("record")));
  };
  CHECK_FALSE(two.link.prepare_sleep());
  CHECK(armed);
}

TEST_CASE("a new epoch of the peer is echoed when every write of the old one has landed", "[fabric][link]") {
  TwoLinks two;
  const auto echoed = [&] {
    return Epoch{std::uint64_t{two.bridges.end(1).read_scratchpad(5)} << 32U | two.bridges.end(1).read_scratchpad(4)};
  };
  int flushes = 0;
  two.watched.at_flush = [&] {
    ++flushes;
    CHECK(echoed() != two.peer.epoch());
  };
  two.peer.restart();
  two.link.poll(two.now);
  CHECK(flushes == 1);
  CHECK(echoed() == two.peer.epoch());
}

TEST_CASE("a doorbell that was left out is rung by the look every 100 ms, and counted", "[fabric][link][sleep]") {
  TwoLinks two;
  two.now += milliseconds(200);
  two.poll();  // the look is done: the next one is in 100 ms
  const Time look = two.now + milliseconds(100);
  SECTION("the flag was not seen") {
    two.now = look - milliseconds(10);
    two.poll();
    two.send();
    two.link.notify();
    two.peer_falls_asleep();  // as if the producer's look had come before its record was visible
    two.now = look - nanoseconds(1);
    two.link.poll(two.now);
    CHECK_FALSE(two.peer_rung());
    two.now = look;
    two.link.poll(two.now);
    CHECK(two.peer_rung());
    CHECK(two.link.doorbells_left_out() == 1);
    two.now = look + milliseconds(100);
    two.link.poll(two.now);
    CHECK(two.peer_rung());
    CHECK(two.link.doorbells_left_out() == 1);  // rung for this sleep already
  }
  SECTION("less than 10 ms before: the consumer may be about to look") {
    two.now = look - milliseconds(10) + nanoseconds(1);
    two.poll();
    two.send();
    two.link.notify();
    two.peer_falls_asleep();
    two.now = look;
    two.link.poll(two.now);
    CHECK(two.peer_rung());
    CHECK(two.link.doorbells_left_out() == 0);
  }
  SECTION("a doorbell was rung and got lost") {
    two.peer_falls_asleep();
    two.send();
    two.link.notify();
    CHECK(two.peer_rung());
    two.now = look;
    two.link.poll(two.now);
    CHECK(two.peer_rung());
    CHECK(two.link.doorbells_left_out() == 0);
  }
  SECTION("the record has been taken") {
    two.send();
    two.link.notify();
    REQUIRE(test::take_record(two.peer, VirtualLane::data));
    two.peer.return_room(VirtualLane::data, true);
    two.peer_falls_asleep();
    two.now = look;
    two.link.poll(two.now);
    CHECK_FALSE(two.peer_rung());
    CHECK(two.link.doorbells_left_out() == 0);
  }
}

// Each thread writes a word into the other's memory and then looks whether the other has written one. Whatever the
// processor keeps in its store buffer, not both may miss the other: that is what `before_doorbell` and `fence` promise.
TEST_CASE("two ends that write and then look never miss each other", "[fabric][bridge][sleep][stress]") {
  ShmPairBridges bridges;
  constexpr std::uint64_t kRounds = 50'000;
  constexpr std::uint64_t kFewestRounds = 2048;  // also where both threads share one slow core
  constexpr std::size_t kWord = 4096;
  std::array<std::vector<bool>, 2> seen{std::vector<bool>(kRounds), std::vector<bool>(kRounds)};
  std::array<std::atomic<std::uint64_t>, 2> round{};
  std::atomic<bool> stop{false};
  const Time give_up = monotonic_now() + milliseconds(500);
  std::uint64_t rounds = kRounds;
  const auto play = [&](std::size_t index) {
    Bridge& bridge = bridges.end(index);
    for (std::uint64_t number = 1; number <= kRounds; ++number) {
      round[index].store(number);
      while (round[1 - index].load() < number) {
        if (stop.load()) return;
        std::this_thread::yield();
      }
      bridge.peer_window().write_word(kWord, number);
      if (index == 0) {
        bridge.before_doorbell();
      } else {
        bridge.fence();
      }
      seen[index][number - 1] = bridge.local_memory().watch<std::uint64_t>(kWord) >= number;
      // The other may not write the next round's word before this look: both meet again at the barrier.
      if (index == 0 && number >= kFewestRounds && number % 256 == 0 && monotonic_now() > give_up) {
        rounds = number;
        stop.store(true);
        return;
      }
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  std::uint64_t missed = 0;
  for (std::uint64_t number = 0; number + 1 < rounds; ++number) missed += !seen[0][number] && !seen[1][number] ? 1 : 0;
  CHECK(missed == 0);
  CHECK(rounds >= kFewestRounds);
}

}  // namespace splitnic::fabric::bridge_fence_test
