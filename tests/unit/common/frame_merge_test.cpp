// Segments of TCP put together again: what is merged is cut into the same frames, and what must not be merged is not.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/frame/frame_merger.h"
#include "tests/unit/common/offload_run.h"

namespace splitnic::test::frame_merge_test {
namespace {

using frame::FrameMerger;
using frame::FrameOffload;
using frame::SegmentKind;

constexpr std::uint32_t kMtu = 1500;
constexpr std::uint8_t kAck = 0x10, kPsh = 0x08;

struct Given {
  Bytes frame;
  std::optional<FrameOffload> offload{};
  std::size_t segments = 0;
};

/// A merger, and what came out: kept frames whose turn has come, and those that it left to the caller.
struct Run final : frame::MergerClient {
  bool wants_merged(const frame::EthernetHeader&, SegmentKind kind) override {
    asked.push_back(kind);
    return wants;
  }
  void on_kept_frame(std::span<const std::byte> frame, const FrameOffload* offload, std::size_t segments,
                     std::size_t received_bytes) override {
    received += received_bytes;
    out.push_back({Bytes(frame.begin(), frame.end()), offload ? std::optional(*offload) : std::nullopt, segments});
  }
  /// segments of what is left to the caller: 0.
  void take(const Bytes& frame, const FrameOffload* offload = nullptr) {
    if (merger.keep(frame, offload, mtu, *this)) return;
    out.push_back({frame, offload ? std::optional(*offload) : std::nullopt, 0});
  }
  void take_all(const std::vector<Bytes>& frames, const FrameOffload* offload = nullptr) {
    for (const Bytes& frame : frames) take(frame, offload);
  }
  [[nodiscard]] std::vector<std::size_t> segments() const {
    std::vector<std::size_t> counts;
    for (const Given& given : out) counts.push_back(given.segments);
    return counts;
  }

