// A unit lets the LAN's frames gather for a moment where they come fast.
#include <catch2/catch.hpp>

#include "iounit/lan_pause.h"
#include "super_frames.h"
#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_lan_pause_test {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kSeveral = LanPause::kSeveral;
constexpr int kWire = 77;

struct Fast : UnitBench {
  Fast() : UnitBench(trusting_options()) { lan.descriptor = kWire; }
  TestHost& host = host_up("host");

  /// So many frames wait in the LAN, and everybody is polled until nothing is done at this time.
  void arrive(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) lan.arriving.push_back(make_frame(host.mac(), station(1)));
    while (step() != 0) {
    }
  }
  [[nodiscard]] bool watches_wire() {
    std::vector<int> descriptors;
    unit().collect_descriptors(descriptors);
    return std::ranges::find(descriptors, kWire) != descriptors.end();
  }
};

TEST_CASE("a pause follows a look that finds several frames and leaves none", "[iounit][lan]") {
  const Time now = Time{} + std::chrono::hours(1);
  const MovedFrames short_ones{.frames = 100};
  struct Row {
    std::size_t frames;
    bool emptied;
    MovedFrames moved;
    bool pauses;
  };
  for (const Row& row :
       {Row{0, true, short_ones, false}, Row{kSeveral - 1, true, short_ones, false},
        Row{kSeveral, true, short_ones, true}, Row{63, true, short_ones, true}, Row{64, false, short_ones, false},
        Row{kSeveral, true, {.frames = 100, .long_frames = 30}, false},
        Row{kSeveral, true, {.frames = 100, .long_frames = 10}, true}}) {
    LanPause pause;
    REQUIRE(pause.is_over(now));
    pause.looked(row.frames, row.emptied, row.moved, now);
    CAPTURE(row.frames, row.moved.long_frames);
    CHECK(pause.is_over(now) != row.pauses);
    CHECK(pause.is_over(now + LanPause::kPause));
    CHECK((pause.until() == now + LanPause::kPause) == row.pauses);
  }
}

TEST_CASE("frames of the LAN that come one by one are taken at once", "[iounit][lan]") {
  Fast bench;
  for (std::size_t i = 1; i != 20; ++i) {
    bench.arrive(i % kSeveral == 0 ? 1 : i % kSeveral);
    CHECK(bench.lan.arriving.empty());
    CHECK(bench.watches_wire());
  }
}

TEST_CASE("frames of the LAN that come fast gather for a moment, and the unit sleeps no longer", "[iounit][lan]") {
  Fast bench;
  bench.pass(microseconds(1));
  REQUIRE(bench.watches_wire());
  bench.arrive(kSeveral);
  CHECK(bench.lan.arriving.empty());
  CHECK(bench.host.frames.size() == kSeveral);
  for (std::size_t gathered = 1; gathered != 4; ++gathered) {
    bench.arrive(1);
    CHECK(bench.lan.arriving.size() == gathered);
    CHECK_FALSE(bench.watches_wire());
    CHECK(bench.unit().next_deadline() <= bench.now() + LanPause::kPause);
    CHECK(bench.unit().next_deadline() > bench.now());
    bench.pass(microseconds(10));
  }
  bench.pass(LanPause::kPause);
  bench.arrive(0);
  CHECK(bench.lan.arriving.empty());
  CHECK(bench.host.frames.size() == kSeveral + 3);
  CHECK(bench.watches_wire());
}

TEST_CASE("a host's own frames don't wait while those of the LAN gather", "[iounit][lan]") {
  Fast bench;
  bench.pass(microseconds(1));
  bench.arrive(kSeveral);
  REQUIRE_FALSE(bench.watches_wire());
  const Frame frame = make_frame(station(1), bench.host.mac());
  REQUIRE(bench.host.send(frame));
  bench.arrive(0);
  CHECK(bench.lan.sent == std::vector<Frame>{frame});
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_lan_pause_test
