#include "iounit/packet_socket.h"

#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/common/offload_run.h"
#include "tests/unit/test_namespace.h"

namespace splitnic::iounit::packet_socket_test {
namespace {

using testing::run;
using testing::TestNamespace;

constexpr int kBytes = 1 << 20;

TEST_CASE("a request for a packet socket is one interface's index, and a packet socket at most",
          "[iounit][lan][sandbox]") {
  for (const std::size_t bytes : {0U, 3U, 5U}) {
    const auto answer = serve_packet_socket("lo", kBytes, {std::vector<std::byte>(bytes)});
    REQUIRE_FALSE(answer);
    CHECK_THAT(answer.error().message, Catch::Contains("is an interface's index"));
  }
  os::PrivilegedMessage two_sockets{std::vector<std::byte>(sizeof(std::int32_t))};
  two_sockets.descriptors.resize(2);
  CHECK_FALSE(serve_packet_socket("lo", kBytes, std::move(two_sockets)));
  os::PrivilegedMessage other_socket{std::vector<std::byte>(sizeof(std::int32_t))};
  other_socket.descriptors.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto refused = serve_packet_socket("lo", kBytes, std::move(other_socket));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "only a packet socket can be moved to a LAN interface");
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
  const PacketSockets sockets = packet_sockets_of(*std::move(process));
  auto made = sockets.open(index_of("lan0"));
  REQUIRE(made);
  CHECK(made->notes.empty());
  auto sender = open_packet_socket("lan1", index_of("lan1"), kBytes);
  REQUIRE(sender);
  const std::vector<std::byte> frame(10 + 60);  // behind a virtio-net header of zeros
  const auto arrives_at = [&](const os::UniqueFd& socket) {
    REQUIRE(::send(sender->descriptor.get(), frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size()));
    return testing::readable({socket.get()}, std::chrono::seconds(5));
  };
  CHECK(arrives_at(made->descriptor));

  // A socket of this process captures elsewhere until the other process moves it.
  run("ip link add other0 type veth peer name other1");
  run("ip link set other0 up");
  const auto moved = open_packet_socket("other0", index_of("other0"), kBytes);
  REQUIRE(moved);
  REQUIRE(sockets.move(moved->descriptor.get(), index_of("lan0")) == std::vector<std::string>{});
  CHECK(arrives_at(moved->descriptor));
  CHECK(testing::output_of("ip -d link show other0 | grep -o 'promiscuity [0-9]*'") == "promiscuity 0\n");

  for (const int index : {index_of("lan1"), index_of("lo"), 0, -1, 4711}) {
    const auto refused = sockets.open(index);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message == "the LAN interface lan0 was replaced");
    const auto not_moved = sockets.move(moved->descriptor.get(), index);
    REQUIRE_FALSE(not_moved);
    CHECK(not_moved.error().message == "the LAN interface lan0 was replaced");
  }
}

/// Frames of this many UDP flows, told apart by their source ports.
void send_flows(int socket, unsigned flows, unsigned times) {
  for (unsigned time = 0; time < times; ++time) {
    for (unsigned flow = 0; flow < flows; ++flow) {
      splitnic::test::Below below = splitnic::test::below_with(4, 0);
      std::vector<std::byte> frame(10);  // a virtio-net header of zeros
      auto datagram = splitnic::test::udp_frame(below, splitnic::test::pattern(64));
      datagram[34] = static_cast<std::byte>(flow >> 8U);
      datagram[35] = static_cast<std::byte>(flow);
      frame.insert(frame.end(), datagram.begin(), datagram.end());
      REQUIRE(::send(socket, frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size()));
    }
  }
}

/// The flow of each frame that has arrived, in order.
std::vector<unsigned> flows_at(const os::UniqueFd& socket) {
  std::vector<unsigned> flows;
  std::array<std::byte, 2048> frame;
  while (testing::readable({socket.get()}, std::chrono::milliseconds(50))) {
    const ssize_t bytes = ::recv(socket.get(), frame.data(), frame.size(), MSG_DONTWAIT);
    if (bytes != 10 + 42 + 64) continue;  // another frame of the interface
    flows.push_back(std::to_integer<unsigned>(frame[44]) << 8U | std::to_integer<unsigned>(frame[45]));
  }
  return flows;
}

TEST_CASE("sockets that share an interface get each frame once, and a flow's all at one of them",
          "[iounit][lan][group][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  run("ip link add lan0 type veth peer name lan1");
  run("ip link set lan0 up && ip link set lan1 up");
  constexpr unsigned kFlows = 64;
  constexpr unsigned kTimes = 3;
  PacketFanout fanout;
  PacketFanout of_another_program;
  const auto open = [&](PacketFanout& shared) {
    auto made = open_packet_socket("lan0", static_cast<int>(::if_nametoindex("lan0")), kBytes, &shared);
    REQUIRE(made);
    return std::move(made->descriptor);
  };
  std::array sockets{open(fanout), open(fanout)};
  const auto alone = open(of_another_program);
  const auto check = [&] {
    auto sender = open_packet_socket("lan1", static_cast<int>(::if_nametoindex("lan1")), kBytes);
    REQUIRE(sender);
    send_flows(sender->descriptor.get(), kFlows, kTimes);
    std::map<unsigned, unsigned> first;
    std::map<unsigned, unsigned> second;
    for (const unsigned flow : flows_at(sockets[0])) ++first[flow];
    for (const unsigned flow : flows_at(sockets[1])) ++second[flow];
    CHECK(first.size() + second.size() == kFlows);
    CHECK(first.size() > kFlows / 8);
    CHECK(second.size() > kFlows / 8);
    for (const auto& at : {first, second}) {
      for (const auto& [flow, times] : at) CHECK(times == kTimes);
    }
    CHECK(flows_at(alone).size() == kFlows * kTimes);
  };
  check();
  sockets[0].reset();  // it is opened again while the other one is there
  sockets[0] = open(fanout);
  check();
  for (auto& socket : sockets) socket.reset();
  for (auto& socket : sockets) socket = open(fanout);
  check();
  // A new interface of the same name, while a socket is still at the old one.
  run("ip link del lan0");
  run("ip link add lan0 type veth peer name lan1");
  run("ip link set lan0 up && ip link set lan1 up");
  sockets[0] = open(fanout);
  sockets[1] = open(fanout);
  auto sender = open_packet_socket("lan1", static_cast<int>(::if_nametoindex("lan1")), kBytes);
  REQUIRE(sender);
  send_flows(sender->descriptor.get(), kFlows, 1);
  CHECK(flows_at(sockets[0]).size() + flows_at(sockets[1]).size() == kFlows);
}

}  // namespace
}  // namespace splitnic::iounit::packet_socket_test
