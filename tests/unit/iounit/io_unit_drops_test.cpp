// Every cause of a lost frame, provoked: its counter by name and the exact number, and no other counter moves.
#include <catch2/catch.hpp>

#include "tests/unit/common/offload_run.h"
#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_drops_test {
namespace {

constexpr MacAddress kNobody{{0x02, 0, 0, 0, 0x99, 0x99}};
constexpr MacAddress kBehindHost{{0x02, 0, 0, 0, 0x55, 0x01}};

/// Hosts "a" and "b", which have joined no group.
struct TwoHosts : UnitBench {
  explicit TwoHosts(IoUnitOptions options = {}) : UnitBench(std::move(options)) {
    REQUIRE(grants(a, wire::ReceiveFilter{}));
    REQUIRE(grants(b, wire::ReceiveFilter{}));
  }
  TestHost& a = host_up("a");
  TestHost& b = host_up("b");
};

/// What came in was delivered or dropped.
void require_sum(UnitBench& bench) {
  const auto sum = bench.sum();
  REQUIRE(sum.in == sum.delivered + sum.dropped);
}

TEST_CASE("every cause has a name of its own", "[iounit][drops]") {
  std::map<std::string_view, int> names;
  for (std::size_t index = 0; index < kLanDrops; ++index) ++names[to_string(static_cast<LanDrop>(index))];
  for (std::size_t index = 0; index < kHostDrops; ++index) ++names[to_string(static_cast<HostDrop>(index))];
  CHECK(names.size() == kLanDrops + kHostDrops);
  CHECK(to_string(LanDrop::lan_malformed) == "lan_malformed");
  CHECK(to_string(LanDrop::lan_bad_source) == "lan_bad_source");
  CHECK(to_string(LanDrop::lan_forged) == "lan_forged");
  CHECK(to_string(LanDrop::lan_link_local) == "lan_link_local");
  CHECK(to_string(LanDrop::lan_to_lan) == "lan_to_lan");
  CHECK(to_string(LanDrop::lan_unwanted) == "lan_unwanted");
  CHECK(to_string(LanDrop::lan_udp_oversize) == "lan_udp_oversize");
  CHECK(to_string(LanDrop::lan_oversize) == "lan_oversize");
  CHECK(to_string(LanDrop::lan_over_share) == "lan_over_share");
  CHECK(to_string(LanDrop::lan_bad_offload) == "lan_bad_offload");
  CHECK(to_string(HostDrop::to_host_not_up) == "to_host_not_up");
  CHECK(to_string(HostDrop::to_host_interface_down) == "to_host_interface_down");
  CHECK(to_string(HostDrop::to_host_filtered) == "to_host_filtered");
  CHECK(to_string(HostDrop::to_host_no_element) == "to_host_no_element");
  CHECK(to_string(HostDrop::to_host_too_long) == "to_host_too_long");
  CHECK(to_string(HostDrop::from_host_malformed) == "from_host_malformed");
  CHECK(to_string(HostDrop::from_host_bad_source) == "from_host_bad_source");
  CHECK(to_string(HostDrop::from_host_not_allowed) == "from_host_not_allowed");
  CHECK(to_string(HostDrop::from_host_forged) == "from_host_forged");
  CHECK(to_string(HostDrop::from_host_lan_source) == "from_host_lan_source");
  CHECK(to_string(HostDrop::from_host_link_local) == "from_host_link_local");
  CHECK(to_string(HostDrop::to_host_over_rate) == "to_host_over_rate");
  CHECK(to_string(HostDrop::from_host_vlan) == "from_host_vlan");
  CHECK(to_string(HostDrop::from_host_group) == "from_host_group");
  CHECK(to_string(HostDrop::from_host_ip_address) == "from_host_ip_address");
  CHECK(to_string(HostDrop::from_host_dhcp_server) == "from_host_dhcp_server");
  CHECK(to_string(HostDrop::from_host_router) == "from_host_router");
  CHECK(to_string(HostDrop::from_host_over_rate) == "from_host_over_rate");
  CHECK(to_string(HostDrop::from_host_broadcasts) == "from_host_broadcasts");
  CHECK(to_string(HostDrop::from_host_multicasts) == "from_host_multicasts");
  CHECK(to_string(HostDrop::from_host_copies) == "from_host_copies");
  CHECK(to_string(HostDrop::from_host_to_itself) == "from_host_to_itself");
  CHECK(to_string(HostDrop::from_host_over_share) == "from_host_over_share");
  CHECK(to_string(HostDrop::from_host_too_long) == "from_host_too_long");
  CHECK(to_string(HostDrop::from_host_lan_refused) == "from_host_lan_refused");
  CHECK(to_string(HostDrop::from_host_bad_offload) == "from_host_bad_offload");
}

TEST_CASE("a UDP super-frame of the LAN reaches a host as the datagrams that its sender meant", "[iounit]") {
  TwoHosts bench;
  splitnic::test::Below below;
  below.destination = bench.a.mac();
  below.source = station(1);
  const auto payload = splitnic::test::pattern(900);
  bench.lan.offload = {.partial_checksum = true,
                       .checksum_start = 34,
                       .checksum_offset = 6,
                       .kind = frame::SegmentKind::udp,
                       .segment_bytes = 300};
  bench.from_lan(splitnic::test::udp_frame(below, payload, splitnic::test::Fill::partial), 1);
  CHECK(bench.a.frames == splitnic::test::udp_segments(below, payload, 300));
  CHECK(bench.unit().counters().lan_segmented == 1);
  CHECK(bench.unit().counters().copies == 2);
  require_sum(bench);
}

TEST_CASE("a frame of the LAN that is complete stays as it is, and without metadata its checksum is looked at",
          "[iounit]") {
  TwoHosts bench;
  splitnic::test::Below below;
  below.destination = bench.a.mac();
  below.source = station(1);
  const auto payload = splitnic::test::pattern(100);
  const Frame as_if_partial = splitnic::test::udp_frame(below, payload, splitnic::test::Fill::partial);
  bench.lan.offload = frame::FrameOffload{};
  bench.from_lan(as_if_partial, 1);
  bench.lan.offload.reset();
  bench.from_lan(as_if_partial, 1);
  CHECK(bench.a.frames == std::vector<Frame>{as_if_partial, splitnic::test::udp_frame(below, payload)});
  CHECK(bench.unit().counters().lan_checksums_completed == 1);
  require_sum(bench);
}

TEST_CASE("a frame of the LAN that has no receiver counts under the one cause that says why", "[iounit][drops]") {
  TwoHosts bench;
  const auto drop = [&](const char* cause, const Frame& frame) {
    bench.from_lan(frame, 3);
    const Drops expected{{cause, 3}};
    CHECK(bench.drops() == expected);
    CHECK(bench.a.frames.empty());
    CHECK(bench.b.frames.empty());
    CHECK(bench.lan.sent.empty());
    require_sum(bench);
  };
  SECTION("shorter than a header") { drop("lan_malformed", Frame(13)); }
  SECTION("shorter than its tag says") {
    Frame frame = make_frame(bench.a.mac(), station(1), {.vlans = {5}});
    frame.resize(17);
    drop("lan_malformed", frame);
  }
  SECTION("from a group") { drop("lan_bad_source", make_frame(bench.a.mac(), group(1))); }
  SECTION("from the zero address") { drop("lan_bad_source", make_frame(bench.a.mac(), {})); }
  SECTION("from the address of a host") { drop("lan_forged", make_frame(bench.a.mac(), bench.b.mac())); }
  SECTION("to a group between neighbours on one link") {
    drop("lan_link_local", make_frame({{0x01, 0x80, 0xc2, 0, 0, 0x0e}}, station(1)));
  }
  SECTION("to an address that nobody has used") { drop("lan_unwanted", make_frame(kNobody, station(1))); }
  SECTION("to a group that no host has joined") { drop("lan_unwanted", make_frame(group(1), station(1))); }
  SECTION("to the zero address") { drop("lan_unwanted", make_frame({}, station(1))); }
  SECTION("to the sender's own address") { drop("lan_to_lan", make_frame(station(1), station(1))); }
  SECTION("beyond the MTU, and no IP") {
    drop("lan_oversize", make_frame(bench.a.mac(), station(1), {.payload_bytes = 1501}));
  }
  splitnic::test::Below below;
  below.destination = bench.a.mac();
  below.source = station(1);
  SECTION("UDP beyond the MTU") {
    drop("lan_udp_oversize", splitnic::test::udp_frame(below, splitnic::test::pattern(1473)));
  }
  SECTION("UDP whose metadata cuts it into datagrams beyond the MTU") {
    bench.lan.offload = {.kind = frame::SegmentKind::udp, .segment_bytes = 1473};
    drop("lan_udp_oversize", splitnic::test::udp_frame(below, splitnic::test::pattern(4000)));
  }
  SECTION("with metadata that does not fit it") {
    bench.lan.offload = {.kind = frame::SegmentKind::tcp_v4, .segment_bytes = 500};
    drop("lan_bad_offload", splitnic::test::udp_frame(below, splitnic::test::pattern(600)));
  }
  SECTION("IP beyond the MTU whose headers can't be followed") {
    Frame frame = splitnic::test::udp_frame(below, splitnic::test::pattern(1473));
    frame[14] = std::byte{0x41};  // a header of four bytes
    drop("lan_malformed", frame);
  }
}

TEST_CASE("a frame between two stations of the LAN is theirs", "[iounit][drops]") {
  TwoHosts bench;
  bench.from_lan(make_frame(bench.a.mac(), station(2)));
  bench.from_lan(make_frame(station(2), station(1)), 5);
  const Drops expected{{"lan_to_lan", 5}};
  CHECK(bench.drops() == expected);
  CHECK(bench.a.frames.size() == 1);
  require_sum(bench);
}

TEST_CASE("an address heard from a host whose filter refuses it: every lost frame is counted at that host",
          "[iounit][drops]") {
  TwoHosts bench(trusting_options());
  bench.from_host(bench.a, make_frame(station(1), kBehindHost));  // a bridge behind a, which is not promiscuous
  REQUIRE(bench.lan.sent.size() == 1);

  bench.from_lan(make_frame(kBehindHost, station(1)), 1000);
  CHECK(bench.drops() == Drops{{"a/to_host_filtered", 1000}});
  bench.from_host(bench.b, make_frame(kBehindHost, bench.b.mac()), 1000);
  CHECK(bench.drops() == Drops{{"a/to_host_filtered", 2000}});
  bench.from_host(bench.a, make_frame(kBehindHost, bench.a.mac()), 1000);
  CHECK(bench.drops() == Drops{{"a/to_host_filtered", 2000}, {"a/from_host_to_itself", 1000}});
  bench.from_host(bench.b, make_frame(bench.b.mac(), bench.b.mac()), 1000);
  CHECK(bench.drops() ==
        Drops{{"a/to_host_filtered", 2000}, {"a/from_host_to_itself", 1000}, {"b/from_host_to_itself", 1000}});
  CHECK(bench.a.frames.empty());
  CHECK(bench.b.frames.empty());
  CHECK(bench.lan.sent.size() == 1);
  CHECK(bench.unit().counters().copies == 0);
  require_sum(bench);
}

TEST_CASE("a VLAN that a host's list leaves out counts as filtered", "[iounit][drops]") {
  TwoHosts bench;
  REQUIRE(bench.grants(bench.a, wire::VlanFilter{std::vector<std::uint16_t>{5}}));
  bench.from_lan(make_frame(bench.a.mac(), station(1), {.vlans = {5}}));
  bench.from_lan(make_frame(bench.a.mac(), station(1)));
  CHECK(bench.a.frames.size() == 2);
  bench.from_lan(make_frame(bench.a.mac(), station(1), {.vlans = {6}}), 4);
  CHECK(bench.a.frames.size() == 2);
  CHECK(bench.drops() == Drops{{"a/to_host_filtered", 4}});
  require_sum(bench);
}

TEST_CASE("what a host may not send counts at that host under the one cause", "[iounit][drops]") {
  IoUnitOptions options;
  options.policy.allow("b", station(200));
  TwoHosts bench(options);
  const auto drop = [&](TestHost& host, const char* cause, const Frame& frame) {
    bench.from_host(host, frame, 3);
    CHECK(bench.drops() == Drops{{host.name + "/" + cause, 3}});
    CHECK(bench.lan.sent.empty());
    CHECK(bench.a.frames.empty());
    CHECK(bench.b.frames.empty());
    require_sum(bench);
  };
  SECTION("shorter than its tag says") {
    Frame frame = make_frame(station(1), bench.a.mac(), {.vlans = {5}});
    frame.resize(17);
    drop(bench.a, "from_host_malformed", frame);
  }
  SECTION("from a group") { drop(bench.a, "from_host_bad_source", make_frame(bench.b.mac(), group(1))); }
  SECTION("from the zero address") { drop(bench.a, "from_host_bad_source", make_frame(bench.b.mac(), {})); }
  SECTION("from another host's address") { drop(bench.a, "from_host_forged", make_frame(station(1), bench.b.mac())); }
  SECTION("from an address that is not allowed to it") {
    drop(bench.b, "from_host_not_allowed", make_frame(bench.a.mac(), kBehindHost));
  }
  SECTION("to a group between neighbours on one link") {
    const auto last = static_cast<std::uint8_t>(GENERATE(0, 1, 2, 3, 14, 15));  // spanning tree .. LLDP
    drop(bench.a, "from_host_link_local", make_frame({{0x01, 0x80, 0xc2, 0, 0, last}}, bench.a.mac()));
  }
  SECTION("longer than the LAN carries") {
    drop(bench.a, "from_host_too_long", make_frame(station(1), bench.a.mac(), {.payload_bytes = 1501}));
  }
  SECTION("while the LAN takes nothing") {
    bench.lan.refuses = true;
    drop(bench.a, "from_host_lan_refused", make_frame(station(1), bench.a.mac()));
  }
  SECTION("longer by a tag than the LAN's interface sends") {
    bench.lan.refuses = true;
    Frame frame = make_frame(station(1), bench.a.mac(), {.vlans = {5}, .payload_bytes = 1500});
    SECTION("which has room for one tag of 802.1Q") { drop(bench.a, "from_host_lan_refused", frame); }
    SECTION("and has none for one of 802.1ad") {
      frame[12] = std::byte{0x88};
      frame[13] = std::byte{0xa8};
      SECTION("while it has a carrier") { drop(bench.a, "from_host_too_long", frame); }
      SECTION("unless the frame is shorter") {
        frame.resize(1514);
        drop(bench.a, "from_host_lan_refused", frame);
      }
      SECTION("unless it has no carrier") {
        bench.lan.has_carrier = false;
        drop(bench.a, "from_host_lan_refused", frame);
      }
    }
  }
}

TEST_CASE("the LAN's MTU counts what follows header and tags, to the byte", "[iounit][drops]") {
  TwoHosts bench;
  const auto tags =
      GENERATE(std::vector<std::uint16_t>{}, std::vector<std::uint16_t>{5}, std::vector<std::uint16_t>{5, 6});
  for (const std::size_t payload : {1499U, 1500U}) {
    bench.from_host(bench.a, make_frame(station(1), bench.a.mac(), {tags, payload}));
    bench.from_lan(make_frame(bench.a.mac(), station(1), {tags, payload}));
  }
  CHECK(bench.drops().empty());
  CHECK(bench.lan.sent.size() == 2);
  CHECK(bench.a.frames.size() == 2);
  bench.from_lan(make_frame(bench.a.mac(), station(1), {tags, 1501}));
  CHECK(bench.drops() == Drops{{"lan_oversize", 1}});
  if (tags.size() < 2) {  // with two, an element has room for 1500 bytes and no more
    bench.from_host(bench.a, make_frame(station(1), bench.a.mac(), {tags, 1501}));
    CHECK(bench.drops() == Drops{{"lan_oversize", 1}, {"a/from_host_too_long", 1}});
  }
  CHECK(bench.lan.sent.size() == 2);
  CHECK(bench.a.frames.size() == 2);
  require_sum(bench);
}

TEST_CASE("a frame longer than a host's elements is too long for it, to the byte", "[iounit][drops]") {
  UnitBench bench;
  auto options = host_named("small");
  options.max_mtu = 600;
  TestHost& small = bench.host_up(options);
  TestHost& big = bench.host_up("big");
  for (const std::size_t bytes : {607U, 608U, 609U}) {  // with a header of 14: up to 600 + 22
    bench.from_lan(make_frame(small.mac(), station(1), {.payload_bytes = bytes}));
    bench.from_host(big, make_frame(small.mac(), big.mac(), {.payload_bytes = bytes}));
  }
  CHECK(small.frames.size() == 4);
  CHECK(bench.drops() == Drops{{"small/to_host_too_long", 2}});
  require_sum(bench);
}

TEST_CASE("an interface that is down takes nothing, and its copies count there alone", "[iounit][drops]") {
  TwoHosts bench;
  REQUIRE(bench.grants(bench.a, wire::LinkState{.up = false}));
  CHECK_FALSE(bench.attached("a")->interface_up());
  bench.from_lan(make_frame(bench.a.mac(), station(1)), 2);
  bench.from_lan(make_frame(kBroadcastMac, station(1)), 3);
  CHECK(bench.drops() == Drops{{"a/to_host_interface_down", 5}});
  CHECK(bench.b.frames.size() == 3);
  CHECK(bench.unit().counters().copies == 3);
  REQUIRE(bench.grants(bench.a, wire::LinkState{.up = true}));
  bench.from_lan(make_frame(bench.a.mac(), station(1)));
  CHECK(bench.a.frames.size() == 1);
  CHECK(bench.drops() == Drops{{"a/to_host_interface_down", 5}});
  require_sum(bench);
}

TEST_CASE("a stopped host takes as many frames as it has elements; the rest count as without an element",
          "[iounit][drops]") {
  TwoHosts bench;
  const std::uint32_t free = bench.attached("a")->session().credits().free;
  REQUIRE(free == 16);
  bench.a.paused = true;
  bench.from_lan(make_frame(bench.a.mac(), station(1)), free + 7);
  CHECK(bench.drops() == Drops{{"a/to_host_no_element", 7}});
  require_sum(bench);
  bench.a.paused = false;
  bench.settle();
  CHECK(bench.a.frames.size() == free);
  bench.run(std::chrono::milliseconds(200));
  bench.from_lan(make_frame(bench.a.mac(), station(1)));
  CHECK(bench.a.frames.size() == free + 1);
  CHECK(bench.drops() == Drops{{"a/to_host_no_element", 7}});
}

TEST_CASE("a host is told of frames lost for want of elements a second after the first, then every ten seconds",
          "[iounit][drops]") {
  TwoHosts bench;
  const auto reports = [&] {
    return std::ranges::count_if(bench.a.requests,
                                 [](const auto& body) { return std::holds_alternative<wire::StatusReport>(body); });
  };
  const auto lose_one_more = [&] {
    const std::uint32_t free = bench.attached("a")->session().credits().free;
    bench.a.paused = true;
    bench.from_lan(make_frame(bench.a.mac(), station(1)), free + 1);
    bench.a.paused = false;
    bench.run(std::chrono::milliseconds(100));
  };
  lose_one_more();
  CHECK(reports() == 0);
  bench.run(std::chrono::milliseconds(900));
  lose_one_more();
  CHECK(reports() == 1);
  bench.run(std::chrono::milliseconds(9800));
  lose_one_more();
  CHECK(reports() == 1);
  bench.run(std::chrono::milliseconds(200));
  lose_one_more();
  CHECK(reports() == 2);
}

TEST_CASE("what is addressed to a host whose session comes up or ends is counted", "[iounit][drops]") {
  UnitBench bench;
  TestHost& a = bench.connect("a");
  const AttachedHost* attached = nullptr;
  for (unsigned round = 0; round < 1000 && attached == nullptr; ++round) {
    bench.step();
    for (const auto& host : bench.unit().hosts()) {
      if (host && !host->name().empty() && !host->up()) attached = host.get();
    }
  }
  REQUIRE(attached != nullptr);
  bench.lan.arriving.push_back(make_frame(attached->mac(), station(1)));
  bench.lan.arriving.push_back(make_frame(kBroadcastMac, station(1)));
  bench.settle();
  REQUIRE(a.up());
  CHECK(a.frames.empty());
  // The broadcast was for those who were there: nobody.
  CHECK(bench.drops() == Drops{{"a/to_host_not_up", 1}, {"lan_unwanted", 1}});
  require_sum(bench);

  bench.unit().begin_shutdown();
  bench.from_lan(make_frame(attached->mac(), station(1)));
  CHECK(bench.drops()["a/to_host_not_up"] == 2);
  require_sum(bench);
}

TEST_CASE("a frame with several receivers counts a copy for each beyond the first", "[iounit][drops]") {
  TwoHosts bench(trusting_options());
  TestHost& c = bench.host_up("c");
  REQUIRE(bench.grants(c, wire::ReceiveFilter{}));
  bench.from_lan(make_frame(kBroadcastMac, station(1)));
  CHECK(bench.unit().counters().copies == 2);
  bench.from_host(bench.a, make_frame(kBroadcastMac, bench.a.mac()));  // to b, to c, to the LAN
  CHECK(bench.unit().counters().copies == 4);
  REQUIRE(bench.grants(c, wire::ReceiveFilter{.promiscuous = true}));
  bench.from_host(bench.a, make_frame(bench.b.mac(), bench.a.mac()));  // to b, to c
  bench.from_host(bench.a, make_frame(station(1), bench.a.mac()));     // to c, to the LAN
  bench.from_host(bench.a, make_frame(bench.a.mac(), bench.a.mac()));  // to c; to itself it does not go
  CHECK(bench.unit().counters().copies == 7);
  CHECK(c.frames.size() == 5);
  CHECK(bench.drops() == Drops{{"a/from_host_to_itself", 1}});
  bench.lan.refuses = true;
  bench.from_host(bench.a, make_frame(kBroadcastMac, bench.a.mac()));
  CHECK(bench.drops() == Drops{{"a/from_host_to_itself", 1}, {"a/from_host_lan_refused", 1}});
  CHECK(bench.b.frames.size() == 4);
  require_sum(bench);
}

TEST_CASE("what a host has counted stays in the sum when it has gone", "[iounit][drops]") {
  TwoHosts bench;
  bench.from_host(bench.a, make_frame(station(1), bench.a.mac()), 5);
  bench.from_lan(make_frame(bench.a.mac(), station(1)), 3);
  bench.from_host(bench.a, make_frame(bench.a.mac(), bench.a.mac()), 2);
  require_sum(bench);
  bench.a.die();
  REQUIRE(bench.run_until([&] { return bench.attached_count() == 1; }));
  CHECK(bench.unit().counters().departed_rx_frames == 7);
  CHECK(bench.unit().counters().departed_tx_frames == 3);
  CHECK(bench.unit().counters().departed_drops == 2);
  const auto& departed = bench.unit().departed().session;
  CHECK(departed.rx_frames == 7);
  CHECK(departed.tx_frames == 3);
  CHECK(departed.ups == 1);
  CHECK(departed.messages_received[wire::index_of(wire::Function::buffer_recv_pool)] == 1);
  CHECK(bench.drops().empty());
  require_sum(bench);
}

TEST_CASE("the segments of an oversized TCP frame are copies of it", "[iounit][drops]") {
  TwoHosts bench;
  splitnic::test::Below below;
  below.destination = bench.a.mac();
  below.source = station(1);
  bench.from_lan(splitnic::test::tcp_frame(below, {}, splitnic::test::pattern(4000), splitnic::test::Fill::partial));
  CHECK(bench.unit().counters().lan_segmented == 1);
  CHECK(bench.unit().counters().lan_checksums_completed == 0);
  CHECK(bench.a.frames.size() == 3);  // 1460 bytes of payload each
  CHECK(bench.unit().counters().copies == 2);
  bench.from_lan(splitnic::test::tcp_frame(below, {}, splitnic::test::pattern(100), splitnic::test::Fill::partial));
  CHECK(bench.unit().counters().lan_checksums_completed == 1);
  CHECK(bench.unit().counters().lan_segmented == 1);
  CHECK(bench.drops().empty());
  require_sum(bench);
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_drops_test
