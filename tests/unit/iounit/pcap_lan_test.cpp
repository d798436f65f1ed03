#include "iounit/pcap_lan.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/unit/iounit/collected_frames.h"
#include "tests/unit/quiet_log.h"
#include "tests/unit/test_namespace.h"

namespace splitnic::iounit {
namespace {

using namespace std::chrono_literals;
using testing::output_of;
using testing::quiet_log;
using testing::readable;
using testing::run;
using testing::TestNamespace;

constexpr Time kStart{1h};

std::unique_ptr<PcapLan> opened(const char* interface) {
  auto lan = PcapLan::open(PcapOptions{.interface = interface}, kStart, quiet_log());
  if (!lan) FAIL(lan.error().message);
  return *std::move(lan);
}

std::string refusal(const char* interface) {
  const auto lan = PcapLan::open(PcapOptions{.interface = interface}, kStart, quiet_log());
  REQUIRE_FALSE(lan);
  return lan.error().message;
}

void make_pair() {
  run("ip link add lan0 type veth peer name lan1");
  // Without IPv6 the stack sends nothing of its own.
  run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
  run("ip link set lan0 up");
  run("ip link set lan1 up");
  // What is sent before the kernel's link watch has seen the carrier is lost.
  run("until ip link show lan0 | grep -q 'state UP'; do :; done");
}

std::vector<Frame> received(PcapLan& lan) {
  CollectedFrames sink;
  while (lan.receive(sink, 16) != 0) {
  }
  return sink.frames;
}

/// Lets the port follow link events, which the kernel reports by and by, until its carrier is as wanted.
bool carrier_becomes(PcapLan& lan, bool wanted) {
  for (static Time now = kStart + 1s; lan.carrier() != wanted; now += PcapLan::kEventInterval) {
    if (!readable(testing::descriptors_of(lan), 5s)) return false;
    lan.poll(now);
  }
  return true;
}

Frame tagged(std::size_t bytes, unsigned mark) {
  Frame frame = frame_of(bytes, mark);
  constexpr unsigned kTag[4] = {0x81, 0x00, 0x60, 0x2a};  // priority 3, VLAN 42
  for (std::size_t at = 0; at < 4; ++at) frame[12 + at] = static_cast<std::byte>(kTag[at]);
  frame[16] = std::byte{0x88};
  frame[17] = std::byte{0xb5};
  return frame;
}

TEST_CASE("frames cross an interface byte for byte, those with VLAN tags too, and the own ones don't come back",
          "[iounit][pcap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto here = opened("lan0");
  const auto there = opened("lan1");
  CHECK(here->mtu() == 1500);

  Frame twice_tagged = tagged(80, 5);
  twice_tagged.insert(twice_tagged.begin() + 12, {std::byte{0x88}, std::byte{0xa8}, std::byte{0}, std::byte{7}});
  const std::vector<Frame> sent{frame_of(14, 1), frame_of(60, 2), tagged(64, 3),
                                tagged(1518, 4), twice_tagged,    frame_of(1514, 5)};
  for (const Frame& frame : sent) REQUIRE(here->send(frame));
  here->flush();
  CHECK(readable(testing::descriptors_of(*there)));
  CHECK(received(*there) == sent);
  CHECK(received(*here).empty());
  CHECK(here->counters().tx_frames == sent.size());
  CHECK(there->counters().rx_frames == sent.size());
}

TEST_CASE("receive keeps to its budget", "[iounit][pcap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto here = opened("lan0");
  const auto there = opened("lan1");
  for (unsigned number = 0; number < 10; ++number) REQUIRE(here->send(frame_of(60, number)));
  CollectedFrames sink;
  CHECK(there->receive(sink, 4) == 4);
  CHECK(there->receive(sink, 0) == 0);
  CHECK(there->receive(sink, 100) == 6);
  CHECK(there->receive(sink, 100) == 0);
}

TEST_CASE("what the machine itself sends through the interface is not received", "[iounit][pcap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened("lan0");
  const auto other_program = opened("lan0");
  REQUIRE(other_program->send(frame_of(60, 1)));
  CHECK(received(*lan).empty());
}

TEST_CASE("runts and frames beyond the MTU are refused and counted", "[iounit][pcap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened("lan0");
  CHECK_FALSE(lan->send(frame_of(13, 1)));
  CHECK_FALSE(lan->send(frame_of(1519, 1)));
  CHECK(lan->counters().tx_errors == 2);
  CHECK(lan->counters().tx_frames == 0);
  run("ip link set lan0 mtu 9000");
  lan->poll(kStart + 1ms);
  CHECK(lan->mtu() == 9000);
}

TEST_CASE("frames lost in a full ring are counted", "[iounit][pcap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto here = opened("lan0");
  auto small = PcapLan::open(PcapOptions{.interface = "lan1", .ring_bytes = 1 << 20}, kStart, quiet_log());
  REQUIRE(small);
  for (unsigned number = 0; number < 1000; ++number) REQUIRE(here->send(frame_of(60, number)));
  const std::size_t got = received(**small).size();
  (*small)->poll(kStart + PcapLan::kCheckInterval);
  CHECK(got < 1000);
  CHECK(got + (*small)->counters().rx_kernel_drops == 1000);
  (*small)->poll(kStart + 2 * PcapLan::kCheckInterval);  // what was counted is not counted again
  CHECK(got + (*small)->counters().rx_kernel_drops == 1000);
}

TEST_CASE("the carrier follows the interface's", "[iounit][pcap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened("lan0");
  CHECK(carrier_becomes(*lan, true));
  run("ip link set lan1 down");
  CHECK(carrier_becomes(*lan, false));
  run("ip link set lan1 up");
  CHECK(carrier_becomes(*lan, true));
}

TEST_CASE("an interface that is down at the start is no error and is used when it is up",
          "[iounit][pcap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  run("ip link set lan0 down");
  const auto lan = opened("lan0");
  CHECK_FALSE(lan->carrier());
  CHECK_FALSE(lan->send(frame_of(60, 1)));
  run("ip link set lan0 up");
  CHECK(carrier_becomes(*lan, true));
  CHECK(lan->send(frame_of(60, 1)));
}

TEST_CASE("an interface that is set down and up under load is used again", "[iounit][pcap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto here = opened("lan0");
  const auto there = opened("lan1");
  run("ip link set lan1 down");
  CHECK(received(*there).empty());
  CHECK(carrier_becomes(*there, false));
  CHECK(carrier_becomes(*here, false));
  run("ip link set lan1 up");
  CHECK(carrier_becomes(*there, true));
  CHECK(carrier_becomes(*here, true));
  REQUIRE(here->send(frame_of(60, 1)));
  CHECK(received(*there) == std::vector<Frame>{frame_of(60, 1)});
}

TEST_CASE("an interface that is set down and up again has its carrier at once", "[iounit][pcap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened("lan0");
  REQUIRE(carrier_becomes(*lan, true));
  for (int round = 0; round < 3; ++round) {
    // The kernel may report IFF_RUNNING of the second change a second later, as it does after a recent first one.
    run("ip link set lan0 down");
    Time now = kStart + round * 1s + 5ms;
    lan->poll(now);
    CHECK_FALSE(lan->carrier());
    run("ip link set lan0 up");
    now += PcapLan::kEventInterval;
    lan->poll(now);
    CHECK(lan->carrier());
    CHECK(lan->send(frame_of(60, 1)));
  }
}

TEST_CASE("an interface that vanishes is carrier down, and is reopened by name from any namespace",
          "[iounit][pcap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened("lan0");
  run("ip link del lan0");
  CHECK(received(*lan).empty());
  CHECK_FALSE(lan->send(frame_of(60, 1)));
  lan->poll(kStart + 1ms);
  CHECK_FALSE(lan->carrier());
  CHECK(lan->next_deadline() == kStart + 1ms + PcapLan::kReopenInterval);
  CHECK_FALSE(lan->send(frame_of(60, 1)));
  CHECK(received(*lan).empty());

  make_pair();
  const auto peer = opened("lan1");
  {
    const TestNamespace elsewhere;
    lan->poll(kStart + 1ms + PcapLan::kReopenInterval);
  }
  CHECK(carrier_becomes(*lan, true));
  REQUIRE(peer->send(frame_of(60, 2)));
  CHECK(received(*lan) == std::vector<Frame>{frame_of(60, 2)});
}

TEST_CASE("an unusable LAN interface is refused with one clear line", "[iounit][pcap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  CHECK_THAT(refusal("nosuch"), Catch::Contains("no interface named nosuch"));
  run("ip tuntap add dev ptp mode tun");
  run("ip link set ptp up");
  CHECK_THAT(refusal("ptp"), Catch::Contains("ptp is not Ethernet"));
}

}  // namespace
}  // namespace splitnic::iounit
