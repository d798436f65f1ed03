#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "tap_bench.h"
#include "tests/unit/common/packet_builder.h"
#include "tests/unit/test_namespace.h"

/// When a TapNic reads its interface's settings and groups: often while frames pass, and rarely else.
namespace splitnic::host::tap_readings_test {
namespace {

using namespace std::chrono_literals;
using namespace testing;

TEST_CASE("joined groups are in the list once a membership report has left, and after 100 ms without one",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  run("ip addr add 10.1.2.3/24 dev sn0");
  nic->set_carrier(true);  // before up: the stack notices a later change by and by
  run("ip link set sn0 up");
  CHECK_FALSE(joined(*nic, later()));

  // An IP group, joined as programs do, so that the stack reports it: 239.1.2.3 is 01:00:5e:01:02:03.
  const int member = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ip_mreqn group{};
  group.imr_multiaddr.s_addr = htonl(0xef010203);
  group.imr_ifindex = static_cast<int>(::if_nametoindex("sn0"));
  REQUIRE(::setsockopt(member, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) == 0);
  const Time now = later();
  std::vector<std::byte> room(2048);
  while (!joined(*nic, now)) {
    REQUIRE(readable({testing::descriptors_of(*nic).front()}, 5s));
    nic->read_frame(room);
  }
  ::close(member);

  // Other groups than IP's are joined without a report, and nothing tells when one is left.
  CHECK(nic->next_deadline() == now + TapNic::kMulticastInterval);
  CHECK_FALSE(joined(*nic, now + TapNic::kMulticastInterval));
  run("ip maddr add 01:00:5e:01:02:03 dev sn0");
  CHECK(joined(*nic, now + 2 * TapNic::kMulticastInterval));
  run("ip maddr del 01:00:5e:01:02:03 dev sn0");
  CHECK_FALSE(joined(*nic, now + 3 * TapNic::kMulticastInterval));
  CHECK_FALSE(nic->settings(now + 3 * TapNic::kMulticastInterval).all_multicast);
}

TEST_CASE("a quiet NIC reads the multicast list each 2 s, and each 100 ms again once a frame has passed",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  run("ip link set sn0 up");
  const Time now = later();
  CHECK_FALSE(joined(*nic, now));
  CHECK(nic->next_deadline() == now + TapNic::kQuietMulticastInterval);
  run("ip maddr add 01:00:5e:01:02:03 dev sn0");
  CHECK_FALSE(joined(*nic, now + TapNic::kMulticastInterval));
  CHECK(joined(*nic, now + TapNic::kQuietMulticastInterval));

  const Time passed = now + TapNic::kQuietMulticastInterval + 10ms;
  pass_frame(*nic);
  CHECK(joined(*nic, passed));
  const Time next = now + TapNic::kQuietMulticastInterval + TapNic::kMulticastInterval;
  CHECK(nic->next_deadline() == next);
  run("ip maddr del 01:00:5e:01:02:03 dev sn0");
  CHECK_FALSE(joined(*nic, next));
  CHECK(nic->next_deadline() == next + TapNic::kMulticastInterval);
}

TEST_CASE("frames of a further queue keep the NIC busy, and the first one after a quiet time wakes it",
          "[host][tap][queues][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0", .queues = 2});
  TapQueue& queue = *nic->further_queues().front();
  run("ip link set sn0 up");
  const Time now = later();
  CHECK_FALSE(joined(*nic, now));
  CHECK(nic->next_deadline() == now + TapNic::kQuietMulticastInterval);
  run("ip maddr add 01:00:5e:01:02:03 dev sn0");
  const auto called = [&] { return readable({testing::descriptors_of(*nic).back()}, 0s); };
  const auto pass = [&] {
    std::vector<std::byte> frame(60);
    static_cast<void>(queue.write_frame({fabric::PeerMemory::over(frame.data(), frame.size())}));
  };
  CHECK_FALSE(called());
  // Sooner than the NIC looks for events again.
  const Time passed = now + 1ms;
  pass();
  REQUIRE(called());
  CHECK_FALSE(joined(*nic, passed));
  CHECK_FALSE(called());
  CHECK(nic->next_deadline() == now + TapNic::kMulticastInterval);
  // A busy NIC looks for frames without being called.
  pass();
  CHECK_FALSE(called());
  const Time next = now + TapNic::kMulticastInterval;
  CHECK(joined(*nic, next));
  CHECK(nic->next_deadline() == next + TapNic::kMulticastInterval);
  // And it is called again once it is quiet.
  Time quiet = next;
  while (quiet < next + TapNic::kQuietAfter) static_cast<void>(joined(*nic, quiet = nic->next_deadline()));
  CHECK_FALSE(called());
  pass();
  CHECK(called());
}

TEST_CASE("a frame that the host sends through a further queue wakes a quiet NIC", "[host][tap][queues][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0", .queues = 2});
  TapQueue& queue = *nic->further_queues().front();
  nic->set_carrier(true);  // before up: the stack notices a later change by and by
  run("ip link set sn0 up");
  queue.set_active(true, {});
  const Time now = later();
  static_cast<void>(nic->settings(now));
  // Which of two queues gets a datagram is the kernel's choice.
  std::array<std::byte, 2048> room{};
  std::size_t read = 0;
  for (int sent = 0; read == 0 && sent < 1000; ++sent) {
    send_datagram("sn0", 100);
    read = queue.read_frame(room);
  }
  REQUIRE(read != 0);
  REQUIRE(readable({testing::descriptors_of(*nic).back()}, 0s));
  static_cast<void>(nic->settings(now + 1ms));
  CHECK(nic->next_deadline() <= now + 1ms + TapNic::kMulticastInterval);
}

