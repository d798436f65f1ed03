#pragma once

// Super-frames and frames with partial checksums, and hosts that finish them or not, for tests of the unit.

#include <catch2/catch.hpp>

#include "tests/unit/common/offload_run.h"
#include "unit_bench.h"

namespace splitnic::iounit::test {

using frame::FrameOffload;
using frame::SegmentKind;
using splitnic::test::Below;
using splitnic::test::Fill;

inline IoUnitOptions offloading() {
  IoUnitOptions options;
  options.session.offloads = options.session.udp_segments = true;
  return options;
}

inline messaging::SessionOptions able(const std::string& name, bool udp = true) {
  auto options = host_named(name);
  options.pool_elements = 128;
  options.offloads = true;
  options.udp_segments = udp;
  return options;
}

/// Hosts "a" and "b" with offloads, "t" with those of TCP alone, "c" without. None has joined a group.
struct Mixed : UnitBench {
  explicit Mixed(IoUnitOptions options = offloading(), std::uint32_t lan_mtu = 1500)
      : UnitBench(std::move(options), lan_mtu) {
    for (TestHost* host : {&a, &b, &t, &c}) REQUIRE(grants(*host, wire::ReceiveFilter{}));
    REQUIRE(a.session().udp_segments());
    REQUIRE_FALSE(t.session().udp_segments());
    REQUIRE_FALSE(c.session().offloads());
    clear();
  }
  TestHost& a = host_up(able("a"));
  TestHost& b = host_up(able("b"));
  TestHost& t = host_up(able("t", false));
  TestHost& c = host_up(host_with_room("c"));

  static messaging::SessionOptions host_with_room(const std::string& name) {
    auto options = host_named(name);
    options.pool_elements = 128;
    return options;
  }
  void lan_takes_all() { lan.takes = {SegmentKind::none, SegmentKind::tcp_v4, SegmentKind::tcp_v6, SegmentKind::udp}; }
  void clear() {
    for (TestHost* host : {&a, &b, &t, &c}) {
      host->frames.clear();
      host->offloads.clear();
    }
    lan.sent.clear();
    lan.sent_offloads.clear();
  }
  void require_sum() {
    const auto both = sum();
    REQUIRE(both.in == both.delivered + both.dropped);
  }
};

struct Super {
  Below below;
  Frame payload;
  Frame frame;
  FrameOffload offload;
  std::vector<Frame> segments;  ///< what software makes of it
};

inline Below from_to(const MacAddress& from, const MacAddress& to, int version = 4, std::size_t vlans = 0) {
  Below below = splitnic::test::below_with(version, vlans);
  below.source = from;
  below.destination = to;
  return below;
}

inline Super tcp(const Below& below, std::size_t payload_bytes = 20000, std::uint16_t segment_bytes = 1400) {
  Super made{
      .below = below, .payload = splitnic::test::pattern(payload_bytes), .frame = {}, .offload = {}, .segments = {}};
  made.frame = splitnic::test::tcp_frame(below, {}, made.payload, Fill::partial);
  const auto start = static_cast<std::uint16_t>(below.transport_offset());
  made.offload = {true,
                  start,
                  16,
                  below.ip_version == 4 ? SegmentKind::tcp_v4 : SegmentKind::tcp_v6,
                  segment_bytes,
                  static_cast<std::uint16_t>(start + 20)};
  made.segments = splitnic::test::tcp_segments(below, {}, made.payload, segment_bytes);
  return made;
}

inline Super udp(const Below& below, std::size_t payload_bytes = 5000, std::uint16_t segment_bytes = 1200) {
  Super made{
      .below = below, .payload = splitnic::test::pattern(payload_bytes), .frame = {}, .offload = {}, .segments = {}};
  made.frame = splitnic::test::udp_frame(below, made.payload, Fill::partial);
  const auto start = static_cast<std::uint16_t>(below.transport_offset());
  made.offload = {true, start, 6, SegmentKind::udp, segment_bytes, static_cast<std::uint16_t>(start + 8)};
  made.segments = splitnic::test::udp_segments(below, made.payload, segment_bytes);
  return made;
}

/// A datagram whose checksum is left to the NIC.
inline Super checksum(const Below& below, std::size_t payload_bytes = 300) {
  Super made = udp(below, payload_bytes);
  made.offload = {true, static_cast<std::uint16_t>(below.transport_offset()), 6};
  made.segments = {splitnic::test::udp_frame(below, made.payload)};
  return made;
}

inline void require_whole(const std::vector<Frame>& frames, const std::vector<FrameOffload>& offloads,
                          const Super& sent) {
  REQUIRE(frames.size() == 1);
  CHECK(frames.front() == sent.frame);
  CHECK(offloads.front() == sent.offload);
}
inline void require_finished(const std::vector<Frame>& frames, const std::vector<FrameOffload>& offloads,
                             const Super& sent) {
  CHECK(frames == sent.segments);
  CHECK(std::ranges::none_of(offloads, [](const auto& offload) { return offload.asks_for_work(); }));
}

}  // namespace splitnic::iounit::test
