// The numbers of flows.
#include "common/frame/flow.h"

#include <catch2/catch.hpp>
#include <vector>

namespace splitnic::frame::flow_test {
namespace {

std::vector<std::byte> udp(unsigned from, unsigned to, unsigned from_port, unsigned to_port, bool fragment = false) {
  std::vector<std::byte> frame(14 + 20 + 8 + 4);
  const auto put = [&](std::size_t at, unsigned value) { frame[at] = static_cast<std::byte>(value & 0xffU); };
  put(12, 0x08);
  put(14, 0x45);
  put(17, 32);
  if (fragment) put(20, 0x20);
  put(23, 17);
  put(29, from);
  put(33, to);
  put(34, from_port >> 8U);
  put(35, from_port);
  put(36, to_port >> 8U);
  put(37, to_port);
  put(39, 12);
  return frame;
}

std::uint64_t number(const std::vector<std::byte>& frame, std::uint64_t key = 1) {
  return flow_number(frame, parse_ethernet(frame).value(), key);
}

TEST_CASE("both directions of a flow have one number, and other flows have others", "[common][frame]") {
  const auto flow = number(udp(1, 2, 1000, 2000));
  CHECK(number(udp(2, 1, 2000, 1000)) == flow);
  CHECK(number(udp(1, 2, 2000, 1000)) != flow);
  CHECK(number(udp(1, 2, 1001, 2000)) != flow);
  CHECK(number(udp(1, 3, 1000, 2000)) != flow);
  CHECK(number(udp(1, 2, 1000, 2000), 2) != flow);
}

TEST_CASE("fragments of one datagram are of one flow", "[common][frame]") {
  CHECK(number(udp(1, 2, 1000, 2000, true)) == number(udp(1, 2, 7, 9, true)));
}

TEST_CASE("frames of other protocols are of one flow for each pair of stations", "[common][frame]") {
  std::vector<std::byte> frame(60);
  frame[12] = std::byte{0x88};
  frame[13] = std::byte{0xb5};
  frame[5] = std::byte{1};
  const auto flow = number(frame);
  std::swap(frame[5], frame[11]);
  CHECK(number(frame) == flow);
  frame[10] = std::byte{1};
  CHECK(number(frame) != flow);
}

}  // namespace
}  // namespace splitnic::frame::flow_test
