#include <catch2/catch.hpp>

#include "common/frame/software_offload.h"
#include "common/random.h"
#include "tests/unit/common/offload_run.h"

namespace splitnic::frame::frame_segment_test {
namespace {

using test::Below;
using test::below_with;
using test::Bytes;
using test::Fill;
using test::in_software;
using test::Tcp;

constexpr std::uint8_t kFin = 0x01, kSyn = 0x02, kRst = 0x04, kPsh = 0x08, kAck = 0x10, kUrg = 0x20, kEce = 0x40,
                       kCwr = 0x80;

/// What a frame's segments must be.
std::vector<Bytes> expected_segments(const Below& below, const Tcp& tcp, const Bytes& payload, std::uint32_t mtu) {
  const std::size_t overhead = below.transport_offset() - below.ip_offset() + 20 + tcp.options.size();
  return test::tcp_segments(below, tcp, payload, mtu - overhead);
}

void check_segments(const Below& below, const Tcp& tcp, const Bytes& payload, std::uint32_t mtu, Fill fill) {
  const auto run = in_software(test::tcp_frame(below, tcp, payload, fill), mtu);
  REQUIRE(run.result == OffloadResult::segmented);
  REQUIRE_FALSE(run.same_memory);
  const auto expected = expected_segments(below, tcp, payload, mtu);
  REQUIRE(run.frames.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("segment " << i);
    REQUIRE(run.frames[i] == expected[i]);
    REQUIRE(run.frames[i].size() <= below.ip_offset() + mtu);
  }
}

void check_dropped(const Bytes& frame, std::uint32_t mtu, OffloadResult result) {
  const auto run = in_software(frame, mtu);
  CHECK(run.result == result);
  CHECK(run.frames.empty());
}

}  // namespace

TEST_CASE("TCP is cut exactly where the MTU says, at every size around it", "[common][frame]") {
  for (const int version : {4, 6}) {
    for (const std::size_t vlans : {0UL, 1UL, 2UL}) {
      for (const std::size_t ip_options : {0UL, 8UL}) {
        for (const std::size_t tcp_options : {0UL, 12UL, 40UL}) {
          for (const std::uint32_t mtu : {576U, 1280U, 1500U, 1501U, 9000U}) {
            const Below below = below_with(version, vlans, ip_options);
            Tcp tcp{.flags = kAck | kPsh, .options = test::pattern(tcp_options, 5)};
            const std::size_t room = mtu - (below.transport_offset() - below.ip_offset()) - 20 - tcp_options;
            INFO("IPv" << version << ", " << vlans << " tags, options " << ip_options << " and " << tcp_options
                       << ", MTU " << mtu);
            for (const std::size_t times : {1UL, 2UL, 5UL}) {
              for (const std::size_t bytes : {room * times - 1, room * times, room * times + 1}) {
                if (bytes <= room) {
                  const Bytes complete = test::tcp_frame(below, tcp, test::pattern(bytes));
                  CHECK(in_software(complete, mtu).same_memory);
                  const auto run = in_software(test::tcp_frame(below, tcp, test::pattern(bytes), Fill::partial), mtu);
                  CHECK(run.frames == std::vector<Bytes>{complete});
                } else {
                  check_segments(below, tcp, test::pattern(bytes), mtu, Fill::partial);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("segments get complete checksums whatever the whole's was", "[common][frame]") {
  for (const int version : {4, 6}) {
    for (const Fill fill : {Fill::partial, Fill::complete, Fill::none}) {
      check_segments(below_with(version, 0), {}, test::pattern(4001), 1500, fill);
    }
  }
}

TEST_CASE("the largest IP packets are cut", "[common][frame]") {
  Tcp tcp{.options = test::pattern(12)};
  check_segments(below_with(4, kMaxVlanTags), tcp, test::pattern(65535 - 20 - 32), 1500, Fill::partial);
  check_segments(below_with(6, kMaxVlanTags), tcp, test::pattern(65535 - 32), 1500, Fill::partial);
}

TEST_CASE("CWR stays with the first segment, FIN and PSH with the last, the rest with all", "[common][frame]") {
  const auto flags_of = [](const Bytes& segment) { return std::to_integer<unsigned>(segment[14 + 20 + 13]); };
  const Tcp tcp{.flags = kAck | kPsh | kFin | kCwr | kEce};
  const auto run = in_software(test::tcp_frame({}, tcp, test::pattern(1460 * 3), Fill::partial), 1500);
  REQUIRE(run.frames.size() == 3);
  CHECK(flags_of(run.frames[0]) == (kAck | kEce | kCwr));
  CHECK(flags_of(run.frames[1]) == (kAck | kEce));
  CHECK(flags_of(run.frames[2]) == (kAck | kEce | kPsh | kFin));
}

TEST_CASE("the urgent pointer keeps pointing at the same byte", "[common][frame]") {
  const Tcp tcp{.flags = kAck | kUrg, .urgent = 2000};
  const auto run = in_software(test::tcp_frame({}, tcp, test::pattern(1460 * 3), Fill::partial), 1500);
  REQUIRE(run.frames.size() == 3);
  const std::size_t transport = 34;
  const std::uint16_t expected[] = {2000, 540, 0};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(test::get16(run.frames[i], transport + 18) == expected[i]);
    CHECK((std::to_integer<unsigned>(run.frames[i][transport + 13]) & kUrg) == (i < 2 ? kUrg : 0U));
  }
}

TEST_CASE("IPv4 identifications count on and wrap", "[common][frame]") {
  Below below;
  below.ipv4_identification = 0xfffe;
  check_segments(below, {}, test::pattern(1460 * 5), 1500, Fill::partial);
}

TEST_CASE("padding behind an oversized packet goes into no segment", "[common][frame]") {
  const Bytes payload = test::pattern(3000);
  Bytes frame = test::tcp_frame({}, {}, payload, Fill::partial);
  frame.resize(frame.size() + 7, std::byte{0xee});
  CHECK(in_software(frame, 1500).frames == expected_segments({}, {}, payload, 1500));
}

TEST_CASE("a packet behind a segment routing header is cut under its final destination", "[common][frame]") {
  Below below = below_with(6, 1);
  Bytes body(6);
  body[0] = std::byte{4};
  body[1] = std::byte{1};
  below.final_destination.emplace();
  below.final_destination->fill(std::byte{0x3c});
  test::put(body, *below.final_destination);
  below.ipv6_extensions = {{43, body}};
  check_segments(below, {}, test::pattern(5000), 1500, Fill::partial);
}

TEST_CASE("oversized TCP that can't be followed is dropped as malformed", "[common][frame]") {
  const Bytes frame = test::tcp_frame({}, {}, test::pattern(3000), Fill::partial);
  const auto broken = [&](std::size_t at, unsigned value) {
    Bytes changed = frame;
    changed[at] = static_cast<std::byte>(value);
    return changed;
  };
  for (unsigned words = 0; words < 5; ++words) {
    check_dropped(broken(34 + 12, words << 4U), 1500, OffloadResult::dropped_malformed);
  }
  check_dropped(broken(34 + 13, kSyn), 1500, OffloadResult::dropped_malformed);
  check_dropped(broken(34 + 13, kRst), 1500, OffloadResult::dropped_malformed);
  check_dropped(broken(14, 0x44), 1500, OffloadResult::dropped_malformed);
  check_dropped(broken(16, 0xff), 1500, OffloadResult::dropped_malformed);  // total length beyond the frame
  check_dropped(broken(22, 63), 1500, OffloadResult::dropped_malformed);    // a header checksum that is wrong
  // An IP packet that ends within its TCP header, too large by its extension headers alone.
  Below below = below_with(6, 0);
  below.ipv6_extensions.assign(1, {60, Bytes(2046)});
  check_dropped(test::ip_frame(below, 6, test::pattern(19)), 1500, OffloadResult::dropped_malformed);
}

TEST_CASE("an MTU without room for a sensible segment drops the frame", "[common][frame]") {
  const auto segments_at = [](const Below& below, const Tcp& tcp, std::uint32_t mtu) {
    const auto run = in_software(test::tcp_frame(below, tcp, test::pattern(3000), Fill::partial), mtu);
    if (run.frames.empty()) CHECK(run.result == OffloadResult::dropped_oversize);
    return run.frames.size();
  };
  for (const std::uint32_t mtu : {0U, 1U, 39U, 40U, 41U, 47U}) CHECK(segments_at({}, {}, mtu) == 0);
  CHECK(segments_at({}, {}, 48) == 375);
  CHECK(segments_at(below_with(4, 0, 40), {.options = Bytes(40)}, 68 + 59) == 0);
  CHECK(segments_at(below_with(4, 0, 40), {.options = Bytes(40)}, 68 + 60) == 375);

  // From 576 on, what leaves less than 256 bytes is a header made to multiply the packet.
  Below below = below_with(6, 0);
  below.ipv6_extensions = {{60, Bytes(1190)}};
  const std::uint32_t headers = 40 + 1192 + 20;
  CHECK(segments_at(below, {}, headers + 255) == 0);
  CHECK(segments_at(below, {}, headers + 256) == 12);
}

TEST_CASE("frames larger than any IP packet are dropped", "[common][frame]") {
  check_dropped(Bytes(kMaxFrameBytes + 1), 1500, OffloadResult::dropped_oversize);
  check_dropped(Bytes(kMaxFrameBytes + 1), 0xffffffff, OffloadResult::dropped_oversize);
  CHECK(in_software(Bytes(kMaxFrameBytes), 0xffffffff).same_memory);
}

TEST_CASE("random streams come out of their segments as they went in", "[common][frame]") {
  SeededRandom random(7);
  for (int round = 0; round < 1500; ++round) {
    INFO("round " << round);
    Below below = below_with(random.below(2) == 0 ? 4 : 6, random.below(5), 4 * random.below(11));
    below.ipv4_identification = static_cast<std::uint16_t>(random.next());
    const Tcp tcp{.sequence = random.next32(),
                  .flags = static_cast<std::uint8_t>(random.next() & (0xffU ^ (kSyn | kRst | kUrg))),
                  .options = test::pattern(4 * random.below(11))};
    const auto mtu = static_cast<std::uint32_t>(400 + random.below(9000));
    const Bytes payload = test::pattern(random.below(round % 10 == 0 ? 65000 : 20000), random.next32());
    const Fill fill = random.below(2) == 0 ? Fill::partial : Fill::complete;
    const auto run = in_software(test::tcp_frame(below, tcp, payload, fill), mtu);

    const std::size_t at = below.transport_offset() + 20 + tcp.options.size();
    Bytes received;
    for (const Bytes& segment : run.frames) {
      REQUIRE(segment.size() >= at);
      REQUIRE(segment.size() <= below.ip_offset() + mtu);
      REQUIRE(test::get32(segment, below.transport_offset() + 4) ==
              static_cast<std::uint32_t>(tcp.sequence + received.size()));
      Bytes covered = test::pseudo_header(below, 6, segment.size() - below.transport_offset());
      test::put(covered, std::span(segment).subspan(below.transport_offset()));
      REQUIRE(test::reference_sum(covered) == 0xffff);
      if (below.ip_version == 4) {
        const std::size_t header_bytes = below.transport_offset() - below.ip_offset();
        REQUIRE(test::reference_sum(std::span(segment).subspan(below.ip_offset(), header_bytes)) == 0xffff);
      }
      test::put(received, std::span(segment).subspan(at));
    }
    REQUIRE(received == payload);
  }
}

}  // namespace splitnic::frame::frame_segment_test
