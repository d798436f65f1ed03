#include "host/tap_nic.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/frame/multicast.h"
#include "tap_bench.h"
#include "tests/unit/common/packet_builder.h"
#include "tests/unit/test_namespace.h"

namespace splitnic::host::tap_nic_test {
namespace {

using namespace std::chrono_literals;
using namespace testing;

std::string refusal(const TapOptions& options) {
  const auto nic = TapNic::open(options, kStart, quiet_log());
  REQUIRE_FALSE(nic);
  return nic.error().message;
}

/// The length of the next IPv4 frame (the stack sends others of its own accord), 0 when there is none.
/// most_bytes: of a complete frame; 0: as many as there is room for.
std::size_t next_ipv4(TapNic& nic, std::span<std::byte> to, std::size_t most_bytes = 0) {
  frame::FrameOffload offload;
  const auto read = [&] {
    return most_bytes == 0 ? nic.read_frame(to) : nic.read_unfinished({to}, most_bytes, offload);
  };
  for (std::size_t bytes = read(); bytes != 0; bytes = read()) {
    if (to[12] == std::byte{0x08} && to[13] == std::byte{0x00} && to[23] == std::byte{17}) return bytes;
  }
  return 0;
}

/// Sends the frame as the host's stack would.
void send_frame(const char* interface, std::span<const std::byte> frame) {
  const int fd = ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = static_cast<int>(::if_nametoindex(interface));
  // Without the protocol, the kernel takes every such frame for the same.
  to.sll_protocol = htons(splitnic::test::get16(frame, 12));
  const ssize_t sent = ::sendto(fd, frame.data(), frame.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  ::close(fd);
  REQUIRE(sent == static_cast<ssize_t>(frame.size()));
}

TEST_CASE("a TAP's name and address are checked before anything is made", "[host][tap]") {
  CHECK_THAT(refusal({.name = ""}), Catch::Contains("empty"));
  CHECK_THAT(refusal({.name = "abcdefghijklmnop"}), Catch::Contains("longer than 15"));
  for (const char* name : {"a/b", "a b", "tap%d", "..", "a:b", "a\n"}) {
    CHECK_THAT(refusal({.name = name}), Catch::Contains("can't be an interface name"));
  }
  CHECK_THAT(refusal({.name = "tap0", .mac = kGroup}), Catch::Contains("can't be the address"));
}

TEST_CASE("a TAP that the driver made is marked, survives a crash with its settings, and goes at a clean exit",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  auto nic = opened({.name = "sn0", .mac = kMac, .mtu = 1400});
  CHECK(nic->made_here());
  CHECK_THAT(output_of("ip -d link show sn0"), Catch::Contains("alias splitnic sn0") && Catch::Contains("persist on") &&
                                                   Catch::Contains("mtu 1400") && Catch::Contains("02:00:00:00:00:01"));
  run("ip addr add 10.1.2.3/24 dev sn0");
  run("ip link set sn0 up mtu 1300");
  run("ip route add 10.9.0.0/16 via 10.1.2.1 dev sn0");

  nic->keep();
  nic.reset();
  CHECK_THAT(output_of("ip link show sn0"), !Catch::Contains("LOWER_UP"));

  nic = opened({.name = "sn0", .mac = kOtherMac, .mtu = 1500});
  CHECK(nic->made_here());
  CHECK(nic->settings(later()).mac == kMac);
  CHECK(nic->settings(later()).mtu == 1300);
  CHECK_THAT(output_of("ip addr show sn0"), Catch::Contains("10.1.2.3/24"));
  CHECK_THAT(output_of("ip route"), Catch::Contains("10.9.0.0/16"));

  nic.reset();
  CHECK(output_of("ip link show sn0 2>/dev/null").empty());
}

TEST_CASE("a TAP that existed before is used and left", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  run("ip tuntap add dev mine mode tap");
  run("ip link set mine address 02:00:00:00:00:03");
  auto nic = opened({.name = "mine"});
  CHECK_FALSE(nic->made_here());
  nic->set_mac(kOtherMac);
  CHECK(nic->settings(later()).mac == kAdminsMac);
  nic.reset();
  CHECK_THAT(output_of("ip link show mine"), Catch::Contains("mine") && !Catch::Contains("alias"));
}

TEST_CASE("a TAP with several queues gives each thread one, and nobody else may attach to it",
          "[host][tap][queues][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  auto nic = opened({.name = "sn0", .queues = 4});
  CHECK(nic->further_queues().size() == 3);
  CHECK_THAT(output_of("ip -d link show sn0"), Catch::Contains("multi_queue"));
  CHECK_THAT(refusal({.name = "sn0", .queues = 4}), Catch::Contains("busy"));
  CHECK_THAT(refusal({.name = "sn0"}), Catch::Contains("busy"));
  nic->set_carrier(true);  // before up: the stack notices a later change by and by
  run("ip link set sn0 up");
  // Each datagram is a flow: the source port differs. Inactive queues get none.
  std::array<std::byte, 2048> room{};
  const auto sent_in = [&] {
    std::array<unsigned, 4> frames{};
    for (unsigned datagram = 0; datagram < 64; ++datagram) send_datagram("sn0", 100);
    while (next_ipv4(*nic, room) != 0) ++frames[0];
    for (std::size_t queue = 0; queue < 3; ++queue) {
      while (nic->further_queues()[queue]->read_frame(room) != 0) ++frames[queue + 1];
    }
    return frames;
  };
  CHECK(sent_in() == std::array<unsigned, 4>{64, 0, 0, 0});
  for (const auto& queue : nic->further_queues()) queue->set_active(true, {});
  for (const unsigned frames : sent_in()) CHECK(frames > 0);
}

TEST_CASE("membership reports leave by the first queue, whose driver looks for them",
          "[host][tap][queues][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0", .queues = 4});
  nic->set_carrier(true);
  run("ip link set sn0 up");
  for (const auto& queue : nic->further_queues()) queue->set_active(true, {});
  // Each source makes a flow of its own.
  constexpr unsigned kSources = 16;
  constexpr std::size_t kEndOfSourceV4 = 14 + 15;
  constexpr std::size_t kEndOfSourceV6 = 14 + 23;
  for (unsigned source = 0; source < kSources; ++source) {
    splitnic::test::Bytes igmp = splitnic::test::igmp(0x22);
    splitnic::test::Bytes mld = splitnic::test::mld(143);
    igmp[kEndOfSourceV4] = mld[kEndOfSourceV6] = static_cast<std::byte>(source);
    send_frame("sn0", igmp);
    send_frame("sn0", mld);
  }
  std::array<std::byte, 2048> room{};
  const auto reports_of = [&](NicQueue& queue) {
    unsigned reports = 0;  // the stack sends some of its own
    for (std::size_t bytes = 0; (bytes = queue.read_frame(room)) != 0;) {
      if (frame::is_membership_report(std::span(room).first(bytes))) ++reports;
    }
    return reports;
  };
  for (const auto& queue : nic->further_queues()) CHECK(reports_of(*queue) == 0);
  CHECK(reports_of(*nic) >= 2 * kSources);
}

TEST_CASE("a TAP of a crashed driver gets more queues only if nothing is configured on it",
          "[host][tap][queues][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto crash = [](std::unique_ptr<TapNic> nic) { nic->keep(); };
  crash(opened({.name = "sn0", .mac = kMac, .mtu = 1400}));
  run("ip addr add 10.1.2.3/24 dev sn0");
  CHECK_THAT(refusal({.name = "sn0", .queues = 2}), Catch::Contains("it has an address"));
  CHECK_THAT(output_of("ip addr show sn0"), Catch::Contains("10.1.2.3/24"));
  run("ip addr flush dev sn0");
  run("ip link add link sn0 name above type macvlan");
  CHECK_THAT(refusal({.name = "sn0", .queues = 2}), Catch::Contains("another interface is on top of it"));
  run("ip link del above");
  run("ip link set sn0 up");
  CHECK_THAT(refusal({.name = "sn0", .queues = 2}), Catch::Contains("it is up"));
  run("ip link set sn0 down");
  crash(opened({.name = "sn0", .queues = 2}));
  CHECK_THAT(output_of("ip -d link show sn0"),
             Catch::Contains("multi_queue") && Catch::Contains("mtu 1400") && Catch::Contains("02:00:00:00:00:01"));
  // The other way round nothing needs to be made again.
  run("ip link set sn0 up");
  CHECK(opened({.name = "sn0"})->made_here());
}

TEST_CASE("somebody else's TAP with one queue is not made again", "[host][tap][queues][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  run("ip tuntap add dev mine mode tap");
  CHECK_THAT(refusal({.name = "mine", .queues = 2}), Catch::Contains("multi_queue"));
  run("ip tuntap add dev theirs mode tap multi_queue");
  CHECK(opened({.name = "theirs", .queues = 2})->further_queues().size() == 1);
}

TEST_CASE("a busy TAP and an interface of another kind are refused with one clear line", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  CHECK_THAT(refusal({.name = "sn0"}), Catch::Contains("sn0 is busy"));
  CHECK_THAT(refusal({.name = "lo"}), Catch::Contains("lo exists and is not a TAP"));
  run("ip tuntap add dev ptp mode tun");
  CHECK_THAT(refusal({.name = "ptp"}), Catch::Contains("ptp exists and is not a"));
  CHECK_THAT(refusal({.name = "big", .mtu = 100'000}), Catch::Contains("setting the MTU of big"));
  CHECK(output_of("ip link show big 2>/dev/null").empty());
}

TEST_CASE("the unit's address is taken unless --mac or the administrator set one", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  CHECK(nic->preferred_mac().is_zero());
  nic->set_mac(kMac);
  CHECK(nic->settings(later()).mac == kMac);
  CHECK(nic->preferred_mac().is_zero());
  nic->set_mac(kOtherMac);
  CHECK(nic->settings(later()).mac == kOtherMac);
  run("ip link set sn0 address 02:00:00:00:00:03");
  CHECK(nic->settings(later()).mac == kAdminsMac);
  CHECK(nic->preferred_mac() == kAdminsMac);
  nic->set_mac(kMac);
  CHECK(nic->settings(later()).mac == kAdminsMac);

  const auto given = opened({.name = "sn1", .mac = kMac});
  CHECK(given->preferred_mac() == kMac);
  given->set_mac(kOtherMac);
  CHECK(given->settings(later()).mac == kMac);
}

TEST_CASE("the unit may replace the address of a TAP that a crash has left, unless somebody has chosen it",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto crash = [](std::unique_ptr<TapNic>& nic, const TapOptions& next) {
    nic->keep();
    nic.reset();
    nic = opened(next);
  };
  auto nic = opened({.name = "sn0"});
  SECTION("the kernel drew it") {
    crash(nic, {.name = "sn0"});
    CHECK(nic->preferred_mac().is_zero());
  }
  SECTION("the unit assigned it") {
    nic->set_mac(kMac);
    crash(nic, {.name = "sn0"});
    CHECK(nic->preferred_mac().is_zero());
    CHECK(nic->settings(later()).mac == kMac);
    nic->set_mac(kOtherMac);
    CHECK(nic->settings(later()).mac == kOtherMac);
    crash(nic, {.name = "sn0", .queues = 2});
    CHECK(nic->preferred_mac().is_zero());
  }
  SECTION("the unit assigned it to an interface with another name") {
    run("ip link set sn0 name other");
    nic->set_mac(kMac);
    CHECK_THAT(output_of("ip link show other"), Catch::Contains("alias splitnic sn0 02:00:00:00:00:01"));
    crash(nic, {.name = "other"});
    CHECK(nic->preferred_mac().is_zero());
  }
  SECTION("the interface was deleted in between") {
    nic->set_mac(kMac);
    CHECK(nic->settings(later()).mac == kMac);
    run("ip link delete sn0");
    CHECK(nic->settings(later()).mac == kMac);
    crash(nic, {.name = "sn0"});
    CHECK(nic->preferred_mac().is_zero());
  }
  SECTION("an administrator set another one") {
    nic->set_mac(kMac);
    run("ip link set sn0 address 02:00:00:00:00:03");
    crash(nic, {.name = "sn0"});
    CHECK(nic->preferred_mac() == kAdminsMac);
  }
  SECTION("--mac") {
    nic->set_mac(kMac);
    crash(nic, {.name = "sn0", .mac = kMac});
    nic->set_mac(kOtherMac);
    CHECK(nic->settings(later()).mac == kMac);
  }
  SECTION("an earlier release made the interface") {
    run("ip link set sn0 alias 'splitnic sn0'");
    const MacAddress drawn = nic->settings(later()).mac;
    crash(nic, {.name = "sn0"});
    CHECK(nic->made_here());
    CHECK(nic->preferred_mac() == drawn);
  }
}

TEST_CASE("the carrier is what the driver says", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  run("ip link set sn0 up");
  CHECK_THAT(output_of("ip link show sn0"), !Catch::Contains("LOWER_UP"));
  nic->set_carrier(true);
  CHECK_THAT(output_of("ip link show sn0"), Catch::Contains("LOWER_UP"));
  nic->set_carrier(false);
  CHECK_THAT(output_of("ip link show sn0"), !Catch::Contains("LOWER_UP"));
}

TEST_CASE("flags, MTU and promiscuity are seen at once, a larger MTU than the unit's is set back",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  CHECK_FALSE(nic->settings(later()).up);
  run("ip link set sn0 up promisc on");
  CHECK(readable(testing::descriptors_of(*nic)));
  CHECK(nic->settings(later()).up);
  CHECK(nic->settings(later()).promiscuous);
  CHECK_FALSE(nic->settings(later()).all_multicast);
  run("ip link set sn0 promisc off allmulticast on");
  CHECK_FALSE(nic->settings(later()).promiscuous);
  CHECK(nic->settings(later()).all_multicast);

  nic->set_max_mtu(1500);
  run("ip link set sn0 mtu 9000");
  CHECK(nic->settings(later()).mtu == 1500);
  CHECK_THAT(output_of("ip link show sn0"), Catch::Contains("mtu 1500"));
  run("ip link set sn0 mtu 1280");
  CHECK(nic->settings(later()).mtu == 1280);
  nic->set_max_mtu(1000);
  CHECK(nic->settings(later()).mtu == 1000);
}

TEST_CASE("an MTU that a short dip of the unit's has reduced comes back, unless somebody has changed it meanwhile",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  auto nic = opened({.name = "sn0"});
  const auto unit_permits = [&](std::uint32_t mtu) {
    nic->set_max_mtu(mtu);
    return nic->settings(later()).mtu;
  };
  CHECK(unit_permits(9000) == 1500);
  run("ip link set sn0 mtu 9000");
  CHECK(unit_permits(9000) == 9000);
  SECTION("at once or step by step") {
    CHECK(unit_permits(1400) == 1400);
    CHECK(unit_permits(1300) == 1300);
    CHECK(unit_permits(4000) == 4000);
    CHECK(unit_permits(9500) == 9000);
    CHECK_THAT(output_of("ip link show sn0"), Catch::Contains("mtu 9000"));
    // An MTU of the administrator's own is nothing to undo.
    run("ip link set sn0 mtu 1400");
    CHECK(unit_permits(9600) == 1400);
  }
  SECTION("but not over the administrator's") {
    CHECK(unit_permits(1400) == 1400);
    run("ip link set sn0 mtu 1300");
    CHECK(nic->settings(later()).mtu == 1300);
    CHECK(unit_permits(9000) == 1300);
    run("ip link set sn0 mtu 1400");
    CHECK(unit_permits(9000) == 1400);
  }
  SECTION("to the administrator's last wish") {
    CHECK(unit_permits(1400) == 1400);
    run("ip link set sn0 mtu 3000");
    CHECK(nic->settings(later()).mtu == 1400);
    CHECK(unit_permits(9000) == 3000);
  }
  SECTION("also of an interface that was deleted meanwhile") {
    CHECK(unit_permits(1400) == 1400);
    run("ip link del sn0");
    CHECK(nic->settings(later()).mtu == 1400);
    CHECK(unit_permits(9000) == 9000);
  }
}

TEST_CASE("a TAP with an IPv6 address keeps the MTU that IPv6 needs, however little the unit permits",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  std::vector<std::string> lines;
  os::Log log("test", {.write = [&](std::string_view line) { lines.emplace_back(line); }});
  auto made = TapNic::open({.name = "sn0"}, kStart, log);
  REQUIRE(made);
  const auto nic = *std::move(made);
  const auto unit_permits = [&](std::uint32_t mtu) {
    nic->set_max_mtu(mtu);
    return nic->settings(later()).mtu;
  };
  const auto has_address = [] { return output_of("ip -6 addr show sn0").find("fd00::1") != std::string::npos; };
  run("sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.sn0.disable_ipv6=0");
  run("ip link set sn0 up");
  run("ip -6 addr add fd00::1/64 dev sn0 nodad");
  CHECK(unit_permits(1000) == 1280);
  CHECK(unit_permits(1000) == 1280);
  CHECK(has_address());
  CHECK(std::ranges::count_if(lines, [](const std::string& line) {
          return line.find("keeps an MTU of 1280, more than the session permits") != std::string::npos;
        }) == 1);
  CHECK(unit_permits(1500) == 1500);
  CHECK(has_address());
  SECTION("unless an administrator has set a smaller one") {
    run("ip link set sn0 mtu 1200");  // which takes the address
    CHECK(unit_permits(1100) == 1100);
  }
  SECTION("unless it has no such address any more") {
    CHECK(unit_permits(1000) == 1280);
    run("ip -6 addr del fd00::1/64 dev sn0");
    CHECK(unit_permits(1000) == 1000);
    CHECK(unit_permits(1500) == 1500);
  }
}

TEST_CASE("a TAP's MTU may be the unit's and not one byte more", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  nic->set_max_mtu(1500);
  for (const char* mtu : {"1499", "1500"}) {
    run(std::string("ip link set sn0 mtu ") + mtu);
    CHECK(nic->settings(later()).mtu == static_cast<std::uint32_t>(std::stoul(mtu)));
  }
  run("ip link set sn0 mtu 1501");
  CHECK(nic->settings(later()).mtu == 1500);
}

TEST_CASE("a TAP that the driver made keeps its neighbours without a carrier, over a crash and in another namespace",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const OtherNamespace other;
  auto nic = opened({.name = "sn0"});
  run("ip addr add 10.1.2.3/24 dev sn0");
  nic->set_carrier(true);  // before up: the stack notices a later change by and by
  run("ip link set sn0 up");
  run("ip neigh replace 10.1.2.4 lladdr 02:00:00:00:00:09 dev sn0 nud reachable");
  run("ip neigh replace fe80::9 lladdr 02:00:00:00:00:09 dev sn0 nud reachable");
  const auto knows_both = [] {
    const std::string shown = output_of("ip neigh show dev sn0 nud all");
    return shown.find("10.1.2.4 lladdr 02:00:00:00:00:09") != std::string::npos &&
           shown.find("fe80::9 lladdr 02:00:00:00:00:09") != std::string::npos;
  };
  REQUIRE(knows_both());
  SECTION("when the LAN's carrier is lost") {
    nic->set_carrier(false);
    CHECK(knows_both());
  }
  SECTION("when the driver crashes and the next one takes the TAP") {
    nic->keep();
    nic.reset();
    CHECK(knows_both());
    nic = opened({.name = "sn0"});
    CHECK(knows_both());
  }
  SECTION("where it has been moved to") {
    run("ip link set sn0 netns " + other.process());
    static_cast<void>(nic->settings(later()));
    const std::string in_other = "nsenter --net=/proc/" + other.process() + "/ns/net ";
    CHECK(output_of(in_other + "cat /proc/sys/net/ipv4/conf/sn0/arp_evict_nocarrier") == "0\n");
    CHECK(output_of(in_other + "cat /proc/sys/net/ipv6/conf/sn0/ndisc_evict_nocarrier") == "0\n");
  }
}

TEST_CASE("somebody else's TAP keeps its settings for neighbours, and so does one that is taken over",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto setting = [](const std::string& name) {
    return output_of("cat /proc/sys/net/ipv4/conf/" + name + "/arp_evict_nocarrier");
  };
  run("ip tuntap add dev mine mode tap");
  const auto guest = opened({.name = "mine"});
  CHECK(setting("mine") == "1\n");
  auto nic = opened({.name = "sn0"});
  CHECK(setting("sn0") == "0\n");
  run("sysctl -qw net.ipv4.conf.sn0.arp_evict_nocarrier=1");
  nic->keep();
  nic.reset();
  nic = opened({.name = "sn0"});
  CHECK(setting("sn0") == "1\n");
}

TEST_CASE("frames cross a TAP both ways, one longer than the room for it is dropped alone", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0", .mac = kMac});
  run("ip addr add 10.1.2.3/24 dev sn0");
  nic->set_carrier(true);  // before up: the stack notices a later change by and by
  run("ip link set sn0 up");
  std::vector<std::byte> room(142);
  while (nic->read_frame(room) != 0) {
  }
  const std::uint64_t before = nic->oversized();
  send_datagram("sn0", 100);
  send_datagram("sn0", 101);
  send_datagram("sn0", 50);
  CHECK(readable({testing::descriptors_of(*nic).front()}));
  CHECK(next_ipv4(*nic, room) == 142);
  CHECK(std::count(room.begin() + 42, room.end(), std::byte{'x'}) == 100);
  CHECK(next_ipv4(*nic, room) == 92);
  CHECK(next_ipv4(*nic, room) == 0);
  CHECK(nic->oversized() - before >= 1);
  // Also where a longer frame may be complete.
  send_datagram("sn0", 101);
  send_datagram("sn0", 50);
  CHECK(next_ipv4(*nic, room, 2 * room.size()) == 92);

  std::vector<std::byte> frame(60);
  std::memcpy(frame.data(), kMac.octets.data(), 6);
  frame[12] = std::byte{0x88};
  frame[13] = std::byte{0xb5};
  CHECK(deliver(*nic, frame));
  run("ip link set sn0 down");
  CHECK_FALSE(deliver(*nic, frame));
}

TEST_CASE("a TAP that is moved to another namespace and renamed there keeps working", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const OtherNamespace other;
  const auto nic = opened({.name = "sn0"});
  nic->set_max_mtu(1500);
  CHECK(nic->settings(later()).mtu == 1500);
  run("ip link set sn0 netns " + other.process());
  const std::string in_other = "nsenter --net=/proc/" + other.process() + "/ns/net ";
  run(in_other + "ip link set sn0 name eth7");
  run(in_other + "ip link set eth7 up mtu 9000");
  run(in_other + "ip maddr add 01:00:5e:01:02:03 dev eth7");
  CHECK(readable(testing::descriptors_of(*nic)));
  const NicSettings& settings = nic->settings(later());
  CHECK(nic->name() == "eth7");
  CHECK(settings.up);
  CHECK(settings.mtu == 1500);
  CHECK_FALSE(settings.all_multicast);
  CHECK(std::binary_search(settings.multicast.begin(), settings.multicast.end(), kGroup));

  run(in_other + "ip link set eth7 mtu 1400");
  CHECK(readable(testing::descriptors_of(*nic)));
  CHECK(nic->settings(later()).mtu == 1400);
  nic->set_mac(kMac);
  CHECK(nic->settings(later()).mac == kMac);
  nic->set_carrier(true);
  CHECK_THAT(output_of(in_other + "ip link show eth7"), Catch::Contains("LOWER_UP"));
  run("true");  // this thread is still where it was
  CHECK(output_of("ip link show eth7 2>/dev/null").empty());
}

}  // namespace
}  // namespace splitnic::host::tap_nic_test
