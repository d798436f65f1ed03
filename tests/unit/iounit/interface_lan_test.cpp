#include "iounit/interface_lan.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "common/os/netns.h"
#include "iounit/packet_lan.h"
#include "iounit/pcap_lan.h"

#include "tests/unit/iounit/collected_frames.h"
#include "tests/unit/quiet_log.h"
#include "tests/unit/test_namespace.h"

namespace splitnic::iounit::interface_lan_test {
namespace {

using namespace std::chrono_literals;
using testing::quiet_log;
using testing::readable;
using testing::run;
using testing::TestNamespace;

constexpr Time kStart{1h};

/// An engine with libpcap in a process that may not open captures any more.
struct MovedPcapLan;

/// Works in this namespace, as a privileged process, wherever the thread is.
PacketSockets sockets_of(const std::string& interface) {
  auto opened = os::open_current_netns();
  REQUIRE(opened);
  const auto home = std::make_shared<os::UniqueFd>(*std::move(opened));
  return {.open = {}, .move = [interface, home](int socket, int index) {
            const auto inside = os::ScopedNetns::enter(home->get());
            return move_packet_socket(socket, interface, index);
          }};
}

/// What the engines are opened with. memory_bytes: of frames that wait in the kernel.
auto open_result(PcapLan*, const char* interface, int memory_bytes) {
  return PcapLan::open(PcapOptions{.interface = interface, .ring_bytes = memory_bytes}, kStart, quiet_log());
}
auto open_result(MovedPcapLan*, const char* interface, int memory_bytes) {
  return open_result(static_cast<PcapLan*>(nullptr), interface, memory_bytes);
}
auto open_result(PacketLan*, const char* interface, int memory_bytes) {
  return PacketLan::open(PacketOptions{.interface = interface, .receive_bytes = memory_bytes}, kStart, quiet_log());
}

template <class Lan>
auto opened(const char* interface, int memory_bytes = 32 << 20) {
  auto lan = open_result(static_cast<Lan*>(nullptr), interface, memory_bytes);
  if (!lan) FAIL(lan.error().message);
  if (std::is_same_v<Lan, MovedPcapLan>) REQUIRE((*lan)->reopen_with(sockets_of(interface)));
  return *std::move(lan);
}

template <class Lan>
std::string refusal(const char* interface) {
  const auto lan = open_result(static_cast<Lan*>(nullptr), interface, 1 << 20);
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

bool send_at_once(LanEngine& lan, const Frame& frame) {
  const bool accepted = lan.send(frame);
  lan.flush();
  return accepted;
}

std::vector<Frame> received(LanEngine& lan) {
  CollectedFrames sink;
  while (take(lan, sink, 16) != 0) {
  }
  return sink.frames;
}

/// Lets the port follow link events, which the kernel reports by and by, until its carrier is as wanted.
bool carrier_becomes(InterfaceLan& lan, bool wanted) {
  for (static Time now = kStart + 1s; lan.carrier() != wanted; now += InterfaceLan::kEventInterval) {
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

TEMPLATE_TEST_CASE("events of other interfaces don't make the engine look at its own", "[iounit][lan][privileged]",
                   PcapLan, PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened<TestType>("lan0");
  Time now = kStart;
  run("ip link add other0 type veth peer name other1");
  bool passed_by = false;
  for (int mtu = 1280; mtu < 1330 && !passed_by; ++mtu) {  // the kernel may still report lan0 itself
    const Time due = lan->next_deadline();
    run("ip link set other0 mtu " + std::to_string(mtu));
    REQUIRE(readable({testing::descriptors_of(*lan).front()}, 5s));
    lan->poll(now += InterfaceLan::kEventInterval);
    passed_by = lan->next_deadline() == due;
  }
  CHECK(passed_by);
  run("ip link set lan0 mtu 1400");
  lan->poll(now += InterfaceLan::kEventInterval);
  CHECK(lan->mtu() == 1400);
  CHECK(lan->next_deadline() == now + InterfaceLan::kCheckInterval);
}

TEMPLATE_TEST_CASE(
    "frames cross an interface byte for byte, those with VLAN tags too, and the own ones don't come back",
    "[iounit][lan][privileged]", PcapLan, PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto here = opened<TestType>("lan0");
  const auto there = opened<TestType>("lan1");
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

TEMPLATE_TEST_CASE("beyond the MTU there is room for a tag of 802.1Q, and for none of 802.1ad",
                   "[iounit][lan][privileged]", PcapLan, PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened<TestType>("lan0");
  const auto service_tagged = [](std::size_t bytes) {
    Frame frame = tagged(bytes, 1);
    frame[12] = std::byte{0x88};
    frame[13] = std::byte{0xa8};
    return frame;
  };
  CHECK(send_at_once(*lan, tagged(1518, 1)));
  CHECK(send_at_once(*lan, service_tagged(1514)));
  CHECK_FALSE(send_at_once(*lan, service_tagged(1515)));
  CHECK(lan->counters().tx_frames == 2);
  CHECK(lan->counters().tx_errors == 1);
  CHECK(lan->counters().tx_lost == 0);
}

TEMPLATE_TEST_CASE("receive keeps to its budget", "[iounit][lan][privileged]", PcapLan, PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto here = opened<TestType>("lan0");
  const auto there = opened<TestType>("lan1");
  for (unsigned number = 0; number < 10; ++number) REQUIRE(here->send(frame_of(60, number)));
  here->flush();
  CollectedFrames sink;
  CHECK(take(*there, sink, 4) == 4);
  CHECK(take(*there, sink, 0) == 0);
  CHECK(take(*there, sink, 100) == 6);
  CHECK(take(*there, sink, 100) == 0);
}

TEMPLATE_TEST_CASE("frames that come fast gather for a moment, and the engine watches for no more of them",
                   "[iounit][lan][privileged]", PcapLan, PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto here = opened<TestType>("lan0");
  const auto there = opened<TestType>("lan1");
  CollectedFrames sink;
  Time now = kStart + 1h;
  const auto send = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) REQUIRE(here->send(frame_of(60, static_cast<unsigned>(i))));
    here->flush();
  };
  const auto receive = [&](std::size_t most) {
    there->begin_round(now);
    return there->receive(sink, most);
  };
  const std::size_t watched = testing::descriptors_of(*there).size();
  there->poll(now);
  REQUIRE(there->next_deadline() > now + LanPause::kPause);
  // Few at a time are taken at once.
  for (std::size_t count = 1; count != LanPause::kSeveral; ++count) {
    send(count);
    CHECK(receive(64) == count);
    CHECK(there->rests_until() <= now);
    CHECK(testing::descriptors_of(*there).size() == watched);
  }
  // So is what a look has left.
  send(LanPause::kSeveral + 1);
  CHECK(receive(LanPause::kSeveral) == LanPause::kSeveral);
  CHECK(receive(64) == 1);
  send(LanPause::kSeveral);
  CHECK(receive(64) == LanPause::kSeveral);
  CHECK(there->rests_until() == now + LanPause::kPause);
  CHECK(there->next_deadline() == there->rests_until());
  CHECK(testing::descriptors_of(*there).size() == watched - 1);
  send(1);
  now += LanPause::kPause - 1ns;
  CHECK(receive(64) == 0);
  CHECK(testing::descriptors_of(*there).size() == watched - 1);
  now += 1ns;
  CHECK(receive(64) == 1);
  CHECK(testing::descriptors_of(*there).size() == watched);
}

TEMPLATE_TEST_CASE("what the machine itself sends through the interface is not received", "[iounit][lan][privileged]",
                   PcapLan, PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened<TestType>("lan0");
  const auto other_program = opened<TestType>("lan0");
  REQUIRE(send_at_once(*other_program, frame_of(60, 1)));
  CHECK(received(*lan).empty());
}

TEMPLATE_TEST_CASE("runts and frames beyond the MTU are refused and counted", "[iounit][lan][privileged]", PcapLan,
                   PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened<TestType>("lan0");
  CHECK_FALSE(lan->send(frame_of(13, 1)));
  CHECK_FALSE(lan->send(frame_of(1519, 1)));
  CHECK(lan->counters().tx_errors == 2);
  CHECK(lan->counters().tx_frames == 0);
  run("ip link set lan0 mtu 9000");
  lan->poll(kStart + 1ms);
  CHECK(lan->mtu() == 9000);
}

TEMPLATE_TEST_CASE("frames lost in a full ring are counted", "[iounit][lan][privileged]", PcapLan, MovedPcapLan,
                   PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto here = opened<TestType>("lan0");
  const auto small = opened<TestType>("lan1", std::is_same_v<TestType, PacketLan> ? 64 << 10 : 1 << 20);
  for (unsigned number = 0; number < 1000; ++number) REQUIRE(here->send(frame_of(60, number)));
  here->flush();
  const std::size_t got = received(*small).size();
  small->poll(kStart + InterfaceLan::kCheckInterval);
  CHECK(got < 1000);
  CHECK(got + small->counters().rx_kernel_drops == 1000);
  small->poll(kStart + 2 * InterfaceLan::kCheckInterval);  // what was counted is not counted again
  CHECK(got + small->counters().rx_kernel_drops == 1000);
}

TEMPLATE_TEST_CASE("the carrier follows the interface's", "[iounit][lan][privileged]", PcapLan, PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened<TestType>("lan0");
  CHECK(carrier_becomes(*lan, true));
  run("ip link set lan1 down");
  CHECK(carrier_becomes(*lan, false));
  run("ip link set lan1 up");
  CHECK(carrier_becomes(*lan, true));
}

TEMPLATE_TEST_CASE("an interface that is down at the start is no error and is used when it is up",
                   "[iounit][lan][privileged]", PcapLan, PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  run("ip link set lan0 down");
  const auto lan = opened<TestType>("lan0");
  CHECK_FALSE(lan->carrier());
  CHECK_FALSE(lan->send(frame_of(60, 1)));
  run("ip link set lan0 up");
  CHECK(carrier_becomes(*lan, true));
  CHECK(send_at_once(*lan, frame_of(60, 1)));
}

TEMPLATE_TEST_CASE("an interface that is set down and up under load is used again", "[iounit][lan][privileged]",
                   PcapLan, MovedPcapLan, PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto here = opened<TestType>("lan0");
  const auto there = opened<TestType>("lan1");
  run("ip link set lan1 down");
  CHECK(received(*there).empty());
  CHECK(carrier_becomes(*there, false));
  CHECK(carrier_becomes(*here, false));
  run("ip link set lan1 up");
  CHECK(carrier_becomes(*there, true));
  CHECK(carrier_becomes(*here, true));
  REQUIRE(send_at_once(*here, frame_of(60, 1)));
  CHECK(received(*there) == std::vector<Frame>{frame_of(60, 1)});
}

TEMPLATE_TEST_CASE("an interface that is set down and up again has its carrier at once", "[iounit][lan][privileged]",
                   PcapLan, MovedPcapLan, PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened<TestType>("lan0");
  REQUIRE(carrier_becomes(*lan, true));
  for (int round = 0; round < 3; ++round) {
    // The kernel may report IFF_RUNNING of the second change a second later, as it does after a recent first one.
    run("ip link set lan0 down");
    Time now = kStart + round * 1s + 5ms;
    lan->poll(now);
    CHECK_FALSE(lan->carrier());
    run("ip link set lan0 up");
    now += InterfaceLan::kEventInterval;
    lan->poll(now);
    CHECK(lan->carrier());
    CHECK(send_at_once(*lan, frame_of(60, 1)));
  }
}

TEMPLATE_TEST_CASE("an interface that vanishes is carrier down, and is reopened by name from any namespace",
                   "[iounit][lan][privileged]", PcapLan, MovedPcapLan, PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto lan = opened<TestType>("lan0");
  run("ip link del lan0");
  CHECK(received(*lan).empty());
  // An engine that sends in batches accepts the frame, and learns of the loss when it flushes.
  static_cast<void>(send_at_once(*lan, frame_of(60, 1)));
  CHECK(lan->counters().tx_errors == 1);
  CHECK(lan->counters().tx_frames == 0);
  lan->poll(kStart + 1ms);
  CHECK_FALSE(lan->carrier());
  CHECK(lan->next_deadline() == kStart + 1ms + InterfaceLan::kReopenInterval);
  CHECK_FALSE(lan->send(frame_of(60, 1)));
  CHECK(received(*lan).empty());

  make_pair();
  const auto peer = opened<TestType>("lan1");
  {
    const TestNamespace elsewhere;
    lan->poll(kStart + 1ms + InterfaceLan::kReopenInterval);
  }
  CHECK(carrier_becomes(*lan, true));
  REQUIRE(send_at_once(*peer, frame_of(60, 2)));
  CHECK(received(*lan) == std::vector<Frame>{frame_of(60, 2)});
}

TEST_CASE("in the sandbox, libpcap needs an interface that was up at the start, and leaves old frames behind",
          "[iounit][lan][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  make_pair();
  const auto peer = opened<PcapLan>("lan1");
  const auto lan = opened<MovedPcapLan>("lan0");
  REQUIRE(carrier_becomes(*lan, true));
  REQUIRE(send_at_once(*peer, frame_of(60, 1)));
  run("ip link set lan0 down");
  const auto late = opened<PcapLan>("lan0");
  const auto refused = late->reopen_with(sockets_of("lan0"));
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message, Catch::StartsWith("the LAN interface lan0 is down: libpcap opens only"));
  CHECK(carrier_becomes(*lan, false));
  CHECK(received(*lan).empty());
  run("ip link set lan0 up");
  CHECK(carrier_becomes(*lan, true));
  CHECK(received(*lan).empty());
  // The kernel may drop the peer's frames for a while, although both ends have their carrier.
  std::vector<Frame> got;
  for (const Time give_up = monotonic_now() + 5s; got.empty() && monotonic_now() < give_up;) {
    REQUIRE(send_at_once(*peer, frame_of(60, 2)));
    got = received(*lan);
  }
  REQUIRE_FALSE(got.empty());
  CHECK(got == std::vector<Frame>(got.size(), frame_of(60, 2)));
}

TEMPLATE_TEST_CASE("an unusable LAN interface is refused with one clear line", "[iounit][lan][privileged]", PcapLan,
                   PacketLan) {
  const TestNamespace inside;
  if (!inside) return;
  CHECK_THAT(refusal<TestType>("nosuch"), Catch::Contains("no interface named nosuch"));
  run("ip tuntap add dev ptp mode tun");
  run("ip link set ptp up");
  CHECK_THAT(refusal<TestType>("ptp"), Catch::Contains("ptp is not Ethernet"));
}

}  // namespace
}  // namespace splitnic::iounit::interface_lan_test
