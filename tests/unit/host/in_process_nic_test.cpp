#include "host/in_process_nic.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

namespace splitnic::host::in_process_nic_test {
namespace {

constexpr Time kNow{};
constexpr MacAddress kMac{{0x02, 0, 0, 0, 0, 1}};
constexpr MacAddress kUnitsMac{{0x02, 0, 0, 0, 0, 2}};
constexpr MacAddress kGroup{{0x01, 0, 0x5e, 0, 0, 0xfb}};
constexpr MacAddress kOtherGroup{{0x01, 0, 0x5e, 0, 0, 0xfa}};

std::vector<std::byte> frame_of(std::size_t bytes, unsigned first = 1) {
  std::vector<std::byte> frame(bytes);
  for (std::size_t at = 0; at < bytes; ++at) frame[at] = static_cast<std::byte>(first + at);
  return frame;
}

bool deliver(InProcessNic& nic, std::vector<std::byte> frame) {
  return nic.write_frame({fabric::PeerMemory::over(frame.data(), frame.size())});
}

bool readable(const InProcessNic& nic) {
  std::vector<int> descriptors;
  nic.collect_descriptors(descriptors);
  for (const int fd : descriptors) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, 0) == 1) return true;
  }
  return false;
}

TEST_CASE("frames cross an in-process nic both ways byte for byte", "[host][in_process_nic]") {
  InProcessNic nic;
  nic.set_up(true);
  const auto out = frame_of(60);
  const auto in = frame_of(1514, 9);
  REQUIRE(nic.send(out));
  REQUIRE(deliver(nic, in));

  std::vector<std::byte> buffer(2048);
  REQUIRE(nic.read_frame(buffer) == out.size());
  CHECK(std::equal(out.begin(), out.end(), buffer.begin()));
  CHECK(nic.read_frame(buffer) == 0);
  REQUIRE(nic.receive(buffer) == in.size());
  CHECK(std::equal(in.begin(), in.end(), buffer.begin()));
  CHECK(nic.receive(buffer) == 0);
  CHECK(nic.dropped() == 0);
}

TEST_CASE("a nic that is down carries nothing", "[host][in_process_nic]") {
  InProcessNic nic;
  std::vector<std::byte> buffer(2048);
  CHECK_FALSE(nic.send(frame_of(60)));
  CHECK_FALSE(deliver(nic, frame_of(60)));
  CHECK(nic.receive(buffer) == 0);
  CHECK(nic.dropped() == 1);
}

TEST_CASE("full rings and frames of a wrong length are refused, none are kept", "[host][in_process_nic]") {
  InProcessNic nic({.frames = 2, .frame_bytes = 2048});
  nic.set_up(true);
  CHECK_FALSE(nic.send(frame_of(13)));
  CHECK(nic.send(frame_of(1522)));
  CHECK_FALSE(nic.send(frame_of(1523)));
  CHECK(nic.send(frame_of(60)));
  CHECK_FALSE(nic.send(frame_of(60)));

  CHECK(deliver(nic, frame_of(2048)));
  CHECK(deliver(nic, frame_of(60)));
  CHECK_FALSE(deliver(nic, frame_of(60)));
  CHECK(nic.dropped() == 1);

  std::vector<std::byte> small(100);
  CHECK(nic.read_frame(small) == 60);
  CHECK(nic.receive(small) == 60);
  CHECK(nic.dropped() == 3);
}

TEST_CASE("the application's settings reach the driver and ring its descriptor", "[host][in_process_nic]") {
  InProcessNic nic;
  CHECK(nic.settings(kNow) == NicSettings{});
  CHECK_FALSE(readable(nic));

  nic.set_multicast({kGroup, kOtherGroup, kGroup});
  CHECK(readable(nic));
  nic.set_address(kMac);
  nic.set_up(true);
  CHECK(nic.set_mtu(9000));
  nic.set_promiscuous(true);
  const NicSettings expected{.mac = kMac,
                             .mtu = 9000,
                             .up = true,
                             .promiscuous = true,
                             .all_multicast = false,
                             .multicast = {kOtherGroup, kGroup}};
  CHECK(nic.settings(kNow) == expected);
  CHECK_FALSE(readable(nic));
}

TEST_CASE("the I/O unit's MTU bounds the nic's", "[host][in_process_nic]") {
  InProcessNic nic;
  CHECK(nic.set_mtu(9000));
  nic.set_max_mtu(1280);
  CHECK(nic.mtu() == 1280);
  CHECK_FALSE(nic.set_mtu(1281));
  CHECK_FALSE(nic.set_mtu(67));
  CHECK(nic.set_mtu(68));
}

TEST_CASE("the I/O unit's address counts until the application sets its own", "[host][in_process_nic]") {
  InProcessNic nic;
  nic.set_mac(kUnitsMac);
  CHECK(nic.address() == kUnitsMac);
  CHECK(nic.preferred_mac().is_zero());
  nic.set_address(kMac);
  CHECK(nic.preferred_mac() == kMac);
  nic.set_mac(kUnitsMac);
  CHECK(nic.address() == kMac);
}

TEST_CASE("the carrier is the driver's to set", "[host][in_process_nic]") {
  InProcessNic nic;
  CHECK_FALSE(nic.carrier());
  nic.set_carrier(true);
  CHECK(nic.carrier());
}

}  // namespace
}  // namespace splitnic::host::in_process_nic_test
