// Every counter of the I/O unit, raised on purpose: which event raises it, and by how much. A counter without an event
// in these tables fails the test.
#include <boost/describe/class.hpp>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "tests/unit/common/offload_run.h"
#include "unit_bench.h"

namespace splitnic::iounit {

BOOST_DESCRIBE_STRUCT(IoUnitCounters, (),
                      (lan_frames, lan_bytes, lan_bytes_sent, copies, lan_drops, departed_rx_frames, departed_tx_frames,
                       departed_drops, lan_checksums_completed, lan_segmented, lan_merged, to_lan_merged,
                       host_checksums_completed, host_segmented, passed_unfinished, payloads_copied, hosts_refused,
                       hosts_evicted, hosts_ejected, queues_refused, setups_paused, names_refused, addresses_refused,
                       filters_limited))

}  // namespace splitnic::iounit

namespace splitnic::iounit::test::io_unit_counters_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr MacAddress kNobody{{0x02, 0, 0, 0, 0x99, 0x99}};

/// Costs nothing, except while a test sets a cost.
struct SetMeter final : WorkMeter {
  Duration cost{};
  void start(Time) override {}
  Duration lap(std::size_t work) override { return work == 0 ? Duration{} : cost; }
};

struct WithMeter {
  SetMeter meter;
};

/// Hosts "a" and "b", which have joined no group.
struct Events : WithMeter, UnitBench {
  explicit Events(IoUnitOptions options) : UnitBench(with(std::move(options), meter)) {
    REQUIRE(grants(a, wire::ReceiveFilter{}));
    REQUIRE(grants(b, wire::ReceiveFilter{}));
  }
  static IoUnitOptions with(IoUnitOptions options, WorkMeter& meter) {
    options.meter = &meter;
    return options;
  }
  static messaging::SessionOptions able(const std::string& name) {
    auto options = host_named(name);
    options.pool_elements = 128;
    options.offloads = true;
    return options;
  }
  void a_sends(const Frame& frame, std::size_t times = 3, const frame::FrameOffload& offload = {}) {
    from_host(a, frame, times, offload);
  }
  void a_sends_to(const MacAddress& to, std::size_t times = 3) { a_sends(make_frame(to, a.mac()), times); }
  void a_gets(std::size_t times = 3) { from_lan(make_frame(a.mac(), station(1)), times); }
  void a_leaves() {
    a.die();
    REQUIRE(run_until([&] { return attached_count() == 1; }));
  }

  TestHost& a = host_up(able("a"));
  TestHost& b = host_up("b");
};

splitnic::test::Below between(const MacAddress& from, const MacAddress& to) {
  splitnic::test::Below below;
  below.source = from;
  below.destination = to;
  return below;
}

/// A frame with this EtherType and these bytes, to everybody.
Frame claim(Events& events, unsigned ethertype, std::initializer_list<unsigned> bytes) {
  Frame frame = make_frame(kBroadcastMac, events.a.mac(), {.payload_bytes = 0});
  frame[12] = static_cast<std::byte>(ethertype >> 8U);
  frame[13] = static_cast<std::byte>(ethertype & 0xffU);
  for (const unsigned octet : bytes) frame.push_back(static_cast<std::byte>(octet));
  return frame;
}

struct Event {
  void (*act)(Events& events);
  void (*rules)(IoUnitOptions& options) = [](IoUnitOptions&) {};
};
using Table = std::map<std::string, Event>;

void offer_offloads(IoUnitOptions& options) { options.session.offloads = true; }
void guard(IoUnitOptions& options) {
  options.policy.others.ip = {.addresses = {*parse_ip_address("10.0.0.1")}, .dhcp_server = false, .router = false};
}

