#include "iounit/packet_socket.h"

#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <utility>

#include "tests/unit/test_namespace.h"

namespace splitnic::iounit::packet_socket_test {
namespace {

using testing::run;
using testing::TestNamespace;

constexpr int kBytes = 1 << 20;

TEST_CASE("a request for a packet socket is one interface's index and nothing else", "[iounit][lan][sandbox]") {
  for (const std::size_t bytes : {0U, 3U, 5U}) {
    const auto answer = serve_packet_socket("lo", kBytes, {std::vector<std::byte>(bytes)});
    REQUIRE_FALSE(answer);
    CHECK_THAT(answer.error().message, Catch::Contains("is an interface's index"));
  }
  os::PrivilegedMessage with_descriptor{std::vector<std::byte>(sizeof(std::int32_t))};
  with_descriptor.descriptors.emplace_back(-1);
  CHECK_FALSE(serve_packet_socket("lo", kBytes, with_descriptor));
  const auto none = serve_packet_socket("lo", kBytes, {std::vector<std::byte>(sizeof(std::int32_t))});
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().message, Catch::Contains("was replaced"));
}

TEST_CASE("another process opens packet sockets on its interface and on no other",
          "[iounit][lan][sandbox][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  run("ip link add lan0 type veth peer name lan1");
  run("ip link set lan0 up && ip link set lan1 up");
  auto process = os::PrivilegedProcess::start(
      {.service = [](const os::PrivilegedMessage& asked) { return serve_packet_socket("lan0", kBytes, asked); }});
  REQUIRE(process);
  const auto index_of = [](const char* name) { return static_cast<int>(::if_nametoindex(name)); };
  auto made = request_packet_socket(**process, index_of("lan0"));
  REQUIRE(made);
  CHECK(made->notes.empty());
  auto sender = open_packet_socket("lan1", index_of("lan1"), kBytes);
  REQUIRE(sender);
  const std::vector<std::byte> frame(10 + 60);  // behind a virtio-net header of zeros
  REQUIRE(::send(sender->descriptor.get(), frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size()));
  CHECK(testing::readable({made->descriptor.get()}, std::chrono::seconds(5)));

  for (const int index : {index_of("lan1"), index_of("lo"), 0, -1, 4711}) {
    const auto refused = request_packet_socket(**process, index);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message == "the LAN interface lan0 was replaced");
  }
}

}  // namespace
}  // namespace splitnic::iounit::packet_socket_test
