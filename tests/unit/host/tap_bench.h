#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "host/tap_nic.h"
#include "tests/unit/quiet_log.h"

namespace splitnic::testing {

inline constexpr MacAddress kMac{{0x02, 0, 0, 0, 0, 1}};
inline constexpr MacAddress kOtherMac{{0x02, 0, 0, 0, 0, 2}};
inline constexpr MacAddress kAdminsMac{{0x02, 0, 0, 0, 0, 3}};
inline constexpr MacAddress kGroup{{0x01, 0, 0x5e, 1, 2, 3}};
inline constexpr Time kStart{std::chrono::hours(1)};

/// Opened at kStart; fails the test where it can't be. log: lent.
inline std::unique_ptr<host::TapNic> opened(const host::TapOptions& options, os::Log& log = quiet_log()) {
  auto nic = host::TapNic::open(options, kStart, log);
  if (!nic) FAIL(nic.error().message);
  return *std::move(nic);
}

/// Of a driver that may do nothing more to its TAP.
class NoTapRights final : public host::TapRights {
 public:
  Result<host::AttachedTap> attach(const host::TapOptions& /*options*/) override { return fail("not permitted"); }
  Result<host::TapPlace> find(const host::TapDevice& /*device*/, bool /*keep_neighbours*/) override {
    return fail("not permitted");
  }
  Result<void> set_mtu(const host::TapDevice& /*device*/, std::uint32_t /*mtu*/) override {
    return fail("not permitted");
  }
  Result<void> mark_address(const host::TapDevice& /*device*/, const MacAddress& /*address*/) override {
    return fail("not permitted");
  }
};

/// A time at which a NIC that was opened() looks for events again.
inline Time later() {
  static Time now = kStart;
  return now += host::TapNic::kEventInterval;
}

/// Sends a broadcast datagram of `bytes` through the interface, which becomes an Ethernet frame 42 bytes longer.
inline void send_datagram(const char* interface, std::size_t bytes) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, interface, static_cast<socklen_t>(std::strlen(interface)));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = htonl(INADDR_BROADCAST);
  const std::vector<char> payload(bytes, 'x');
  const ssize_t sent = ::sendto(fd, payload.data(), bytes, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  ::close(fd);
  REQUIRE(sent == static_cast<ssize_t>(bytes));
}

/// As from the unit.
inline bool deliver(host::TapNic& nic, std::vector<std::byte> frame) {
  return nic.write_frame({fabric::PeerMemory::over(frame.data(), frame.size())});
}

/// A frame from the unit: the NIC is busy.
inline void pass_frame(host::TapNic& nic) { static_cast<void>(deliver(nic, std::vector<std::byte>(60))); }

/// Whether kGroup is in the list that the NIC shows at this time.
inline bool joined(host::TapNic& nic, Time at) {
  const auto& groups = nic.settings(at).multicast;
  return std::binary_search(groups.begin(), groups.end(), kGroup);
}

}  // namespace splitnic::testing
