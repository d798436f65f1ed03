#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "common/frame/frame_offload.h"
#include "common/frame/ip.h"
#include "common/frame/software_offload.h"
#include "common/random.h"
#include "tests/unit/common/offload_run.h"

namespace splitnic::frame::frame_metadata_test {
namespace {

using test::Below;
using test::below_with;
using test::Bytes;
using test::Fill;
using test::in_software;
using test::Tcp;

constexpr std::uint32_t kMtu = 1500;
constexpr std::uint16_t kTcpField = 16;
constexpr std::uint16_t kUdpField = 6;

std::uint16_t as16(std::size_t number) { return static_cast<std::uint16_t>(number); }

FrameOffload checksum_at(std::size_t start, std::uint16_t field) {
  return {.partial_checksum = true, .checksum_start = as16(start), .checksum_offset = field};
}

FrameOffload tcp_offload(const Below& below, std::size_t segment_bytes) {
  FrameOffload asked = checksum_at(below.transport_offset(), kTcpField);
  asked.kind = below.ip_version == 4 ? SegmentKind::tcp_v4 : SegmentKind::tcp_v6;
  asked.segment_bytes = as16(segment_bytes);
  asked.header_bytes = as16(below.transport_offset() + 20);
  return asked;
}

FrameOffload udp_offload(const Below& below, std::size_t segment_bytes) {
  FrameOffload asked = checksum_at(below.transport_offset(), kUdpField);
  asked.kind = SegmentKind::udp;
  asked.segment_bytes = as16(segment_bytes);
  return asked;
}

void check_becomes(const Bytes& frame, const FrameOffload& asked, const std::vector<Bytes>& expected,
                   OffloadResult result) {
  const auto run = in_software(frame, asked, kMtu);
  CHECK(run.result == result);
  CHECK(run.frames == expected);
}

void check_dropped(const Bytes& frame, const FrameOffload& asked, OffloadResult result) {
  const auto run = in_software(frame, asked, kMtu);
  CHECK(run.result == result);
  CHECK(run.frames.empty());
}

template <class Check>
void for_all_shapes(Check check) {
  for (const int version : {4, 6}) {
    for (std::size_t vlans = 0; vlans <= kMaxVlanTags; ++vlans) {
      for (const std::size_t options : {0UL, 8UL}) {
        INFO("IPv" << version << ", " << vlans << " tags, options " << options);
        check(below_with(version, vlans, options));
      }
    }
  }
}

/// CRC-32C bit by bit, reflected (RFC 9260, appendix A).
std::uint32_t crc32c_by_bits(const Bytes& bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

/// A VXLAN packet whose inner TCP checksum is partial or complete, and where that checksum starts.
Bytes vxlan_frame(Fill inner_fill, std::size_t& inner_start) {
  const Below below;
  Bytes tunnelled(8);
  const Bytes inner = test::tcp_frame(below, {}, test::pattern(301), inner_fill);
  test::put(tunnelled, inner);
  inner_start = below.transport_offset() + 8 + 8 + below.transport_offset();
  return test::udp_frame(below, tunnelled, Fill::none);
}

/// A GRE packet with a checksum of its own (RFC 2784). Partial: its field is zero.
Bytes gre_frame(const Below& below, Fill fill) {
  Bytes message;
  test::put16(message, 0x8000);
  test::put16(message, 0x0800);
  test::put32(message, 0);
  test::put(message, test::pattern(301));
  if (fill == Fill::complete) test::set16(message, 4, 0xffffU ^ test::reference_sum(message));
  return test::ip_frame(below, 47, message);
}

}  // namespace

TEST_CASE("metadata that asks for nothing leaves a frame alone, whatever its checksum", "[common][frame]") {
  for_all_shapes([](const Below& below) {
    for (const Fill fill : {Fill::complete, Fill::partial, Fill::wrong, Fill::none}) {
      const auto run = in_software(test::tcp_frame(below, {}, test::pattern(99), fill), FrameOffload{}, kMtu);
      CHECK(run.result == OffloadResult::unchanged);
      CHECK(run.same_memory);
    }
  });
  CHECK(in_software(test::ethernet_frame({}, 0x88cc, Bytes(kMtu)), FrameOffload{}, kMtu).same_memory);
}

TEST_CASE("a frame beyond the MTU without metadata is treated as by libpcap", "[common][frame]") {
  const Bytes payload = test::pattern(4000);
  check_becomes(test::tcp_frame({}, {}, payload), {}, test::tcp_segments({}, {}, payload, 1460),
                OffloadResult::segmented);
  check_dropped(test::udp_frame({}, payload), {}, OffloadResult::dropped_udp_oversize);
  check_dropped(test::ip_frame({}, 1, payload), {}, OffloadResult::dropped_oversize);
  check_dropped(test::ethernet_frame({}, 0x88cc, payload), {}, OffloadResult::dropped_oversize);
  check_dropped(Bytes(13), {}, OffloadResult::dropped_malformed);
  check_dropped(Bytes(kMaxFrameBytes + 1), {}, OffloadResult::dropped_oversize);
  Bytes cut = test::tcp_frame({}, {}, payload);
  cut.pop_back();
  check_dropped(cut, {}, OffloadResult::dropped_malformed);
}

TEST_CASE("the CRC of SCTP is completed here, whatever its field holds, and never left to the next hop",
          "[common][frame]") {
  constexpr std::size_t kField = 8;
  for_all_shapes([](const Below& below) {
    for (const std::size_t bytes : {12UL, 13UL, 1000UL}) {
      Bytes transport = test::pattern(bytes);
      const Bytes frame = test::ip_frame(below, 132, transport);
      for (std::size_t at = 0; at < 4; ++at) transport[kField + at] = std::byte{0};
      const std::uint32_t crc = crc32c_by_bits(transport);
      for (std::size_t at = 0; at < 4; ++at) transport[kField + at] = static_cast<std::byte>(crc >> (8 * at));
      const auto asked = checksum_at(below.transport_offset(), kField);
      check_becomes(frame, asked, {test::ip_frame(below, 132, transport)}, OffloadResult::finished);
      CHECK_FALSE(judge_unfinished(frame, asked, kMtu).whole);
    }
    const auto refused = [&](std::size_t bytes, const FrameOffload& asked) {
      check_dropped(test::ip_frame(below, 132, test::pattern(bytes)), asked, OffloadResult::dropped_bad_offload);
    };
    refused(11, checksum_at(below.transport_offset(), kField));  // no whole header
    refused(40, checksum_at(below.transport_offset(), kField + 2));
    refused(40, checksum_at(below.transport_offset(), kField - 2));
    refused(40, checksum_at(below.transport_offset() + 4, kField - 4));
  });
}

TEST_CASE("metadata completes a checksum, whatever its field holds", "[common][frame]") {
  for_all_shapes([](const Below& below) {
    for (const std::size_t bytes : {0UL, 1UL, 64UL, 1000UL}) {
      for (const Fill fill : {Fill::partial, Fill::wrong, Fill::none, Fill::complete}) {
        const Bytes payload = test::pattern(bytes);
        check_becomes(test::tcp_frame(below, {}, payload, fill), checksum_at(below.transport_offset(), kTcpField),
                      {test::tcp_frame(below, {}, payload)}, OffloadResult::finished);
        check_becomes(test::udp_frame(below, payload, fill), checksum_at(below.transport_offset(), kUdpField),
                      {test::udp_frame(below, payload)}, OffloadResult::finished);
      }
    }
  });
}

TEST_CASE("what follows the packet is neither summed nor lost, unless it exceeds the MTU", "[common][frame]") {
  const auto followed = [](Bytes frame) {
    test::put32(frame, 0xfc5fc5fc);
    return frame;
  };
  const FrameOffload tcp = checksum_at(34, kTcpField), udp = checksum_at(34, kUdpField);
  const Bytes small = test::pattern(4);
  check_becomes(followed(test::tcp_frame({}, {}, small, Fill::partial)), tcp,
                {followed(test::tcp_frame({}, {}, small))}, OffloadResult::finished);
  check_becomes(followed(test::udp_frame({}, small, Fill::partial)), udp, {followed(test::udp_frame({}, small))},
                OffloadResult::finished);
  const Bytes full = test::pattern(1460);
  for (const auto& [asked, fill] : {std::pair(tcp, Fill::partial), std::pair(FrameOffload{}, Fill::complete)}) {
    check_becomes(followed(test::tcp_frame({}, {}, full, fill)), asked, {test::tcp_frame({}, {}, full)},
                  OffloadResult::finished);
  }
}

TEST_CASE("a UDP checksum that comes to zero by metadata is written as 0xffff, TCP's as zero", "[common][frame]") {
  Bytes payload = test::pattern(10);
  const auto completed = [&](bool udp, unsigned word) {
    test::set16(payload, 8, word);
    const Bytes frame = udp ? test::udp_frame({}, payload) : test::tcp_frame({}, {}, payload);
    return test::get16(frame, 34 + (udp ? kUdpField : kTcpField));
  };
  for (const bool udp : {false, true}) {
    unsigned word = 0;
    while (completed(udp, word) != (udp ? 0xffff : 0) && word < 0xffff) ++word;
    const auto run =
        in_software(udp ? test::udp_frame({}, payload, Fill::partial) : test::tcp_frame({}, {}, payload, Fill::partial),
                    checksum_at(34, udp ? kUdpField : kTcpField), kMtu);
    REQUIRE(run.frames.size() == 1);
    CHECK(test::get16(run.frames[0], 34 + (udp ? kUdpField : kTcpField)) == (udp ? 0xffff : 0));
  }
}

TEST_CASE("the checksum inside a tunnel is completed", "[common][frame]") {
  std::size_t start = 0;
  const Bytes frame = vxlan_frame(Fill::partial, start);
  check_becomes(frame, checksum_at(start, kTcpField), {vxlan_frame(Fill::complete, start)}, OffloadResult::finished);
  for (const std::uint8_t protocol : std::array<std::uint8_t, 3>{4, 41, 47}) {
    const Below below;
    Bytes inner = test::tcp_frame(below, {}, test::pattern(50), Fill::partial);
    inner.erase(inner.begin(), inner.begin() + 10);  // four bytes of a header of the tunnel's own remain
    Bytes complete = test::tcp_frame(below, {}, test::pattern(50));
    complete.erase(complete.begin(), complete.begin() + 10);
    check_becomes(test::ip_frame(below, protocol, inner), checksum_at(34 + 4 + 20, kTcpField),
                  {test::ip_frame(below, protocol, complete)}, OffloadResult::finished);
  }
}

TEST_CASE("GRE's own checksum is completed, which no pseudo-header is part of", "[common][frame]") {
  for_all_shapes([](const Below& below) {
    const FrameOffload asked = checksum_at(below.transport_offset(), 4);
    check_becomes(gre_frame(below, Fill::partial), asked, {gre_frame(below, Fill::complete)}, OffloadResult::finished);
    CHECK(judge_unfinished(gre_frame(below, Fill::partial), asked, kMtu).whole);
  });
}

/// A packet that is in no frame yet.
Bytes packet_of(const Bytes& frame) { return {frame.begin() + 14, frame.end()}; }

TEST_CASE("a super-frame of TCP inside of a tunnel is cut, and each segment has both IP headers", "[common][frame]") {
  const Tcp tcp{.flags = 0xd9, .options = test::pattern(12)};
  const Bytes payload = test::pattern(5000);
  struct Tunnel {
    int version;  // inside
    std::uint8_t protocol;
    Bytes header;
  };
  const auto gre = [](unsigned flags, unsigned protocol, std::size_t more) {
    Bytes header;
    test::put16(header, flags);
    test::put16(header, protocol);
    test::put(header, Bytes(more, std::byte{7}));
    return header;
  };
  for_all_shapes([&](const Below& outer) {
    for (const Tunnel& tunnel : {Tunnel{4, 4, {}}, Tunnel{6, 41, {}}, Tunnel{4, 47, gre(0, 0x0800, 0)},
                                 Tunnel{6, 47, gre(0x2000, 0x86dd, 4)}}) {
      Below inner = below_with(tunnel.version, 0);
      inner.ipv4_identification = 0xfffe;
      const auto tunnelled = [&](const Bytes& inside, std::size_t index) {
        Below below = outer;
        below.ipv4_identification = static_cast<std::uint16_t>(outer.ipv4_identification + index);
        Bytes message = tunnel.header;
        test::put(message, packet_of(inside));
        return test::ip_frame(below, tunnel.protocol, message);
      };
      const std::size_t inner_ip = outer.transport_offset() + tunnel.header.size();
      FrameOffload asked = tcp_offload(inner, 1000);
      asked.checksum_start = as16(inner_ip + inner.transport_offset() - 14);
      std::vector<Bytes> expected;
      for (const Bytes& segment : test::tcp_segments(inner, tcp, payload, 1000)) {
        expected.push_back(tunnelled(segment, expected.size()));
      }
      const Bytes frame = tunnelled(test::tcp_frame(inner, tcp, payload, Fill::partial), 0);
      check_becomes(frame, asked, expected, OffloadResult::segmented);
      CHECK_FALSE(judge_unfinished(frame, asked, kMtu).whole);  // a virtio-net header can't say it
      CHECK_FALSE(holds_all_headers(frame));
    }
  });
}

TEST_CASE("a super-frame inside of a tunnel that hides it, or covers it with a sum, is refused", "[common][frame]") {
  const Below below;
  const Bytes inner = packet_of(test::tcp_frame(below, {}, test::pattern(5000), Fill::partial));
  const auto fault = [&](Bytes header, std::uint8_t protocol, SegmentKind kind = SegmentKind::tcp_v4) {
    FrameOffload asked = tcp_offload(below, 1000);
    asked.kind = kind;
    asked.checksum_start = as16(34 + header.size() + 20);
    test::put(header, inner);
    return why_not_offload(test::ip_frame(below, protocol, header), asked);
  };
  const Bytes plain{{}, {}, std::byte{8}, {}};
  CHECK(fault(plain, 47) == std::nullopt);
  CHECK(fault(plain, 47, SegmentKind::tcp_v6) == OffloadFault::kind_mismatch);
  CHECK(fault(plain, 47, SegmentKind::udp) == OffloadFault::kind_mismatch);
  for (const unsigned flags : {0x80U, 0x10U, 0x40U, 0xa0U}) {  // a checksum, a number, a route, a checksum and a key
    CHECK(fault({static_cast<std::byte>(flags), {}, std::byte{8}, {}}, 47) == OffloadFault::kind_mismatch);
  }
  CHECK(fault({{}, {}, std::byte{0x65}, std::byte{0x58}}, 47) == OffloadFault::kind_mismatch);  // Ethernet inside
  CHECK(fault({}, 41) == OffloadFault::kind_mismatch);                                          // it is IPv4
  Bytes longer = inner;
  longer.push_back(std::byte{1});  // more than the packet inside
  FrameOffload asked = tcp_offload(below, 1000);
  asked.checksum_start = 34 + 20;
  CHECK(why_not_offload(test::ip_frame(below, 4, longer), asked) == OffloadFault::kind_mismatch);
}

TEST_CASE("an unknown final destination leaves the sum of the pseudo-header to the sender", "[common][frame]") {
  Below below = below_with(6, 0);
  below.ipv6_extensions = {{43, {std::byte{3}, std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}}}};
  const Bytes payload = test::pattern(50);
  check_becomes(test::tcp_frame(below, {}, payload, Fill::partial), checksum_at(below.transport_offset(), kTcpField),
                {test::tcp_frame(below, {}, payload)}, OffloadResult::finished);
  check_dropped(test::tcp_frame(below, {}, test::pattern(3000)), tcp_offload(below, 1000),
                OffloadResult::dropped_oversize);
}

TEST_CASE("TCP super-frames are cut to the segment size of the metadata, within the MTU too", "[common][frame]") {
  for_all_shapes([](const Below& below) {
    const std::size_t room = kMtu - (below.transport_offset() - below.ip_offset()) - 32;
    const Tcp tcp{.flags = 0xd9, .options = test::pattern(12)};  // CWR, ECE, ACK, PSH, FIN
    for (const std::size_t segment_bytes : {8UL, 500UL, room - 1, room}) {
      for (const std::size_t bytes : {segment_bytes + 1, 2 * segment_bytes, 5 * segment_bytes - 1}) {
        const Bytes payload = test::pattern(bytes);
        check_becomes(test::tcp_frame(below, tcp, payload, Fill::partial), tcp_offload(below, segment_bytes),
                      test::tcp_segments(below, tcp, payload, segment_bytes), OffloadResult::segmented);
      }
    }
    const Bytes payload = test::pattern(5000);
    for (const std::size_t beyond_the_mtu : {room + 1, 4999UL, 65535UL}) {
      check_becomes(test::tcp_frame(below, tcp, payload, Fill::partial), tcp_offload(below, beyond_the_mtu),
                    test::tcp_segments(below, tcp, payload, room), OffloadResult::segmented);
    }
  });
}

TEST_CASE("UDP super-frames are cut into the datagrams that their sender meant", "[common][frame]") {
  for_all_shapes([](const Below& below) {
    const std::size_t room = kMtu - (below.transport_offset() - below.ip_offset()) - 8;
    for (const std::size_t segment_bytes : {8UL, 300UL, room}) {
      for (const std::size_t bytes : {segment_bytes + 1, 3 * segment_bytes, 5 * segment_bytes - 1}) {
        const Bytes payload = test::pattern(bytes);
        check_becomes(test::udp_frame(below, payload, Fill::partial), udp_offload(below, segment_bytes),
                      test::udp_segments(below, payload, segment_bytes), OffloadResult::segmented);
      }
    }
    check_dropped(test::udp_frame(below, test::pattern(3000), Fill::partial), udp_offload(below, room + 1),
                  OffloadResult::dropped_udp_oversize);
    check_dropped(test::udp_frame(below, test::pattern(room + 1), Fill::partial), udp_offload(below, 65535),
                  OffloadResult::dropped_udp_oversize);
  });
}

TEST_CASE("a UDP super-frame without a checksum is cut into datagrams without", "[common][frame]") {
  const Bytes payload = test::pattern(900);
  FrameOffload asked = udp_offload({}, 300);
  asked.partial_checksum = false;
  check_becomes(test::udp_frame({}, payload, Fill::none), asked, test::udp_segments({}, payload, 300, Fill::none),
                OffloadResult::segmented);
  // IPv6 knows no datagram without a checksum.
  const Below below = below_with(6, 0);
  asked = udp_offload(below, 300);
  asked.partial_checksum = false;
  check_becomes(test::udp_frame(below, payload, Fill::none), asked, test::udp_segments(below, payload, 300),
                OffloadResult::segmented);
}

TEST_CASE("a segment size that the payload does not exceed leaves one frame", "[common][frame]") {
  for_all_shapes([](const Below& below) {
    const Bytes payload = test::pattern(500);
    for (const std::size_t segment_bytes : {500UL, 501UL, 65535UL}) {
      check_becomes(test::tcp_frame(below, {}, payload, Fill::partial), tcp_offload(below, segment_bytes),
                    {test::tcp_frame(below, {}, payload)}, OffloadResult::finished);
      check_becomes(test::udp_frame(below, payload, Fill::partial), udp_offload(below, segment_bytes),
                    {test::udp_frame(below, payload)}, OffloadResult::finished);
    }
  });
}

TEST_CASE("small segments are accepted while they are few", "[common][frame]") {
  const auto result = [](std::size_t bytes, std::size_t segment_bytes) {
    return in_software(test::tcp_frame({}, {}, test::pattern(bytes), Fill::partial), tcp_offload({}, segment_bytes),
                       kMtu)
        .result;
  };
  CHECK(result(128, 1) == OffloadResult::segmented);
  CHECK(result(129, 1) == OffloadResult::dropped_bad_offload);
  CHECK(result(128 * 7, 7) == OffloadResult::segmented);
  CHECK(result(128 * 7 + 1, 7) == OffloadResult::dropped_bad_offload);
  CHECK(result(65000, 8) == OffloadResult::segmented);
}

TEST_CASE("metadata that does not fit its frame is refused with the reason", "[common][frame]") {
  const Below v4, v6 = below_with(6, 0), extended = below_with(6, 1, 8);
  Below part;
  part.ipv4_fragment = 0x2000;
  Below part6 = v6;
  part6.ipv6_extensions = {{44, Bytes(6)}};
  const Bytes payload = test::pattern(1200);
  const Bytes tcp = test::tcp_frame(v4, {}, payload, Fill::partial);
  const Bytes tcp6 = test::tcp_frame(v6, {}, payload, Fill::partial);
  const Bytes udp = test::udp_frame(v4, payload, Fill::partial);
  const Bytes udp6 = test::udp_frame(v6, payload, Fill::partial);
  const auto with = [](FrameOffload offload, auto change) {
    change(offload);
    return offload;
  };
  const auto kind = [&](SegmentKind wanted, std::size_t start, std::uint16_t field) {
    return with(checksum_at(start, field), [&](FrameOffload& offload) {
      offload.kind = wanted;
      offload.segment_bytes = 500;
    });
  };
  const auto broken = [](Bytes frame, std::size_t at, unsigned value) {
    frame[at] = static_cast<std::byte>(value);
    return frame;
  };
  const auto end = as16(tcp.size());
  using enum OffloadFault;
  struct Row {
    const char* what;
    Bytes frame;
    FrameOffload asked;
    std::optional<OffloadFault> fault;
  };
  std::size_t inner_start = 0;
  const Bytes vxlan = vxlan_frame(Fill::partial, inner_start);
  const std::vector<Row> rows{
      {"no work", broken(tcp, 14, 0xff), {.checksum_start = 7, .segment_bytes = 1, .header_bytes = 0xffff}, {}},
      {"headers end with the frame", tcp, with(tcp_offload(v4, 500), [&](auto& o) { o.header_bytes = end; }), {}},
      {"headers end behind it", tcp, with(tcp_offload(v4, 500), [&](auto& o) { o.header_bytes = as16(end + 1U); }),
       header_outside},
      {"headers of none", tcp, with(tcp_offload(v4, 500), [&](auto& o) { o.header_bytes = 0; }), {}},
      {"not IP", test::ethernet_frame(v4, 0x88cc, payload), checksum_at(34, kTcpField), not_ip},
      {"bad IP header", broken(tcp, 14, 0x44), checksum_at(34, kTcpField), not_ip},
      {"IP beyond the frame", broken(tcp, 16, 0xff), checksum_at(34, kTcpField), not_ip},
      {"IPv4 fragment", test::tcp_frame(part, {}, payload), checksum_at(34, kTcpField), fragment},
      {"IPv4 fragment to cut", test::tcp_frame(part, {}, payload), tcp_offload(v4, 500), fragment},
      {"IPv6 fragment", test::udp_frame(part6, payload), checksum_at(part6.transport_offset(), kUdpField), fragment},
      {"checksum before the header", tcp, checksum_at(33, 17), checksum_position},
      {"checksum behind the header", tcp, checksum_at(35, 15), checksum_position},
      {"checksum from the first byte", tcp, checksum_at(0, 50), checksum_position},
      {"into the MAC address", tcp, checksum_at(0, 6), checksum_position},
      {"into the IP address", tcp, checksum_at(14, 12), checksum_position},
      {"into the ports", tcp, checksum_at(34, 0), checksum_position},
      {"into the payload", tcp, checksum_at(34, 20), checksum_position},
      {"TCP's field at UDP", udp, checksum_at(34, kTcpField), checksum_position},
      {"UDP's field at TCP", tcp, checksum_at(34, kUdpField), checksum_position},
      {"UDP's ports", udp, checksum_at(34, 2), checksum_position},
      {"from within UDP's header", udp, checksum_at(41, 2), checksum_position},
      {"at the start of UDP's payload", udp, checksum_at(42, 0), {}},
      {"an odd field in UDP's payload", udp, checksum_at(42, 1), checksum_position},
      {"inside a tunnel", vxlan, checksum_at(inner_start, kTcpField), {}},
      {"of ICMP", test::ip_frame(v4, 1, payload), checksum_at(34, 2), checksum_position},
      {"of ICMPv6, to write its type", test::ip_frame(v6, 58, payload), checksum_at(54, 0), checksum_position},
      {"GRE's own checksum", gre_frame(v4, Fill::partial), checksum_at(34, 4), {}},
      {"GRE's own checksum over IPv6", gre_frame(v6, Fill::partial), checksum_at(54, 4), {}},
      {"GRE without a checksum", broken(gre_frame(v4, Fill::partial), 34, 0x20), checksum_at(34, 4), transport_header},
      {"GRE that ends before its checksum", test::ip_frame(v4, 47, Bytes(7, std::byte{0x80})), checksum_at(34, 4),
       transport_header},
      {"GRE's protocol", gre_frame(v4, Fill::partial), checksum_at(34, 2), checksum_position},
      {"GRE's reserved field", gre_frame(v4, Fill::partial), checksum_at(34, 6), checksum_position},
      {"in GRE's own header", test::ip_frame(v4, 47, payload), checksum_at(36, 2), checksum_position},
      {"behind GRE's header", test::ip_frame(v4, 47, payload), checksum_at(38, 2), {}},
      {"the packet's last word", udp, checksum_at(42, as16(end - 12U - 42U - 2U)), {}},
      {"beyond the packet's last word", udp, checksum_at(42, as16(end - 12U - 42U)), checksum_outside},
      {"the largest offsets", tcp, checksum_at(0xffff, 0xffff), checksum_outside},
      {"the largest start", tcp, checksum_at(0xffff, 0), checksum_outside},
      {"the largest offset", tcp, checksum_at(34, 0xffff), checksum_outside},
      {"TCPv6 for TCPv4", tcp, kind(SegmentKind::tcp_v6, 34, kTcpField), kind_mismatch},
      {"TCPv4 for TCPv6", tcp6, kind(SegmentKind::tcp_v4, 54, kTcpField), kind_mismatch},
      {"UDP for TCP", tcp, kind(SegmentKind::udp, 34, kTcpField), kind_mismatch},
      {"TCP for UDP", udp, kind(SegmentKind::tcp_v4, 34, kUdpField), kind_mismatch},
      {"TCP for UDP over IPv6", udp6, kind(SegmentKind::tcp_v6, 54, kUdpField), kind_mismatch},
      {"UDP of IPv6", udp6, kind(SegmentKind::udp, 54, kUdpField), {}},
      {"TCP behind extension headers", test::tcp_frame(extended, {}, payload), tcp_offload(extended, 500), {}},
      {"a tunnel's TCP", vxlan, kind(SegmentKind::tcp_v4, inner_start, kTcpField), kind_mismatch},
      {"a tunnel's UDP", vxlan, kind(SegmentKind::udp, inner_start, kTcpField), checksum_position},
      {"short TCP header", broken(tcp, 34 + 12, 0x40), checksum_at(34, kTcpField), transport_header},
      {"TCP header beyond the packet", broken(test::tcp_frame(v4, {}, {}), 34 + 12, 0x60), checksum_at(34, kTcpField),
       transport_header},
      {"short UDP length", broken(broken(udp, 38, 0), 39, 7), checksum_at(34, kUdpField), transport_header},
      {"long UDP length", broken(udp, 38, 0xff), checksum_at(34, kUdpField), transport_header},
      {"UDP length within the packet", broken(udp, 38, 1), udp_offload(v4, 500), transport_header},
      {"segments of nothing", tcp, tcp_offload(v4, 0), segment_size_zero},
      {"datagrams of nothing", udp, udp_offload(v4, 0), segment_size_zero},
      {"segments of one byte", tcp, tcp_offload(v4, 1), segments_too_small},
      {"datagrams of seven bytes", udp, udp_offload(v4, 7), segments_too_small},
      {"segments of eight bytes", tcp, tcp_offload(v4, 8), {}},
      {"segments larger than the frame", tcp, tcp_offload(v4, 0xffff), {}},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    CHECK(why_not_offload(row.frame, row.asked) == row.fault);
    CHECK((in_software(row.frame, row.asked, kMtu).result == OffloadResult::dropped_bad_offload) ==
          row.fault.has_value());
  }
}

TEST_CASE("every field at its boundaries changes neither addresses nor tags nor ports", "[common][frame]") {
  for (const bool udp : {false, true}) {
    for (const int version : {4, 6}) {
      const Below below = below_with(version, 1, 8);
      const Bytes payload = test::pattern(900);
      const Bytes frame =
          udp ? test::udp_frame(below, payload, Fill::partial) : test::tcp_frame(below, {}, payload, Fill::partial);
      const std::size_t start = below.transport_offset(), ports_end = start + 4;
      const std::size_t offsets[] = {0,  1,          6,         13,           14,     18,    start - 1,       start,
                                     16, start + 1U, start + 8, frame.size(), 0x7fff, 65535, frame.size() - 2};
      for (const std::size_t checksum_start : offsets) {
        for (const std::size_t checksum_offset : offsets) {
          for (const std::size_t segment_bytes : {0UL, 1UL, 8UL, 300UL, 900UL, 65535UL}) {
            for (const auto kind : {SegmentKind::none, SegmentKind::tcp_v4, SegmentKind::tcp_v6, SegmentKind::udp}) {
              FrameOffload asked = checksum_at(checksum_start, as16(checksum_offset));
              asked.kind = kind;
              asked.segment_bytes = as16(segment_bytes);
              asked.header_bytes = as16(checksum_start);
              for (const Bytes& out : in_software(frame, asked, kMtu).frames) {
                REQUIRE(out.size() <= frame.size());
                // Lengths, identification and checksum of the IP header may differ, nothing else.
                for (std::size_t at = 0; at < ports_end; ++at) {
                  const std::size_t in_ip = at - below.ip_offset();
                  const bool may =
                      at >= below.ip_offset() && (version == 4 ? (in_ip >= 2 && in_ip < 6) || in_ip == 10 || in_ip == 11
                                                               : in_ip == 4 || in_ip == 5);
                  REQUIRE((may || out[at] == frame[at]));
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("random super-frames come out of their segments as they went in", "[common][frame]") {
  SeededRandom random(8);
  for (int round = 0; round < 1000; ++round) {
    INFO("round " << round);
    const bool udp = random.below(2) == 0;
    Below below = below_with(random.below(2) == 0 ? 4 : 6, random.below(5), 4 * random.below(11));
    below.ipv4_identification = static_cast<std::uint16_t>(random.next());
    const Tcp tcp{.sequence = random.next32(), .options = test::pattern(4 * random.below(11))};
    const std::size_t segment_bytes = 8 + random.below(1200);
    const Bytes payload = test::pattern(random.below(round % 10 == 0 ? 60000 : 9000), random.next32());
    const auto run =
        udp ? in_software(test::udp_frame(below, payload, Fill::partial), udp_offload(below, segment_bytes), kMtu)
            : in_software(test::tcp_frame(below, tcp, payload, Fill::partial), tcp_offload(below, segment_bytes), kMtu);
    const std::size_t at = below.transport_offset() + (udp ? 8 : 20 + tcp.options.size());
    Bytes received;
    for (const Bytes& segment : run.frames) {
      REQUIRE(segment.size() >= at);
      REQUIRE(segment.size() - at <= segment_bytes);
      Bytes covered = test::pseudo_header(below, udp ? 17 : 6, segment.size() - below.transport_offset());
      test::put(covered, std::span(segment).subspan(below.transport_offset()));
      REQUIRE(test::reference_sum(covered) == 0xffff);
      if (udp) REQUIRE(test::get16(segment, below.transport_offset() + 4) == segment.size() - at + 8);
      test::put(received, std::span(segment).subspan(at));
    }
    REQUIRE(received == payload);
    REQUIRE(run.frames.size() == std::max<std::size_t>(1, (payload.size() + segment_bytes - 1) / segment_bytes));
  }
}

TEST_CASE("the virtio-net header has the bytes of the specification", "[common][frame]") {
  // flags, kind, header bytes, segment bytes, checksum start, checksum offset
  constexpr std::array<unsigned char, 10> kBytes{0x01, 0x81, 0x42, 0x00, 0xb4, 0x05, 0x22, 0x01, 0x10, 0x00};
  VirtioNetHeader header;
  std::memcpy(&header, kBytes.data(), sizeof header);
  const FrameOffload expected{.partial_checksum = true,
                              .checksum_start = 0x122,
                              .checksum_offset = 16,
                              .kind = SegmentKind::tcp_v4,
                              .segment_bytes = 1460,
                              .header_bytes = 0x42};
  CHECK(parse_virtio_net_header(header) == expected);
  FrameOffload asked = expected;
  for (const auto kind : {SegmentKind::tcp_v4, SegmentKind::tcp_v6, SegmentKind::udp}) {
    asked.kind = kind;
    CHECK(parse_virtio_net_header(make_virtio_net_header(asked)) == asked);
  }
  const VirtioNetHeader none = make_virtio_net_header({.checksum_start = 1, .segment_bytes = 2, .header_bytes = 3});
  CHECK(std::memcmp(&none, std::array<std::byte, sizeof none>{}.data(), sizeof none) == 0);
}

TEST_CASE("every flag and kind of a virtio-net header is known or refused", "[common][frame]") {
  using Field = boost::endian::little_uint16_buf_t;
  const VirtioNetHeader full{0, 0, Field(7), Field(9), Field(11), Field(13)};
  for (unsigned flags = 0; flags < 256; ++flags) {
    for (unsigned kind = 0; kind < 256; ++kind) {
      VirtioNetHeader header = full;
      header.flags = static_cast<std::uint8_t>(flags);
      header.kind = static_cast<std::uint8_t>(kind);
      const auto parsed = parse_virtio_net_header(header);
      const bool known = kind == 0 || kind == 1 || kind == 4 || kind == 5 || kind == 0x81 || kind == 0x84;
      REQUIRE(parsed.has_value() == (flags < 4 && known));
      if (flags >= 4) REQUIRE(parsed.error() == OffloadFault::unknown_flags);
      if (flags < 4 && !known) REQUIRE(parsed.error() == OffloadFault::unknown_kind);
      if (!parsed) continue;
      REQUIRE(parsed->partial_checksum == ((flags & 1U) != 0));
      REQUIRE(parsed->checksum_start == (parsed->partial_checksum ? 11 : 0));
      REQUIRE(parsed->segment_bytes == (kind != 0 ? 9 : 0));
    }
  }
  CHECK(to_string(OffloadFault::segments_too_small) == "segments_too_small");
}

}  // namespace splitnic::frame::frame_metadata_test
