#include "common/frame/software_offload.h"

#include <array>
#include <catch2/catch.hpp>

#include "common/random.h"
#include "tests/unit/common/offload_run.h"

namespace splitnic::frame::frame_offload_test {
namespace {

using test::Below;
using test::below_with;
using test::Bytes;
using test::Fill;
using test::in_software;
using test::Tcp;

constexpr std::uint32_t kMtu = 1500;

void check_untouched(const Bytes& frame, std::uint32_t mtu = kMtu) {
  const auto run = in_software(frame, mtu);
  CHECK(run.result == OffloadResult::unchanged);
  REQUIRE(run.frames.size() == 1);
  CHECK(run.same_memory);
  CHECK(run.frames[0] == frame);
}

void check_becomes(const Bytes& frame, const Bytes& expected) {
  const auto run = in_software(frame, kMtu);
  CHECK(run.result == OffloadResult::finished);
  REQUIRE(run.frames.size() == 1);
  CHECK(run.frames[0] == expected);
}

void check_dropped(const Bytes& frame, std::uint32_t mtu, OffloadResult result) {
  const auto run = in_software(frame, mtu);
  CHECK(run.result == result);
  CHECK(run.frames.empty());
}

// Calls `check` with every combination of IP version, tags and options.
template <class Check>
void for_all_shapes(Check check) {
  for (const int version : {4, 6}) {
    for (std::size_t vlans = 0; vlans <= kMaxVlanTags; ++vlans) {
      for (const std::size_t options : {0UL, 4UL, 40UL}) {
        INFO("IPv" << version << ", " << vlans << " tags, options " << options);
        check(below_with(version, vlans, options));
      }
    }
  }
}

/// A frame made by `make` of a payload whose last word is such that `wanted` holds for the frame's complete checksum.
template <class Make, class Wanted>
Bytes search_payload(std::size_t checksum_at, Make make, Wanted wanted) {
  Bytes payload = test::pattern(10);
  for (unsigned word = 0; word <= 0xffff; ++word) {
    test::set16(payload, 8, word);
    if (wanted(test::get16(make(payload, Fill::complete), checksum_at), payload)) return payload;
  }
  FAIL("no payload has that checksum");
  return {};
}

}  // namespace

TEST_CASE("complete TCP and UDP frames within the MTU pass without a copy", "[common][frame]") {
  for_all_shapes([](const Below& below) {
    for (const std::size_t bytes : {0UL, 1UL, 2UL, 63UL, 1000UL}) {
      check_untouched(test::tcp_frame(below, {}, test::pattern(bytes)));
      check_untouched(test::udp_frame(below, test::pattern(bytes)));
    }
  });
}

TEST_CASE("a partial checksum becomes the complete one and nothing else changes", "[common][frame]") {
  for_all_shapes([](const Below& below) {
    for (std::size_t bytes = 0; bytes < 70; ++bytes) {
      const Bytes payload = test::pattern(bytes, static_cast<unsigned>(bytes) + 1);
      Tcp tcp;
      tcp.options = test::pattern(bytes % 11 * 4);
      check_becomes(test::tcp_frame(below, tcp, payload, Fill::partial), test::tcp_frame(below, tcp, payload));
      check_becomes(test::udp_frame(below, payload, Fill::partial), test::udp_frame(below, payload));
    }
  });
}

TEST_CASE("a partial checksum is completed up to the last byte of the MTU", "[common][frame]") {
  for (const int version : {4, 6}) {
    const Below below = below_with(version, 1);
    const std::size_t room = kMtu - (below.transport_offset() - below.ip_offset());
    for (std::size_t spare = 0; spare < 4; ++spare) {
      const Bytes payload = test::pattern(room - 20 - spare);
      check_becomes(test::tcp_frame(below, {}, payload, Fill::partial), test::tcp_frame(below, {}, payload));
      const Bytes datagram = test::pattern(room - 8 - spare);
      check_becomes(test::udp_frame(below, datagram, Fill::partial), test::udp_frame(below, datagram));
    }
  }
}

TEST_CASE("a complete checksum that happens to equal the pseudo-header's sum is left alone", "[common][frame]") {
  for (const int version : {4, 6}) {
    const Below below = below_with(version, 0);
    const auto tcp = [&](const Bytes& payload, Fill fill) { return test::tcp_frame(below, {}, payload, fill); };
    const auto udp = [&](const Bytes& payload, Fill fill) { return test::udp_frame(below, payload, fill); };
    const auto same_as_partial = [&](std::size_t at, auto make) {
      return search_payload(at, make, [&](std::uint16_t complete, const Bytes& payload) {
        return complete == test::get16(make(payload, Fill::partial), at);
      });
    };
    check_untouched(tcp(same_as_partial(below.transport_offset() + 16, tcp), Fill::complete));
    check_untouched(udp(same_as_partial(below.transport_offset() + 6, udp), Fill::complete));
  }
}

TEST_CASE("a checksum that comes to zero is written as 0xffff for UDP and as zero for TCP", "[common][frame]") {
  for (const int version : {4, 6}) {
    const Below below = below_with(version, 0);
    const auto tcp = [&](const Bytes& payload, Fill fill) { return test::tcp_frame(below, {}, payload, fill); };
    const auto udp = [&](const Bytes& payload, Fill fill) { return test::udp_frame(below, payload, fill); };
    const auto is = [](std::uint16_t wanted) {
      return [wanted](std::uint16_t complete, const Bytes&) { return complete == wanted; };
    };
    const Bytes for_tcp = search_payload(below.transport_offset() + 16, tcp, is(0));
    check_becomes(tcp(for_tcp, Fill::partial), tcp(for_tcp, Fill::complete));
    const Bytes for_udp = search_payload(below.transport_offset() + 6, udp, is(0xffff));
    check_becomes(udp(for_udp, Fill::partial), udp(for_udp, Fill::complete));
  }
}

TEST_CASE("a UDP frame without a checksum stays without", "[common][frame]") {
  for (const int version : {4, 6})
    check_untouched(test::udp_frame(below_with(version, 0), test::pattern(99), Fill::none));
}

TEST_CASE("a wrong checksum is passed on, not repaired", "[common][frame]") {
  for_all_shapes([](const Below& below) {
    check_untouched(test::tcp_frame(below, {}, test::pattern(99), Fill::wrong));
    check_untouched(test::tcp_frame(below, {}, test::pattern(99), Fill::none));
    check_untouched(test::udp_frame(below, test::pattern(99), Fill::wrong));
  });
}

TEST_CASE("Ethernet padding is neither summed nor lost", "[common][frame]") {
  for (std::size_t bytes = 0; bytes < 6; ++bytes) {
    const Below below;
    const auto pad = [](Bytes frame) { return test::padded(std::move(frame), 64, std::byte{0xa5}); };
    check_becomes(pad(test::tcp_frame(below, {}, test::pattern(bytes), Fill::partial)),
                  pad(test::tcp_frame(below, {}, test::pattern(bytes))));
    check_becomes(pad(test::udp_frame(below, test::pattern(bytes), Fill::partial)),
                  pad(test::udp_frame(below, test::pattern(bytes))));
    check_untouched(pad(test::tcp_frame(below, {}, test::pattern(bytes))));
  }
}

TEST_CASE("what follows a packet that fits the MTU is cut off where it makes the frame too long", "[common][frame]") {
  for (const int version : {4, 6}) {
    const Below below = below_with(version, 1);
    const std::size_t room = kMtu - (below.transport_offset() - below.ip_offset()) - 20;
    for (const Fill fill : {Fill::complete, Fill::partial}) {
      Bytes frame = test::tcp_frame(below, {}, test::pattern(room), fill);
      test::put32(frame, 0xfc5fc5fc);
      check_becomes(frame, test::tcp_frame(below, {}, test::pattern(room)));
    }
  }
}

TEST_CASE("IP fragments are never touched, and never cut", "[common][frame]") {
  for (const std::uint16_t fragment : std::array<std::uint16_t, 4>{0x2000, 0x2001, 0x0001, 0x1fff}) {
    Below below;
    below.ipv4_fragment = fragment;
    check_untouched(test::tcp_frame(below, {}, test::pattern(100), Fill::partial));
    check_untouched(test::udp_frame(below, test::pattern(100), Fill::partial));
    check_dropped(test::tcp_frame(below, {}, test::pattern(kMtu), Fill::partial), kMtu,
                  OffloadResult::dropped_oversize);
  }
  Below below = below_with(6, 0);
  below.ipv6_extensions = {{44, Bytes(6)}};
  check_untouched(test::tcp_frame(below, {}, test::pattern(100), Fill::partial));
  check_dropped(test::tcp_frame(below, {}, test::pattern(kMtu), Fill::partial), kMtu, OffloadResult::dropped_oversize);
}

TEST_CASE("the final destination of a routing header is the pseudo-header's", "[common][frame]") {
  for (const int type : {2, 4}) {
    Below below = below_with(6, 0);
    Bytes body(2 + 4);
    body[0] = static_cast<std::byte>(type);
    body[1] = std::byte{1};  // segments left
    const Bytes final_destination = test::pattern(16);
    test::put(body, final_destination);
    below.ipv6_extensions = {{0, Bytes(6)}, {43, body}};
    below.final_destination.emplace();
    std::copy(final_destination.begin(), final_destination.end(), below.final_destination->begin());
    const Bytes payload = test::pattern(77);
    check_becomes(test::tcp_frame(below, {}, payload, Fill::partial), test::tcp_frame(below, {}, payload));

    below.ipv6_extensions[1].body[1] = std::byte{0};  // arrived: the header's own again
    below.final_destination.reset();
    check_becomes(test::tcp_frame(below, {}, payload, Fill::partial), test::tcp_frame(below, {}, payload));
  }
}

TEST_CASE("a routing header of an unknown kind on its way hides the pseudo-header", "[common][frame]") {
  Below below = below_with(6, 0);
  below.ipv6_extensions = {{43, {std::byte{3}, std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}}}};
  check_untouched(test::tcp_frame(below, {}, test::pattern(50), Fill::partial));
  check_dropped(test::tcp_frame(below, {}, test::pattern(kMtu)), kMtu, OffloadResult::dropped_oversize);
}

