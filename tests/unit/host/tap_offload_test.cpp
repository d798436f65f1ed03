// A TAP with virtio-net headers: what the kernel leaves to the driver, and what it takes unfinished.
#include "host/tap_nic.h"

#include <arpa/inet.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "tests/unit/common/offload_run.h"
#include "tests/unit/quiet_log.h"
#include "tests/unit/test_namespace.h"

namespace splitnic::host::tap_offload_test {
namespace {

using splitnic::test::Bytes;
using testing::quiet_log;
using testing::run;
using testing::TestNamespace;

constexpr Time kStart{std::chrono::hours(1)};
constexpr MacAddress kMac{{0x02, 0, 0, 0, 0, 0x02}};  // of the packet builder's receiver
constexpr std::uint16_t kUdpSegmentOption = 103;      // UDP_SEGMENT

/// The TAP sn0 with the address 10.0.0.2, and a neighbour 10.0.0.1 behind it.
std::unique_ptr<TapNic> opened(bool offloads) {
  auto nic = TapNic::open({.name = "sn0", .mac = kMac, .offloads = offloads}, kStart, quiet_log());
  if (!nic) FAIL(nic.error().message);
  (*nic)->set_carrier(true);
  run("sysctl -q -w net.ipv6.conf.sn0.disable_ipv6=1");
  run("ip addr replace 10.0.0.2/24 dev sn0");
  run("ip link set sn0 up");
  run("ip neigh replace 10.0.0.1 lladdr 02:00:00:00:00:01 dev sn0");
  return *std::move(nic);
}

struct UdpSocket {
  UdpSocket() : fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_port = htons(0x1002);
    REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
  }
  ~UdpSocket() { ::close(fd); }
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;
  /// One call: a datagram, or several of segment_bytes.
  void send(std::size_t bytes, int segment_bytes = 0) const {
    REQUIRE(::setsockopt(fd, IPPROTO_UDP, kUdpSegmentOption, &segment_bytes, sizeof segment_bytes) == 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(0x1001);
    to.sin_addr.s_addr = htonl(0x0a000001);
    const Bytes payload = splitnic::test::pattern(bytes);
    REQUIRE(::sendto(fd, payload.data(), bytes, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to) ==
            static_cast<ssize_t>(bytes));
  }
  int fd;
};

struct Read {
  Bytes frame;
  frame::FrameOffload offload;
};

/// The UDP frames that the driver's side reads now. first_bytes: of the room, in a part of its own.
std::vector<Read> read_all(TapNic& nic, std::size_t room_bytes = 65536, std::size_t first_bytes = 0) {
  std::vector<Read> all;
  Bytes first(first_bytes);
  Bytes rest(room_bytes - first_bytes);
  frame::FrameOffload offload;
  while (const std::size_t bytes = nic.read_unfinished({first, rest}, 1514, offload)) {
    Bytes frame = first;
    frame.insert(frame.end(), rest.begin(), rest.end());
    frame.resize(bytes);
    if (bytes > 42 && frame[23] == std::byte{17}) all.push_back({std::move(frame), offload});
  }
  return all;
}

bool is_complete(const Read& read) {
  const auto run = splitnic::test::in_software(read.frame, 65535);
  return !read.offload.asks_for_work() && run.result == frame::OffloadResult::unchanged;
}

/// Whether the stack leaves checksums to the program behind the interface.
bool leaves_checksums(const char* interface) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ethtool_value value{.cmd = ETHTOOL_GTXCSUM, .data = 0};
  ifreq request{};
  std::strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&value);
  const int done = ::ioctl(fd, SIOCETHTOOL, &request);
  ::close(fd);
  REQUIRE(done == 0);
  return value.data != 0;
}

}  // namespace

TEST_CASE("the stack finishes its frames until the driver permits otherwise", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened(true);
  REQUIRE(nic->offloads().frames);
  const UdpSocket socket;
  socket.send(300);
  socket.send(900, 300);
  auto frames = read_all(*nic);
  REQUIRE(frames.size() == 4);
  for (const Read& read : frames) CHECK(is_complete(read));

  nic->set_offloads({.frames = true, .udp_segments = nic->offloads().udp_segments});
  socket.send(300);
  frames = read_all(*nic);
  REQUIRE(frames.size() == 1);
  CHECK(frames[0].frame.size() == 342);
  CHECK(frames[0].offload == frame::FrameOffload{true, 34, 6});
  if (nic->offloads().udp_segments) {
    socket.send(9000, 300);
    frames = read_all(*nic);
    REQUIRE(frames.size() == 1);
    CHECK(frames[0].frame.size() == 9042);
    CHECK(frames[0].offload.kind == frame::SegmentKind::udp);
    CHECK(frames[0].offload.segment_bytes == 300);
    CHECK_FALSE(frame::why_not_offload(frames[0].frame, frames[0].offload));
  }

  nic->set_offloads({.frames = true});
  socket.send(900, 300);
  CHECK(read_all(*nic).size() == 3);
  nic->set_offloads({});
  socket.send(300);
  frames = read_all(*nic);
  REQUIRE(frames.size() == 1);
  CHECK(is_complete(frames[0]));
  CHECK(nic->unfinished() == 0);
}

