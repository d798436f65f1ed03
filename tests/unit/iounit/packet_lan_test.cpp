#include "iounit/packet_lan.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/os/unique_fd.h"
#include "tests/unit/common/offload_run.h"
#include "tests/unit/iounit/collected_frames.h"
#include "tests/unit/quiet_log.h"
#include "tests/unit/test_namespace.h"

namespace splitnic::iounit::packet_lan_test {
namespace {

using namespace std::chrono_literals;
using testing::quiet_log;
using testing::readable;
using testing::run;
using testing::TestNamespace;

constexpr Time kStart{1h};

std::unique_ptr<PacketLan> opened(const char* interface, os::Log& log = quiet_log()) {
  auto lan = PacketLan::open(PacketOptions{.interface = interface}, kStart, log);
  if (!lan) FAIL(lan.error().message);
  return *std::move(lan);
}

/// lan0, which an engine opens, and lan1, behind which a station has the address 10.0.0.1. Its peer 10.0.0.2 exists in
/// its neighbour table alone.
void make_station() {
  run("ip link add lan0 type veth peer name lan1");
  run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
  run("ip link set lan0 up");
  run("ip link set lan1 up");
  run("until ip link show lan0 | grep -q 'state UP'; do :; done");
  run("ip addr add 10.0.0.1/24 dev lan1");
  run("ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:02 dev lan1");
}

/// The station sends `payload` to its peer by one call, as datagrams of `segment_bytes`.
void send_datagrams(const splitnic::test::Bytes& payload, int segment_bytes) {
  const os::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(53);
  REQUIRE(::inet_pton(AF_INET, "10.0.0.2", &peer.sin_addr) == 1);
  REQUIRE(::setsockopt(socket.get(), SOL_UDP, UDP_SEGMENT, &segment_bytes, sizeof segment_bytes) == 0);
  REQUIRE(::sendto(socket.get(), payload.data(), payload.size(), 0, reinterpret_cast<const sockaddr*>(&peer),
                   sizeof peer) == static_cast<ssize_t>(payload.size()));
}

/// The same on VLAN 42, by a packet socket: not every kernel has VLAN interfaces.
void send_tagged_datagrams(const splitnic::test::Bytes& payload, std::uint16_t segment_bytes) {
  const os::UniqueFd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  const int on = 1;
  REQUIRE(::setsockopt(socket.get(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) == 0);
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_protocol = htons(ETH_P_ALL);
  to.sll_ifindex = static_cast<int>(::if_nametoindex("lan1"));
  splitnic::test::Below below;
  below.vlans = {{.control = 42}};
  splitnic::test::Bytes message{std::byte{1}, std::byte{5}};  // a partial checksum; segments of UDP
  for (const unsigned number : {46U, unsigned{segment_bytes}, 38U, 6U}) {
    message.push_back(static_cast<std::byte>(number & 0xffU));
    message.push_back(static_cast<std::byte>(number >> 8U));
  }
  splitnic::test::put(message, splitnic::test::udp_frame(below, payload, splitnic::test::Fill::partial));
  REQUIRE(::sendto(socket.get(), message.data(), message.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                   sizeof to) == static_cast<ssize_t>(message.size()));
}

/// TCP frames with payloads of these lengths, each changed as soon as the engine has taken it. Returns what they were.
std::vector<Frame> send_super_frames(PacketLan& lan, std::initializer_list<std::size_t> payloads) {
  const frame::FrameOffload offload{true, 34, 16, frame::SegmentKind::tcp_v4, 1460, 54};
  std::vector<Frame> sent;
  for (const std::size_t payload_bytes : payloads) {
    sent.push_back(
        splitnic::test::tcp_frame({}, {}, splitnic::test::pattern(payload_bytes), splitnic::test::Fill::partial));
    Frame changing = sent.back();
    REQUIRE(lan.send_unfinished(changing, offload));
    std::fill(changing.begin(), changing.end(), std::byte{0xee});
  }
  lan.flush();
  return sent;
}

/// The one UDP frame that the engine has received, and its metadata.
std::pair<Frame, frame::FrameOffload> received_one(PacketLan& lan) {
  REQUIRE(readable({testing::descriptors_of(lan).back()}, 5s));
  CollectedFrames sink;
  take(lan, sink, 16);
  REQUIRE(sink.frames.size() == 1);
  REQUIRE(sink.offloads.size() == 1);
  return {sink.frames[0], sink.offloads[0]};
}

}  // namespace

TEST_CASE("UDP that its sender left to be segmented arrives with its segment size, tagged or not",
          "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_station();
  const auto lan = opened("lan0");
  const auto payload = splitnic::test::pattern(900);
  for (const bool tagged : {false, true}) {
    INFO((tagged ? "VLAN 42" : "untagged"));
    if (tagged) {
      send_tagged_datagrams(payload, 300);
    } else {
      send_datagrams(payload, 300);
    }
    const auto [frame, offload] = received_one(*lan);
    const std::size_t tag_bytes = tagged ? 4 : 0;
    if (tagged) {
      CHECK(splitnic::test::get16(frame, 12) == 0x8100);
      CHECK((splitnic::test::get16(frame, 14) & 0xfffU) == 42);
    }
    CHECK(splitnic::test::get16(frame, 12 + tag_bytes) == 0x0800);
    CHECK(offload.kind == frame::SegmentKind::udp);
    CHECK(offload.segment_bytes == 300);
    CHECK(offload.partial_checksum);
    CHECK(offload.checksum_start == 34 + tag_bytes);
    CHECK(offload.checksum_offset == 6);
    CHECK(offload.header_bytes >= 42 + tag_bytes);
    const auto finished = splitnic::test::in_software(frame, offload, 1500);
    REQUIRE(finished.frames.size() == 3);
    splitnic::test::Bytes together;
    for (const auto& datagram : finished.frames) {
      splitnic::test::put(together, std::span(datagram).subspan(42 + tag_bytes));
      // RFC 768: addresses, protocol and length, then the datagram.
      splitnic::test::Bytes covered;
      splitnic::test::put(covered, std::span(datagram).subspan(26 + tag_bytes, 8));
      splitnic::test::put32(covered, 17);
      splitnic::test::put32(covered, 308);
      splitnic::test::put(covered, std::span(datagram).subspan(34 + tag_bytes));
      CHECK(splitnic::test::reference_sum(covered) == 0xffff);
    }
    CHECK(together == payload);
  }
}

TEST_CASE("a frame with a partial checksum arrives with the place of the checksum", "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_station();
  const auto lan = opened("lan0");
  send_datagrams(splitnic::test::pattern(299), 300);
  const auto [frame, offload] = received_one(*lan);
  CHECK(offload.partial_checksum);
  CHECK(offload.kind == frame::SegmentKind::none);
  CHECK(splitnic::test::in_software(frame, offload, 1500).result == frame::OffloadResult::finished);
}

TEST_CASE("frames that are sent wait for the flush, unless the batch is full", "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_station();
  const auto here = opened("lan0");
  const auto there = opened("lan1");
  std::vector<Frame> sent;
  const auto send = [&](std::size_t frames, std::size_t bytes) {
    for (std::size_t number = 0; number < frames; ++number) {
      sent.push_back(frame_of(bytes, static_cast<unsigned>(sent.size())));
      REQUIRE(here->send(sent.back()));
    }
  };
  const auto all_received = [&] {
    CollectedFrames sink;
    while (take(*there, sink, 1000) != 0) {
    }
    return sink.frames;
  };
  send(3, 60);
  CHECK(all_received().empty());
  CHECK(here->counters().tx_frames == 0);
  here->flush();
  CHECK(all_received() == sent);
  sent.clear();
  send(200, 1514);
  CHECK(here->counters().tx_frames >= 3 + 128);
  here->flush();
  here->flush();
  CHECK(all_received() == sent);
  CHECK(here->counters().tx_frames == 203);
  CHECK(there->counters().rx_frames == 203);
}

TEST_CASE("super-frames that are sent whole arrive whole, with their metadata", "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_station();
  const auto here = opened("lan0");
  const auto there = opened("lan1");
  for (const auto kind : {frame::SegmentKind::none, frame::SegmentKind::tcp_v6, frame::SegmentKind::udp}) {
    CHECK(here->takes_offloads(kind));
  }
  const splitnic::test::Below v4, v6 = splitnic::test::below_with(6, 0);
  const auto payload = splitnic::test::pattern(20000);
  using splitnic::test::Fill;
  struct Row {
    Frame frame;
    frame::FrameOffload offload;
  };
  const Row rows[] = {
      {splitnic::test::tcp_frame(v4, {}, payload, Fill::partial), {true, 34, 16, frame::SegmentKind::tcp_v4, 1460, 54}},
      {splitnic::test::tcp_frame(v6, {}, payload, Fill::partial), {true, 54, 16, frame::SegmentKind::tcp_v6, 1440, 74}},
      {splitnic::test::udp_frame(v4, payload, Fill::partial), {true, 34, 6, frame::SegmentKind::udp, 1400, 42}},
      {splitnic::test::udp_frame(v4, splitnic::test::pattern(99), Fill::partial), {true, 34, 6}},
  };
  for (const Row& row : rows) {
    REQUIRE(here->send_unfinished(row.frame, row.offload));
    here->flush();
    const auto [frame, offload] = received_one(*there);
    CHECK(frame == row.frame);
    CHECK(offload.kind == row.offload.kind);
    CHECK(offload.segment_bytes == row.offload.segment_bytes);
    CHECK(offload.partial_checksum);
    CHECK(offload.checksum_start == row.offload.checksum_start);
    CHECK(offload.checksum_offset == row.offload.checksum_offset);
  }
  CHECK(here->counters().tx_frames == 4);
  REQUIRE(here->send_unfinished(rows[3].frame, {true, 0xffff, 0xffff}));
  here->flush();
  CHECK(here->counters().tx_errors == 1);
  CHECK(here->takes_offloads(frame::SegmentKind::udp));
}

TEST_CASE("long frames are sent from where they lie, in their order and before the caller may change them",
          "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_station();
  const auto here = opened("lan0");
  const auto there = opened("lan1");
  const std::vector<Frame> sent = send_super_frames(*here, {3000, 40000, 60000, 20, 16330, 16331});
  CHECK(here->counters().tx_frames == sent.size());
  CollectedFrames sink;
  while (take(*there, sink, 100) != 0) {
  }
  CHECK(sink.frames == sent);
}

namespace {

/// Has a place for two of three long frames.
struct Placing final : LanSink {
  void on_lan_frame(std::span<const std::byte>) override { FAIL("without metadata"); }
  void on_lan_frame(std::span<const std::byte> frame, const frame::FrameOffload& offload) override {
    frames.emplace_back(frame.begin(), frame.end());
    offloads.push_back(offload);
  }
  messaging::FrameMemory place_for(std::span<const std::byte> frame, std::size_t head_bytes,
                                   const frame::FrameOffload&) override {
    ++asked;
    CHECK(head_bytes == kHeadBytes);
    if (asked % 3 == 0) return {};
    place.assign(frame.size(), std::byte{0xee});
    rest.assign(frame.size() / 2 * (asked % 2), std::byte{0xee});  // of every other one
    return {std::span(place).first(place.size() - rest.size()), rest};
  }
  void on_placed_frame(std::span<const std::byte> frame, std::size_t head_bytes,
                       const frame::FrameOffload& offload) override {
    std::ranges::copy(frame.first(head_bytes), place.begin());
    std::ranges::copy(rest, place.end() - static_cast<std::ptrdiff_t>(rest.size()));
    frames.push_back(place);
    offloads.push_back(offload);
    ++placed;
  }
  std::vector<Frame> frames;
  std::vector<frame::FrameOffload> offloads;
  Frame place;
  Frame rest;
  std::size_t asked = 0;
  std::size_t placed = 0;
};

}  // namespace

TEST_CASE("long frames that follow a long one are read to where the sink wants them, and all arrive in order",
          "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_station();
  const auto here = opened("lan0");
  const auto there = opened("lan1");
  const std::vector<Frame> sent = send_super_frames(*here, {20000, 40000, 60000, 50000, 20, 30, 33000, 34000, 64000});
  Placing sink;
  while (sink.frames.size() < sent.size() && readable({testing::descriptors_of(*there).back()}, 5s)) {
    take(*there, sink, 1);
  }
  CHECK(sink.frames == sent);
  for (std::size_t number = 0; number < sink.offloads.size(); ++number) {
    // The kernel takes a frame of one segment for no super-frame.
    CHECK(sink.offloads[number].segment_bytes == (sent[number].size() > kLongFrameBytes ? 1460 : 0));
    CHECK(sink.offloads[number].partial_checksum);
  }
  // Of the nine, the first is not expected, one is refused by the sink, and the short ones end the expectation.
  CHECK(sink.placed == 4);
  CHECK(there->counters().rx_frames == sent.size());
}

TEST_CASE("an engine whose kernel refuses a super-frame of UDP gets no more of them", "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_station();
  const auto lan = opened("lan0");
  const auto frame = splitnic::test::udp_frame({}, splitnic::test::pattern(3000), splitnic::test::Fill::partial);
  REQUIRE(lan->takes_offloads(frame::SegmentKind::udp));
  // A kernel that knows no UDP segments answers the same to right metadata.
  REQUIRE(lan->send_unfinished(frame, {true, 34, 16, frame::SegmentKind::udp, 1000, 42}));
  REQUIRE(lan->send(frame_of(60, 1)));
  lan->flush();
  CHECK_FALSE(lan->takes_offloads(frame::SegmentKind::udp));
  CHECK(lan->takes_offloads(frame::SegmentKind::tcp_v4));
  CHECK(lan->takes_offloads(frame::SegmentKind::none));
  CHECK(lan->counters().tx_errors == 1);
  CHECK(lan->counters().tx_frames == 1);
}

TEST_CASE("a super-frame of UDP with more segments than a kernel makes switches nothing off",
          "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_station();
  const auto lan = opened("lan0");
  for (const std::size_t payload_bytes : {3000UL, 30000UL}) {  // copied, and sent from where it lies
    const auto frame =
        splitnic::test::udp_frame({}, splitnic::test::pattern(payload_bytes), splitnic::test::Fill::partial);
    // The wrong field makes every kernel refuse it.
    REQUIRE(lan->send_unfinished(frame, {true, 34, 16, frame::SegmentKind::udp, 8, 42}));
    lan->flush();
  }
  CHECK(lan->takes_offloads(frame::SegmentKind::udp));
  CHECK(lan->counters().tx_errors == 2);
  CHECK(lan->counters().tx_lost == 2);
}

/// A TAP as the LAN lan0: what is written to it comes in as it is.
struct TapLan {
  TapLan() {
    ifreq request{};
    std::strcpy(request.ifr_name, "lan0");
    request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    REQUIRE(::ioctl(tap.get(), TUNSETIFF, &request) == 0);
    run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    run("ip link set lan0 up");
  }
  void arrives(const Frame& frame, const frame::VirtioNetHeader& header = frame::make_virtio_net_header({})) const {
    Frame message(sizeof header);
    std::memcpy(message.data(), &header, sizeof header);
    message.insert(message.end(), frame.begin(), frame.end());
    REQUIRE(::write(tap.get(), message.data(), message.size()) == static_cast<ssize_t>(message.size()));
  }