TEST_CASE("frames that are not IP pass up to the MTU, tags on top", "[common][frame]") {
  for (std::size_t vlans = 0; vlans <= kMaxVlanTags; ++vlans) {
    for (const std::uint16_t ethertype : std::array<std::uint16_t, 3>{0x0806, 0x88cc, 0x0026}) {
      const Below below = below_with(4, vlans);
      for (const std::size_t bytes : {0UL, 46UL, kMtu - 1UL, kMtu + 0UL}) {
        check_untouched(test::ethernet_frame(below, ethertype, test::pattern(bytes)));
      }
      check_dropped(test::ethernet_frame(below, ethertype, test::pattern(kMtu + 1)), kMtu,
                    OffloadResult::dropped_oversize);
    }
  }
}

TEST_CASE("UDP beyond the MTU is dropped under a name of its own", "[common][frame]") {
  for_all_shapes([](const Below& below) {
    const std::size_t room = kMtu - (below.transport_offset() - below.ip_offset()) - 8;
    check_untouched(test::udp_frame(below, test::pattern(room)));
    check_dropped(test::udp_frame(below, test::pattern(room + 1)), kMtu, OffloadResult::dropped_udp_oversize);
    check_dropped(test::udp_frame(below, test::pattern(40000), Fill::partial), kMtu,
                  OffloadResult::dropped_udp_oversize);
  });
}