TEST_CASE("frames that wait unfinished when that ends are dropped and counted, and no others",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened(true);
  nic->set_offloads({.frames = true});
  const UdpSocket socket;
  socket.send(300);
  socket.send(301);
  nic->set_offloads({});
  socket.send(302);
  const auto frames = read_all(*nic);
  REQUIRE(frames.size() == 1);
  CHECK(frames[0].frame.size() == 344);
  CHECK(nic->unfinished() == 2);
}

TEST_CASE("only a super-frame may be longer than the agreed frame, and none than the room", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened(true);
  if (!nic->offloads().udp_segments) return;
  nic->set_offloads({.frames = true, .udp_segments = true});
  run("ip link set sn0 mtu 4000");
  const UdpSocket socket;
  socket.send(1472);
  socket.send(1473);
  socket.send(3000, 1000);
  socket.send(6000, 1000);
  const auto frames = read_all(*nic, 3042);
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].frame.size() == 1514);
  CHECK(frames[1].frame.size() == 3042);
  CHECK(nic->oversized() == 2);
}

TEST_CASE("a frame is read into two parts, wherever the first one ends", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened(true);
  nic->set_offloads({.frames = true});
  run("ip link set sn0 mtu 4000");
  const UdpSocket socket;
  // In the bytes that the device keeps a copy of, at their end, behind them, in the last byte, and behind it.
  for (const std::size_t first_bytes : {std::size_t{50}, TapDevice::kHeadBytes, std::size_t{700}, std::size_t{1513},
                                        std::size_t{1514}, std::size_t{3000}}) {
    socket.send(1472);
    socket.send(1473);
    const auto frames = read_all(*nic, 4000, first_bytes);
    REQUIRE(frames.size() == 1);
    CHECK(frames[0].offload == frame::FrameOffload{true, 34, 6});
    const auto payload = std::span(frames[0].frame).subspan(42);
    CHECK(std::ranges::equal(payload, splitnic::test::pattern(1472)));
  }
  CHECK(nic->oversized() == 6);
  // The spare byte lies behind both parts.
  socket.send(1000);
  CHECK(read_all(*nic, 1041, 500).empty());
  CHECK(nic->oversized() == 7);
}

TEST_CASE("the stack takes unfinished frames", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened(true);
  const UdpSocket socket;
  // The packet builder's datagrams go from 10.0.0.1 to 10.0.0.2.
  const Bytes payload = splitnic::test::pattern(900);
  Bytes frame = splitnic::test::udp_frame({}, payload, splitnic::test::Fill::partial);
  const std::uint16_t port = splitnic::test::get16(frame, 36);
  const int receiver = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_port = htons(port);
  REQUIRE(::bind(receiver, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
  const auto received = [&] {
    std::vector<std::size_t> lengths;
    Bytes room(65536);
    for (ssize_t got = ::recv(receiver, room.data(), room.size(), 0); got >= 0;
         got = ::recv(receiver, room.data(), room.size(), 0)) {
      lengths.push_back(static_cast<std::size_t>(got));
    }
    return lengths;
  };
  const auto deliver = [&](const frame::FrameOffload& offload, std::size_t first_part) {
    auto whole = fabric::PeerMemory::over(frame.data(), frame.size());
    return nic->write_frame({whole.slice(0, first_part), whole.slice(first_part, frame.size() - first_part), offload});
  };
  CHECK(deliver({}, frame.size()));  // its checksum is wrong
  CHECK(received().empty());
  CHECK(deliver({true, 34, 6}, frame.size()));
  CHECK(deliver({true, 34, 6}, 100));  // in two parts
  CHECK(received() == std::vector<std::size_t>{900, 900});
  if (nic->offloads().udp_segments) {
    CHECK(deliver({true, 34, 6, frame::SegmentKind::udp, 300, 42}, 500));
    CHECK(received() == std::vector<std::size_t>{300, 300, 300});
  }
  // The kernel itself refuses metadata that does not fit.
  CHECK_FALSE(deliver({true, 0xfff0, 6}, frame.size()));
  CHECK_FALSE(deliver({true, 34, 0xfff0}, frame.size()));
  CHECK_FALSE(deliver({true, 34, 16, frame::SegmentKind::udp, 300, 42}, frame.size()));
  CHECK_FALSE(deliver({true, 34, 6, frame::SegmentKind::udp, 0, 42}, frame.size()));
  CHECK_FALSE(deliver({true, 34, 6, frame::SegmentKind::udp, 300, 0xffff}, frame.size()));
  CHECK(received().empty());
  ::close(receiver);
}

TEST_CASE("a driver without offloads takes over a TAP whose last driver had them", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  auto nic = opened(true);
  nic->set_offloads({.frames = true, .udp_segments = nic->offloads().udp_segments});
  nic->keep();
  nic.reset();
  nic = opened(false);
  CHECK(nic->offloads() == NicOffloads{});
  const UdpSocket socket;
  socket.send(900, 300);
  const auto frames = read_all(*nic);
  REQUIRE(frames.size() == 3);
  for (const Read& read : frames) CHECK(is_complete(read));
}

TEST_CASE("somebody else's TAP is left as it was found: its frames finished", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  run("ip tuntap add dev sn0 mode tap");
  auto nic = opened(true);
  REQUIRE_FALSE(nic->made_here());
  nic->set_offloads({.frames = true, .udp_segments = nic->offloads().udp_segments});
  CHECK(leaves_checksums("sn0"));
  nic.reset();
  CHECK_FALSE(leaves_checksums("sn0"));
}

}  // namespace splitnic::host::tap_offload_test
