#include "host/host_driver.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <vector>

#include "driver_bench.h"

namespace splitnic::host::test::host_driver_test {
namespace {

using namespace std::chrono_literals;
using Bodies = std::vector<wire::RequestBody>;

/// What the session itself says when it is ready for frames.
const wire::LinkState kReady{.up = true};

/// All that a unit is told when the session comes up, statistics left out.
Bodies settings_asked(const TestUnit& unit) {
  Bodies asked;
  for (const auto& request : unit.requests) {
    if (!std::holds_alternative<wire::StatisticsReport>(request)) asked.push_back(request);
  }
  return asked;
}

TEST_CASE("the carrier is off until the session is up, and then the unit's", "[host][driver]") {
  DriverBench bench;
  CHECK(bench.nic.carriers == std::vector<bool>{false});
  CHECK(bench.driver().state() == "connecting");
  CHECK(bench.driver().session() == nullptr);
  bench.unit.grant.link_up = GENERATE(false, true);
  bench.come_up();
  CHECK(bench.driver().state() == "up");
  CHECK(bench.nic.carriers.back() == bench.unit.grant.link_up);
  CHECK(bench.driver().carrier() == bench.unit.grant.link_up);
  CHECK(bench.driver().unit_name() == "unit");
  CHECK(bench.nic.max_mtus == std::vector<std::uint32_t>{1500});
  CHECK(bench.nic.macs == std::vector{kUnitsMac});
  CHECK(bench.notices.count("up: I/O unit unit, address 02:00:00:00:00:11, MTU up to 1500, mode R, LAN has ") == 1);
  // No other line uses up what the log permits to this one.
  CHECK(bench.notices.source_of("up: I/O unit unit") == "session up");
}

TEST_CASE("what a unit says about the LAN before the session is up counts from then on", "[host][driver]") {
  DriverBench bench;
  bench.unit.grant.link_up = GENERATE(false, true);
  bench.unit.says_early = wire::LinkState{.up = !bench.unit.grant.link_up, .max_mtu = 1400};
  bench.start_unit();
  for (Time now = bench.now(); !bench.driver().up(); now += 100us) {
    REQUIRE(now < bench.now() + 5s);
    bench.driver().poll(now);
    REQUIRE((bench.driver().up() || !bench.driver().carrier()));
    bench.unit.poll(now);
    bench.pair.advance(now);
  }
  CHECK_FALSE(bench.unit.says_early);
  CHECK(bench.driver().carrier() == !bench.unit.grant.link_up);
  CHECK(bench.nic.max_mtus == std::vector<std::uint32_t>{1400});
}

TEST_CASE("every setting is sent when the session comes up", "[host][driver]") {
  DriverBench bench;
  bench.nic.system.multicast = {group(1), group(2)};
  const bool with_vlans = GENERATE(false, true);
  if (with_vlans) bench.driver().limit_vlans({7, 42});
  bench.come_up();
  Bodies expected{kReady, wire::SetMacAddress{kHostsMac}, wire::SetMtu{1500},
                  wire::ReceiveFilter{.multicast = {group(1), group(2)}}, wire::LinkState{.up = true}};
  if (with_vlans) expected.emplace_back(wire::VlanFilter{std::vector<std::uint16_t>{7, 42}});
  CHECK(settings_asked(bench.unit) == expected);
  CHECK(bench.driver().settings() == bench.nic.system);
}

TEST_CASE("a sleeping unit is rung for the first frame before the NIC is looked at again", "[host][driver]") {
  DriverBench bench(host_options(), 300);  // too many elements for immediate data: indications go in lists
  bench.come_up();
  const bool asleep = GENERATE(false, true);
  const bool moderated = GENERATE(false, true);
  CAPTURE(asleep, moderated);
  if (moderated) {
    REQUIRE(bench.unit.session().request(wire::Moderation{.entries = 16, .time = std::chrono::milliseconds(1)}));
    bench.settle();
  }
  constexpr auto kList = wire::index_of(wire::Function::buffer_rdma_indicate);
  const auto lists = [&] { return bench.driver().session()->counters().messages_sent[kList]; };
  const auto before = lists();
  static_cast<void>(bench.pair.end(1).take_doorbells());
  if (asleep) REQUIRE(bench.unit.session().prepare_sleep());
  std::vector<bool> rung;
  bench.nic.before_read = [&] {
    bench.pair.advance(bench.now());
    rung.push_back(bench.pair.wake_pending(1));
  };
  bench.nic.sending = {frame_of(60, 1), frame_of(60, 2), frame_of(60, 3)};
  bench.driver().poll(bench.now());
  const bool early = asleep && !moderated;
  CHECK(rung == std::vector<bool>{false, early, early, early});
  CHECK(lists() - before == (early ? 2U : 1U));
  if (asleep) bench.unit.session().disarm();
  bench.run(2ms);
  CHECK(bench.unit.frames.size() == 3);
}

TEST_CASE("frames are on their way before the settings are looked at", "[host][driver]") {
  DriverBench bench(host_options(), 300);
  bench.come_up();
  constexpr auto kList = wire::index_of(wire::Function::buffer_rdma_indicate);
  const auto lists = [&] { return bench.driver().session()->counters().messages_sent[kList]; };
  const auto before = lists();
  bench.nic.sending = {frame_of(60)};
  bench.nic.before_settings = [&] { CHECK(lists() == before + 1); };
  bench.driver().poll(bench.now());
  CHECK(lists() == before + 1);
}

TEST_CASE("a change of one setting is sent alone, and none is sent twice", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  bench.unit.requests.clear();
  bench.run(3s);
  CHECK(settings_asked(bench.unit).empty());
  const auto sends = [&](const wire::RequestBody& expected) {
    bench.unit.requests.clear();
    bench.run(10ms);
    return settings_asked(bench.unit) == Bodies{expected};
  };
  bench.nic.system.mac = kUnitsMac;
  CHECK(sends(wire::SetMacAddress{kUnitsMac}));
  bench.nic.system.mtu = 1280;
  CHECK(sends(wire::SetMtu{1280}));
  bench.nic.system.promiscuous = true;
  CHECK(sends(wire::ReceiveFilter{.promiscuous = true}));
  bench.nic.system.promiscuous = false;
  CHECK(sends(wire::ReceiveFilter{}));
  bench.nic.system.all_multicast = true;
  CHECK(sends(wire::ReceiveFilter{.all_multicast = true}));
  bench.nic.system.all_multicast = false;
  bench.nic.system.multicast = {group(3)};
  CHECK(sends(wire::ReceiveFilter{.multicast = {group(3)}}));
  bench.nic.system.up = false;
  CHECK(sends(wire::LinkState{.up = false}));
  CHECK(bench.driver().settings() == bench.nic.system);
}

TEST_CASE("more groups than a filter holds ask for all multicast", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  const auto filter_for = [&](std::size_t groups) {
    bench.nic.system.multicast.clear();
    for (std::size_t n = 0; n < groups; ++n) bench.nic.system.multicast.push_back(group(n));
    bench.unit.requests.clear();
    bench.run(10ms);
    const auto filters = bench.unit.asked<wire::ReceiveFilter>();
    REQUIRE(filters.size() == 1);
    return filters.front();
  };
  CHECK(filter_for(wire::kMaxMulticastFilters - 1).multicast.size() == wire::kMaxMulticastFilters - 1);
  const auto full = filter_for(wire::kMaxMulticastFilters);
  CHECK_FALSE(full.all_multicast);
  CHECK(full.multicast == bench.nic.system.multicast);
  CHECK(filter_for(wire::kMaxMulticastFilters + 1) == wire::ReceiveFilter{.all_multicast = true});
}

TEST_CASE("frames to the NIC's further addresses are asked for, all frames if these are too many", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  const auto filter_for = [&](std::size_t addresses) {
    bench.nic.system.unicast.clear();
    for (std::size_t n = 0; n < addresses; ++n) {
      bench.nic.system.unicast.push_back({{0x02, 0, 0, 0, 1, static_cast<std::uint8_t>(n)}});
    }
    bench.unit.requests.clear();
    bench.run(10ms);
    const auto filters = bench.unit.asked<wire::ReceiveFilter>();
    REQUIRE(filters.size() == 1);
    return filters.front();
  };
  for (const std::size_t addresses : {std::size_t{1}, wire::kMaxUnicastFilters}) {
    const auto filter = filter_for(addresses);
    CHECK(filter == wire::ReceiveFilter{.unicast = bench.nic.system.unicast});
  }
  const auto says_so = [&] {
    return bench.notices.source_of("more than 64 further addresses") != bench.notices.source_of("a line that is not");
  };
  CHECK_FALSE(says_so());
  CHECK(filter_for(wire::kMaxUnicastFilters + 1) == wire::ReceiveFilter{.promiscuous = true});
  CHECK(says_so());
  CHECK(filter_for(0) == wire::ReceiveFilter{});
}

TEST_CASE("every VLAN may be listed", "[host][driver]") {
  DriverBench bench;
  std::vector<std::uint16_t> all(wire::kMaxVlan);
  std::iota(all.begin(), all.end(), std::uint16_t{1});
  bench.driver().limit_vlans(all);
  bench.start_unit();
  bench.run(20ms);
  CHECK(bench.unit.asked<wire::VlanFilter>() == std::vector{wire::VlanFilter{all}});
  CHECK(bench.unit.downs.empty());
}

TEST_CASE("an address is asked for if an option or the NIC has one, else the unit chooses", "[host][driver]") {
  messaging::SessionOptions options = host_options();
  MacAddress expected;
  MacAddress preferred;
  SECTION("the unit chooses") {}
  SECTION("the NIC's") { expected = preferred = kHostsMac; }
  SECTION("the option's, before the NIC's") {
    expected = options.mac = kUnitsMac;
    preferred = kHostsMac;
  }
  DriverBench bench(options);
  bench.nic.preferred = preferred;
  bench.come_up();
  REQUIRE(bench.unit.hellos.size() == 1);
  CHECK(bench.unit.hellos[0].requested_mac == expected);
  CHECK(bench.unit.hellos[0].name == "host");
  CHECK(bench.unit.hellos[0].role == wire::Role::host);
}

TEST_CASE("an address that the NIC got while it was refused is asked for next", "[host][driver]") {
  DriverBench bench;
  bench.unit.refusal = messaging::Refusal{wire::CfgStatus::not_permitted, "that address is taken"};
  bench.start_unit();
  REQUIRE(bench.run_until([&] { return bench.unit.hellos.size() == 1; }));
  CHECK(bench.unit.hellos[0].requested_mac.is_zero());
  bench.nic.preferred = kHostsMac;
  REQUIRE(bench.run_until([&] { return bench.unit.hellos.size() == 3; }));
  CHECK(bench.unit.hellos[2].requested_mac == kHostsMac);
  bench.unit.refusal.reset();
  REQUIRE(bench.run_until([&] { return bench.driver().up(); }));
  CHECK(bench.notices.count("that address is taken; trying again") == 1);
  CHECK(bench.nic.carriers.back());
}

TEST_CASE("frames cross the driver both ways byte for byte", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  std::vector<Frame> sent;
  for (unsigned n = 0; n < 200; ++n) sent.push_back(frame_of(14 + n * 7, n));
  bench.nic.sending.assign(sent.begin(), sent.end());
  REQUIRE(bench.run_until([&] { return bench.unit.frames.size() == sent.size(); }));
  CHECK(bench.unit.frames == sent);
  for (const auto& frame : sent) {
    REQUIRE(bench.run_until([&] { return bench.unit.session().credits().free != 0; }));
    bench.from_unit(frame);
  }
  CHECK(bench.nic.received == sent);
  CHECK(bench.driver().counters().rx_refused_by_nic == 0);
}

TEST_CASE("one poll takes 64 frames of the NIC at most", "[host][driver]") {
  DriverBench bench(host_options(), 200);
  bench.come_up();
  for (unsigned n = 0; n < 100; ++n) bench.nic.sending.push_back(frame_of(60, n));
  bench.driver().poll(bench.now());
  CHECK(bench.nic.sending.size() == 36);
  CHECK(bench.driver().counters().tx_waits == 0);
  bench.settle();
  CHECK(bench.unit.frames.size() == 100);
}

TEST_CASE("without a free element the NIC is neither read nor slept on, and the driver has no work", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  CHECK(bench.descriptors() == std::vector{kNicDescriptor});
  bench.unit.paused = true;
  for (unsigned n = 0; n < 20; ++n) bench.nic.sending.push_back(frame_of(60, n));
  const auto free = bench.driver().session()->credits().free;
  bench.settle();
  REQUIRE(bench.nic.sending.size() == 20 - free);
  CHECK(bench.driver().counters().tx_waits == 1);
  CHECK(bench.descriptors().empty());
  const std::size_t reads = bench.nic.reads;
  for (int n = 0; n < 100; ++n) CHECK(bench.driver().poll(bench.now()) == 0);
  CHECK(bench.nic.reads == reads);
  CHECK(bench.driver().next_deadline() > bench.now());
  CHECK(bench.driver().counters().tx_waits == 1);

  bench.unit.paused = false;
  REQUIRE(bench.run_until([&] { return bench.unit.frames.size() == 20; }));
  REQUIRE(bench.run_until([&] { return bench.driver().session()->credits().free != 0; }));
  bench.settle();
  CHECK(bench.descriptors() == std::vector{kNicDescriptor});
  const auto waits = bench.driver().counters().tx_waits;
  bench.unit.paused = true;
  for (unsigned n = 0; n < 20; ++n) bench.nic.sending.push_back(frame_of(60, n));
  bench.settle();
  CHECK(bench.driver().counters().tx_waits == waits + 1);
}

TEST_CASE("an idle driver has no work and sleeps until its next deadline", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  bench.run(1s);
  for (int n = 0; n < 100; ++n) CHECK(bench.driver().poll(bench.now()) == 0);
  CHECK(bench.driver().next_deadline() > bench.now());
  CHECK(bench.driver().next_deadline() <= bench.now() + 4s);
  CHECK(bench.driver().prepare_sleep());
  bench.driver().disarm();
  bench.nic.deadline = bench.now() + 1us;
  CHECK(bench.driver().next_deadline() == bench.now() + 1us);
}

TEST_CASE("work that came in before the driver sleeps keeps it awake", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  REQUIRE(bench.unit.send(frame_of(60)));
  bench.pair.advance(bench.now());
  CHECK_FALSE(bench.driver().prepare_sleep());
  bench.driver().disarm();
  bench.settle();
  CHECK(bench.nic.received.size() == 1);
}

TEST_CASE("frames that the NIC refuses are counted, and the unit hears of them now and then", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  bench.nic.refuses = true;
  const auto lose = [&] {
    REQUIRE(bench.run_until([&] { return bench.unit.session().credits().free != 0; }));
    bench.from_unit(frame_of(60));
  };
  for (int n = 0; n < 3; ++n) lose();
  CHECK(bench.driver().counters().rx_refused_by_nic == 3);
  CHECK(bench.unit.asked<wire::StatusReport>().empty());
  bench.run(1s);
  lose();
  lose();
  const auto reports = bench.unit.asked<wire::StatusReport>();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].code == wire::kFramesLost);
  CHECK(reports[0].text == "its interface refused frames, 4 so far");
  bench.nic.refuses = false;
  lose();
  CHECK(bench.driver().counters().rx_refused_by_nic == 5);
  CHECK(bench.nic.received.size() == 1);
}

