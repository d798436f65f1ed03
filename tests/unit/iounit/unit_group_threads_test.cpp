// The shared parts of a group under real threads, each with its part of the hosts and of the wire. ThreadSanitizer
// watches it in its build. It shows no order between threads that the processor does not happen to break: for the rings
// and the sleep, the comments at their labels say what they rely on.
#include <poll.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <thread>

#include "iounit/group_lan.h"
#include "unit_bench.h"

namespace splitnic::iounit::test::unit_group_threads_test {
namespace {

constexpr std::size_t kUnits = 3;
constexpr std::size_t kFrames = 20'000;
constexpr int kPatienceMs = 20'000;

MacAddress host_of(std::size_t unit, unsigned number = 0) {
  return {{2, 0, 0, 2, static_cast<std::uint8_t>(unit), static_cast<std::uint8_t>(number)}};
}

/// A frame with its sender's number behind the header.
Frame numbered(const MacAddress& to, const MacAddress& from, std::uint64_t number) {
  Frame frame = make_frame(to, from, {.payload_bytes = 60 + number % 900});
  std::memcpy(frame.data() + 14, &number, sizeof number);
  return frame;
}

/// What a unit does at its edges: it sends, takes and counts. Thread: one.
class Worker final : public LanSink {
 public:
  Worker(UnitGroup& group, std::size_t number)
      : group_(group),
        number_(number),
        lan_(group, UnitNumber{static_cast<std::uint16_t>(number)}, wire_),
        random_(number + 1) {
    require(group.places().pin(host_of(number), lan_.unit()));
    group.places().set_wants(lan_.unit(), {.groups = true});
  }
  static void require(bool holds) { SPLITNIC_CHECK(holds); }

  /// Everything that a unit's thread may do, in any order.
  void work(std::atomic<std::size_t>& still_sending) {
    for (std::size_t frame = 0; frame < kFrames; ++frame) {
      lan_.poll(Time(std::chrono::milliseconds(frame / 10)));
      send_one(frame);
      if (frame % 16 == 0) lan_.flush();
      if (frame % 32 == 0) lan_.receive(*this, 64);
      if (frame % 512 == 0) change_something(frame);
    }
    lan_.flush();
    while (!wire_.arriving.empty()) lan_.receive(*this, 64);  // which hands on what is for others
    still_sending.fetch_sub(1);
    while (still_sending.load() != 0) lan_.receive(*this, 64);
    while (lan_.receive(*this, 64) != 0) {
    }
  }

  void on_lan_frame(std::span<const std::byte> frame) override { on_lan_frame(frame, {}); }
  void on_lan_frame(std::span<const std::byte> frame, const frame::FrameOffload&) override { note(frame); }
  bool on_unit_frame(std::span<const std::byte> frame, const frame::FrameOffload&, bool addressed) override {
    note(frame);
    const auto header = frame::parse_ethernet(frame);
    return !addressed || header->destination.octets[4] == number_;
  }

  const GroupLan& lan() const { return lan_; }
  const MemoryLan& wire() const { return wire_; }
  std::uint64_t overtaken = 0;
  std::uint64_t noted = 0;

 private:
  /// Frames of one sender to one destination arrive in order.
  void note(std::span<const std::byte> frame) {
    ++noted;
    const auto header = frame::parse_ethernet(frame);
    std::uint64_t number = 0;
    std::memcpy(&number, frame.data() + 14, sizeof number);
    std::uint64_t& last = last_[{header->source.as_number(), header->destination.as_number()}];
    overtaken += number < last ? 1 : 0;
    last = std::max(last, number);
  }
  void send_one(std::size_t frame) {
    const std::array destinations{host_of((number_ + 1) % kUnits), host_of((number_ + 2) % kUnits), kBroadcastMac,
                                  station(3), host_of((number_ + 1) % kUnits, 9)};
    const MacAddress& to = destinations[random_.below(destinations.size())];
    if (random_.below(4) == 0) {
      wire_.arriving.push_back(numbered(to, station(20 + static_cast<unsigned>(number_)), frame + 1));
    } else {
      SPLITNIC_CHECK(lan_.send(numbered(to, host_of(number_), frame + 1)));
    }
  }
  void change_something(std::size_t frame) {
    // A host that comes and goes, an address behind it, a policy that changes: what no frame waits for.
    const auto unit = lan_.unit();
    auto& places = group_.places();
    if (places.pin(host_of(0, 9), unit)) places.unpin(host_of(0, 9), unit);
    places.learn(host_of((number_ + 1) % kUnits, 9), 0, side_of(unit), Time(std::chrono::milliseconds(frame)));
    if (frame % 2048 == 0) places.forget_learned(unit);
    places.set_wants(unit, {.groups = true, .unicast = frame % 1024 == 0});
    group_.policy().change(
        [&](Policy& policy) { policy.attach("h" + std::to_string(number_), {}, host_of(number_), Time{}); });
    const auto copy = group_.policy().copy(Time{}, SharedPolicy::Age::now);
    SPLITNIC_CHECK(copy.policy->ownership().find("h" + std::to_string(number_)) != nullptr);
    copy.policy->heard_on_lan(station(5), Time(std::chrono::milliseconds(frame)));
    SPLITNIC_CHECK(!copy.policy->is_another_hosts(station(9), "h0", Time{}));
  }