/// Each is to raise its counter by three, at host "a", and no other.
const Table kHostDropTable{
    {"to_host_not_up", {[](Events& events) {
       const MacAddress mac = events.a.mac();
       events.unit().begin_shutdown();
       events.from_lan(make_frame(mac, station(1)), 3);
     }}},
    {"to_host_interface_down", {[](Events& events) {
       REQUIRE(events.grants(events.a, wire::LinkState{.up = false}));
       events.a_gets();
     }}},
    {"to_host_filtered", {[](Events& events) {
       REQUIRE(events.grants(events.a, wire::VlanFilter{std::vector<std::uint16_t>{5}}));
       events.from_lan(make_frame(events.a.mac(), station(1), {.vlans = {6}}), 3);
     }}},
    {"to_host_no_element", {[](Events& events) {
       const std::uint32_t free = events.attached("a")->session().credits().free;
       events.a.paused = true;
       events.a_gets(free + 3);
     }}},
    {"to_host_too_long", {[](Events& events) {
       events.lan.lan_mtu = 1500;  // a has elements for 1500 bytes and two tags
       Frame frame = make_frame(events.a.mac(), station(1), {.vlans = {1, 2, 3, 4}, .payload_bytes = 1500});
       events.from_lan(frame, 3);
     }}},
    {"to_host_over_rate",
     {[](Events& events) { events.a_gets(4); },
      [](IoUnitOptions& options) { options.policy.others.receive.frames = 4; }}},
    {"from_host_malformed", {[](Events& events) {
       Frame frame = make_frame(station(1), events.a.mac(), {.vlans = {5}});
       frame.resize(17);
       events.a_sends(frame);
     }}},
    {"from_host_bad_source", {[](Events& events) { events.a_sends(make_frame(station(1), group(1))); }}},
    {"from_host_not_allowed", {[](Events& events) { events.a_sends(make_frame(station(1), kNobody)); }}},
    {"from_host_forged", {[](Events& events) { events.a_sends(make_frame(station(1), events.b.mac())); }}},
    {"from_host_lan_source",
     {[](Events& events) {
        events.a_gets();
        events.a_sends(make_frame(station(2), station(1)));
      },
      [](IoUnitOptions& options) { options.policy.others.foreign_sources = true; }}},
    {"from_host_link_local", {[](Events& events) {
       events.a_sends_to({{0x01, 0x80, 0xc2, 0, 0, 0x0e}});
     }}},
    {"from_host_vlan",
     {[](Events& events) { events.a_sends(make_frame(station(1), events.a.mac(), {.vlans = {7}})); },
      [](IoUnitOptions& options) { options.policy.others.access_vlan = 5; }}},
    {"from_host_group",
     {[](Events& events) { events.a_sends_to(group(1)); },
      [](IoUnitOptions& options) { options.policy.others.multicast = false; }}},
    {"from_host_ip_address",
     {[](Events& events) {
        events.a_sends(claim(events, 0x0806, {0, 1}));
      },
      guard}},
    {"from_host_dhcp_server",
     {[](Events& events) {
        events.a_sends(claim(events, 0x0800, {0x45, 0, 0,  28, 0, 1, 0, 0,  64, 17, 0, 0, 10, 0,
                                              0,    1, 10, 0,  0, 2, 0, 67, 0,  68, 0, 8, 0,  0}));
      },
      guard}},
    {"from_host_router",
     {[](Events& events) {
        Frame frame = claim(events, 0x86dd, {0x60, 0, 0, 0, 0, 8, 58, 255, 0xfe, 0x80});
        frame.resize(14 + 40);
        frame.push_back(std::byte{134});
        frame.resize(14 + 48);
        events.a_sends(frame);
      },
      guard}},
    {"from_host_over_rate",
     {[](Events& events) { events.a_sends_to(station(1), 4); },
      [](IoUnitOptions& options) { options.policy.others.send.frames = 4; }}},
    {"from_host_broadcasts",
     {[](Events& events) { events.a_sends_to(kBroadcastMac, 4); },
      [](IoUnitOptions& options) { options.policy.others.broadcasts = 1; }}},
    {"from_host_multicasts",
     {[](Events& events) { events.a_sends_to(group(1), 4); },
      [](IoUnitOptions& options) { options.policy.others.multicasts = 1; }}},
    {"from_host_copies",
     {[](Events& events) {
        REQUIRE(events.grants(events.b, wire::ReceiveFilter{.multicast = {group(1)}}));
        events.a_sends_to(group(1), 4);
      },
      [](IoUnitOptions& options) { options.policy.others.multicast_copies = 1; }}},
    {"from_host_to_itself", {[](Events& events) { events.a_sends_to(events.a.mac()); }}},
    {"from_host_over_share", {[](Events& events) {
       events.b.paused = true;
       REQUIRE(events.attached("b")->session().credits().free == 16);
       events.from_lan(make_frame(events.b.mac(), station(1)));
       events.a_sends_to(events.b.mac(), 11 + 3);
     }}},
    {"from_host_too_long",
     {[](Events& events) { events.a_sends(make_frame(station(1), events.a.mac(), {.payload_bytes = 1501})); }}},
    {"from_host_lan_refused", {[](Events& events) {
       events.lan.refuses = true;
       events.a_sends_to(station(1));
     }}},
    {"from_host_bad_offload",
     {[](Events& events) {
        const frame::FrameOffload offload{.partial_checksum = true, .checksum_start = 0xffff, .checksum_offset = 6};
        events.a_sends(make_frame(station(1), events.a.mac()), 3, offload);
      },
      offer_offloads}},
};

