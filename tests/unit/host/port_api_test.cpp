#include "host/port_api.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

namespace splitnic::host {
namespace {

constexpr Time kNow{};
constexpr MacAddress kMac{{0x02, 0, 0, 0, 0, 1}};
constexpr MacAddress kUnitsMac{{0x02, 0, 0, 0, 0, 2}};
constexpr MacAddress kGroup{{0x01, 0, 0x5e, 0, 0, 0xfb}};

std::vector<std::byte> frame_of(std::size_t bytes, unsigned first = 1) {
  std::vector<std::byte> frame(bytes);
  for (std::size_t at = 0; at < bytes; ++at) frame[at] = static_cast<std::byte>(first + at);
  return frame;
}

bool deliver(InProcessPort& port, std::vector<std::byte> frame) {
  return port.write_frame({fabric::PeerMemory::over(frame.data(), frame.size())});
}

bool readable(const std::vector<int>& descriptors) {
  for (const int fd : descriptors) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, 0) == 1) return true;
  }
  return false;
}

TEST_CASE("frames cross an in-process port both ways byte for byte", "[host][port_api]") {
  InProcessPort port;
  port.set_up(true);
  const auto out = frame_of(60);
  const auto in = frame_of(1514, 9);
  REQUIRE(port.send(out));
  REQUIRE(deliver(port, in));

  std::vector<std::byte> buffer(2048);
  REQUIRE(port.read_frame(buffer) == out.size());
  CHECK(std::equal(out.begin(), out.end(), buffer.begin()));
  CHECK(port.read_frame(buffer) == 0);
  REQUIRE(port.receive(buffer) == in.size());
  CHECK(std::equal(in.begin(), in.end(), buffer.begin()));
  CHECK(port.receive(buffer) == 0);
  CHECK(port.dropped() == 0);
}

TEST_CASE("a port that is down carries nothing", "[host][port_api]") {
  InProcessPort port;
  std::vector<std::byte> buffer(2048);
  CHECK_FALSE(port.send(frame_of(60)));
  CHECK_FALSE(deliver(port, frame_of(60)));
  CHECK(port.receive(buffer) == 0);
  CHECK(port.dropped() == 1);
}

TEST_CASE("full rings and frames of a wrong length are refused, none are kept", "[host][port_api]") {
  InProcessPort port({.frames = 2, .frame_bytes = 2048});
  port.set_up(true);
  CHECK_FALSE(port.send(frame_of(13)));
  CHECK(port.send(frame_of(1522)));
  CHECK_FALSE(port.send(frame_of(1523)));
  CHECK(port.send(frame_of(60)));
  CHECK_FALSE(port.send(frame_of(60)));

  CHECK(deliver(port, frame_of(2048)));
  CHECK(deliver(port, frame_of(60)));
  CHECK_FALSE(deliver(port, frame_of(60)));
  CHECK(port.dropped() == 1);

  std::vector<std::byte> small(100);
  CHECK(port.read_frame(small) == 60);
  CHECK(port.receive(small) == 60);
  CHECK(port.dropped() == 3);
}

TEST_CASE("the application's settings reach the driver and ring its descriptor", "[host][port_api]") {
  InProcessPort port;
  CHECK(port.settings(kNow) == NicSettings{});
  CHECK_FALSE(readable(port.descriptors()));

  port.set_multicast({kGroup, kGroup});
  CHECK(readable(port.descriptors()));
  port.set_address(kMac);
  port.set_up(true);
  CHECK(port.set_mtu(9000));
  port.set_promiscuous(true);
  const NicSettings expected{
      .mac = kMac, .mtu = 9000, .up = true, .promiscuous = true, .all_multicast = false, .multicast = {kGroup}};
  CHECK(port.settings(kNow) == expected);
  CHECK_FALSE(readable(port.descriptors()));
}

TEST_CASE("the I/O unit's MTU bounds the port's", "[host][port_api]") {
  InProcessPort port;
  CHECK(port.set_mtu(9000));
  port.set_max_mtu(1280);
  CHECK(port.mtu() == 1280);
  CHECK_FALSE(port.set_mtu(1281));
  CHECK_FALSE(port.set_mtu(67));
  CHECK(port.set_mtu(68));
}

TEST_CASE("the I/O unit's address counts until the application sets its own", "[host][port_api]") {
  InProcessPort port;
  port.set_mac(kUnitsMac);
  CHECK(port.address() == kUnitsMac);
  CHECK(port.preferred_mac().is_zero());
  port.set_address(kMac);
  CHECK(port.preferred_mac() == kMac);
  port.set_mac(kUnitsMac);
  CHECK(port.address() == kMac);
}

TEST_CASE("the carrier is the driver's to set", "[host][port_api]") {
  InProcessPort port;
  CHECK_FALSE(port.carrier());
  port.set_carrier(true);
  CHECK(port.carrier());
}

}  // namespace
}  // namespace splitnic::host