TEST_CASE("the LAN's carrier and MTU reach the NIC, each change is reported once", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  const auto tell = [&](const wire::LinkState& state) {
    const std::size_t before = bench.unit.replies.size();
    REQUIRE(bench.unit.session().request(state));
    REQUIRE(bench.run_until([&] { return bench.unit.replies.size() > before; }));
    CHECK(bench.unit.replies.back().second.has_value());
  };
  tell({.up = false});
  CHECK_FALSE(bench.driver().carrier());
  CHECK_FALSE(bench.nic.carriers.back());
  CHECK(bench.nic.max_mtus == std::vector<std::uint32_t>{1500});
  tell({.up = false, .max_mtu = 1400});
  CHECK(bench.nic.max_mtus == std::vector<std::uint32_t>{1500, 1400});
  tell({.up = true});
  CHECK(bench.nic.carriers.back());
  CHECK(bench.notices.count("the LAN has no carrier") == 1);
  CHECK(bench.notices.count("the LAN has carrier") == 1);
}

TEST_CASE("the NIC's largest MTU is one whose frames fit the session", "[host][driver]") {
  auto options = host_options();
  options.max_mtu = 1600;
  DriverBench bench(options);
  bench.unit.grant.max_mtu = 9000;
  bench.come_up();
  CHECK(bench.notices.count("MTU up to 1600") == 1);
  REQUIRE(bench.unit.session().request(wire::LinkState{.up = true, .max_mtu = 8000}));
  REQUIRE(bench.run_until([&] { return !bench.unit.replies.empty(); }));
  REQUIRE(bench.unit.session().request(wire::LinkState{.up = true, .max_mtu = 1400}));
  REQUIRE(bench.run_until([&] { return bench.unit.replies.size() == 2; }));
  CHECK(bench.nic.max_mtus == std::vector<std::uint32_t>{1600, 1600, 1400});
}

