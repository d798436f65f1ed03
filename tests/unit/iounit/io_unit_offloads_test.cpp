// Unfinished frames through the unit: whole where the receiver finishes them, in software elsewhere, checked always.
#include <catch2/catch.hpp>

#include "super_frames.h"

namespace splitnic::iounit::test::io_unit_offloads_test {
namespace {

std::vector<std::uint16_t> numbers(std::vector<unsigned> values) {
  std::vector<std::uint16_t> result;
  for (const unsigned value : values) result.push_back(static_cast<std::uint16_t>(value));
  return result;
}

}  // namespace

TEST_CASE("an unfinished frame of the LAN reaches a host whole, or finished where the host can't",
          "[iounit][offload]") {
  Mixed bench;
  for (const int version : {4, 6}) {
    for (const auto make :
         {+[](const Below& below) { return tcp(below); }, +[](const Below& below) { return udp(below); },
          +[](const Below& below) { return checksum(below); }}) {
      for (TestHost* host : {&bench.a, &bench.t, &bench.c}) {
        bench.clear();
        const Super sent = make(from_to(station(1), host->mac(), version));
        bench.lan.offload = sent.offload;
        bench.from_lan(sent.frame);
        const bool whole = host == &bench.a || (host == &bench.t && sent.offload.kind != SegmentKind::udp);
        if (whole) {
          require_whole(host->frames, host->offloads, sent);
        } else {
          require_finished(host->frames, host->offloads, sent);
        }
        bench.require_sum();
      }
    }
  }
  const auto& counters = bench.unit().counters();
  CHECK(counters.passed_unfinished == 10);
  CHECK(counters.lan_segmented == 6);
  CHECK(counters.lan_checksums_completed == 2);
  CHECK(bench.drops().empty());
}

TEST_CASE("an unfinished frame of a host reaches the LAN whole, or finished where the LAN can't", "[iounit][offload]") {
  Mixed bench;
  for (const bool able_lan : {true, false}) {
    if (able_lan) bench.lan_takes_all();
    for (const int version : {4, 6}) {
      for (const auto make :
           {+[](const Below& below) { return tcp(below); }, +[](const Below& below) { return udp(below); },
            +[](const Below& below) { return checksum(below); }}) {
        bench.clear();
        const Super sent = make(from_to(bench.a.mac(), station(1), version));
        bench.from_host(bench.a, sent.frame, 1, sent.offload);
        if (able_lan) {
          require_whole(bench.lan.sent, bench.lan.sent_offloads, sent);
        } else {
          require_finished(bench.lan.sent, bench.lan.sent_offloads, sent);
        }
        bench.require_sum();
      }
    }
    bench.lan.takes.clear();
  }
  CHECK(bench.unit().counters().passed_unfinished == 6);
  CHECK(bench.unit().counters().host_segmented == 4);
  CHECK(bench.unit().counters().host_checksums_completed == 2);
  CHECK(bench.unit().counters().lan_segmented == 0);
  CHECK(bench.drops().empty());
}

TEST_CASE("a LAN that takes super-frames of TCP alone gets those of UDP as datagrams", "[iounit][offload]") {
  Mixed bench;
  bench.lan.takes = {SegmentKind::none, SegmentKind::tcp_v4, SegmentKind::tcp_v6};
  const Super sent = udp(from_to(bench.a.mac(), station(1)));
  bench.from_host(bench.a, sent.frame, 1, sent.offload);
  require_finished(bench.lan.sent, bench.lan.sent_offloads, sent);
  CHECK(bench.unit().counters().copies == sent.segments.size() - 1);
  bench.require_sum();
}

TEST_CASE("between hosts a frame stays unfinished where both can, and a flood serves each as it can",
          "[iounit][offload]") {
  Mixed bench;
  const Super whole = tcp(from_to(bench.a.mac(), bench.b.mac()));
  bench.from_host(bench.a, whole.frame, 1, whole.offload);
  require_whole(bench.b.frames, bench.b.offloads, whole);
  const Super cut = tcp(from_to(bench.a.mac(), bench.c.mac()));
  bench.from_host(bench.a, cut.frame, 1, cut.offload);
  require_finished(bench.c.frames, bench.c.offloads, cut);
  CHECK(bench.lan.sent.empty());
  bench.require_sum();

  bench.clear();
  const Super to_all = udp(from_to(bench.a.mac(), kBroadcastMac));
  bench.from_host(bench.a, to_all.frame, 1, to_all.offload);
  CHECK(bench.a.frames.empty());
  require_whole(bench.b.frames, bench.b.offloads, to_all);
  require_finished(bench.t.frames, bench.t.offloads, to_all);
  require_finished(bench.c.frames, bench.c.offloads, to_all);
  require_finished(bench.lan.sent, bench.lan.sent_offloads, to_all);
  CHECK(bench.unit().counters().host_segmented == 2);
  CHECK(bench.unit().counters().passed_unfinished == 2);
  CHECK(bench.drops().empty());
  bench.require_sum();
}

TEST_CASE("tags that the unit puts in and takes out move the metadata with the headers", "[iounit][offload]") {
  IoUnitOptions options = offloading();
  HostRule rule{.name = "v", .user = {}, .group = {}, .rights = {}};
  rule.rights.access_vlan = 5;
  options.policy.hosts.push_back(rule);
  UnitBench bench(options);
  bench.lan.takes = {SegmentKind::none, SegmentKind::tcp_v4, SegmentKind::tcp_v6};
  TestHost& host = bench.host_up(able("v"));
  for (const int version : {4, 6}) {
    bench.lan.sent.clear();
    bench.lan.sent_offloads.clear();
    host.frames.clear();
    host.offloads.clear();
    const auto tagged = [&](Below below) {
      below.vlans = {{0x8100, 5}};
      return below;
    };
    const Below out = from_to(host.mac(), station(1), version);
    const Super sent = tcp(out);
    bench.from_host(host, sent.frame, 1, sent.offload);
    require_whole(bench.lan.sent, bench.lan.sent_offloads, tcp(tagged(out)));
    const Below in = from_to(station(1), host.mac(), version);
    const Super arrives = tcp(tagged(in));
    bench.lan.offload = arrives.offload;
    bench.from_lan(arrives.frame);
    require_whole(host.frames, host.offloads, tcp(in));
  }
  CHECK(bench.drops().empty());
}

TEST_CASE("only segments that fit the MTU pass whole, to the byte", "[iounit][offload]") {
  Mixed bench;
  bench.lan_takes_all();
  struct Row {
    const char* what;
    Super sent;
    bool whole;
    std::optional<std::string> cause;
  };
  const Below below = from_to(bench.a.mac(), station(1));
  Super plain = checksum(below, 1472);
  Super too_long = checksum(below, 1473);
  const std::vector<Row> rows{
      {"TCP to the byte", tcp(below, 9000, 1460), true, {}},
      {"TCP beyond, which is cut smaller", tcp(below, 9000, 1461), false, {}},
      {"UDP to the byte", udp(below, 9000, 1472), true, {}},
      {"UDP beyond, which nobody may cut smaller", udp(below, 9000, 1473), false, "a/from_host_too_long"},
      {"a frame to the byte", plain, true, {}},
      {"a frame beyond", too_long, false, "a/from_host_too_long"},
  };
  for (const Row& row : rows) {
    DYNAMIC_SECTION(row.what) {
      bench.from_host(bench.a, row.sent.frame, 1, row.sent.offload);
      if (row.whole) require_whole(bench.lan.sent, bench.lan.sent_offloads, row.sent);
      if (!row.whole && !row.cause)
        CHECK(bench.lan.sent == splitnic::test::tcp_segments(below, {}, row.sent.payload, 1460));
      if (row.cause) {
        CHECK(bench.lan.sent.empty());
        CHECK(bench.drops() == Drops{{*row.cause, 1}});
      }
      bench.require_sum();
    }
  }
}

TEST_CASE("a host with a smaller MTU gets no super-frame whose segments are too long for it", "[iounit][offload]") {
  UnitBench bench(offloading());
  auto options = able("s");
  options.max_mtu = 1280;
  options.pool_elements = 256;
  TestHost& host = bench.host_up(options);
  const Super fits = tcp(from_to(station(1), host.mac()), 9000, 1280 + 22 - 54);
  bench.lan.offload = fits.offload;
  bench.from_lan(fits.frame);
  require_whole(host.frames, host.offloads, fits);
  const Super beyond = tcp(from_to(station(1), host.mac()), 9000, 1280 + 22 - 53);
  bench.lan.offload = beyond.offload;
  bench.from_lan(beyond.frame);
  CHECK(host.frames.size() == 1);
  CHECK(bench.drops() == Drops{{"s/to_host_too_long", 1}});
}

TEST_CASE("a frame that a kernel would finish otherwise than software is finished here", "[iounit][offload]") {
  Mixed bench;
  bench.lan_takes_all();
  const Below below = from_to(bench.a.mac(), station(1));
  SECTION("segments without a partial checksum") {
    Super sent = tcp(below);
    sent.offload.partial_checksum = false;
    sent.offload.checksum_start = sent.offload.checksum_offset = 0;
    bench.from_host(bench.a, sent.frame, 1, sent.offload);
    require_finished(bench.lan.sent, bench.lan.sent_offloads, sent);
  }
  SECTION("bytes after the packet") {
    Super sent = tcp(below);
    sent.frame.resize(sent.frame.size() + 7, std::byte{0x55});
    bench.from_host(bench.a, sent.frame, 1, sent.offload);
    require_finished(bench.lan.sent, bench.lan.sent_offloads, sent);
  }
  SECTION("a datagram that ends before its packet") {
    Super sent = checksum(below, 300);
    splitnic::test::set16(sent.frame, 34 + 4, 8 + 200);
    bench.from_host(bench.a, sent.frame, 1, sent.offload);
    REQUIRE(bench.lan.sent.size() == 1);
    CHECK_FALSE(bench.lan.sent_offloads.front().asks_for_work());
  }
  SECTION("a super-frame of one segment is none") {
    const Super sent = tcp(below, 1000, 1400);
    bench.from_host(bench.a, sent.frame, 1, sent.offload);
    REQUIRE(bench.lan.sent == std::vector<Frame>{sent.frame});
    CHECK(bench.lan.sent_offloads.front() == FrameOffload{true, 34, 16, SegmentKind::none, 1400, 54});
  }
  SECTION("a hint about the header's length that is wrong is put right") {
    Super sent = tcp(below);
    const FrameOffload right = sent.offload;
    sent.offload.header_bytes = 2000;
    bench.from_host(bench.a, sent.frame, 1, sent.offload);
    sent.offload = right;
    require_whole(bench.lan.sent, bench.lan.sent_offloads, sent);
  }
  CHECK(bench.drops().empty());
  bench.require_sum();
}

TEST_CASE("a host's metadata that does not fit its frame reaches nobody", "[iounit][offload]") {
  struct Row {
    const char* what;
    bool udp;
    void (*change)(Super& sent);
    const char* cause = "a/from_host_bad_offload";
  };
  const std::vector<Row> rows{
      {"segments of no byte", false, [](Super& sent) { sent.offload.segment_bytes = 0; }},
      {"segments of one byte", false, [](Super& sent) { sent.offload.segment_bytes = 1; }},
      {"TCP as UDP", false, [](Super& sent) { sent.offload.kind = SegmentKind::udp; }},
      {"UDP as TCP", true, [](Super& sent) { sent.offload.kind = SegmentKind::tcp_v4; }},
      {"IPv4 as IPv6", false, [](Super& sent) { sent.offload.kind = SegmentKind::tcp_v6; }},
      {"a checksum in the IP header", false, [](Super& sent) { sent.offload.checksum_start = 14; }},
      {"a checksum over the addresses", false, [](Super& sent) { sent.offload.checksum_start = 0; }},
      {"a checksum beyond the frame", false, [](Super& sent) { sent.offload.checksum_start = 0xffff; }},
      {"a checksum's field beyond the frame", false, [](Super& sent) { sent.offload.checksum_offset = 0xfffe; }},
      {"a checksum's field in the ports", false, [](Super& sent) { sent.offload.checksum_offset = 0; }},
      {"a header beyond the frame", false, [](Super& sent) { sent.offload.header_bytes = 0xffff; }},
      {"no IP", false, [](Super& sent) { splitnic::test::set16(sent.frame, 12, 0x88b5); }},
      {"a fragment", false, [](Super& sent) { splitnic::test::set16(sent.frame, 20, 0x2000); }},
      {"a packet longer than its frame", false, [](Super& sent) { sent.frame.pop_back(); }},
      {"a damaged IP header", false, [](Super& sent) { sent.frame[18] ^= std::byte{1}; }, "a/from_host_malformed"},
      {"SYN with segments", false, [](Super& sent) { sent.frame[34 + 13] = std::byte{2}; }, "a/from_host_malformed"},
  };
  IoUnitOptions options = offloading();
  options.policy.others.broadcasts = 0;
  Mixed bench(options);
  bench.lan_takes_all();
  Drops expected;
  for (const Row& row : rows) {
    for (const MacAddress& to : {station(1), bench.b.mac(), bench.c.mac(), kBroadcastMac}) {
      INFO(row.what);
      const Below below = from_to(bench.a.mac(), to);
      Super sent = row.udp ? udp(below) : tcp(below);
      row.change(sent);
      bench.from_host(bench.a, sent.frame, 1, sent.offload);
      ++expected[row.cause];
      REQUIRE(bench.drops() == expected);
      REQUIRE(bench.lan.sent.empty());
      for (TestHost* host : {&bench.b, &bench.t, &bench.c}) REQUIRE(host->frames.empty());
    }
  }
  bench.require_sum();
}

TEST_CASE("whatever a host's virtio-net header holds, the LAN and other hosts get only what fits",
          "[iounit][offload]") {
  Mixed bench;
  bench.lan_takes_all();
  std::size_t sent_whole = 0, dropped = 0;
  const auto check_all = [&](const std::vector<Frame>& frames, const std::vector<FrameOffload>& offloads) {
    for (std::size_t index = 0; index < frames.size(); ++index) {
      REQUIRE_FALSE(frame::why_not_offload(frames[index], offloads[index]));
      if (offloads[index].kind == SegmentKind::none) REQUIRE(frames[index].size() <= 1514);
      const auto judged = frame::judge_unfinished(frames[index], offloads[index], 1500);
      REQUIRE((judged.whole || !offloads[index].asks_for_work()));
      if (judged.whole) ++sent_whole;
    }
  };
  for (const bool of_udp : {false, true}) {
    for (const MacAddress& to : {station(1), bench.b.mac()}) {
      const Below below = from_to(bench.a.mac(), to);
      const Super super = of_udp ? udp(below, 2500) : tcp(below, 2500);
      for (const std::uint16_t start : numbers({0, 13, 33, 34, 35, 42, 2541, 65535})) {
        for (const std::uint16_t field : numbers({0, 6, 16, 17, 2500, 65535})) {
          for (const std::uint16_t size : numbers({0, 1, 8, 1400, 1460, 1461, 1472, 2500, 65535})) {
            for (const auto kind : {SegmentKind::none, SegmentKind::tcp_v4, SegmentKind::tcp_v6, SegmentKind::udp}) {
              bench.clear();
              bench.from_host(bench.a, super.frame, 1, {true, start, field, kind, size, start});
              check_all(bench.lan.sent, bench.lan.sent_offloads);
              check_all(bench.b.frames, bench.b.offloads);
              if (bench.lan.sent.empty() && bench.b.frames.empty()) ++dropped;
            }
          }
        }
      }
    }
  }
  CHECK(sent_whole > 0);
  CHECK(dropped > 0);
  bench.require_sum();
}

TEST_CASE("against limits in frames a super-frame counts as its segments", "[iounit][offload]") {
  IoUnitOptions options = offloading();
  SECTION("what a host sends") {
    options.policy.others.send.frames = 80;  // 20 at once
    UnitBench bench(options);
    TestHost& host = bench.host_up(able("a"));
    const Super sent = tcp(from_to(host.mac(), station(1)), 9 * 1400, 1400);  // 12654 bytes: 10
    bench.from_host(host, sent.frame, 3, sent.offload);
    CHECK(bench.drops() == Drops{{"a/from_host_over_rate", 1}});
    CHECK(bench.lan.sent.size() == 18);
  }
  SECTION("one that is longer than all that may be sent at once") {
    options.policy.others.send.frames = 8;  // 2 at once
    UnitBench bench(options);
    TestHost& host = bench.host_up(able("a"));
    const Super sent = tcp(from_to(host.mac(), station(1)), 9 * 1400, 1400);
    bench.from_host(host, sent.frame, 2, sent.offload);
    CHECK(bench.drops() == Drops{{"a/from_host_over_rate", 1}});
    CHECK(bench.lan.sent.size() == 9);
  }
  SECTION("what a host receives") {
    options.policy.others.receive.frames = 80;
    UnitBench bench(options);
    TestHost& host = bench.host_up(able("a"));
    const Super sent = tcp(from_to(station(1), host.mac()), 9 * 1400, 1400);
    bench.lan.offload = sent.offload;
    bench.from_lan(sent.frame, 3);
    CHECK(bench.drops() == Drops{{"a/to_host_over_rate", 1}});
    CHECK(host.frames.size() == 2);
  }
  SECTION("what a host sends to groups, and to all") {
    options.policy.others.multicasts = options.policy.others.broadcasts = 20;
    UnitBench bench(options);
    TestHost& host = bench.host_up(able("a"));
    for (const MacAddress& to : {group(1), kBroadcastMac}) {
      const Super sent = udp(from_to(host.mac(), to), 9 * 1200, 1200);  // 10842 bytes: 10
      bench.from_host(host, sent.frame, 3, sent.offload);
    }
    CHECK(bench.drops() == Drops{{"a/from_host_broadcasts", 1}, {"a/from_host_multicasts", 1}});
    CHECK(bench.lan.sent.size() == 36);
  }
  SECTION("what the unit copies to the hosts of a group") {
    options.policy.others.multicast_copies = 20;
    UnitBench bench(options);
    TestHost& host = bench.host_up(able("a"));
    static_cast<void>(bench.host_up(able("b")));
    const Super sent = udp(from_to(host.mac(), group(1)), 9 * 1200, 1200);
    bench.from_host(host, sent.frame, 3, sent.offload);
    CHECK(bench.drops() == Drops{{"a/from_host_copies", 1}});
    CHECK(bench.lan.sent.size() == 27);
  }
}

TEST_CASE("a super-frame counts as the frames that leave, whatever segments its host claims", "[iounit][offload]") {
  const auto claimed = GENERATE(std::uint16_t{1400}, std::uint16_t{65535});
  const std::size_t segments = claimed == 1400 ? 43 : 42;  // 65535: cut to what the MTU of 1500 has room for
  IoUnitOptions options = offloading();
  MacAddress to = station(1);
  std::string drop;
  bool copies_alone = false;
  SECTION("broadcasts") {
    options.policy.others.broadcasts = 10;
    to = kBroadcastMac;
    drop = "from_host_broadcasts";
  }
  SECTION("frames to groups") {
    options.policy.others.multicasts = 10;
    options.policy.others.multicast_copies = 0;
    to = group(1);
    drop = "from_host_multicasts";
  }
  SECTION("copies to other hosts") {
    options.policy.others.multicast_copies = 10;
    to = group(1);
    drop = "from_host_copies";
    copies_alone = true;
  }
  SECTION("what it sends") {
    options.policy.others.broadcasts = 0;
    options.policy.others.send.frames = 40;  // 10 at once
    to = GENERATE(station(1), kBroadcastMac);
    drop = "from_host_over_rate";
  }
  Mixed bench(options);
  REQUIRE(bench.grants(bench.b, wire::ReceiveFilter{.multicast = {group(1)}}));
  Super sent = tcp(from_to(bench.a.mac(), to), 60000, 1400);
  sent.offload.segment_bytes = claimed;
  bench.from_host(bench.a, sent.frame, 20, sent.offload);
  CHECK(bench.lan.sent.size() == (copies_alone ? 20 : 1) * segments);
  CHECK(bench.drops() == Drops{{"a/" + drop, 19}});
  bench.require_sum();
}

TEST_CASE("a super-frame of many small segments delays the next frames until all of it is paid", "[iounit][offload]") {
  IoUnitOptions options = offloading();
  options.policy.others.send.frames = 100;  // 25 at once
  Mixed bench(options);
  const Super sent = tcp(from_to(bench.a.mac(), station(1)), 8000, 8);
  bench.from_host(bench.a, sent.frame, 1, sent.offload);
  REQUIRE(bench.lan.sent.size() == 1000);
  const Time began = bench.now();
  const Frame next = make_frame(station(1), bench.a.mac());
  bench.run(std::chrono::milliseconds(9750));  // 1000, of which 25 were there
  bench.from_host(bench.a, next);
  CHECK(bench.drops() == Drops{{"a/from_host_over_rate", 1}});
  bench.run(std::chrono::milliseconds(20));
  REQUIRE(bench.now() - began < std::chrono::seconds(10));
  bench.from_host(bench.a, next, 2);
  CHECK(bench.lan.sent.size() >= 1001);
}

TEST_CASE("a super-frame that is dropped costs no more than may be sent at once", "[iounit][offload]") {
  IoUnitOptions options = offloading();
  options.policy.others.send.frames = 100;  // 25 at once
  Mixed bench(options);
  Super sent = tcp(from_to(bench.a.mac(), station(1)), 8000, 1);
  sent.offload.checksum_offset = 3;
  bench.from_host(bench.a, sent.frame, 1, sent.offload);
  CHECK(bench.drops() == Drops{{"a/from_host_bad_offload", 1}});
  bench.run(std::chrono::milliseconds(250));
  bench.from_host(bench.a, make_frame(station(1), bench.a.mac()), 25);
  CHECK(bench.lan.sent.size() == 25);
}

}  // namespace splitnic::iounit::test::io_unit_offloads_test
