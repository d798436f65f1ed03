#include "common/frame/multicast.h"

#include <catch2/catch.hpp>

#include "tests/unit/common/packet_builder.h"

namespace splitnic::frame::frame_multicast_test {
namespace {

using test::Below;
using test::Bytes;
using test::igmp;
using test::mld;

}  // namespace

TEST_CASE("exactly the IGMP types that join or leave are membership reports", "[common][frame]") {
  for (unsigned type = 0; type < 256; ++type) {
    INFO("type " << type);
    CHECK(is_membership_report(igmp(type)) == (type == 0x12 || type == 0x16 || type == 0x17 || type == 0x22));
  }
}

TEST_CASE("exactly the MLD types that join or leave are membership reports", "[common][frame]") {
  for (unsigned type = 0; type < 256; ++type) {
    INFO("type " << type);
    CHECK(is_membership_report(mld(type)) == (type == 131 || type == 132 || type == 143));
  }
}

TEST_CASE("membership reports are seen in tagged frames and in their first 100 bytes", "[common][frame]") {
  Below below;
  below.vlans = {{0x88a8, 1}, {0x8100, 2}};
  Bytes report = mld(143, below);
  report.resize(1400);
  CHECK(is_membership_report(std::span(report).first(kMembershipReportHeadBytes)));
  CHECK(is_membership_report(igmp(0x22, below)));
}

TEST_CASE("other protocols, unicast frames and fragments are no membership reports", "[common][frame]") {
  Below below;
  CHECK_FALSE(is_membership_report(test::udp_frame(below, test::pattern(100))));
  Bytes unicast = igmp(0x16);
  unicast[0] = std::byte{0x02};
  CHECK_FALSE(is_membership_report(unicast));
  below.ipv4_fragment = 0x2000;
  CHECK_FALSE(is_membership_report(igmp(0x16, below)));
  Below echo;
  echo.destination = {{0x01, 0x00, 0x5e, 0, 0, 1}};
  CHECK_FALSE(is_membership_report(test::ip_frame(echo, 1, Bytes(8, std::byte{0x16}))));
}

TEST_CASE("a membership report cut before its type is none", "[common][frame]") {
  for (const Bytes& whole : {igmp(0x22), mld(143)}) {
    const std::size_t type_at = whole.size() - (whole[12] == std::byte{0x08} ? 16U : 28U);
    for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
      INFO(bytes << " bytes");
      // A vector of its own, so that AddressSanitizer sees a step beyond the end.
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
      CHECK(is_membership_report(cut) == (bytes > type_at));
    }
  }
}

}  // namespace splitnic::frame::frame_multicast_test