TEST_CASE("a refused address is asked for again until the unit grants it", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  bench.unit.refuses_requests = true;
  bench.nic.system.mac = kUnitsMac;
  const auto asked = [&] { return bench.unit.asked<wire::SetMacAddress>(); };
  bench.unit.requests.clear();
  bench.run(9s);
  CHECK(asked().size() == 1);
  bench.run(15s);
  CHECK(asked().size() == 3);
  CHECK(bench.notices.count("the I/O unit refused SetMacAddress: not today; asking again every 10 s") == 1);
  SECTION("granted") {
    bench.unit.refuses_requests = false;
    bench.run(10s);
    CHECK(asked().size() == 4);
    CHECK(asked().back().address == kUnitsMac);
    CHECK(bench.notices.count("the I/O unit grants the address " + to_string(kUnitsMac)) == 1);
    bench.run(60s);
    CHECK(asked().size() == 4);
    bench.unit.refuses_requests = true;
    bench.nic.system.mac = kHostsMac;
    bench.run(5s);
    CHECK(bench.notices.count("the I/O unit refused SetMacAddress") == 2);
  }
  SECTION("the system takes another address") {
    bench.unit.refuses_requests = false;
    bench.nic.system.mac = kHostsMac;
    bench.run(60s);
    CHECK(asked().size() == 4);
    CHECK(asked().back().address == kHostsMac);
  }
}