TEST_CASE("a membership report that leaves by a further queue is noticed at once", "[host][tap][queues][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0", .queues = 2});
  run("ip link set sn0 up");
  const Time now = later();
  CHECK_FALSE(joined(*nic, now));
  run("ip maddr add 01:00:5e:01:02:03 dev sn0");
  // As of a kernel that refuses the steering program.
  TapQueue& queue = *nic->further_queues().front();
  queue.note_read(splitnic::test::igmp(0x22));
  CHECK(readable({testing::descriptors_of(*nic).back()}, 0s));
  CHECK(joined(*nic, now + 1ms));
}

TEST_CASE("a quiet NIC reads its settings each 4 s, and each second again once a frame has passed or a reading failed",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  run("ip link set sn0 up");
  Time now = later();
  static_cast<void>(nic->settings(now));  // the link event
  const Time quiet_list = now + TapNic::kQuietMulticastInterval;
  static_cast<void>(nic->settings(quiet_list));
  CHECK(nic->next_deadline() == now + TapNic::kQuietCheckInterval);

  pass_frame(*nic);
  const Time passed = quiet_list + TapNic::kEventInterval;
  static_cast<void>(nic->settings(passed));
  const Time busy_check = passed + TapNic::kCheckInterval;
  while (nic->next_deadline() < busy_check) static_cast<void>(nic->settings(nic->next_deadline()));
  CHECK(nic->next_deadline() == busy_check);

  // Quiet by now, but an interface that can't be made again is tried again soon.
  nic->use(std::make_unique<NoTapRights>());
  run("ip link del sn0");
  const Time failed = busy_check + TapNic::kEventInterval;
  static_cast<void>(nic->settings(failed));
  CHECK(nic->next_deadline() == failed + TapNic::kCheckInterval);
}

TEST_CASE("what is due at the NIC's deadline is done then, whenever events were looked for before",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  static_cast<void>(nic->settings(later()));
  for (int n = 0; n < 5; ++n) {
    const Time deadline = nic->next_deadline();
    static_cast<void>(nic->settings(deadline - 1ms));  // looks for events, and so not again at the deadline
    CHECK(nic->next_deadline() == deadline);
    static_cast<void>(nic->settings(deadline));
    CHECK(nic->next_deadline() > deadline);
  }
}

/// Joins groups that no protocol reports.
void add_groups(std::size_t first, std::size_t last) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strncpy(request.ifr_name, "sn0", IFNAMSIZ - 1);
  bool added = true;
  for (std::size_t n = first; n <= last; ++n) {
    const unsigned char address[6] = {
        1, 0, 0x5e, 1, static_cast<unsigned char>(n / 256), static_cast<unsigned char>(n % 256)};
    std::memcpy(request.ifr_hwaddr.sa_data, address, sizeof address);
    added = ::ioctl(fd, SIOCADDMULTI, &request) == 0 && added;
  }
  ::close(fd);
  REQUIRE(added);
}

TEST_CASE("a quiet NIC reads a long multicast list each 10 s, and its settings meanwhile", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  run("ip link set sn0 up");
  add_groups(1, 400);
  const Time now = later();
  const auto groups = [&](Time at) { return nic->settings(at).multicast.size(); };
  const std::size_t before = groups(now);
  REQUIRE(before >= 400);
  add_groups(401, 401);
  CHECK(nic->next_deadline() == now + TapNic::kQuietCheckInterval);
  for (Time at = nic->next_deadline(); at < now + TapNic::kQuietLongListInterval; at = nic->next_deadline()) {
    CHECK(groups(at) == before);
  }
  CHECK(groups(now + TapNic::kQuietLongListInterval) == before + 1);

  add_groups(402, 402);
  pass_frame(*nic);
  const Time passed = now + TapNic::kQuietLongListInterval + 10ms;
  CHECK(groups(passed) == before + 1);
  CHECK(groups(passed + TapNic::kCheckInterval) == before + 2);
}

TEST_CASE("a long multicast list is read once a second, and one beyond the limit asks for all multicast",
          "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  run("ip link set sn0 up");
  Time now = later();
  // A busy NIC, which would read a short list every 100 ms.
  pass_frame(*nic);
  static_cast<void>(nic->settings(now));
  const std::size_t before = nic->settings(now).multicast.size();
  add_groups(before + 1, TapNic::kMostMulticast);
  now += TapNic::kMulticastInterval;
  CHECK(nic->settings(now).multicast.size() == TapNic::kMostMulticast);
  CHECK_FALSE(nic->settings(now).all_multicast);
  CHECK(nic->next_deadline() > now + TapNic::kMulticastInterval);
  add_groups(TapNic::kMostMulticast + 1, TapNic::kMostMulticast + 1);
  CHECK_FALSE(nic->settings(now + TapNic::kMulticastInterval).all_multicast);
  now += TapNic::kCheckInterval;
  pass_frame(*nic);
  CHECK(nic->settings(now).all_multicast);
  CHECK(nic->settings(now).multicast.empty());
  CHECK(nic->next_deadline() == now + TapNic::kCheckInterval);
}

}  // namespace
}  // namespace splitnic::host::tap_readings_test