  UnitGroup& group_;
  std::size_t number_;
  MemoryLan wire_;
  GroupLan lan_;
  SeededRandom random_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> last_;
};

TEST_CASE("threads hand each other frames in order, none is lost without a cause, while hosts come and go",
          "[iounit][group][threads]") {
  SeededRandom random(4);
  UnitGroup group({.units = kUnits, .ring_bytes = 256U << 10U}, random);
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t unit = 0; unit < kUnits; ++unit) workers.push_back(std::make_unique<Worker>(group, unit));
  std::atomic<std::size_t> still_sending{kUnits};
  std::vector<std::thread> threads;
  for (auto& worker : workers) threads.emplace_back([&] { worker->work(still_sending); });
  for (auto& thread : threads) thread.join();
  std::uint64_t handed = 0;
  std::uint64_t taken = 0;
  for (const auto& worker : workers) {
    const auto& counters = worker->lan().group_counters();
    CHECK(worker->overtaken == 0);
    CHECK(worker->noted > 1000);
    CHECK(counters.from_wire + counters.from_unit + counters.from_others + counters.copies ==
          counters.to_unit + counters.to_wire + counters.to_others + counters.full + counters.refused);
    CHECK(counters.to_wire == worker->wire().counters().tx_frames);
    handed += counters.to_others;
    taken += counters.from_others;
  }
  CHECK(handed == taken);
  CHECK(handed > kFrames / 2);
}

/// Two threads that answer each other's frames, and sleep in between.
TEST_CASE("a thread that sleeps is woken by each frame for it", "[iounit][group][threads]") {
  SeededRandom random(4);
  UnitGroup group({.units = 2, .ring_bytes = 256U << 10U}, random);
  constexpr unsigned kRounds = 300;  // on a busy machine each may take some milliseconds
  const Frame frame = make_frame(station(1), station(2));
  std::array<unsigned, 2> late{};
  std::array<unsigned, 2> sleeps{};
  const auto play = [&](std::uint16_t number) {
    const UnitNumber own{number};
    const UnitNumber other{static_cast<std::uint16_t>(1 - number)};
    FrameRing& in = group.ring(other, own);
    FrameRing& out = group.ring(own, other);
    const auto send = [&] {
      SPLITNIC_CHECK(out.add({.bytes = frame, .offload = {}}));
      group.publish(own);
    };
    if (number == 0) send();
    for (unsigned round = 0; round < kRounds && late[number] == 0; ++round) {
      while (!in.take()) {
        if (group.prepare_sleep(own)) {
          pollfd waits{group.descriptor(own), POLLIN, 0};
          late[number] += ::poll(&waits, 1, kPatienceMs) == 0 ? 1 : 0;
          ++sleeps[number];
        }
        group.awake(own);
        if (late[number] != 0) return;
      }
      in.settle();
      send();
    }
  };
  std::thread second([&] { play(1); });
  play(0);
  second.join();
  CHECK(late == std::array<unsigned, 2>{});
  CHECK(sleeps[0] + sleeps[1] > kRounds / 10);
}

}  // namespace
}  // namespace splitnic::iounit::test::unit_group_threads_test