TEST_CASE("the unit's reports are shown, and requests that are not for a host are refused", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  const auto answer_to = [&](const wire::RequestBody& body) {
    const std::size_t before = bench.unit.replies.size();
    REQUIRE(bench.unit.session().request(body));
    REQUIRE(bench.run_until([&] { return bench.unit.replies.size() > before; }));
    return bench.unit.replies.back().second;
  };
  CHECK(answer_to(wire::StatusReport{wire::kFramesLost, "too fast"}).has_value());
  CHECK(bench.notices.count("the I/O unit says: too fast") == 1);
  const auto refused = answer_to(wire::SetMtu{1400});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().status == wire::CfgStatus::unknown_request);
  CHECK(bench.driver().up());
}

TEST_CASE("what the unit says and refuses neither hides the driver's own lines nor is shown as its status",
          "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  bench.unit.refuses_requests = true;
  bench.nic.system.mac = kUnitsMac;
  bench.nic.system.mtu = 1300;
  REQUIRE(bench.unit.session().request(wire::StatusReport{wire::kFramesLost, "too fast"}));
  bench.run(1s);
  bench.unit.refuses_requests = false;
  bench.run(20s);  // the address is asked for again
  REQUIRE(bench.unit.session().request(wire::LinkState{.up = false}));
  bench.settle();
  // The log has a limit for each source, and the service manager shows no line that has one.
  const RecordedNotices& notices = bench.notices;
  CHECK(notices.source_of("the I/O unit says: too fast") == "the unit's words");
  CHECK(notices.source_of("the I/O unit refused SetMtu: not today") == "the unit's refusals");
  CHECK(notices.source_of("the I/O unit refused SetMacAddress: not today") == "the unit's refusals");
  CHECK(notices.source_of("the I/O unit grants the address").empty());
  CHECK(notices.source_of("the LAN has no carrier").empty());
}

