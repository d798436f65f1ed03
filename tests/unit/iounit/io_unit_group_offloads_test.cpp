// Unfinished frames between the units of a group: their metadata goes with them, and each receiver gets what it can
// finish.
#include <catch2/catch.hpp>

#include "group_bench.h"
#include "super_frames.h"

namespace splitnic::iounit::test::io_unit_group_offloads_test {
namespace {

struct Offloading : GroupBench {
  explicit Offloading(IoUnitOptions options = offloading()) : GroupBench(2, std::move(options), 1, 1U << 20U) {
    for (auto& member : members) {
      member->wire.takes = {SegmentKind::none, SegmentKind::tcp_v4, SegmentKind::tcp_v6, SegmentKind::udp};
      member->wire.reads_apart = true;
    }
    for (auto& host : hosts_) REQUIRE(grants(*host, wire::ReceiveFilter{}));
    clear();
  }
  TestHost& a = host_up(0, able("a"));
  TestHost& b = host_up(1, able("b"));
  TestHost& c = host_up(1, Mixed::host_with_room("c"));
};

TEST_CASE("a super-frame for a host of another unit arrives whole, or finished where the host can't",
          "[iounit][group][offload]") {
  Offloading bench;
  for (const std::size_t bytes : {5000U, 40000U}) {  // the second is longer than what the unit keeps in elements
    for (TestHost* to : {&bench.b, &bench.c}) {
      for (const int version : {4, 6}) {
        bench.clear();
        const Super sent = tcp(from_to(bench.a.mac(), to->mac(), version), bytes);
        bench.from_host(bench.a, sent.frame, 1, sent.offload);
        if (to == &bench.b) {
          require_whole(to->frames, to->offloads, sent);
        } else {
          require_finished(to->frames, to->offloads, sent);
        }
        CHECK(bench.wire_got().empty());
        bench.require_sums();
      }
    }
  }
  CHECK(bench.drops().empty());
}

TEST_CASE("a super-frame of the wire for a host of another unit keeps its metadata", "[iounit][group][offload]") {
  Offloading bench;
  for (const std::size_t bytes : {5000U, 40000U}) {
    for (const std::size_t unit : {0U, 1U}) {
      for (const auto& sent :
           {tcp(from_to(station(1), bench.b.mac()), bytes), udp(from_to(station(1), bench.b.mac()), bytes)}) {
        bench.clear();
        bench.at(unit).wire.offload = sent.offload;
        bench.from_lan(unit, sent.frame);
        require_whole(bench.b.frames, bench.b.offloads, sent);
        bench.require_sums();
      }
    }
  }
  // Only a frame for this unit alone is read to where the host wants it.
  CHECK(bench.at(0).wire.read_apart == 0);
  CHECK(bench.at(1).wire.read_apart == 2);
}

TEST_CASE("a long super-frame for the wire alone is sent from its elements, one for a unit is copied first",
          "[iounit][group][offload]") {
  auto options = offloading();
  options.policy.others.promiscuous = true;
  Offloading bench(options);
  const Super sent = tcp(from_to(bench.a.mac(), station(1)), 40000);
  bench.from_host(bench.a, sent.frame, 1, sent.offload);
  CHECK(bench.at(0).wire.sent_apart == 1);
  require_whole(bench.at(0).wire.sent, bench.at(0).wire.sent_offloads, sent);
  REQUIRE(bench.grants(bench.b, wire::ReceiveFilter{.promiscuous = true}));
  bench.clear();
  bench.at(0).wire.sent_offloads.clear();
  bench.from_host(bench.a, sent.frame, 1, sent.offload);
  CHECK(bench.at(0).wire.sent_apart == 1);
  require_whole(bench.at(0).wire.sent, bench.at(0).wire.sent_offloads, sent);
  require_whole(bench.b.frames, bench.b.offloads, sent);
  // Between hosts of one unit, with a promiscuous host at the other.
  TestHost& d = bench.host_up(0, able("d"));
  bench.clear();
  const Super inside = tcp(from_to(bench.a.mac(), d.mac()), 40000);
  bench.from_host(bench.a, inside.frame, 1, inside.offload);
  require_whole(d.frames, d.offloads, inside);
  require_whole(bench.b.frames, bench.b.offloads, inside);
  bench.require_sums();
}

TEST_CASE("metadata that does not fit its frame is refused by the unit that judges it", "[iounit][group][offload]") {
  Offloading bench;
  const Super sent = tcp(from_to(station(1), bench.b.mac()), 5000);
  bench.at(0).wire.offload = sent.offload;
  bench.at(0).wire.offload->checksum_start = 3;
  bench.from_lan(0, sent.frame);
  CHECK(bench.b.frames.empty());
  CHECK(bench.unit(1).drops(LanDrop::lan_bad_offload) == 1);
  bench.require_sums();
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_group_offloads_test
