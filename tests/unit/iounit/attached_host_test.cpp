// One host's place on the unit, its requests answered one by one: an owner that records, and no session that is up.
#include "iounit/attached_host.h"

#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::attached_host_test {
namespace {

using std::chrono::seconds;

struct RecordingOwner final : AttachedHostOwner {
  std::vector<std::string> told;
  unsigned filter_changes = 0;
  std::uint32_t mtu = 1500;
  HostRights rights = trusting_options().policy.others;

  tl::expected<messaging::HelloGrant, messaging::Refusal> admit(AttachedHost& attached,
                                                                const wire::HelloRequest& hello) override {
    attached.admitted(hello.name, station(1), rights);
    return messaging::HelloGrant{.mac = station(1), .max_mtu = mtu, .link_up = true};
  }
  messaging::Answer change_mac(AttachedHost& attached, const MacAddress& wanted) override {
    attached.set_mac(wanted);
    return wire::MacAddressReply{wanted};
  }
  void frame_from_host(AttachedHost&, const messaging::ReceivedFrame&) override { told.emplace_back("frame"); }
  void host_up(AttachedHost&) override { told.emplace_back("up"); }
  void host_down(AttachedHost&, std::string_view reason) override { told.push_back("down: " + std::string(reason)); }
  void attend(AttachedHost&) override {}
  void filters_changed() override { ++filter_changes; }
  void filter_limited(AttachedHost&, const std::string& why) override { told.push_back("limited: " + why); }
  void host_says(AttachedHost&, const std::string& text) override { told.push_back("says: " + text); }
  [[nodiscard]] std::uint32_t max_mtu() const override { return mtu; }
  [[nodiscard]] wire::Statistics lan_statistics() const override { return {}; }
};

/// A host named "a", admitted with station(1).
struct OneHost {
  OneHost() {
    wire::HelloRequest hello;
    hello.name = "a";
    REQUIRE(events().on_hello(hello).has_value());
  }
  static messaging::SessionOptions unit_session() {
    auto options = host_named("unit");
    options.role = wire::Role::io_unit;
    return options;
  }
  /// As the session calls it.
  messaging::SessionEvents& events() { return host; }
  messaging::Answer ask(const wire::RequestBody& body) { return events().on_request(body); }
  [[nodiscard]] bool accepts(const MacAddress& mac, std::uint16_t vlan = 0) const {
    return host.filter().accepts(mac, vlan);
  }
  std::uint64_t reported(const messaging::Answer& answer, const std::string& name) {
    for (const auto& counter : std::get<wire::Statistics>(*answer).counters) {
      if (counter.name == name) return counter.value;
    }
    FAIL(name << " is not reported");
    return 0;
  }