TEST_CASE("whoever shows the driver's state hears that the session is up or down, in the driver's own words",
          "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  const std::string up = "up";
  const std::string down = "down; trying again (the log has the reason)";
  CHECK(bench.notices.states == std::vector{up});
  bench.unit.session().reset("some text of the unit's");
  bench.run(1s);
  REQUIRE(bench.driver().up());
  CHECK(bench.notices.states == std::vector{up, down, up});
}

TEST_CASE("a refused setting is reported and leaves the session up", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  bench.unit.refuses_requests = true;
  bench.nic.system.mtu = 1300;
  bench.run(10ms);
  CHECK(bench.notices.count("the I/O unit refused SetMtu: not today") == 1);
  CHECK(bench.driver().up());
}

TEST_CASE("the unit's statistics come at once and every five seconds while frames pass, and start anew when cleared",
          "[host][driver]") {
  DriverBench bench;
  bench.driver().clear_unit_statistics();  // without a session nothing happens
  bench.unit.statistics = {{"to_host_no_element", 7}, {"to_host_filtered", 9}};
  bench.come_up();
  REQUIRE(bench.run_until([&] { return !bench.driver().unit_statistics().counters.empty(); }, 10ms));
  CHECK(bench.driver().unit_statistics().counters == bench.unit.statistics);
  CHECK(bench.unit.asked<wire::StatisticsReport>().size() == 1);
  bench.nic.sending = {frame_of(60)};
  bench.run(4900ms);
  CHECK(bench.unit.asked<wire::StatisticsReport>().size() == 1);
  bench.unit.statistics[0].value = 8;
  bench.run(200ms);
  CHECK(bench.unit.asked<wire::StatisticsReport>().size() == 2);
  CHECK(bench.driver().unit_statistics().counters == bench.unit.statistics);

  bench.driver().clear_unit_statistics();
  bench.run(10ms);
  CHECK(bench.unit.asked<wire::StatisticsClear>().size() == 1);
  const std::vector<wire::Statistics::Counter> zeroes{{"to_host_no_element", 0}, {"to_host_filtered", 0}};
  CHECK(bench.driver().unit_statistics().counters == zeroes);
}

