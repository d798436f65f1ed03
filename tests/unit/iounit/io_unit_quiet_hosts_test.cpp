// Hosts where nothing happens cost nothing, and are there at once when something does.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <map>

#include "fabric/bridge/shm_bridge.h"
#include "iounit/doorbell_watch.h"
#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_quiet_hosts_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Watches simulated bridges, and can be deaf.
struct SimWatch final : DoorbellWatch {
  std::map<const fabric::Bridge*, std::size_t> places;
  std::function<bool(const fabric::Bridge&)> is_rung;
  std::size_t asked = 0;
  bool deaf = false;
  bool refuses = false;

  [[nodiscard]] bool watch(const fabric::Bridge& bridge, std::size_t place) override {
    return !refuses && places.emplace(&bridge, place).second;
  }
  void forget(const fabric::Bridge& bridge) override { REQUIRE(places.erase(&bridge) == 1); }
  [[nodiscard]] std::size_t rung(std::span<std::size_t> out) override {
    ++asked;
    std::size_t found = 0;
    for (const auto& [bridge, place] : places) {
      if (!deaf && found < out.size() && is_rung(*bridge)) out[found++] = place;
    }
    return found;
  }
  [[nodiscard]] int descriptor() const override { return -1; }
};

struct WatchedBench {
  WatchedBench() : bench(watched()) {
    watch.is_rung = [this](const fabric::Bridge& bridge) { return bench.rung(bridge); };
  }
  IoUnitOptions watched() {
    IoUnitOptions options;
    options.doorbells = &watch;
    return options;
  }
  void be_quiet() {
    bench.pass(HostTurns::kLinger);
    bench.settle();
    REQUIRE(bench.unit().quiet_hosts() == bench.attached_count());
  }
  SimWatch watch;
  UnitBench bench;
};

/// Two hosts that are up and quiet.
struct TwoQuietHosts : WatchedBench {
  TwoQuietHosts() { be_quiet(); }
  TestHost& a = bench.host_up("a");
  TestHost& b = bench.host_up("b");
};

TEST_CASE_METHOD(TwoQuietHosts, "a host without work for half a millisecond is quiet, and is heard when it rings",
                 "[iounit][quiet]") {
  CHECK(bench.unit().hosts_up() == 2);
  bench.pass(microseconds(10));
  REQUIRE(a.send(make_frame(b.mac(), a.mac())));
  bench.settle();
  CHECK(b.frames.empty());  // the unit, awake, asks each 50 us
  bench.pass(HostTurns::kAskEvery);
  bench.settle();
  CHECK(b.frames.size() == 1);
  CHECK(bench.unit().quiet_hosts() == 0);
  bench.pass(HostTurns::kLinger - microseconds(1));
  bench.settle();
  CHECK(bench.unit().quiet_hosts() == 0);
  bench.pass(microseconds(1));
  bench.settle();
  CHECK(bench.unit().quiet_hosts() == 2);
}

TEST_CASE_METHOD(TwoQuietHosts,
                 "a host to which frames are sent all the time stays busy, also if it takes long for them",
                 "[iounit][quiet]") {
  a.paused = true;
  for (Duration passed{}; passed < 2 * HostTurns::kPatience; passed += HostTurns::kLinger / 2) {
    bench.from_lan(make_frame(a.mac(), station(1)));
    bench.step();
    CHECK(bench.unit().quiet_hosts() == 1);
    bench.pass(HostTurns::kLinger / 2);
  }
}

TEST_CASE("after a sleep the unit asks at once who has rung", "[iounit][quiet]") {
  WatchedBench of;
  UnitBench& bench = of.bench;
  TestHost& a = bench.host_up("a");
  of.be_quiet();
  const bool slept = GENERATE(false, true);
  CAPTURE(slept);
  bench.pass(microseconds(10));
  bench.unit().poll(bench.now());
  if (slept) REQUIRE(bench.unit().prepare_sleep());
  REQUIRE(a.send(make_frame(station(1), a.mac())));
  if (slept) bench.unit().disarm();
  bench.settle();
  CHECK(bench.lan.sent.size() == (slept ? 1 : 0));
}

TEST_CASE_METHOD(TwoQuietHosts, "a quiet host gets what is sent to it", "[iounit][quiet]") {
  bench.from_lan(make_frame(a.mac(), station(1)));
  CHECK(a.frames.size() == 1);
  CHECK(bench.unit().quiet_hosts() == 1);
  be_quiet();
  SECTION("a request") {
    bench.attached("a")->clear_host_statistics();
    bench.settle();
    CHECK(std::ranges::any_of(
        a.requests, [](const auto& request) { return std::holds_alternative<wire::StatisticsClear>(request); }));
  }
  SECTION("a new state of the LAN") {
    bench.lan.has_carrier = false;
    bench.settle();
    const auto* state = std::get_if<wire::LinkState>(&a.requests.back());
    REQUIRE(state != nullptr);
    CHECK_FALSE(state->up);
  }
  SECTION("new rules that do not permit it") {
    PolicyRules rules;
    rules.listed_only = true;
    bench.unit().set_rules(rules);
    CHECK(bench.run_until([&] { return !a.downs.empty(); }, milliseconds(20)));
  }
  SECTION("the end") {
    bench.unit().begin_shutdown();
    CHECK(bench.run_until([&] { return bench.unit().finished(); }, milliseconds(20)));
  }
}

