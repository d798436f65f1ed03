// The payload of a long super-frame goes from the sender's elements to its only receiver, and from the LAN to the
// receiver's elements, without a stop in the unit. What the unit decides by is in private memory.
#include <catch2/catch.hpp>

#include "super_frames.h"

namespace splitnic::iounit::test::io_unit_payload_test {
namespace {

/// Frames of more than kLongFrameBytes.
struct Apart : Mixed {
  explicit Apart(IoUnitOptions options = overheard()) : Mixed(std::move(options)) {
    lan_takes_all();
    lan.reads_apart = true;
  }
  void let_overhear(TestHost& host) {
    wire::ReceiveFilter all;
    all.promiscuous = true;
    REQUIRE(grants(host, all));
  }
  static IoUnitOptions overheard() {
    IoUnitOptions options = offloading();
    options.policy.others.promiscuous = true;
    return options;
  }
};

/// Headers longer than what the unit copies at first: two extension headers of 200 bytes.
Below with_long_headers(Below below) {
  constexpr std::size_t kBodyBytes = 198;
  constexpr std::uint8_t kDestinationOptions = 60;
  for (int header = 0; header < 2; ++header) {
    splitnic::test::Bytes body(kBodyBytes);
    body[0] = std::byte{(kBodyBytes + 2) / 8 - 1};
    body[1] = std::byte{1};  // PadN
    body[2] = static_cast<std::byte>(kBodyBytes - 3);
    below.ipv6_extensions.push_back({kDestinationOptions, body});
  }
  return below;
}

}  // namespace

TEST_CASE("a host's long super-frame is sent to the LAN from its elements, wherever these end", "[iounit][offload]") {
  Apart bench;
  // More bytes than the pool has, so that frames go round its end in different places.
  for (std::size_t number = 0; number < 12; ++number) {
    bench.clear();
    const Super sent = tcp(from_to(bench.a.mac(), station(1), number % 2 == 0 ? 4 : 6), 40000 + 1777 * number);
    bench.from_host(bench.a, sent.frame, 1, sent.offload);
    require_whole(bench.lan.sent, bench.lan.sent_offloads, sent);
  }
  CHECK(bench.lan.sent_apart == 12);
  bench.clear();
  const Super datagrams = udp(from_to(bench.a.mac(), station(1)), 30000);
  bench.from_host(bench.a, datagrams.frame, 1, datagrams.offload);
  require_whole(bench.lan.sent, bench.lan.sent_offloads, datagrams);
  CHECK(bench.lan.sent_apart == 13);
  CHECK(bench.unit().counters().payloads_copied == 0);
  bench.require_sum();
}

TEST_CASE("a payload that more than one receiver reads, or software, is copied first", "[iounit][offload]") {
  Apart bench;
  std::uint64_t copied = 1;
  const auto sends = [&](const Super& sent) {
    bench.clear();
    bench.from_host(bench.a, sent.frame, 1, sent.offload);
    bench.require_sum();
  };
  SECTION("frames that are short enough") {
    const Super sent = tcp(from_to(bench.a.mac(), station(1)), 16000);
    sends(sent);
    copied = 0;  // it was copied whole
    require_whole(bench.lan.sent, bench.lan.sent_offloads, sent);
  }
  SECTION("headers that are longer than the head") {
    const Super sent = tcp(with_long_headers(from_to(bench.a.mac(), station(1), 6)), 30000, 1000);
    sends(sent);
    CHECK(bench.lan.sent.size() == 1);
    CHECK(bench.lan.sent.front() == sent.frame);
  }
  SECTION("the LAN and a host") {
    const Super sent = tcp(from_to(bench.a.mac(), kBroadcastMac));
    sends(sent);
    require_whole(bench.lan.sent, bench.lan.sent_offloads, sent);
    require_whole(bench.b.frames, bench.b.offloads, sent);
    require_finished(bench.c.frames, bench.c.offloads, sent);
  }
  SECTION("two hosts") {
    const bool second_can_cut = GENERATE(true, false);
    TestHost& second = second_can_cut ? bench.t : bench.c;
    bench.let_overhear(second);
    const Super sent = tcp(from_to(bench.a.mac(), bench.b.mac()));
    sends(sent);
    require_whole(bench.b.frames, bench.b.offloads, sent);
    (second_can_cut ? require_whole : require_finished)(second.frames, second.offloads, sent);
    CHECK(bench.lan.sent.empty());
  }
  SECTION("a LAN that can't cut") {
    bench.lan.takes.clear();
    const Super sent = tcp(from_to(bench.a.mac(), station(1)));
    sends(sent);
    require_finished(bench.lan.sent, bench.lan.sent_offloads, sent);
  }
  SECTION("a host that can't cut") {
    const Super sent = tcp(from_to(bench.a.mac(), bench.c.mac()));
    sends(sent);
    require_finished(bench.c.frames, bench.c.offloads, sent);
  }
  CHECK(bench.lan.sent_apart == 0);
  CHECK(bench.unit().counters().payloads_copied == copied);
}

TEST_CASE("between two hosts a long super-frame is copied from elements to elements", "[iounit][offload]") {
  Apart bench;
  for (std::size_t number = 0; number < 12; ++number) {
    bench.clear();
    const Super sent = tcp(from_to(bench.a.mac(), bench.b.mac()), 40000 + 1777 * number);
    bench.from_host(bench.a, sent.frame, 1, sent.offload);
    require_whole(bench.b.frames, bench.b.offloads, sent);
  }
  CHECK(bench.unit().counters().payloads_copied == 0);
  bench.require_sum();
}

TEST_CASE("a tag is put into the head of a frame whose payload stays in its elements", "[iounit][offload]") {
  IoUnitOptions options = offloading();
  HostRule rule{.name = "v", .user = {}, .group = {}, .rights = {}};
  rule.rights.access_vlan = 5;
  options.policy.hosts.push_back(rule);
  Apart bench(options);
  TestHost& host = bench.host_up(able("v"));
  const Below untagged = from_to(host.mac(), station(1));
  Below tagged = untagged;
  tagged.vlans = {{0x8100, 5}};
  const Super sent = tcp(untagged, 30000);
  bench.from_host(host, sent.frame, 1, sent.offload);
  require_whole(bench.lan.sent, bench.lan.sent_offloads, tcp(tagged, 30000));
  CHECK(bench.lan.sent_apart == 1);
  CHECK(bench.unit().counters().payloads_copied == 0);
  // The way back takes the tag out, so there is no place for the frame as it comes.
  Below back = from_to(station(1), host.mac());
  const Super expected = tcp(back, 30000);
  back.vlans = {{0x8100, 5}};
  const Super arrives = tcp(back, 30000);
  bench.lan.offload = arrives.offload;
  bench.from_lan(arrives.frame);
  require_whole(host.frames, host.offloads, expected);
  CHECK(bench.lan.read_apart == 0);
}

TEST_CASE("a long super-frame of the LAN is read to the elements of its only receiver", "[iounit][offload]") {
  Apart bench;
  for (std::size_t number = 0; number < 12; ++number) {
    bench.clear();
    const Super sent = tcp(from_to(station(1), bench.a.mac(), number % 2 == 0 ? 4 : 6), 40000 + 1777 * number);
    bench.lan.offload = sent.offload;
    bench.from_lan(sent.frame);
    require_whole(bench.a.frames, bench.a.offloads, sent);
  }
  CHECK(bench.lan.read_apart == 12);
  CHECK(bench.unit().counters().lan_frames == 12);
  CHECK(bench.unit().counters().passed_unfinished == 12);
  CHECK(bench.drops().empty());
  bench.require_sum();
}

TEST_CASE("a long frame of the LAN has no place in a host that may not get it so", "[iounit][offload]") {
  Apart bench;
  const auto arrives = [&](const Super& sent) {
    bench.clear();
    bench.lan.offload = sent.offload;
    bench.from_lan(sent.frame);
    bench.require_sum();
  };
  SECTION("it can't finish the frame") {
    const Super sent = tcp(from_to(station(1), bench.c.mac()));
    arrives(sent);
    require_finished(bench.c.frames, bench.c.offloads, sent);
  }
  SECTION("another host overhears it") {
    bench.let_overhear(bench.t);
    const Super sent = tcp(from_to(station(1), bench.a.mac()));
    arrives(sent);
    require_whole(bench.a.frames, bench.a.offloads, sent);
    require_whole(bench.t.frames, bench.t.offloads, sent);
  }
  SECTION("nobody has the address") {
    arrives(tcp(from_to(station(1), station(2))));
    CHECK(bench.drops() == Drops{{"lan_unwanted", 1}});
  }
  SECTION("headers are longer than the head") {
    const Super sent = tcp(with_long_headers(from_to(station(1), bench.a.mac(), 6)), 30000, 1000);
    arrives(sent);
    REQUIRE(bench.a.frames.size() == 1);
    CHECK(bench.a.frames.front() == sent.frame);
  }
  SECTION("the metadata is wrong") {
    Super sent = tcp(from_to(station(1), bench.a.mac()));
    sent.offload.kind = frame::SegmentKind::tcp_v6;
    arrives(sent);
    CHECK(bench.drops() == Drops{{"lan_bad_offload", 1}});
  }
  SECTION("it has a tag") {
    Below below = from_to(station(1), bench.a.mac());
    below.vlans = {{0x8100, 7}};
    const Super sent = tcp(below);
    arrives(sent);
    require_whole(bench.a.frames, bench.a.offloads, sent);
  }
  CHECK(bench.lan.read_apart == 0);
}

TEST_CASE("a long frame that lies in a host's elements already is dropped for the same causes as any other",
          "[iounit][offload]") {
  Apart bench;
  SECTION("its source is the host's own address") {
    const Super sent = tcp(from_to(bench.a.mac(), bench.a.mac()));
    bench.lan.offload = sent.offload;
    bench.from_lan(sent.frame);
    CHECK(bench.drops() == Drops{{"lan_forged", 1}});
  }
  SECTION("the interface is down") {
    REQUIRE(bench.grants(bench.a, wire::LinkState{.up = false}));
    const Super sent = tcp(from_to(station(1), bench.a.mac()));
    bench.lan.offload = sent.offload;
    bench.from_lan(sent.frame);
    CHECK(bench.drops() == Drops{{"a/to_host_interface_down", 1}});
  }
  CHECK(bench.lan.read_apart == 1);
  CHECK(bench.a.frames.empty());
  bench.require_sum();
  // The elements that it would have taken are there for the next one.
  REQUIRE(bench.grants(bench.a, wire::LinkState{.up = true}));
  const Super next = tcp(from_to(station(1), bench.a.mac()), 50000);
  bench.lan.offload = next.offload;
  bench.from_lan(next.frame);
  require_whole(bench.a.frames, bench.a.offloads, next);
}

}  // namespace splitnic::iounit::test::io_unit_payload_test