TEST_CASE("other IP protocols pass within the MTU and are dropped beyond", "[common][frame]") {
  for (const int version : {4, 6}) {
    const Below below = below_with(version, 0);
    const std::size_t room = kMtu - (below.transport_offset() - below.ip_offset());
    for (const std::uint8_t protocol : std::array<std::uint8_t, 5>{1, 47, 50, 58, 132}) {
      check_untouched(test::ip_frame(below, protocol, test::pattern(room)));
      check_dropped(test::ip_frame(below, protocol, test::pattern(room + 1)), kMtu, OffloadResult::dropped_oversize);
    }
  }
}

TEST_CASE("malformed packets within the MTU pass as they are", "[common][frame]") {
  const auto broken = [](int version, std::size_t at, unsigned value) {
    const Below below = below_with(version, 0);
    Bytes frame = test::tcp_frame(below, {}, test::pattern(100), Fill::partial);
    frame[at] = static_cast<std::byte>(value);
    return frame;
  };
  for (const unsigned first : {0x00, 0x44, 0x55, 0x4f, 0x65, 0xff}) check_untouched(broken(4, 14, first));
  for (const unsigned first : {0x00, 0x40, 0x50, 0xf0}) check_untouched(broken(6, 14, first));
  check_untouched(broken(4, 16, 0xff));  // total length beyond the frame
  check_untouched(broken(6, 18, 0xff));
  check_untouched(broken(6, 20, 0));  // the TCP header read as a hop-by-hop header
  for (unsigned words = 0; words < 5; ++words) check_untouched(broken(4, 34 + 12, words << 4U));
  Bytes total_in_header = broken(4, 16, 0);
  total_in_header[17] = std::byte{19};
  check_untouched(total_in_header);

  Bytes udp = test::udp_frame({}, test::pattern(20), Fill::partial);
  for (const unsigned length : {0U, 7U, 29U, 0xffffU}) {
    test::set16(udp, 38, length);
    check_untouched(udp);
  }
}