TEST_CASE_METHOD(TwoQuietHosts, "the hang-up of a quiet host is noticed", "[iounit][quiet]") {
  a.die();
  bench.pass(HostTurns::kAskEvery);
  bench.settle();
  CHECK(bench.attached_count() == 1);
  CHECK(watch.places.size() == 1);
  bench.from_lan(make_frame(b.mac(), station(1)));
  CHECK(b.frames.size() == 1);
}

TEST_CASE_METHOD(TwoQuietHosts, "a host whose process is stopped is quiet, whatever it owes, and goes on where it was",
                 "[iounit][quiet]") {
  a.paused = true;
  bench.from_lan(make_frame(a.mac(), station(1)), 3);
  bench.pass(HostTurns::kPatience - microseconds(1));
  bench.step();
  CHECK(bench.unit().quiet_hosts() == 1);
  bench.pass(microseconds(1));
  bench.step();
  CHECK(bench.unit().quiet_hosts() == 2);
  CHECK(bench.unit().next_deadline() <= bench.now() + milliseconds(100));
  REQUIRE(b.send(make_frame(station(1), b.mac())));
  bench.pass(HostTurns::kAskEvery);
  bench.settle();
  CHECK(bench.lan.sent.size() == 1);
  CHECK(a.frames.empty());
  a.paused = false;
  bench.settle();
  CHECK(a.frames.size() == 3);
  bench.from_lan(make_frame(a.mac(), station(1)));
  CHECK(a.frames.size() == 4);
}

TEST_CASE_METHOD(TwoQuietHosts, "a host whose session ended because it was stopped is quiet, and comes up again",
                 "[iounit][quiet]") {
  a.paused = true;
  REQUIRE(bench.run_until([&] { return bench.unit().hosts_up() == 1; }, seconds(10)));
  // After the pause that follows a fault.
  REQUIRE(bench.run_until([&] { return bench.unit().quiet_hosts() == 2; }, seconds(2)));
  CHECK(bench.unit().hosts_up() == 1);
  CHECK(bench.unit().next_deadline() <= bench.now() + milliseconds(50));  // it announces itself again
  a.paused = false;
  REQUIRE(bench.run_until([&] { return bench.unit().hosts_up() == 2; }, seconds(1)));
  bench.wait_up(a);
  bench.from_lan(make_frame(a.mac(), station(1)));
  CHECK(a.frames.size() == 1);
}

TEST_CASE("a bridge whose other end says nothing yet is quiet, and heard when it speaks", "[iounit][quiet]") {
  WatchedBench of;
  TestHost& host = of.bench.silent_bridge();
  of.bench.settle();
  of.bench.pass(HostTurns::kPatience);
  of.be_quiet();
  CHECK(of.bench.unit().hosts_up() == 0);
  of.bench.pass(seconds(1));
  of.bench.settle();
  CHECK(of.bench.unit().hosts_up() == 0);
  host.start(host_named("late"));
  of.bench.wait_up(host);
  CHECK(of.bench.unit().hosts_up() == 1);
}

TEST_CASE("a quiet bridge on which nobody ever speaks is closed in time", "[iounit][quiet]") {
  WatchedBench of;
  of.bench.silent_bridge();
  of.bench.run(seconds(9));
  CHECK(of.bench.attached_count() == 1);
  of.bench.run(seconds(2));
  CHECK(of.bench.attached_count() == 0);
  CHECK(of.bench.unit().quiet_hosts() == 0);
  CHECK(of.bench.unit().hosts_up() == 0);
}

TEST_CASE("polls do not look at quiet hosts before their deadline, the heartbeat", "[iounit][quiet]") {
  WatchedBench of;
  UnitBench& bench = of.bench;
  TestHost& a = bench.host_up("a");
  of.be_quiet();
  of.watch.deaf = true;
  const Time due = bench.unit().next_deadline();
  CHECK(due > bench.now());
  CHECK(due <= bench.now() + seconds(1));
  REQUIRE(a.send(make_frame(station(1), a.mac())));
  bench.pass(due - bench.now() - microseconds(1));
  bench.step();
  bench.step();
  CHECK(bench.lan.sent.empty());
  bench.pass(microseconds(1));
  bench.step();
  CHECK(bench.lan.sent.size() == 1);
}