/// Each is to raise its counter by three, and no other.
const Table kLanDropTable{
    {"lan_malformed", {[](Events& events) { events.from_lan(Frame(13), 3); }}},
    {"lan_bad_source", {[](Events& events) { events.from_lan(make_frame(events.a.mac(), group(1)), 3); }}},
    {"lan_forged", {[](Events& events) { events.from_lan(make_frame(events.a.mac(), events.b.mac()), 3); }}},
    {"lan_link_local", {[](Events& events) {
       events.from_lan(make_frame({{0x01, 0x80, 0xc2, 0, 0, 0}}, station(1)), 3);
     }}},
    {"lan_to_lan", {[](Events& events) { events.from_lan(make_frame(station(1), station(1)), 3); }}},
    {"lan_unwanted", {[](Events& events) { events.from_lan(make_frame(kNobody, station(1)), 3); }}},
    {"lan_udp_oversize", {[](Events& events) {
       events.from_lan(splitnic::test::udp_frame(between(station(1), events.a.mac()), splitnic::test::pattern(1473)),
                       3);
     }}},
    {"lan_oversize",
     {[](Events& events) { events.from_lan(make_frame(events.a.mac(), station(1), {.payload_bytes = 1501}), 3); }}},
    {"lan_over_share", {[](Events& events) {
       events.b.paused = true;
       REQUIRE(events.attached("b")->session().credits().free == 16);
       events.a_sends_to(events.b.mac(), 1);
       events.from_lan(make_frame(events.b.mac(), station(1)), 11 + 3);
     }}},
    {"lan_bad_offload", {[](Events& events) {
       events.lan.offload = {.kind = frame::SegmentKind::tcp_v4, .segment_bytes = 500};
       events.from_lan(splitnic::test::udp_frame(between(station(1), events.a.mac()), splitnic::test::pattern(600)), 3);
     }}},
};

/// A super-frame of TCP that is cut into three, or a frame with a partial checksum.
Frame tcp(const MacAddress& from, const MacAddress& to, std::size_t bytes) {
  return splitnic::test::tcp_frame(between(from, to), {}, splitnic::test::pattern(bytes),
                                   splitnic::test::Fill::partial);
}
frame::FrameOffload tcp_offload(bool super) {
  return {.partial_checksum = true,
          .checksum_start = 34,
          .checksum_offset = 16,
          .kind = super ? frame::SegmentKind::tcp_v4 : frame::SegmentKind::none,
          .segment_bytes = static_cast<std::uint16_t>(super ? 1400 : 0),
          .header_bytes = static_cast<std::uint16_t>(super ? 54 : 0)};
}

