// What a host costs its neighbours: an I/O unit in simulated time that goes by as the unit's work costs.
#include <catch2/catch.hpp>

#include <map>

#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_share_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kRefusalCost = microseconds(500);

/// Each unit of work costs `per_work`, and each address that the unit refuses costs half a millisecond.
class RefusalMeter final : public WorkMeter {
 public:
  const IoUnitCounters* counters = nullptr;  ///< null until the unit exists
  Duration per_work = microseconds(1);
  Duration total{};
  void start(Time) override {}
  Duration lap(std::size_t work) override {
    const std::uint64_t refused = counters == nullptr ? 0 : counters->addresses_refused;
    const auto newly = static_cast<Duration::rep>(refused - std::exchange(seen_, refused));
    const Duration cost = static_cast<Duration::rep>(work) * per_work + newly * kRefusalCost;
    total += cost;
    return cost;
  }

 private:
  std::uint64_t seen_ = 0;
};

void flood(TestHost& attacker) {
  if (attacker.up()) static_cast<void>(attacker.session().request(wire::SetMacAddress{station(200)}));
}

/// Hosts beside each other. Time goes by as the unit's work costs.
struct Neighbours {
  explicit Neighbours(FairShareOptions sharing = {}) : share(sharing) { meter.counters = &bench.unit().counters(); }

  FairShareOptions share;
  RefusalMeter meter;
  UnitBench bench{options()};
  TestHost& victim = bench.host_up_as(1000, "victim");

  IoUnitOptions options() {
    IoUnitOptions options;
    options.meter = &meter;
    options.share = share;
    options.ejected_pause_max = seconds(2);
    return options;
  }

  /// tick: how much time goes by at least from poll to poll.
  void run(Duration time, Duration tick, const std::function<void()>& act) {
    for (const Time end = bench.now() + time; bench.now() < end;) {
      act();
      const Duration before = meter.total;
      bench.step();
      bench.pass(std::max(meter.total - before, tick));
    }
  }
  /// It sends as many frames as fit.
  static void send_all(TestHost& host) {
    if (!host.up()) return;
    const Frame frame = make_frame(station(1), host.mac());
    while (host.send(frame)) {
    }
  }
  /// A flood beside a victim that sends now and then.
  void attack(TestHost& attacker, Duration time) {
    unsigned polls = 0;
    run(time, microseconds(100), [&] {
      if (++polls % 16 == 0) static_cast<void>(victim.send(make_frame(station(1), victim.mac())));
      flood(attacker);
    });
  }
  /// How many frames of a host come to the unit in a tenth of a second.
  std::size_t rate(const std::string& host, const std::function<void()>& act) {
    run(milliseconds(30), microseconds(1), act);
    const auto& counters = bench.attached(host)->session().counters();
    const auto before = counters.rx_frames;
    run(milliseconds(100), microseconds(1), act);
    return counters.rx_frames - before;
  }
};

TEST_CASE("two busy hosts of one unit get the same", "[iounit][share]") {
  Neighbours neighbours;
  TestHost& other = neighbours.bench.host_up_as(1001, "other");
  std::uint64_t others = neighbours.bench.attached("other")->session().counters().rx_frames;
  const std::size_t victims = neighbours.rate("victim", [&] {
    Neighbours::send_all(neighbours.victim);
    Neighbours::send_all(other);
  });
  others = neighbours.bench.attached("other")->session().counters().rx_frames - others;
  CHECK(victims > 1000);
  CHECK(others * 100 >= victims * 129);  // in 130 ms
  CHECK(others * 100 <= victims * 131);
}

TEST_CASE("the copies of a frame to a group count in the share of the host that sent it", "[iounit][share]") {
  // The frames of a quantum are ten.
  Neighbours neighbours({.quantum_bytes = 10 * make_frame(station(1), station(2)).size()});
  PolicyRules rules;
  rules.others.multicast_copies = 0;
  neighbours.bench.unit().set_rules(rules);
  TestHost& other = neighbours.bench.host_up_as(1001, "other");
  static_cast<void>(neighbours.bench.host_up_as(1002, "third"));
  std::uint64_t others = neighbours.bench.attached("other")->session().counters().rx_frames;
  const Frame to_group = make_frame(group(1), other.mac());
  const std::size_t victims = neighbours.rate("victim", [&] {
    Neighbours::send_all(neighbours.victim);
    while (other.up() && other.send(to_group)) {
    }
  });
  others = neighbours.bench.attached("other")->session().counters().rx_frames - others;
  CHECK(victims > 1000);
  CHECK(others * 100 <= victims * 130 / 2);  // in 130 ms; each of its frames counts up to three times
}

TEST_CASE("a host whose messages are expensive costs its neighbour no more than a busy one", "[iounit][share]") {
  FairShareOptions share;
  if (GENERATE(true, false)) share.free_waste = seconds(1);  // no rests: turns in their order are enough
  Neighbours neighbours(share);
  neighbours.bench.from_lan(make_frame(station(1), station(200)));  // nobody may take it
  TestHost& other = neighbours.bench.host_up_as(1001, "other");
  const auto beside = [&](const std::function<void()>& act) {
    return neighbours.rate("victim", [&] {
      Neighbours::send_all(neighbours.victim);
      act();
    });
  };
  const std::size_t beside_busy = beside([&] { Neighbours::send_all(other); });
  const std::size_t beside_flood = beside([&] { flood(other); });
  CHECK(neighbours.bench.unit().counters().addresses_refused > 20);
  CHECK(beside_flood * 100 >= beside_busy * 98);
}