  os::UniqueFd tap{::open("/dev/net/tun", O_RDWR | O_CLOEXEC)};
};

TEST_CASE("a frame whose segmentation no virtio-net header describes is dropped and counted, and no other",
          "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const TapLan tap;
  std::vector<std::string> lines;
  os::Log log("test", {.write = [&](std::string_view line) { lines.emplace_back(line); }});
  const auto lan = opened("lan0", log);
  const std::vector<Frame> others{frame_of(60, 1), frame_of(61, 2), frame_of(62, 3)};
  auto fragments = frame::make_virtio_net_header({true, 34, 6, frame::SegmentKind::udp, 1000, 42});
  fragments.kind = 3;  // VIRTIO_NET_HDR_GSO_UDP: to be cut into fragments of IP
  const auto datagram = splitnic::test::udp_frame({}, splitnic::test::pattern(3000), splitnic::test::Fill::partial);
  for (const Frame& other : others) {
    tap.arrives(other, {});
    tap.arrives(datagram, fragments);
  }
  CollectedFrames sink;
  while (lan->counters().rx_undescribed < others.size() && readable({testing::descriptors_of(*lan).back()}, 5s)) {
    take(*lan, sink, 16);
  }
  CHECK(sink.frames == others);
  CHECK(lan->counters().rx_undescribed == others.size());
  CHECK(lan->counters().rx_truncated == 0);
  CHECK(lan->counters().rx_frames == others.size());
  CHECK(std::ranges::count_if(lines, [](const std::string& line) {
          return line.find("ethtool -K lan0 lro off") != std::string::npos;
        }) == 1);

  // Behind a long frame, the engine looks at the next one's head first.
  const auto longer = splitnic::test::tcp_frame({}, {}, splitnic::test::pattern(20000), splitnic::test::Fill::partial);
  tap.arrives(longer, frame::make_virtio_net_header({true, 34, 16, frame::SegmentKind::tcp_v4, 1460, 54}));
  tap.arrives(datagram, fragments);
  CHECK(take(*lan, sink, 16) == 1);
  tap.arrives(longer, frame::make_virtio_net_header({true, 34, 16, frame::SegmentKind::tcp_v4, 1460, 54}));
  CHECK(take(*lan, sink, 16) == 1);
  CHECK(lan->counters().rx_undescribed == others.size() + 1);
  tap.arrives(datagram, fragments);
  CHECK(take(*lan, sink, 16) == 0);
  CHECK(lan->counters().rx_undescribed == others.size() + 2);
}

TEST_CASE("a frame that the kernel can't describe costs no frame that is sent next", "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const TapLan tap;
  const auto lan = opened("lan0");
  auto fragments = frame::make_virtio_net_header({true, 34, 6, frame::SegmentKind::udp, 1000, 42});
  fragments.kind = 3;  // VIRTIO_NET_HDR_GSO_UDP
  const auto datagram = splitnic::test::udp_frame({}, splitnic::test::pattern(3000), splitnic::test::Fill::partial);
  CollectedFrames sink;
  // The kernel keeps the error of the second frame for the socket's next call.
  const auto error_waits = [&] {
    tap.arrives(frame_of(60, 1), {});
    tap.arrives(datagram, fragments);
    REQUIRE(readable({testing::descriptors_of(*lan).back()}, 5s));
    REQUIRE(take(*lan, sink, 16) == 1);
  };
  error_waits();
  REQUIRE(lan->send(frame_of(60, 2)));
  lan->flush();
  CHECK(lan->counters().tx_frames == 1);
  CHECK(lan->counters().rx_undescribed == 1);
  error_waits();
  REQUIRE(lan->send_unfinished(datagram, {true, 34, 6, frame::SegmentKind::udp, 1000, 42}));
  lan->flush();
  CHECK(lan->counters().tx_frames == 2);
  CHECK(lan->counters().rx_undescribed == 2);
  CHECK(lan->takes_offloads(frame::SegmentKind::udp));
  // What the kernel refuses itself is refused all the same.
  error_waits();
  REQUIRE(lan->send_unfinished(frame_of(60, 2), {true, 0xffff, 0xffff}));
  REQUIRE(lan->send(frame_of(60, 2)));
  lan->flush();
  CHECK(lan->counters().tx_frames == 3);
  CHECK(lan->counters().tx_errors == 1);
  CHECK(lan->counters().tx_lost == 1);
}

TEST_CASE("a frame longer than the longest is dropped, and the log says once how senders are kept from making them",
          "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const TapLan tap;
  std::vector<std::string> lines;
  os::Log log("test", {.write = [&](std::string_view line) { lines.emplace_back(line); }});
  const auto lan = opened("lan0", log);
  CollectedFrames sink;
  const auto arrives = [&](std::size_t bytes) {
    tap.arrives(frame_of(bytes, 1));
    const std::uint64_t before = lan->counters().rx_truncated + lan->counters().rx_frames;
    while (lan->counters().rx_truncated + lan->counters().rx_frames == before) {
      REQUIRE(readable({testing::descriptors_of(*lan).back()}, 5s));
      take(*lan, sink, 1);
    }
  };
  arrives(65000);
  arrives(frame::kMaxFrameBytes);
  CHECK(sink.frames.size() == 2);
  CHECK(lines.empty());
  for (int more = 0; more < 3; ++more) arrives(100'000);
  CHECK(lan->counters().rx_truncated == 3);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Catch::Contains("ip link set dev lan0 gro_max_size 65536") && Catch::Contains("gso_max_size"));
  arrives(60);
  CHECK(sink.frames.size() == 3);
}

TEST_CASE("each frame of a batch that the interface refuses is counted", "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_station();
  const auto lan = opened("lan0");
  for (unsigned number = 0; number < 3; ++number) REQUIRE(lan->send(frame_of(1514, number)));
  run("ip link set lan0 mtu 1000");
  REQUIRE(lan->send(frame_of(60, 3)));
  lan->flush();
  CHECK(lan->counters().tx_errors == 3);
  CHECK(lan->counters().tx_lost == 3);
  CHECK(lan->counters().tx_frames == 1);
  lan->poll(kStart + 1h);  // it learns the MTU
  CHECK_FALSE(lan->send(frame_of(1514, 4)));
  CHECK(lan->counters().tx_errors == 4);
  CHECK(lan->counters().tx_lost == 3);
}

}  // namespace splitnic::iounit::packet_lan_test
