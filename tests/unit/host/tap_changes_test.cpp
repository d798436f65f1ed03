// What happens to a TAP from outside while the driver has it: link events, and its end.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tap_bench.h"
#include "tests/unit/test_namespace.h"

namespace splitnic::host::tap_changes_test {
namespace {

using namespace std::chrono_literals;
using namespace testing;

TEST_CASE("events of other interfaces don't make the NIC read its settings", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  run("ip link set sn0 up");
  Time now = later();
  CHECK(nic->settings(now).up);
  run("ip link add other0 type veth peer name other1");
  bool passed_by = false;
  for (int mtu = 1280; mtu < 1330 && !passed_by; ++mtu) {  // the kernel may still report the NIC itself
    const Time deadline = nic->next_deadline();
    run("ip link set other0 mtu " + std::to_string(mtu));
    REQUIRE(readable({testing::descriptors_of(*nic).back()}, 5s));
    static_cast<void>(nic->settings(now += TapNic::kEventInterval));
    passed_by = nic->next_deadline() == deadline;
  }
  CHECK(passed_by);
  run("ip link set sn0 mtu 1400");
  CHECK(nic->settings(now += TapNic::kEventInterval).mtu == 1400);
  run("ip link set sn0 down name sn1");
  CHECK_FALSE(nic->settings(now += TapNic::kEventInterval).up);
  CHECK(nic->name() == "sn1");
}

TEST_CASE("what an interface on top of the TAP receives is the TAP's to ask for", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0", .mac = kMac});
  Time now = kStart;
  const auto seen = [&]() -> const NicSettings& { return nic->settings(now += TapNic::kQuietCheckInterval); };
  run("ip link set sn0 up");
  run("ip link add link sn0 name above address 02:00:00:00:00:02 type macvlan");
  CHECK(seen().unicast.empty());
  CHECK_FALSE(seen().all_multicast);
  run("ip link set above up allmulticast on");
  CHECK(seen().unicast == std::vector{kOtherMac});
  CHECK(seen().all_multicast);
  run("ip link del above");
  CHECK(seen().unicast.empty());
  CHECK_FALSE(seen().all_multicast);
  // A bridge receives everything, and would have a long list.
  run("bridge fdb add 02:00:00:00:00:02 dev sn0 self");
  CHECK(seen().unicast == std::vector{kOtherMac});
  run("ip link add br0 type bridge");
  run("ip link set sn0 master br0");
  CHECK(seen().unicast.empty());
  CHECK(seen().promiscuous);
  run("ip link set sn0 nomaster");
  CHECK(seen().unicast == std::vector{kOtherMac});
}

TEST_CASE("an MTU that the driver may not set back is reported once", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  std::vector<std::string> lines;
  os::Log log("host", {.write = [&](std::string_view line) { lines.emplace_back(line); }});
  const auto nic = opened({.name = "sn0"}, log);
  nic->use(std::make_unique<NoTapRights>());
  nic->set_max_mtu(1400);
  for (Time now = kStart; now < kStart + 20s; now = nic->next_deadline()) CHECK(nic->settings(now).mtu == 1500);
  CHECK(std::ranges::count_if(lines, [](const std::string& line) {
          return line.find("has an MTU of 1500, more than the session's 1400, and it can't be set back") !=
                 std::string::npos;
        }) == 1);
}

TEST_CASE("a deleted TAP is made again with its address, MTU and carrier", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0", .mac = kMac, .mtu = 1300});
  nic->set_carrier(true);
  run("ip link del sn0");
  CHECK(readable(testing::descriptors_of(*nic)));
  const NicSettings& settings = nic->settings(later());
  CHECK(settings.mac == kMac);
  CHECK(settings.mtu == 1300);
  run("ip link set sn0 up");
  CHECK_THAT(output_of("ip link show sn0"), Catch::Contains("LOWER_UP"));
  CHECK(nic->settings(later()).up);
}

TEST_CASE("a deleted TAP's address is the unit's to choose as it was before", "[host][tap][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const auto nic = opened({.name = "sn0"});
  nic->set_mac(kMac);
  CHECK(nic->settings(later()).mac == kMac);
  const auto made_again = [&] {
    run("ip link del sn0");
    CHECK(readable(testing::descriptors_of(*nic)));
    return nic->settings(later()).mac;
  };
  SECTION("the unit's") {
    for (const MacAddress& mac : {kMac, kOtherMac}) {
      CHECK(made_again() == mac);
      CHECK(nic->preferred_mac().is_zero());
      nic->set_mac(kOtherMac);
      CHECK(nic->settings(later()).mac == kOtherMac);
    }
  }
  SECTION("the administrator's") {
    run("ip link set sn0 address 02:00:00:00:00:03");
    CHECK(nic->settings(later()).mac == kAdminsMac);
    CHECK(made_again() == kAdminsMac);
    CHECK(nic->preferred_mac() == kAdminsMac);
    nic->set_mac(kOtherMac);
    CHECK(nic->settings(later()).mac == kAdminsMac);
  }
}

}  // namespace
}  // namespace splitnic::host::tap_changes_test
