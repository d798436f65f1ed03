// What a hop with offloads may get as it is, and how metadata moves with its frame.
#include <catch2/catch.hpp>

#include "tests/unit/common/offload_run.h"

namespace splitnic::frame::frame_unfinished_test {
namespace {

using test::Below;
using test::Bytes;
using test::Fill;

constexpr std::uint32_t kMtu = 1500;

FrameOffload tcp_offload(std::uint16_t segment_bytes) { return {true, 34, 16, SegmentKind::tcp_v4, segment_bytes, 54}; }

}  // namespace

TEST_CASE("a super-frame passes whole with the length of its headers, and says how long its segments are",
          "[common][frame]") {
  const Bytes frame = test::tcp_frame({}, {}, test::pattern(9000), Fill::partial);
  FrameOffload asked = tcp_offload(1460);
  asked.header_bytes = 7;
  const auto judged = judge_unfinished(frame, asked, kMtu);
  CHECK(judged.result == OffloadResult::segmented);
  CHECK(judged.whole);
  CHECK(judged.offload == tcp_offload(1460));
  CHECK(judged.longest_bytes == 1514);
  const auto beyond = judge_unfinished(frame, tcp_offload(1461), kMtu);
  CHECK(beyond.result == OffloadResult::segmented);
  CHECK_FALSE(beyond.whole);
  CHECK(beyond.longest_bytes == 1514);
}

TEST_CASE("a super-frame says how many frames it becomes, also where the MTU cuts it shorter than it asks",
          "[common][frame]") {
  const Bytes frame = test::tcp_frame({}, {}, test::pattern(14600), Fill::partial);
  CHECK(judge_unfinished(frame, tcp_offload(1460), kMtu).frames == 10);
  CHECK(judge_unfinished(frame, tcp_offload(1459), kMtu).frames == 11);
  CHECK(judge_unfinished(frame, tcp_offload(65535), kMtu).frames == 10);
  CHECK(judge_unfinished(frame, tcp_offload(8), kMtu).frames == 1825);
  CHECK(judge_unfinished(frame, tcp_offload(14600), 20000).frames == 1);
  CHECK(judge_unfinished(frame, tcp_offload(0), kMtu).frames == 1);  // dropped
}

TEST_CASE("a frame that does not ask for work passes as it is, and a dropped one has no length", "[common][frame]") {
  const Bytes frame = test::tcp_frame({}, {}, test::pattern(99));
  const auto judged = judge_unfinished(frame, {}, kMtu);
  CHECK(judged.result == OffloadResult::unchanged);
  CHECK(judged.longest_bytes == frame.size());
  const auto dropped = judge_unfinished(frame, tcp_offload(0), kMtu);
  CHECK(dropped.result == OffloadResult::dropped_bad_offload);
  CHECK_FALSE(dropped.whole);
  CHECK(dropped.longest_bytes == 0);
}

TEST_CASE("the checksum inside a tunnel is the next hop's, if it wants to", "[common][frame]") {
  const Below below;
  Bytes inside(8);
  test::put(inside, test::tcp_frame(below, {}, test::pattern(301), Fill::partial));
  const Bytes frame = test::udp_frame(below, inside, Fill::none);
  const FrameOffload asked{true, 34 + 8 + 8 + 34, 16};
  const auto judged = judge_unfinished(frame, asked, kMtu);
  CHECK(judged.whole);
  CHECK(judged.offload == asked);
}

TEST_CASE("metadata moves with the bytes in front of its headers, and out of every frame at the ends",
          "[common][frame]") {
  CHECK(moved_by(tcp_offload(1400), 4) == FrameOffload{true, 38, 16, SegmentKind::tcp_v4, 1400, 58});
  CHECK(moved_by(moved_by(tcp_offload(1400), 4), -4) == tcp_offload(1400));
  CHECK(moved_by({}, 4) == FrameOffload{});
  CHECK(moved_by({true, 0xfffe, 16}, 4).checksum_start == 0xffff);
  CHECK(moved_by({true, 3, 16}, -4).checksum_start == 0);
  UnfinishedFrame frame{.offload = tcp_offload(1400), .longest_bytes = 1454};
  frame.grow(4);
  CHECK(frame.offload.checksum_start == 38);
  CHECK(frame.longest_bytes == 1458);
}

TEST_CASE("a super-frame counts as its length by its segments, rounded up", "[common][frame]") {
  CHECK(counts_as_frames(60, {}) == 1);
  CHECK(counts_as_frames(65000, {true, 34, 16}) == 1);
  CHECK(counts_as_frames(1400, tcp_offload(1400)) == 1);
  CHECK(counts_as_frames(1401, tcp_offload(1400)) == 2);
  CHECK(counts_as_frames(65590, tcp_offload(1)) == 65590);
  CHECK(counts_as_frames(65590, tcp_offload(0)) == 1);
}

}  // namespace splitnic::frame::frame_unfinished_test