TEST_CASE("a host that costs much for no use is ejected, is told so, and comes back after a pause", "[iounit][share]") {
  Neighbours neighbours;
  UnitBench& bench = neighbours.bench;
  bench.from_lan(make_frame(station(1), station(200)));
  TestHost& attacker = bench.host_up_as(1001, "attacker");
  for (unsigned time = 1; time <= 3; ++time) {
    const Duration pause = seconds(time == 1 ? 1 : 2);
    INFO("ejection " << time);
    neighbours.attack(attacker, milliseconds(2800));
    REQUIRE(bench.unit().counters().hosts_ejected == time - 1);
    neighbours.attack(attacker, milliseconds(600));
    REQUIRE(bench.unit().counters().hosts_ejected == time);
    CHECK(attacker.released);
    CHECK(bench.attached("attacker") == nullptr);
    REQUIRE(attacker.downs.size() == time);
    CHECK_THAT(attacker.downs.back(), Catch::Contains("ejected: its messages and frames cost "));
    CHECK(std::ranges::any_of(bench.notices.lines, [&](const std::string& each) {
      return each.starts_with("ejected host attacker: ") &&
             each.ends_with("the next host of its user is set up after " + std::to_string(pause / seconds(1)) + " s");
    }));
    bench.connect_again(attacker);
    bench.run(pause - milliseconds(700));
    CHECK(bench.attached("attacker") == nullptr);
    CHECK(bench.unit().counters().setups_paused == time);
    REQUIRE(bench.run_until([&] { return attacker.up() && bench.attached("attacker") != nullptr; }, seconds(1)));
  }
  CHECK(bench.attached("victim") != nullptr);
  CHECK(neighbours.victim.downs.empty());
}

TEST_CASE("the pause after an ejection is for hosts of the same user alone, and is over after a quiet minute",
          "[iounit][share]") {
  Neighbours neighbours;
  UnitBench& bench = neighbours.bench;
  bench.from_lan(make_frame(station(1), station(200)));
  TestHost& attacker = bench.host_up_as(1001, "attacker");
  neighbours.attack(attacker, milliseconds(3400));
  REQUIRE(bench.unit().counters().hosts_ejected == 1);
  bench.host_up_as(1002, "stranger");
  CHECK(bench.unit().counters().setups_paused == 0);
  TestHost& again = bench.connect_as(1001, "again");
  bench.run(milliseconds(100));
  CHECK_FALSE(again.up());
  CHECK(bench.unit().counters().setups_paused == 1);
  bench.run(seconds(61));
  CHECK(again.up());
  bench.host_up_as(1001, "later");
  CHECK(bench.unit().counters().setups_paused == 1);
}

TEST_CASE("a host that only receives, and one beyond its rate, are of use", "[iounit][share]") {
  Neighbours neighbours;
  UnitBench& bench = neighbours.bench;
  PolicyRules rules;
  rules.others.send.frames = 1;
  bench.unit().set_rules(rules);
  TestHost& eager = bench.host_up_as(1001, "eager");
  TestHost& reader = bench.host_up_as(1002, "reader");
  neighbours.meter.per_work = microseconds(10);
  const Frame frame = make_frame(reader.mac(), station(1));
  neighbours.run(milliseconds(3500), milliseconds(1), [&] {
    static_cast<void>(neighbours.victim.send(make_frame(station(1), neighbours.victim.mac())));
    Neighbours::send_all(eager);
    for (unsigned count = 0; count < 8; ++count) bench.lan.arriving.push_back(frame);
  });
  CHECK(bench.drops()["eager/from_host_over_rate"] > 1000);
  CHECK(bench.unit().counters().hosts_ejected == 0);
  for (const char* name : {"eager", "reader"}) {
    CHECK(bench.unit().share().wasted(bench.attached(name)->number().value) < milliseconds(50));
  }
}

TEST_CASE("while a host rests, it neither wakes the unit nor keeps it awake", "[iounit][share]") {
  Neighbours neighbours;
  UnitBench& bench = neighbours.bench;
  bench.from_lan(make_frame(station(1), station(200)));
  TestHost& attacker = bench.host_up_as(1001, "attacker");
  const std::size_t place = bench.attached("attacker")->number().value;
  for (unsigned polls = 0; polls < 10000 && !bench.unit().share().rests(place, bench.now()); ++polls) {
    neighbours.attack(attacker, microseconds(1));
  }
  REQUIRE(bench.unit().share().rests(place, bench.now()));
  const Time rested = bench.unit().share().rest_until(place);
  while (neighbours.victim.poll(bench.now()) + bench.unit().poll(bench.now()) != 0) {
  }
  REQUIRE(attacker.send(make_frame(station(1), attacker.mac())));
  bench.unit().poll(bench.now());
  CHECK(bench.unit().prepare_sleep());
  bench.unit().disarm();
  CHECK(bench.unit().next_deadline() <= rested);
  CHECK(bench.unit().next_deadline() > bench.now());
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_share_test
