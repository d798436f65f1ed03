#include <fcntl.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "common/os/dev_mcast.h"
#include "common/os/unique_fd.h"
#include "os_temporary_directory.h"

namespace splitnic::os::os_dev_mcast_test {
namespace {

constexpr MacAddress kAllHosts{{0x01, 0x00, 0x5e, 0x00, 0x00, 0x01}};
constexpr MacAddress kBroadcast{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
constexpr MacAddress kAllNodes{{0x33, 0x33, 0x00, 0x00, 0x00, 0x01}};

TEST_CASE("an interface's multicast addresses come out sorted and once each", "[common][dev_mcast]") {
  const auto list = parse_dev_mcast(
      "2    ifb0            1     0     3333ff000002\n"
      "4    eth0            1     0     333300000001\n"
      "4    eth0            1     0     01005e000001\n"
      "4    eth0            2     1     333300000001\n"
      "42   eth1            1     0     3333ff000003\n",
      4);
  CHECK(list == std::vector<MacAddress>{kAllHosts, kAllNodes});
}

TEST_CASE("malformed lines of the multicast list are passed over", "[common][dev_mcast]") {
  const auto list = parse_dev_mcast(
      "\n"
      "4\n"
      "4 eth0 1 0\n"
      "4 eth0 1 0 01005e0000\n"
      "4 eth0 1 0 01005e00000g\n"
      "4 eth0 1 0 01005e000001ff\n"
      "4 eth0 x 0 01005e000002\n"
      "4x eth0 1 0 01005e000003\n"
      "99999999999999999999 eth0 1 0 01005e000004\n"
      "4 eth0 1 0 01005e000005 more\n"
      "\t4 eth0\t1 0 01005E000001",  // no line end, tabs, capitals
      4);
  CHECK(list == std::vector<MacAddress>{kAllHosts});
  CHECK(parse_dev_mcast("", 4).empty());
}

TEST_CASE("a station's address in the multicast list is passed over", "[common][dev_mcast]") {
  const auto list = parse_dev_mcast(
      "4 eth0 1 0 029999999999\n"
      "4 eth0 1 0 000000000000\n"
      "4 eth0 1 0 01005e000001\n"
      "4 eth0 1 0 ffffffffffff\n",
      4);
  CHECK(list == std::vector<MacAddress>{kAllHosts, kBroadcast});
}

TEST_CASE("the multicast list is read from its start again and again, and what is no file is an error",
          "[common][dev_mcast]") {
  const TemporaryDirectory directory;
  std::ofstream(directory.path("mcast")) << "1 lo 1 0 333300000001\n";
  const UniqueFd file(::open(directory.path("mcast").c_str(), O_RDONLY | O_CLOEXEC));
  for (int time = 0; time < 2; ++time) {
    const auto text = read_dev_mcast(file.get());
    REQUIRE(text);
    CHECK(parse_dev_mcast(*text, 1) == std::vector<MacAddress>{kAllNodes});
  }
  const auto missing = read_dev_mcast(-1);
  REQUIRE_FALSE(missing);
  CHECK_THAT(missing.error().message, Catch::EndsWith(": Bad file descriptor"));
  const UniqueFd own(::open(kThreadDevMcast, O_RDONLY | O_CLOEXEC));
  const auto first = read_dev_mcast(own.get());
  REQUIRE(first);
  CHECK(read_dev_mcast(own.get()).value() == *first);
}

}  // namespace
}  // namespace splitnic::os::os_dev_mcast_test
