// Several senders and one receiver that is slow: who gets its elements, and at whom a lost frame is counted.
#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_receiver_test {
namespace {

using std::chrono::milliseconds;

/// The elements of a host of the bench: 16. A queue of 6 is long, the part of one of two senders is 4, and the last 4
/// elements are not for bursts.
struct SlowReceiver : UnitBench {
  SlowReceiver() : UnitBench(options()) {
    from_lan(make_frame(victim.mac(), station(1)));
    from_host(flooder, make_frame(victim.mac(), flooder.mac()));
    run(milliseconds(60));  // their elements come back
    REQUIRE(attached("victim")->session().credits().free == 16);
    victim.frames.clear();
    victim.paused = true;
  }
  static IoUnitOptions options() {
    IoUnitOptions options;
    options.policy.others.broadcasts = 0;
    return options;
  }
  void flood(std::size_t frames) { from_host(flooder, make_frame(victim.mac(), flooder.mac()), frames); }
  void lan_sends(std::size_t frames) { from_lan(make_frame(victim.mac(), station(1)), frames); }
  /// The frames that the victim has got, from this address.
  [[nodiscard]] std::ptrdiff_t got_from(const MacAddress& source) const {
    return std::ranges::count_if(victim.frames,
                                 [&](const Frame& frame) { return frame::parse_ethernet(frame)->source == source; });
  }
  void let_the_victim_read() {
    victim.paused = false;
    run(milliseconds(60));
  }

  TestHost& flooder = host_up_as(1000, "flooder");
  TestHost& victim = host_up_as(1001, "victim");
};

TEST_CASE("a flood leaves elements for the LAN's frames, and what it loses is counted at its sender",
          "[iounit][receiver]") {
  SlowReceiver bench;
  bench.flood(50);
  CHECK(bench.drops() == Drops{{"flooder/from_host_over_share", 38}});
  bench.lan_sends(4);
  CHECK(bench.drops() == Drops{{"flooder/from_host_over_share", 38}});
  bench.lan_sends(2);
  CHECK(bench.drops() == Drops{{"flooder/from_host_over_share", 38}, {"lan_over_share", 2}});
  bench.let_the_victim_read();
  CHECK(bench.got_from(bench.flooder.mac()) == 12);
  CHECK(bench.got_from(station(1)) == 4);
  const auto sum = bench.sum();
  CHECK(sum.in == sum.delivered + sum.dropped);
}

TEST_CASE("a flood that lasts keeps the receiver's queue short", "[iounit][receiver]") {
  SlowReceiver bench;
  bench.flood(12 + 7);
  CHECK(bench.drops() == Drops{{"flooder/from_host_over_share", 7}});
  bench.pass(milliseconds(10));
  bench.flood(5);
  CHECK(bench.drops() == Drops{{"flooder/from_host_over_share", 12}});
  bench.victim.paused = false;
  bench.settle();
  bench.victim.paused = true;
  bench.flood(20);
  CHECK(bench.drops() == Drops{{"flooder/from_host_over_share", 12 + 14}});
  bench.lan_sends(4);
  CHECK(bench.drops() == Drops{{"flooder/from_host_over_share", 26}});
  bench.let_the_victim_read();
  CHECK(bench.got_from(bench.flooder.mac()) == 12 + 6);
  CHECK(bench.got_from(station(1)) == 4);
}

TEST_CASE("a sender learns from its statistics what it sent beyond its share, and the receiver's count stays as it is",
          "[iounit][receiver]") {
  SlowReceiver bench;
  const auto report_to = [&](TestHost& host) {
    return std::get<wire::Statistics>(*bench.ask(host, wire::StatisticsReport{}));
  };
  const auto count_of = [](const wire::Statistics& statistics, const std::string& name) {
    const auto found = std::ranges::find(statistics.counters, name, &wire::Statistics::Counter::name);
    REQUIRE(found != statistics.counters.end());
    return found->value;
  };
  bench.flood(20);
  const auto told = report_to(bench.flooder);
  CHECK(count_of(told, "from_host_over_share") == 8);
  CHECK(told.from_peer.drops == 8);
  CHECK(told.from_peer.errors == 0);
  bench.let_the_victim_read();
  const auto victims = report_to(bench.victim);
  CHECK(victims.to_peer.drops == 0);
  CHECK(victims.from_peer.drops == 0);
}

TEST_CASE("the LAN's flood leaves elements for a host's frames", "[iounit][receiver]") {
  SlowReceiver bench;
  bench.lan_sends(50);
  CHECK(bench.drops() == Drops{{"lan_over_share", 38}});
  bench.flood(4);
  CHECK(bench.drops() == Drops{{"lan_over_share", 38}});
  const auto told = std::get<wire::Statistics>(*bench.ask(bench.flooder, wire::StatisticsReport{}));
  CHECK(told.from_interface.drops == 38);
  bench.let_the_victim_read();
  CHECK(bench.got_from(station(1)) == 12);
  CHECK(bench.got_from(bench.flooder.mac()) == 4);
  const auto sum = bench.sum();
  CHECK(sum.in == sum.delivered + sum.dropped);
}

TEST_CASE("of a broadcast, each copy counts that finds its receiver's elements short", "[iounit][receiver]") {
  SlowReceiver bench;
  TestHost& third = bench.host_up_as(1002, "third");
  bench.from_host(bench.flooder, make_frame(kBroadcastMac, bench.flooder.mac()), 20);
  CHECK(bench.drops() == Drops{{"flooder/from_host_over_share", 8}});
  CHECK(third.frames.size() == 20);
  CHECK(bench.lan.sent.size() == 20);
  bench.let_the_victim_read();
  CHECK(bench.victim.frames.size() == 12);
  const auto sum = bench.sum();
  CHECK(sum.in == sum.delivered + sum.dropped);
}

TEST_CASE("a frame beyond a sender's share takes nothing of the receiver's rate", "[iounit][receiver]") {
  SlowReceiver bench;
  PolicyRules rules = SlowReceiver::options().policy;
  rules.others.receive.frames = 56;  // 14 at once
  bench.unit().set_rules(rules);
  bench.flood(50);
  CHECK(bench.drops() == Drops{{"flooder/from_host_over_share", 38}});
  bench.lan_sends(2);
  CHECK(bench.drops() == Drops{{"flooder/from_host_over_share", 38}});
  bench.lan_sends(1);
  CHECK(bench.drops() == Drops{{"flooder/from_host_over_share", 38}, {"victim/to_host_over_rate", 1}});
}

TEST_CASE("a sender beyond its share asks the receiver for a pool, as one that finds no element",
          "[iounit][receiver]") {
  SlowReceiver bench;
  bench.flood(20);
  CHECK(bench.attached("victim")->session().credits().elements == 16);
  bench.let_the_victim_read();
  CHECK(bench.attached("victim")->session().credits().elements == 32);
  CHECK(bench.attached("victim")->session().credits().first_pool == 16);
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_receiver_test
