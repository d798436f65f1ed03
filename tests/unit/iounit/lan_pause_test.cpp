#include "iounit/lan_pause.h"

#include <catch2/catch.hpp>

namespace splitnic::iounit::lan_pause_test {
namespace {

constexpr std::size_t kSeveral = LanPause::kSeveral;

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

TEST_CASE("long frames of long ago make no difference to pauses", "[iounit][lan]") {
  Time now = Time{} + std::chrono::hours(1);
  LanPause pause;
  MovedFrames moved{.frames = 1000, .long_frames = 1000};
  pause.looked(kSeveral, true, moved, now);
  CHECK(pause.is_over(now));
  for (int look = 0; look != 300; ++look) {  // too few in each for a pause
    ++moved.frames;
    pause.looked(1, true, moved, now);
  }
  moved.frames += kSeveral;
  pause.looked(kSeveral, true, moved, now);
  CHECK_FALSE(pause.is_over(now));
}

}  // namespace
}  // namespace splitnic::iounit::lan_pause_test