TEST_CASE("a chain of extension headers without end is not followed", "[common][frame]") {
  Below below = below_with(6, 0);
  below.ipv6_extensions.assign(8, {60, Bytes(6)});
  check_becomes(test::tcp_frame(below, {}, test::pattern(9), Fill::partial),
                test::tcp_frame(below, {}, test::pattern(9)));
  below.ipv6_extensions.assign(9, {60, Bytes(6)});
  check_untouched(test::tcp_frame(below, {}, test::pattern(9), Fill::partial));
  check_dropped(test::tcp_frame(below, {}, test::pattern(3000)), kMtu, OffloadResult::dropped_malformed);
}

TEST_CASE("a frame cut at any byte harms nothing", "[common][frame]") {
  for_all_shapes([](const Below& below) {
    for (const Bytes& whole : {test::tcp_frame(below, {.options = test::pattern(12)}, test::pattern(9), Fill::partial),
                               test::udp_frame(below, test::pattern(9), Fill::partial)}) {
      for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
        if (bytes < below.ip_offset()) {
          check_dropped(cut, kMtu, OffloadResult::dropped_malformed);
        } else {
          check_untouched(cut);
          if (bytes > below.ip_offset()) {
            const std::uint32_t smaller = static_cast<std::uint32_t>(bytes - below.ip_offset() - 1);
            check_dropped(cut, smaller, OffloadResult::dropped_malformed);
          }
        }
      }
    }
  });
}

TEST_CASE("frames with random bytes changed come out within the MTU or not at all", "[common][frame]") {
  SeededRandom random(20);
  for (int round = 0; round < 20000; ++round) {
    const Below below = below_with(random.below(2) == 0 ? 4 : 6, random.below(3), random.below(2) * 8);
    Bytes frame = random.below(4) == 0 ? test::udp_frame(below, test::pattern(random.below(600)), Fill::partial)
                                       : test::tcp_frame(below, {}, test::pattern(random.below(1200)), Fill::partial);
    const std::size_t headers = std::min<std::size_t>(frame.size(), 110);
    for (std::uint64_t changes = random.below(6); changes > 0; --changes) {
      frame[random.below(headers)] = static_cast<std::byte>(random.below(256));
    }
    const auto mtu = static_cast<std::uint32_t>(68 + random.below(1000));
    for (const Bytes& out : in_software(frame, mtu).frames) {
      const auto header = parse_ethernet(out);
      REQUIRE(header);
      REQUIRE(out.size() <= header->payload_offset + mtu);
      REQUIRE(in_software(out, mtu).result == OffloadResult::unchanged);
    }
  }
}

}  // namespace splitnic::frame::frame_offload_test