TEST_CASE("while no frame passes the unit is asked for statistics once a minute", "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  bench.run(59s);
  CHECK(bench.unit.asked<wire::StatisticsReport>().size() == 1);
  bench.run(1100ms);
  CHECK(bench.unit.asked<wire::StatisticsReport>().size() == 2);
  bench.run(10s);
  CHECK(bench.unit.asked<wire::StatisticsReport>().size() == 2);
  bench.from_unit(frame_of(60));
  bench.run(1100ms);
  CHECK(bench.unit.asked<wire::StatisticsReport>().size() == 3);
}

TEST_CASE("a session that ends takes the carrier, is reported once, and all settings are sent to the next one",
          "[host][driver]") {
  DriverBench bench;
  bench.come_up();
  bench.unit.requests.clear();
  bench.unit.session().reset("maintenance");
  REQUIRE(bench.run_until([&] { return !bench.driver().up(); }));
  CHECK_FALSE(bench.nic.carriers.back());
  CHECK_FALSE(bench.driver().carrier());
  CHECK(bench.notices.count("down: ") == 1);
  REQUIRE(bench.run_until([&] { return bench.driver().up(); }));
  bench.run(10ms);
  CHECK(settings_asked(bench.unit) == Bodies{kReady, wire::SetMacAddress{kHostsMac}, wire::SetMtu{1500},
                                             wire::ReceiveFilter{}, wire::LinkState{.up = true}});
  CHECK(bench.unit.asked<wire::StatisticsReport>().size() == 1);
  CHECK(bench.nic.carriers.back());
  CHECK(bench.notices.count("up: ") == 2);
  bench.unit.session().reset("maintenance");
  REQUIRE(bench.run_until([&] { return !bench.driver().up(); }));
  CHECK(bench.notices.count("down: ") == 2);
}