  FrameMerger merger;
  std::uint32_t mtu = kMtu;
  bool wants = true;
  std::vector<SegmentKind> asked;
  std::vector<Given> out;
  std::size_t received = 0;  ///< bytes of what was kept
};

using Counts = std::vector<std::size_t>;

FrameOffload partial(const Below& below) {
  return {.partial_checksum = true,
          .checksum_start = static_cast<std::uint16_t>(below.transport_offset()),
          .checksum_offset = 16};
}

/// The second of two segments of 1000 bytes.
Bytes second_segment(const Below& below = {}, Tcp tcp = {}, Fill fill = Fill::complete, std::size_t bytes = 1000) {
  tcp.sequence += 1000;
  return tcp_frame(below, tcp, pattern(bytes, 2), fill);
}
Bytes first_segment(const Below& below = {}, const Tcp& tcp = {}, Fill fill = Fill::complete) {
  return tcp_frame(below, tcp, pattern(1000), fill);
}

/// The same frame from another port.
Bytes from_port(Bytes frame, const Below& below, unsigned port) {
  const std::size_t at = below.transport_offset();
  const unsigned was = get16(frame, at);
  set16(frame, at, port);
  unsigned sum = (0xffffU ^ get16(frame, at + 16)) + (0xffffU ^ was) + port;
  sum = (sum & 0xffffU) + (sum >> 16U);
  sum = (sum & 0xffffU) + (sum >> 16U);
  set16(frame, at + 16, 0xffffU ^ sum);
  return frame;
}

/// An IPv4 header with another byte, and a checksum that is right for it.
Bytes with_ip_byte(Bytes frame, std::size_t at, unsigned value) {
  frame[14 + at] = static_cast<std::byte>(value);
  set16(frame, 24, 0);
  set16(frame, 24, 0xffffU ^ reference_sum(std::span(frame).subspan(14, 20)));
  return frame;
}

/// A TCP header over IPv4 with another byte, and a checksum that is right for it.
Bytes with_tcp_byte(Bytes frame, std::size_t at, unsigned value) {
  frame[34 + at] = static_cast<std::byte>(value);
  set16(frame, 34 + 16, 0);
  set16(frame, 34 + 16, reference_checksum({}, 6, std::span(frame).subspan(34)));
  return frame;
}

}  // namespace

TEST_CASE("segments of a connection become a super-frame, which is cut into the same segments", "[frame][merge]") {
  const Bytes payload = pattern(9000);
  const auto fill = GENERATE(Fill::complete, Fill::partial);
  const auto has_metadata = GENERATE(true, false);
  for (const int version : {4, 6}) {
    for (const std::size_t vlans : {0U, 1U, 4U}) {
      for (const std::size_t options : {0U, 12U, 40U}) {
        const Below below = below_with(version, vlans);
        const Tcp tcp{.flags = kAck | kPsh, .options = pattern(options, 7)};
        const auto segments = tcp_segments(below, tcp, payload, 1300);
        auto received = segments;
        for (std::size_t i = 0; fill == Fill::partial && i < received.size(); ++i) {
          Tcp one = tcp;
          one.sequence += static_cast<std::uint32_t>(1300 * i);
          one.flags = i + 1 == received.size() ? tcp.flags : kAck;
          Below below_one = below;
          below_one.ipv4_identification = static_cast<std::uint16_t>(below.ipv4_identification + i);
          const std::size_t bytes = std::min<std::size_t>(1300, payload.size() - 1300 * i);
          received[i] = tcp_frame(below_one, one, std::span(payload).subspan(1300 * i, bytes), Fill::partial);
        }
        const FrameOffload metadata = fill == Fill::partial ? partial(below) : FrameOffload{};
        Run run;
        run.take_all(received, has_metadata ? &metadata : nullptr);
        REQUIRE(run.segments() == Counts{segments.size()});  // the last one says PSH
        const Given& given = run.out.front();
        const FrameOffload expected{
            .partial_checksum = true,
            .checksum_start = static_cast<std::uint16_t>(below.transport_offset()),
            .checksum_offset = 16,
            .kind = version == 4 ? SegmentKind::tcp_v4 : SegmentKind::tcp_v6,
            .segment_bytes = 1300,
            .header_bytes = static_cast<std::uint16_t>(below.transport_offset() + 20 + options)};
        CHECK(given.offload == expected);
        CHECK(frame::judge_unfinished(given.frame, *given.offload, kMtu).whole);
        CHECK((in_software(given.frame, *given.offload, kMtu).frames == segments));
        CHECK(run.asked == std::vector{expected.kind});
        CHECK((given.frame == tcp_frame(below, tcp, payload, Fill::partial)));
      }
    }
  }
}

TEST_CASE("what does not continue a burst ends it, and comes behind it as it is", "[frame][merge]") {
  const Bytes first = first_segment();
  const auto changed = [&](std::size_t at, unsigned value) { return with_tcp_byte(second_segment(), at, value); };
  Below other_station;
  other_station.source.octets[5] = 9;
  Below no_option;
  no_option.ipv4_options = pattern(4);
  const std::map<std::string, Bytes> seconds{
      {"a gap", tcp_frame({}, {.sequence = Tcp{}.sequence + 1001}, pattern(1000))},
      {"the same again", first},
      {"another acknowledgement", second_segment({}, {.acknowledgement = 5})},
      {"another window", changed(14, 9)},
      {"FIN", changed(13, kAck | 0x01)},
      {"SYN", changed(13, kAck | 0x02)},
      {"RST", changed(13, kAck | 0x04)},
      {"URG", changed(13, kAck | 0x20)},
      {"ECE", changed(13, kAck | 0x40)},
      {"CWR", changed(13, kAck | 0x80)},
      {"no ACK", changed(13, 0)},
      {"an urgent pointer", changed(19, 1)},
      {"a reserved bit", changed(12, 0x51)},
      {"options", second_segment({}, {.options = pattern(12)})},
      {"IP options", second_segment(no_option)},
      {"another source", second_segment(other_station)},
      {"a VLAN", second_segment(below_with(4, 1))},
      {"another class", with_ip_byte(second_segment(), 1, 4)},
      {"another time to live", with_ip_byte(second_segment(), 8, 63)},
      {"may be fragmented", with_ip_byte(second_segment(), 6, 0)},
      {"a wrong checksum", second_segment({}, {}, Fill::wrong)},
      {"a wrong IP checksum",
       [] {
         Bytes frame = second_segment();
         frame[24] ^= std::byte{1};
         return frame;
       }()},
      {"longer", second_segment({}, {}, Fill::complete, 1001)},
      {"no payload", second_segment({}, {}, Fill::complete, 0)},
  };
  for (const auto& [name, second] : seconds) {
    CAPTURE(name);
    Run run;
    run.take(first);
    REQUIRE(run.out.empty());
    run.take(second);
    REQUIRE(!run.out.empty());
    run.merger.flush(run);
    REQUIRE(run.out.size() == 2);
    CHECK(run.out[0].frame == first);
    CHECK(run.out[0].segments == 1);
    CHECK(!run.out[0].offload);
    CHECK(run.out[1].frame == second);
    CHECK(run.out[1].segments <= 1);
    CHECK(!run.out[1].offload);
  }
  // The comparison itself is fine: without a change, both are one.
  Run run;
  run.take_all({first, second_segment()});
  run.merger.flush(run);
  CHECK(run.segments() == Counts{2});
}

TEST_CASE("a first segment with a wrong checksum is not merged either", "[frame][merge]") {
  Run run;
  const std::vector<Bytes> frames{first_segment({}, {}, Fill::wrong), second_segment(),
                                  tcp_frame({}, {.sequence = Tcp{}.sequence + 2000}, pattern(1000))};
  run.take_all(frames);
  run.merger.flush(run);
  REQUIRE(run.segments() == Counts{1, 2});
  CHECK(run.out[0].frame == frames[0]);
}

TEST_CASE("metadata that says something else than the frame keeps it out of a burst", "[frame][merge]") {
  const FrameOffload good = partial({});
  FrameOffload elsewhere = good;
  elsewhere.checksum_start += 2;
  FrameOffload other_field = good;
  other_field.checksum_offset = 6;
  const FrameOffload super{.partial_checksum = true,
                           .checksum_start = good.checksum_start,
                           .checksum_offset = good.checksum_offset,
                           .kind = SegmentKind::tcp_v4,
                           .segment_bytes = 500,
                           .header_bytes = 54};
  const FrameOffload complete;  // but the field holds a partial checksum
  for (const FrameOffload& offload : {elsewhere, other_field, super, complete}) {
    Run run;
    run.take(first_segment({}, {}, Fill::partial), &good);
    run.take(second_segment({}, {}, Fill::partial), &offload);
    run.merger.flush(run);
    REQUIRE(run.out.size() == 2);
    CHECK(run.out[0].segments == 1);
    CHECK(run.out[0].offload == good);
    CHECK(run.out[1].offload == offload);
  }
  // A partial checksum that is none.
  Run run;
  run.take(first_segment({}, {}, Fill::partial), &good);
  run.take(second_segment(), &good);
  run.merger.flush(run);
  CHECK(run.out.size() == 2);
}

TEST_CASE("what begins no burst is left to the caller", "[frame][merge]") {
  Below fragment;
  fragment.ipv4_fragment = 0x2000;
  Below may_be_fragmented;
  may_be_fragmented.ipv4_fragment = 0;
  const FrameOffload super{.kind = SegmentKind::tcp_v4, .segment_bytes = 500, .header_bytes = 54};
  const std::vector<std::pair<Bytes, const FrameOffload*>> frames{
      {tcp_frame({}, {.flags = kAck | kPsh}, pattern(1000)), nullptr},
      {tcp_frame({}, {.flags = 0x11}, pattern(1000)), nullptr},
      {tcp_frame({}, {.flags = 0}, pattern(1000)), nullptr},
      {tcp_frame({}, {}, pattern(255)), nullptr},
      {tcp_frame({}, {}, pattern(1461)), nullptr},
      {tcp_frame(fragment, {}, pattern(1000)), nullptr},
      {tcp_frame(may_be_fragmented, {}, pattern(1000)), nullptr},
      {tcp_frame(below_with(4, 0, 4), {}, pattern(1000)), nullptr},
      {tcp_frame(below_with(6, 0, 1), {}, pattern(1000)), nullptr},
      {tcp_frame({}, {}, pattern(1000), Fill::partial), &super},
      {udp_frame({}, pattern(7)), nullptr},
      {udp_frame(may_be_fragmented, pattern(1000)), nullptr},
      {udp_frame(below_with(4, 0, 4), pattern(1000)), nullptr},
      {udp_frame({}, pattern(1473)), nullptr},
      {[] {
         Bytes longer = udp_frame({}, pattern(1000));
         set16(longer, 34 + 4, 1007);  // bytes follow the datagram in its packet
         return longer;
       }(),
       nullptr},
      {ethernet_frame({}, 0x0806, pattern(1000)), nullptr},
      {pattern(13), nullptr},
      {[] {
         Bytes cut = first_segment();
         cut.pop_back();
         return cut;
       }(),
       nullptr},
      {[] {
         Bytes no_tcp = first_segment();
         no_tcp[34 + 12] = std::byte{0x40};
         return no_tcp;
       }(),
       nullptr},
  };
  for (std::size_t i = 0; i < frames.size(); ++i) {
    CAPTURE(i);
    Run run;
    run.take(frames[i].first, frames[i].second);
    CHECK(run.segments() == Counts{0});
    CHECK(run.asked.empty());
    run.merger.flush(run);
    CHECK(run.out.size() == 1);
  }
  // The shortest and the longest that do.
  for (const std::size_t bytes : {256U, 1460U}) {
    Run run;
    run.take(tcp_frame({}, {}, pattern(bytes)));
    CHECK(run.out.empty());
  }
  for (const std::size_t bytes : {8U, 1472U}) {
    Run run;
    run.take(udp_frame({}, pattern(bytes)));
    CHECK(run.out.empty());
  }
  Run unwanted;
  unwanted.wants = false;
  unwanted.take_all({first_segment(), second_segment()});
  CHECK(unwanted.segments() == Counts{0, 0});
  CHECK(unwanted.asked.size() == 2);
}

TEST_CASE("PSH and a short segment end a burst with themselves in it", "[frame][merge]") {
  for (const Bytes& last : {second_segment({}, {.flags = kAck | kPsh}), second_segment({}, {}, Fill::complete, 999),
                            second_segment({}, {}, Fill::complete, 1)}) {
    Run run;
    run.take_all({first_segment(), last});
    REQUIRE(run.segments() == Counts{2});
    const auto cut = in_software(run.out[0].frame, *run.out[0].offload, kMtu).frames;
    REQUIRE(cut.size() == 2);
    const auto is_same = [](Bytes a, Bytes b) {  // but for IPv4's identification
      for (Bytes* frame : {&a, &b}) std::fill_n(frame->begin() + 18, 2, std::byte{});
      for (Bytes* frame : {&a, &b}) std::fill_n(frame->begin() + 24, 2, std::byte{});
      return a == b;
    };
    CHECK(is_same(cut[0], first_segment()));
    CHECK(is_same(cut[1], last));
  }
}

TEST_CASE("datagrams of a flow become a super-frame, which is cut into the same datagrams", "[frame][merge]") {
  const auto fill = GENERATE(Fill::complete, Fill::partial);
  for (const int version : {4, 6}) {
    for (const std::size_t vlans : {0U, 2U}) {
      for (const std::size_t bytes : {8U, 18U, 1000U}) {
        const Below below = below_with(version, vlans);
        const Bytes payload = pattern(20 * bytes + 1);
        const auto datagrams = udp_segments(below, payload, bytes);
        const FrameOffload metadata{.partial_checksum = true,
                                    .checksum_start = static_cast<std::uint16_t>(below.transport_offset()),
                                    .checksum_offset = 6};
        Run run;
        for (const Bytes& datagram : udp_segments(below, payload, bytes, fill)) {
          run.take(padded(datagram), fill == Fill::partial ? &metadata : nullptr);
        }
        REQUIRE(run.segments() == Counts{21});  // the last one is shorter
        const Given& given = run.out.front();
        CHECK((given.frame == udp_frame(below, payload, Fill::partial)));
        CHECK(given.offload->kind == SegmentKind::udp);
        CHECK(given.offload->segment_bytes == bytes);
        CHECK(given.offload->header_bytes == below.transport_offset() + 8);
        CHECK(frame::judge_unfinished(given.frame, *given.offload, kMtu).whole);
        CHECK((in_software(given.frame, *given.offload, kMtu).frames == datagrams));
      }
    }
  }
}

TEST_CASE("a datagram of another flow, another length or without a checksum is not merged", "[frame][merge]") {
  const Bytes first = udp_frame({}, pattern(100));
  Bytes other_port = first;
  set16(other_port, 34, 1);
  const Bytes zero = udp_frame({}, pattern(100), Fill::none);
  for (const Bytes& second :
       {other_port, zero, udp_frame({}, pattern(100), Fill::wrong), udp_frame({}, pattern(101)), udp_frame({}, {}),
        with_ip_byte(first, 8, 63), with_ip_byte(first, 1, 4), tcp_frame({}, {}, pattern(300))}) {
    Run run;
    run.take_all({first, second});
    run.merger.flush(run);
    REQUIRE(run.out.size() == 2);
    const auto is_first = [&](const Given& given) { return given.frame == first; };
    CHECK(std::ranges::count_if(run.out, is_first) == 1);
  }
  // Two without a checksum, which a super-frame's datagrams would all have.
  Run run;
  run.take_all({zero, zero});
  run.merger.flush(run);
  CHECK(run.segments() == Counts{1, 1});
}

TEST_CASE("a super-frame of datagrams counts as at most 64 frames", "[frame][merge]") {
  for (const auto& [bytes, most] : {std::pair(8U, 58U), {18U, 61U}, {42U, 63U}, {1000U, 63U}}) {
    Run run;
    for (int datagram = 0; datagram < 130; ++datagram) run.take(udp_frame({}, pattern(bytes)));
    CHECK(run.segments() == Counts{most, most});
    CHECK(frame::counts_as_frames(run.out.front().frame.size(), *run.out.front().offload) <= 64);
    run.merger.flush(run);
    CHECK(run.segments() == Counts{most, most, 130 - 2 * most});
  }
}

TEST_CASE("a burst of datagrams in the place of an ended connection is one of its own", "[frame][merge]") {
  Run run;
  run.take_all({first_segment(), second_segment()});
  run.merger.flush(run);
  run.take_all({udp_frame({}, pattern(100)), udp_frame({}, pattern(100))});
  run.merger.flush(run);
  CHECK(run.segments() == Counts{2, 2});
}

TEST_CASE("what follows a packet in its frame is not merged, and stays with a lone frame", "[frame][merge]") {
  const Bytes first = padded(first_segment(), 1100, std::byte{7});
  Run run;
  run.take_all({first, padded(second_segment(), 1200, std::byte{7})});
  run.merger.flush(run);
  REQUIRE(run.segments() == Counts{2});
  CHECK(run.out[0].frame.size() == 54 + 2000);
  CHECK(run.received == 1100 + 1200);

  Run alone;
  alone.take(first);
  alone.merger.flush(alone);
  REQUIRE(alone.segments() == Counts{1});
  CHECK((alone.out[0].frame == first));
  CHECK(alone.received == first.size());
}

TEST_CASE("a frame that leaves no room for a second one is not kept", "[frame][merge]") {
  for (const int version : {4, 6}) {
    const Below below = below_with(version, 0);
    for (const std::size_t header_bytes : {20U, 8U}) {
      const std::size_t most = (65535 - (below.transport_offset() - 14) - header_bytes) / 2;
      for (const std::size_t bytes : {most, most + 1, std::size_t{40000}, std::size_t{65000}}) {
        const auto make = [&](std::uint32_t number) {
          const std::uint32_t sequence = static_cast<std::uint32_t>(number * bytes);
          return header_bytes == 8 ? udp_frame(below, pattern(bytes))
                                   : tcp_frame(below, {.sequence = sequence}, pattern(bytes));
        };
        Run run;
        run.mtu = 65535;
        run.take_all({make(0), make(1)});
        run.merger.flush(run);
        CHECK(run.segments() == (bytes == most ? Counts{2} : Counts{0, 0}));
      }
    }
  }
}

TEST_CASE("a fragment does not overtake what its flow sent before", "[frame][merge]") {
  const Bytes first = udp_frame({}, pattern(500));
  Below fragment;
  fragment.ipv4_fragment = 0x2000;
  Bytes shorter = udp_frame({}, pattern(500));
  set16(shorter, 34 + 4, 400);
  for (const Bytes& later : {udp_frame(fragment, pattern(1000)), shorter}) {
    Run run;
    run.take_all({first, later});
    run.merger.flush(run);
    REQUIRE(run.out.size() == 2);
    CHECK((run.out[0].frame == first));
    CHECK((run.out[1].frame == later));
  }
  // Other frames leave a burst alone.
  Run run;
  run.take_all({first, ethernet_frame({}, 0x0806, pattern(46)), ip_frame({}, 1, pattern(64)), first});
  run.merger.flush(run);
  CHECK(run.segments() == Counts{0, 0, 2});
}

TEST_CASE("a super-frame is no longer than an IP packet can be", "[frame][merge]") {
  for (const int version : {4, 6}) {
    const Below below = below_with(version, 0);
    Run run;
    run.take_all(tcp_segments(below, {}, pattern(200 * 1000), 1000));
    run.merger.flush(run);
    std::size_t sum = 0;
    for (const Given& given : run.out) {
      CHECK(given.frame.size() - 14 <= 65535);
      CHECK(frame::judge_unfinished(given.frame, *given.offload, kMtu).whole);
      sum += given.segments;
    }
    CHECK(run.out.front().segments == 65);
    CHECK(sum == 200);
  }
}

TEST_CASE("connections are merged side by side; of more than eight, the oldest leaves", "[frame][merge]") {
  Run run;
  for (unsigned port = 1; port <= 9; ++port) run.take(from_port(first_segment(), {}, port));
  REQUIRE(run.segments() == Counts{1});
  CHECK(run.out[0].frame == from_port(first_segment(), {}, 1));
  for (unsigned port = 2; port <= 9; ++port) run.take(from_port(second_segment(), {}, port));
  run.merger.flush(run);
  REQUIRE(run.segments() == Counts{1, 2, 2, 2, 2, 2, 2, 2, 2});
  for (unsigned port = 2; port <= 9; ++port) {
    CHECK(get16(run.out[port - 1].frame, 34) == port);
    CHECK(in_software(run.out[port - 1].frame, *run.out[port - 1].offload, kMtu).frames.front() ==
          from_port(first_segment(), {}, port));
  }
}

TEST_CASE("another direction, address or version is another connection", "[frame][merge]") {
  const auto with_address = [](std::size_t at) {
    Bytes frame = with_ip_byte(first_segment(), at, 77);
    set16(frame, 50, 0);  // wrong from here on, which nobody looks at yet
    return frame;
  };
  Run run;
  run.take(first_segment());
  for (const Bytes& other :
       {with_address(15), with_address(19), first_segment(below_with(6, 0)), from_port(first_segment(), {}, 80)}) {
    run.take(other);
    CHECK(run.out.empty());
  }
  run.take(second_segment());
  run.merger.flush(run);
  CHECK(run.segments() == Counts{2, 1, 1, 1, 1});
}

TEST_CASE("a burst's end leaves the order of the others", "[frame][merge]") {
  Run run;
  for (unsigned port = 1; port <= 3; ++port) run.take(from_port(first_segment(), {}, port));
  run.take(from_port(second_segment({}, {.flags = kAck | kPsh}), {}, 1));
  REQUIRE(run.segments() == Counts{2});
  run.take(from_port(first_segment(), {}, 4));
  run.merger.flush(run);
  std::vector<unsigned> ports;
  for (const Given& given : run.out) ports.push_back(get16(given.frame, 34));
  CHECK(ports == std::vector<unsigned>{1, 2, 3, 4});
}

}  // namespace splitnic::test::frame_merge_test