/// The turns of "a" cost more than the unit allows, for three seconds in which "b" has work, too; and again when "a"
/// has come back.
void be_ejected_thrice(Events& events) {
  for (unsigned time = 0; time < 3; ++time) {
    for (unsigned second = 0; second < 6 && events.attached("a") != nullptr; ++second) {
      events.from_host(events.b, make_frame(station(1), events.b.mac()));
      events.meter.cost = milliseconds(80);
      events.a_sends_to(station(1), 1);
      events.meter.cost = {};
      events.run(milliseconds(1010));
    }
    REQUIRE(events.attached("a") == nullptr);
    events.connect_again(events.a);
    REQUIRE(events.run_until([&] { return events.attached("a") != nullptr; }, seconds(10)));
  }
}

/// Each is to raise its counter by three.
const Table kUnitTable{
    {"lan_frames", {[](Events& events) { events.a_gets(); }}},
    {"lan_bytes", {[](Events& events) { events.from_lan(Frame(3)); }}},
    {"lan_bytes_sent", {[](Events& events) { events.a_sends(Frame(make_frame(station(1), events.a.mac()))); }}},
    {"copies", {[](Events& events) { events.a_sends_to(kBroadcastMac); }}},
    {"departed_rx_frames", {[](Events& events) {
       events.a_sends_to(station(1));
       events.a_leaves();
     }}},
    {"departed_tx_frames", {[](Events& events) {
       events.a_gets();
       events.a_leaves();
     }}},
    {"departed_drops", {[](Events& events) {
       events.a_sends_to(events.a.mac());
       events.a_leaves();
     }}},
    {"lan_checksums_completed", {[](Events& events) { events.from_lan(tcp(station(1), events.a.mac(), 100), 3); }}},
    {"lan_segmented", {[](Events& events) { events.from_lan(tcp(station(1), events.a.mac(), 4000), 3); }}},
    {"lan_merged",
     {[](Events& events) {
        std::uint32_t sequence = 1;
        for (int segment = 0; segment < 4; ++segment, sequence += 1000) {
          events.lan.arriving.push_back(splitnic::test::tcp_frame(
              between(station(1), events.a.mac()), {.sequence = sequence}, splitnic::test::pattern(1000)));
        }
        events.settle();
      },
      offer_offloads}},
    {"to_lan_merged",
     {[](Events& events) {
        events.lan.takes = {frame::SegmentKind::none, frame::SegmentKind::tcp_v4};
        std::uint32_t sequence = 1;
        for (int segment = 0; segment < 4; ++segment, sequence += 1000) {
          REQUIRE(events.a.send(splitnic::test::tcp_frame(between(events.a.mac(), station(1)), {.sequence = sequence},
                                                          splitnic::test::pattern(1000))));
        }
        events.settle();
      },
      offer_offloads}},
    {"host_checksums_completed",
     {[](Events& events) { events.a_sends(tcp(events.a.mac(), station(1), 100), 3, tcp_offload(false)); },
      offer_offloads}},
    {"host_segmented",
     {[](Events& events) { events.a_sends(tcp(events.a.mac(), station(1), 4000), 3, tcp_offload(true)); },
      offer_offloads}},
    {"passed_unfinished",
     {[](Events& events) {
        events.lan.takes = {frame::SegmentKind::none, frame::SegmentKind::tcp_v4};
        events.a_sends(tcp(events.a.mac(), station(1), 4000), 3, tcp_offload(true));
      },
      offer_offloads}},
    {"payloads_copied",
     {[](Events& events) { events.a_sends(tcp(events.a.mac(), station(1), 20000), 3, tcp_offload(true)); },
      offer_offloads}},
    {"hosts_refused", {[](Events& events) {
       for (unsigned time = 0; time < 3; ++time) {
         TestHost& again = events.connect("a");  // there is one of this name
         REQUIRE(events.run_until([&] { return !again.downs.empty(); }));
         again.die();
       }
     }}},
    {"hosts_evicted", {[](Events& events) {
       for (unsigned time = 0; time < 3; ++time) events.silent_bridge();
       events.run(seconds(11));
     }}},
    {"hosts_ejected", {be_ejected_thrice}},
    {"queues_refused", {[](Events& events) {
       for (unsigned time = 0; time < 3; ++time) events.connect_queue("a", 99);  // of no session
       events.settle();
     }}},
    {"setups_paused", {be_ejected_thrice}},
    {"names_refused", {[](Events& events) {
       for (unsigned time = 0; time < 3; ++time) {
         TestHost& thief = events.connect_as(1000, "a");  // nobody attests the user of a
         REQUIRE(events.run_until([&] { return !thief.downs.empty(); }));
         thief.die();
       }
     }}},
    {"addresses_refused", {[](Events& events) {
       for (unsigned time = 0; time < 3; ++time) {
         REQUIRE_FALSE(events.grants(events.a, wire::SetMacAddress{events.b.mac()}));
       }
     }}},
    {"filters_limited", {[](Events& events) {
       for (unsigned time = 0; time < 3; ++time) {
         REQUIRE(events.grants(events.a, wire::ReceiveFilter{.promiscuous = true}));
       }
     }}},
};