TEST_CASE("quiet hosts stay up for as long as they like", "[iounit][quiet]") {
  WatchedBench of;
  UnitBench& bench = of.bench;
  for (const char* name : {"a", "b", "c"}) bench.host_up(name);
  bench.run(seconds(20));
  of.be_quiet();
  CHECK(bench.unit().hosts_up() == 3);
  for (const char* name : {"a", "b", "c"}) {
    REQUIRE(bench.attached(name) != nullptr);
    CHECK(bench.attached(name)->session().counters().faults == 0);
  }
}

TEST_CASE("while nothing happens only the unit asks for heartbeats, at quarters of a second", "[iounit][quiet]") {
  UnitBench bench;
  constexpr auto kRequest = wire::index_of(wire::Function::cfg_util_request);
  std::vector<TestHost*> hosts;
  for (const char* name : {"a", "b", "c"}) {
    hosts.push_back(&bench.host_up(name));
    bench.run(milliseconds(70));
  }
  bench.run(seconds(1));
  const auto sent = [&](const messaging::Session& session) { return session.counters().messages_sent[kRequest]; };
  std::vector<std::uint64_t> before;
  for (TestHost* host : hosts) before.push_back(sent(host->session()));
  const std::uint64_t asked = sent(bench.attached("a")->session());
  for (int quarter = 0; quarter < 40; ++quarter) {
    CHECK(bench.unit().next_deadline().time_since_epoch() % milliseconds(250) == Duration::zero());
    bench.run(bench.unit().next_deadline() - bench.now());
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) CHECK(sent(hosts[i]->session()) == before[i]);
  CHECK(sent(bench.attached("a")->session()) >= asked + 10);
}

TEST_CASE("of many hosts the unit asks 32 in a second, not all at the same time, and no host asks instead",
          "[iounit][quiet]") {
  UnitBench bench;
  constexpr auto kRequest = wire::index_of(wire::Function::cfg_util_request);
  constexpr std::size_t kHosts = 40;  // two seconds for all of them
  std::vector<TestHost*> hosts;
  for (std::size_t n = 0; n < kHosts; ++n) hosts.push_back(&bench.host_up(fmt::format("h{}", n)));
  bench.run(seconds(4));
  const auto by_hosts = [&] {
    std::uint64_t sum = 0;
    for (TestHost* host : hosts) sum += host->session().counters().messages_sent[kRequest];
    return sum;
  };
  const auto by_unit = [&] {
    std::uint64_t sum = 0;
    for (const auto& host : bench.unit().hosts()) sum += host->session().counters().messages_sent[kRequest];
    return sum;
  };
  const auto hosts_before = by_hosts();
  const auto unit_before = by_unit();
  std::uint64_t most = 0;
  for (int quarter = 0; quarter < 32; ++quarter) {
    const auto before = by_unit();
    bench.run(milliseconds(250));
    most = std::max(most, by_unit() - before);
  }
  CHECK(by_unit() - unit_before == kHosts * 4);
  CHECK(by_hosts() == hosts_before);
  CHECK(most == 8);
}

TEST_CASE("a host among many hears at once when the unit asks again", "[iounit][quiet]") {
  UnitBench bench;
  constexpr auto kRequest = wire::index_of(wire::Function::cfg_util_request);
  for (std::size_t n = 0; n < 63; ++n) bench.silent_bridge();
  TestHost& host = bench.host_up("a");
  const auto before = host.session().counters().messages_sent[kRequest];
  bench.run(milliseconds(1900));
  CHECK(host.session().counters().messages_sent[kRequest] == before);
}

TEST_CASE("without a watch, and with one that refuses, every host is always busy", "[iounit][quiet]") {
  WatchedBench of;
  of.watch.refuses = true;
  TestHost& a = of.bench.host_up("a");
  of.bench.run(seconds(3));
  CHECK(of.bench.unit().quiet_hosts() == 0);
  CHECK(of.watch.asked == 0);
  of.bench.from_host(a, make_frame(station(1), a.mac()));
  CHECK(of.bench.lan.sent.size() == 1);
}

TEST_CASE("the epoll tells whose bridge has rung or hung up, until the doorbell is taken", "[iounit][quiet]") {
  constexpr std::size_t kBytes = 1U << 20U;
  auto first = fabric::shm_pair(kBytes, kBytes);
  auto second = fabric::shm_pair(kBytes, kBytes);
  REQUIRE(first);
  REQUIRE(second);
  EpollWatch watch;
  std::array<std::size_t, 4> places{};
  REQUIRE(watch.watch(*first->first, 7));
  REQUIRE(watch.watch(*second->first, 300));
  CHECK(watch.rung(places) == 0);
  second->second->ring();
  for (int i = 0; i < 2; ++i) {
    REQUIRE(watch.rung(places) == 1);
    CHECK(places[0] == 300);
  }
  CHECK(second->first->take_doorbells());
  CHECK(watch.rung(places) == 0);
  first->second->ring();
  watch.forget(*first->first);
  CHECK(watch.rung(places) == 0);
  second->second.reset();
  REQUIRE(watch.rung(places) == 1);
  CHECK(places[0] == 300);
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_quiet_hosts_test
