#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <utility>

#include "host/tap_nic.h"
#include "tests/unit/quiet_log.h"

namespace splitnic::testing {

inline constexpr MacAddress kMac{{0x02, 0, 0, 0, 0, 1}};
inline constexpr MacAddress kOtherMac{{0x02, 0, 0, 0, 0, 2}};
inline constexpr MacAddress kAdminsMac{{0x02, 0, 0, 0, 0, 3}};
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

}  // namespace splitnic::testing