  RecordingOwner owner;
  SeededRandom random{1};
  fabric::SimBridgePair pair{plain_bridge(), random};
  AttachedHost host{owner,  ForwardingTarget{3}, {&pair.end(1), [](fabric::Bridge*) {}}, unit_session(),
                    random, Time{seconds(100)}};
};

std::vector<MacAddress> many(std::size_t count, const MacAddress& like) {
  std::vector<MacAddress> all(count, like);
  for (std::size_t index = 0; index < count; ++index) {
    all[index].octets[4] = static_cast<std::uint8_t>(index >> 8U);
    all[index].octets[3] = static_cast<std::uint8_t>(index & 0xffU);
  }
  return all;
}

TEST_CASE("a refused receive filter changes nothing", "[iounit][attached]") {
  OneHost one;
  REQUIRE(one.ask(wire::ReceiveFilter{.unicast = {station(2)}, .multicast = {group(2)}}).has_value());
  REQUIRE(one.ask(wire::VlanFilter{std::vector<std::uint16_t>{5}}).has_value());
  const unsigned changes = one.owner.filter_changes;
  const auto refused = GENERATE(
      wire::ReceiveFilter{
          .unicast = {station(9), group(9)}, .multicast = {group(9)}, .all_multicast = true, .promiscuous = true},
      wire::ReceiveFilter{
          .unicast = {station(9)}, .multicast = {group(9), station(9)}, .all_multicast = true, .promiscuous = true},
      wire::ReceiveFilter{.unicast = {station(9), {}}, .promiscuous = true});
  const auto answer = one.ask(refused);
  REQUIRE_FALSE(answer.has_value());
  CHECK(answer.error().status == wire::CfgStatus::invalid_parameter);
  CHECK(one.accepts(station(1)));
  CHECK(one.accepts(station(2)));
  CHECK(one.accepts(group(2)));
  CHECK(one.accepts(station(2), 5));
  CHECK_FALSE(one.accepts(station(2), 6));
  CHECK_FALSE(one.accepts(station(9)));
  CHECK_FALSE(one.accepts(group(9)));
  CHECK_FALSE(one.host.promiscuous());
  CHECK(one.owner.filter_changes == changes);
  // The further addresses that stand are those of the filter in force.
  REQUIRE(one.ask(wire::SetMacAddress{station(3)}).has_value());
  CHECK(one.accepts(station(2)));
  CHECK_FALSE(one.accepts(station(9)));
}

TEST_CASE("a new filter replaces the one before and leaves the VLANs", "[iounit][attached]") {
  OneHost one;
  CHECK_FALSE(one.host.wants_unknown());
  REQUIRE(one.ask(wire::VlanFilter{std::vector<std::uint16_t>{5}}).has_value());
  REQUIRE(one.ask(wire::ReceiveFilter{.unicast = {station(2)}, .multicast = {group(2)}, .promiscuous = true}));
  CHECK(one.host.wants_unknown());
  CHECK(one.host.promiscuous());
  REQUIRE(one.ask(wire::ReceiveFilter{.multicast = {group(3)}}).has_value());
  CHECK_FALSE(one.host.wants_unknown());
  CHECK_FALSE(one.host.promiscuous());
  CHECK(one.accepts(station(1)));
  CHECK_FALSE(one.accepts(station(2)));
  CHECK(one.accepts(group(3)));
  CHECK_FALSE(one.accepts(group(2)));
  CHECK(one.accepts(station(1), 5));
  CHECK_FALSE(one.accepts(station(1), 6));
}

TEST_CASE("lists as long as permitted are taken, longer ones are not", "[iounit][attached]") {
  OneHost one;
  const auto unicast = [&](std::size_t count) {
    return one.ask(wire::ReceiveFilter{.unicast = many(count, station(4))}).has_value();
  };
  // With the host's own address.
  CHECK(unicast(ReceiveFilter::kMaxUnicast - 2));
  CHECK(unicast(ReceiveFilter::kMaxUnicast - 1));
  CHECK_FALSE(unicast(ReceiveFilter::kMaxUnicast));
  REQUIRE(one.ask(wire::SetMacAddress{station(7)}).has_value());
  CHECK(one.accepts(station(7)));
  CHECK_FALSE(one.accepts(station(1)));
  CHECK(one.accepts(many(ReceiveFilter::kMaxUnicast - 1, station(4)).back()));
  const auto multicast = [&](std::size_t count) {
    return one.ask(wire::ReceiveFilter{.multicast = many(count, group(4))}).has_value();
  };
  CHECK(multicast(ReceiveFilter::kMaxMulticast - 1));
  CHECK(multicast(ReceiveFilter::kMaxMulticast));
  CHECK_FALSE(multicast(ReceiveFilter::kMaxMulticast + 1));
  // A host that has joined more than fit asks for all.
  CHECK_FALSE(one.accepts(group(200)));
  REQUIRE(one.ask(wire::ReceiveFilter{.all_multicast = true}).has_value());
  CHECK(one.accepts(group(200)));
}

TEST_CASE("a host that may not be promiscuous but asks for it gets the frames to all addresses of the policy",
          "[iounit][attached]") {
  OneHost one;
  HostRights rights;
  rights.addresses = many(wire::kMaxUnicastFilters + 6, station(4));
  rights.addresses.push_back(station(1));
  one.host.set_rights(rights);
  const auto accepts_all = [&] {
    return std::ranges::all_of(rights.addresses, [&](const MacAddress& mac) { return one.accepts(mac); });
  };
  CHECK_FALSE(accepts_all());
  // As a driver does whose interface has more further addresses than it may list.
  REQUIRE(one.ask(wire::ReceiveFilter{.promiscuous = true}).has_value());
  CHECK(accepts_all());
  CHECK_FALSE(one.accepts(station(9)));
  CHECK_FALSE(one.host.promiscuous());
  REQUIRE(one.owner.told.size() == 1);
  CHECK_THAT(one.owner.told[0], Catch::Contains("promiscuous mode is not permitted"));
  REQUIRE(one.ask(wire::SetMacAddress{rights.addresses[3]}).has_value());
  CHECK(accepts_all());

  rights.addresses = many(ReceiveFilter::kMaxUnicast + 6, station(4));
  one.host.set_rights(rights);
  CHECK(one.accepts(rights.addresses[ReceiveFilter::kMaxUnicast - 1]));
  CHECK_FALSE(accepts_all());

  REQUIRE(one.ask(wire::ReceiveFilter{.unicast = {rights.addresses[7]}}).has_value());
  CHECK(one.accepts(rights.addresses[7]));
  CHECK_FALSE(one.accepts(rights.addresses[8]));
}

TEST_CASE("an interface that is promiscuous because of its further addresses is no alarm", "[iounit][attached]") {
  OneHost one;
  HostRights rights;
  rights.addresses = {station(1), station(2)};
  one.host.set_rights(rights);
  REQUIRE(one.ask(wire::ReceiveFilter{.unicast = {station(2)}, .promiscuous = true}).has_value());
  CHECK(one.accepts(station(2)));
  CHECK(one.owner.told.empty());
  REQUIRE(one.ask(wire::ReceiveFilter{.unicast = {station(2), station(3)}, .promiscuous = true}).has_value());
  CHECK(one.owner.told ==
        std::vector<std::string>{"limited: frames to further addresses are not permitted to this host"});
}

TEST_CASE("VLANs from 1 to 4094 may be listed", "[iounit][attached]") {
  OneHost one;
  for (const std::uint16_t vlan : {std::uint16_t{1}, std::uint16_t{4094}}) {
    CHECK(one.ask(wire::VlanFilter{std::vector{vlan}}).has_value());
    CHECK(one.accepts(station(1), vlan));
  }
  for (const std::uint16_t vlan : {std::uint16_t{0}, std::uint16_t{4095}}) {
    const auto answer = one.ask(wire::VlanFilter{std::vector{vlan}});
    REQUIRE_FALSE(answer.has_value());
    CHECK(answer.error().status == wire::CfgStatus::invalid_parameter);
  }
  CHECK_FALSE(one.accepts(station(1), 1));
  CHECK(one.ask(wire::VlanFilter{}).has_value());
  CHECK(one.accepts(station(1), 1));
}

TEST_CASE("statistics tell every cause; a clear tells the values once more and lets them start from nothing",
          "[iounit][attached]") {
  OneHost one;
  for (std::size_t index = 0; index < kHostDrops; ++index) {
    for (std::size_t time = 0; time <= index; ++time) one.host.count(static_cast<HostDrop>(index));
  }
  const auto expect = [&](const messaging::Answer& answer, std::uint64_t times, std::uint64_t more) {
    REQUIRE(answer.has_value());
    for (std::size_t index = 0; index < kHostDrops; ++index) {
      const std::string name(to_string(static_cast<HostDrop>(index)));
      INFO(name);
      CHECK(one.reported(answer, name) == (index + 1) * times + more);
    }
  };
  expect(one.ask(wire::StatisticsReport{}), 1, 0);
  expect(one.ask(wire::StatisticsClear{}), 1, 0);
  expect(one.ask(wire::StatisticsReport{}), 0, 0);
  for (std::size_t index = 0; index < kHostDrops; ++index) one.host.count(static_cast<HostDrop>(index));
  expect(one.ask(wire::StatisticsReport{}), 0, 1);
  // The unit's own count goes on: a host's clear is the host's.
  CHECK(one.host.drops(HostDrop::to_host_not_up) == 2);
}

TEST_CASE("an MTU up to the unit's is granted, a larger one cut to it", "[iounit][attached]") {
  OneHost one;
  for (const std::uint32_t bytes : {1499U, 1500U, 1501U}) {
    CHECK(std::get<wire::MtuReply>(*one.ask(wire::SetMtu{bytes})).in_force == std::min(bytes, 1500U));
  }
}

TEST_CASE("what a host says goes to the unit, what is no request to a unit is refused", "[iounit][attached]") {
  OneHost one;
  REQUIRE(one.ask(wire::StatusReport{1, "its interface refused frames"}).has_value());
  CHECK(one.owner.told == std::vector<std::string>{"says: its interface refused frames"});
  for (const wire::RequestBody& body : {wire::RequestBody(wire::Heartbeat{}), wire::RequestBody(wire::Reset{}),
                                        wire::RequestBody(wire::Moderation{})}) {
    const auto answer = one.ask(body);
    REQUIRE_FALSE(answer.has_value());
    CHECK(answer.error().status == wire::CfgStatus::unknown_request);
  }
}

TEST_CASE("a host is down since it was made, or since its session last ended", "[iounit][attached]") {
  OneHost one;
  CHECK(one.host.down_since() == Time{seconds(100)});
  one.host.note_time(Time{seconds(103)});
  one.events().on_down("never was up");
  CHECK(one.host.down_since() == Time{seconds(100)});
  one.events().on_up(nullptr);
  CHECK(one.host.down_since() == kNever);
  one.host.note_time(Time{seconds(110)});
  one.events().on_down("first");
  one.host.note_time(Time{seconds(111)});
  one.events().on_down("second");
  CHECK(one.host.down_since() == Time{seconds(110)});
  CHECK(one.owner.told == std::vector<std::string>{"down: never was up", "up", "down: first", "down: second"});
}

TEST_CASE("a new hello starts from an open filter for groups, and nothing else of before", "[iounit][attached]") {
  OneHost one;
  REQUIRE(one.ask(wire::ReceiveFilter{.unicast = {station(2)}, .promiscuous = true}).has_value());
  REQUIRE(one.ask(wire::VlanFilter{std::vector<std::uint16_t>{5}}).has_value());
  REQUIRE(one.ask(wire::LinkState{.up = false}).has_value());
  wire::HelloRequest hello;
  hello.name = "a";
  const unsigned changes = one.owner.filter_changes;
  REQUIRE(one.events().on_hello(hello).has_value());
  CHECK(one.owner.filter_changes == changes + 1);
  CHECK_FALSE(one.host.promiscuous());
  CHECK_FALSE(one.host.wants_unknown());
  CHECK(one.host.interface_up());
  CHECK(one.accepts(group(200)));
  CHECK(one.accepts(station(1), 6));
  CHECK_FALSE(one.accepts(station(2)));
}

}  // namespace
}  // namespace splitnic::iounit::test::attached_host_test
