// Single segments of the LAN become super-frames for a host that takes them, and for nobody else.
#include <catch2/catch.hpp>

#include "super_frames.h"

namespace splitnic::iounit::test::io_unit_merging_test {
namespace {

struct Merging : Mixed {
  explicit Merging(IoUnitOptions options = with_overhearers()) : Mixed(std::move(options)) {}
  static IoUnitOptions with_overhearers() {
    IoUnitOptions options = offloading();
    options.policy.others.promiscuous = true;
    return options;
  }
  /// All of them in one turn of the host.
  void leave(TestHost& host, const std::vector<Frame>& frames) {
    for (const Frame& frame : frames) SPLITNIC_CHECK(host.send(frame));
    settle();
    require_sum();
  }
  /// All of them in one batch.
  void arrive(const std::vector<Frame>& frames) {
    for (const Frame& frame : frames) lan.arriving.push_back(frame);
    settle();
    require_sum();
  }
};

std::size_t bytes_of(const std::vector<Frame>& frames) {
  std::size_t bytes = 0;
  for (const Frame& frame : frames) bytes += frame.size();
  return bytes;
}

}  // namespace

TEST_CASE("a host with offloads gets a burst of segments as one super-frame", "[iounit][offload]") {
  Merging bench;
  bench.lan.offload = GENERATE(std::optional<FrameOffload>(), std::optional(FrameOffload{}));
  for (const int version : {4, 6}) {
    for (TestHost* host : {&bench.a, &bench.t}) {
      bench.clear();
      const auto before = bench.unit().counters();
      const Super burst = tcp(from_to(station(1), host->mac(), version), 10 * 1400);
      bench.arrive(burst.segments);
      require_whole(host->frames, host->offloads, burst);
      const auto& counters = bench.unit().counters();
      CHECK(counters.lan_frames - before.lan_frames == 10);
      CHECK(counters.lan_merged - before.lan_merged == 9);
      CHECK(counters.lan_bytes - before.lan_bytes == bytes_of(burst.segments));
      CHECK(counters.passed_unfinished - before.passed_unfinished == 1);
    }
  }
  CHECK(bench.drops().empty());
}

TEST_CASE("segments stay as they are where somebody takes no super-frames, or overhears", "[iounit][offload]") {
  Merging bench;
  const Super to_c = tcp(from_to(station(1), bench.c.mac()));
  bench.arrive(to_c.segments);
  require_finished(bench.c.frames, bench.c.offloads, to_c);
  wire::ReceiveFilter all;
  all.promiscuous = true;
  REQUIRE(bench.grants(bench.c, all));
  bench.clear();
  const Super to_a = tcp(from_to(station(1), bench.a.mac()));
  bench.arrive(to_a.segments);
  require_finished(bench.a.frames, bench.a.offloads, to_a);
  require_finished(bench.c.frames, bench.c.offloads, to_a);
  CHECK(bench.unit().counters().lan_merged == 0);
}

TEST_CASE("a lone segment does not wait beyond its batch", "[iounit][offload]") {
  Merging bench;
  const Super burst = tcp(from_to(station(1), bench.a.mac()), 3 * 1400);
  for (const Frame& segment : burst.segments) bench.arrive({segment});
  require_finished(bench.a.frames, bench.a.offloads, burst);
  CHECK(bench.unit().counters().lan_merged == 0);
}

TEST_CASE("segments that came before a long super-frame of the LAN reach the host before it", "[iounit][offload]") {
  Merging bench;
  bench.lan.reads_apart = true;
  bench.lan_takes_all();
  const Below below = from_to(station(1), bench.a.mac());
  const Super burst = tcp(below, 2 * 1400);
  const Super long_one = tcp(below, 30000);
  for (const Frame& segment : burst.segments) bench.lan.arriving.push_back(segment);
  bench.lan.arriving.push_back(long_one.frame);
  bench.lan.next_offloads = {{}, {}, long_one.offload};
  bench.settle();
  REQUIRE(bench.a.frames.size() == 2);
  CHECK(bench.a.frames == std::vector{burst.frame, long_one.frame});
  CHECK(bench.a.offloads == std::vector{burst.offload, long_one.offload});
  bench.require_sum();
}

TEST_CASE("datagrams of the LAN are merged for a host whose kernel takes super-frames of UDP", "[iounit][offload]") {
  Merging bench;
  const Super to_a = udp(from_to(station(1), bench.a.mac()), 10 * 100 + 1, 100);
  bench.arrive(to_a.segments);
  require_whole(bench.a.frames, bench.a.offloads, to_a);
  const Super to_t = udp(from_to(station(1), bench.t.mac()), 10 * 100 + 1, 100);
  bench.arrive(to_t.segments);
  require_finished(bench.t.frames, bench.t.offloads, to_t);
  CHECK(bench.unit().counters().lan_merged == 10);
}

TEST_CASE("single frames of a host are merged for a LAN that takes super-frames", "[iounit][offload]") {
  Merging bench;
  bench.lan_takes_all();
  const auto make = GENERATE(
      +[](const Below& below) { return tcp(below, 10 * 1400); },
      +[](const Below& below) { return udp(below, 10 * 100 + 1, 100); });
  const Super burst = make(from_to(bench.a.mac(), station(1)));
  bench.leave(bench.a, burst.segments);
  require_whole(bench.lan.sent, bench.lan.sent_offloads, burst);
  CHECK(bench.unit().counters().to_lan_merged == burst.segments.size() - 1);

  bench.clear();
  bench.lan.takes = {SegmentKind::none};
  bench.leave(bench.a, burst.segments);
  require_finished(bench.lan.sent, bench.lan.sent_offloads, burst);

  bench.clear();
  bench.lan_takes_all();
  const Super of_c = make(from_to(bench.c.mac(), station(1)));
  bench.leave(bench.c, of_c.segments);
  require_finished(bench.lan.sent, bench.lan.sent_offloads, of_c);

  // Nobody knows what the members of a group are.
  bench.clear();
  const Super to_all = make(from_to(bench.a.mac(), kBroadcastMac));
  bench.leave(bench.a, to_all.segments);
  require_finished(bench.lan.sent, bench.lan.sent_offloads, to_all);
}

TEST_CASE("what a host sent before a super-frame leaves before it, long, cut or neither", "[iounit][offload]") {
  Merging bench;
  bench.lan_takes_all();
  bench.lan.reads_apart = true;
  const Below below = from_to(bench.a.mac(), station(1));
  const Super before = tcp(below, 2 * 1400);
  const auto [super, cut] = GENERATE_COPY(std::pair(tcp(below, 30000), false), std::pair(tcp(below, 8000), false),
                                          std::pair(tcp(below, 8000, 1500), true));
  for (const Frame& segment : before.segments) REQUIRE(bench.a.send(segment));
  REQUIRE(bench.a.send(super.frame, super.offload));
  bench.settle();
  std::vector<Frame> expected{before.frame};
  if (cut) {
    for (const Frame& segment : splitnic::test::tcp_segments(below, {}, super.payload, 1460)) {
      expected.push_back(segment);
    }
  } else {
    expected.push_back(super.frame);
  }
  CHECK(bench.lan.sent == expected);
  bench.require_sum();
}

TEST_CASE("frames of two hosts are not merged, whatever their headers say", "[iounit][offload]") {
  IoUnitOptions options = Merging::with_overhearers();
  options.policy.others.foreign_sources = true;
  Merging bench(std::move(options));
  bench.lan_takes_all();
  // From the same station behind both.
  const Super burst = udp(from_to(station(7), station(1)), 2 * 100, 100);
  REQUIRE(bench.a.send(burst.segments[0]));
  REQUIRE(bench.b.send(burst.segments[1]));
  bench.settle();
  CHECK(bench.lan.sent == burst.segments);
  CHECK(bench.unit().counters().to_lan_merged == 0);
  bench.require_sum();
}

}  // namespace splitnic::iounit::test::io_unit_merging_test