TEST_CASE("a bridge that has gone is let go, and the next one is taken", "[host][driver]") {
  DriverBench bench;
  bench.bridges.offered = false;
  bench.bridges.deadline = bench.now() + 33ms;
  bench.settle();
  CHECK(bench.driver().next_deadline() == bench.bridges.deadline);
  CHECK(bench.descriptors() == std::vector{kSourceDescriptor});
  CHECK(bench.driver().prepare_sleep());
  bench.bridges.offered = true;
  bench.come_up();
  CHECK(bench.bridges.given == 1);

  bench.bridges.offered = false;
  bench.unit.stop();
  bench.pair.cut();
  REQUIRE(bench.run_until([&] { return bench.driver().session() == nullptr; }));
  CHECK(bench.driver().state() == "connecting");
  CHECK_FALSE(bench.nic.carriers.back());
  CHECK(bench.descriptors() == std::vector{kSourceDescriptor});
  bench.pair.restore();
  bench.bridges.offered = true;
  bench.come_up();
  CHECK(bench.bridges.given == 2);
  bench.nic.sending.push_back(frame_of(60));
  bench.settle();
  CHECK(bench.unit.frames == std::vector<Frame>{frame_of(60)});
}

TEST_CASE("what the sessions of a driver have counted adds up over their bridges", "[host][driver]") {
  DriverBench bench;
  const auto sent_and_received = [&](std::uint64_t frames) {
    const auto totals = bench.driver().totals();
    CHECK(totals.session.tx_frames == frames);
    CHECK(totals.session.tx_bytes == 60 * frames);
    CHECK(totals.session.rx_frames == frames);
    CHECK(totals.session.ups == frames);
    CHECK(totals.adapter.direct_writes == frames);
    CHECK(bench.driver().moved().frames == 2 * frames);
  };
  for (std::uint64_t session = 1; session <= 3; ++session) {
    bench.bridges.offered = true;
    bench.come_up();
    bench.nic.sending.push_back(frame_of(60));
    bench.settle();
    bench.from_unit(frame_of(60));
    sent_and_received(session);
    bench.bridges.offered = false;
    bench.unit.stop();
    bench.pair.cut();
    REQUIRE(bench.run_until([&] { return bench.driver().session() == nullptr; }));
    sent_and_received(session);
    bench.pair.restore();
  }
}

TEST_CASE("the options of the session have their effect", "[host][driver]") {
  messaging::SessionOptions options = host_options();
  options.role = wire::Role::io_unit;  // the driver knows better
  SECTION("mode S") {
    options.mode = wire::Mode::send;
    DriverBench bench(options);
    bench.come_up();
    CHECK(bench.driver().session()->mode() == wire::Mode::send);
    CHECK(bench.notices.count("mode S, LAN has carrier") == 1);
  }
  SECTION("no data channel") {
    options.data_channel = false;
    DriverBench bench(options);
    bench.come_up();
    CHECK_FALSE(bench.driver().session()->has_data_channel());
    CHECK(bench.notices.count("mode R without a data channel") == 1);
  }
  SECTION("a smaller MTU than the unit grants") {
    options.max_mtu = 1280;
    DriverBench bench(options);
    bench.come_up();
    CHECK(bench.unit.hellos[0].terms.max_frame_bytes == 1280 + messaging::kFrameOverheadBytes);
  }
  SECTION("a name that is none") {
    options.name.clear();
    CHECK_THROWS(DriverBench(options));
  }
}

TEST_CASE("an orderly end says goodbye, connects to nothing any more, and is no news", "[host][driver]") {
  DriverBench bench;
  SECTION("without a bridge it is over at once") {
    bench.bridges.offered = false;
    bench.settle();
    bench.driver().begin_shutdown();
    CHECK(bench.driver().finished());
    bench.bridges.offered = true;
    bench.run(1s);
    CHECK(bench.bridges.given == 0);
  }
  SECTION("with a session") {
    bench.come_up();
    CHECK_FALSE(bench.driver().finished());
    bench.driver().begin_shutdown();
    CHECK_FALSE(bench.driver().finished());
    REQUIRE(bench.run_until([&] { return bench.driver().finished(); }, 500ms));
    CHECK(bench.unit.downs.size() == 1);
    CHECK(bench.notices.count("trying again") == 0);
  }
}

#ifdef SPLITNIC_AUDIT_LOADS
TEST_CASE("a NIC that reads a frame a second time is seen", "[host][driver][audit]") {
  DriverBench bench;
  bench.come_up();
  bench.from_unit(frame_of(100));
  CHECK(bench.loads.take_double_loads() == 0);
  bench.nic.reads_twice = true;
  bench.from_unit(frame_of(100));
  CHECK(bench.loads.take_double_loads() == 1);
}
#endif

}  // namespace
}  // namespace splitnic::host::test::host_driver_test