IoUnitOptions options_for(const Event& event) {
  IoUnitOptions options;
  options.policy.others.broadcasts = 0;
  event.rules(options);
  return options;
}

template <class Drop>
std::vector<std::string> names_of(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t index = 0; index < count; ++index) names.emplace_back(to_string(static_cast<Drop>(index)));
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> names_in(const Table& table) {
  std::vector<std::string> names;
  for (const auto& [name, event] : table) names.push_back(name);
  return names;
}

/// The values of all counters but lan_drops.
std::map<std::string, std::uint64_t> values(const IoUnitCounters& counters) {
  std::map<std::string, std::uint64_t> all;
  boost::mp11::mp_for_each<boost::describe::describe_members<IoUnitCounters, boost::describe::mod_public>>(
      [&](auto member) {
        if constexpr (std::is_same_v<decltype(counters.*member.pointer), const std::uint64_t&>) {
          all[member.name] = counters.*member.pointer;
        }
      });
  return all;
}

TEST_CASE("every cause of a lost frame has an event that raises it, and no other", "[iounit][drops][counters]") {
  REQUIRE(names_in(kHostDropTable) == names_of<HostDrop>(kHostDrops));
  REQUIRE(names_in(kLanDropTable) == names_of<LanDrop>(kLanDrops));
  for (const auto* const table : {&kHostDropTable, &kLanDropTable}) {
    for (const auto& [name, event] : *table) {
      INFO(name);
      Events events(options_for(event));
      REQUIRE(events.drops().empty());
      event.act(events);
      const Drops expected{{(table == &kHostDropTable ? "a/" : "") + name, 3}};
      CHECK(events.drops() == expected);
      const auto sum = events.sum();
      CHECK(sum.in == sum.delivered + sum.dropped);
    }
  }
}

TEST_CASE("every counter of the unit has an event that raises it", "[iounit][counters]") {
  // All members are described above: an array of causes, and one number each.
  using Members = boost::describe::describe_members<IoUnitCounters, boost::describe::mod_public>;
  STATIC_REQUIRE(sizeof(IoUnitCounters) ==
                 (boost::mp11::mp_size<Members>::value - 1 + kLanDrops) * sizeof(std::uint64_t));
  const auto names = values(IoUnitCounters{});
  REQUIRE(std::ranges::equal(names_in(kUnitTable), names, {}, {}, [](const auto& each) { return each.first; }));
  for (const auto& [name, event] : kUnitTable) {
    INFO(name);
    Events events(options_for(event));
    const auto before = values(events.unit().counters());
    event.act(events);
    const std::uint64_t raised = values(events.unit().counters()).at(name) - before.at(name);
    CHECK(raised == (name == "lan_bytes_sent" ? 3 * 60 : 3));
  }
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_counters_test
