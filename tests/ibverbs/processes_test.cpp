// Peers that come and go, and processes that fork.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::processes_test {
namespace {

/// Runs work() in a forked child, and returns what it returned.
int in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(static_cast<unsigned>(kLimit.count()));  // if it hangs
    _exit(work());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

/// Of shared memory: bridges.
std::ptrdiff_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::ptrdiff_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:") != std::string::npos ? 1 : 0;
  return count;
}

TEST_CASE("peers that come and go leave neither descriptors nor memory at one that stays", "[ibverbs]") {
  Device server;
  const std::ptrdiff_t mappings = shared_mappings();  // of the loop-back link
  const auto meet = [&server] {
    Device client;
    Connected ends(client, server);
    REQUIRE(ends.second.receive(1, 0, 8) == 0);
    REQUIRE(ends.first.send(2, 0, 8) == 0);
    server.expect(1);
    client.expect(2);
  };
  constexpr int kKept = 16;  // paths of peers that were there last
  for (int peer = 0; peer < kKept + 4; ++peer) meet();
  wait_until([=] { return shared_mappings() <= mappings; });
  const std::ptrdiff_t descriptors = open_descriptors();
  for (int peer = 0; peer < kKept; ++peer) meet();
  wait_until([=] { return shared_mappings() <= mappings; });
  wait_until([=] { return open_descriptors() <= descriptors; });
}

/// Where a queue pair is, for the other process.
struct Place {
  std::uint16_t lid = 0;
  std::uint32_t queue_pair = 0;
};

constexpr int kMessages = 8;
constexpr Shape kUnacknowledged{.type = IBV_QPT_UC};

/// The child's work: receives what the parent's queue pair sends. channel: a socket to the parent.
int receive_all(int channel) {
  Device device;
  Queue queue(device, kUnacknowledged);
  Place peer;
  const Place own{device.lid(), queue.qp->qp_num};
  if (read(channel, &peer, sizeof peer) != sizeof peer) return 1;
  queue.connect(peer.lid, peer.queue_pair);
  for (int id = 0; id < kMessages; ++id) static_cast<void>(queue.receive(static_cast<std::uint64_t>(id), 0, 64));
  if (write(channel, &own, sizeof own) != sizeof own) return 1;
  for (int id = 0; id < kMessages; ++id) device.expect(static_cast<std::uint64_t>(id));
  return 0;
}

TEST_CASE("what was sent arrives at a peer that was stopped, although the sender has ended", "[ibverbs]") {
  name_fabric();
  int channel[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(static_cast<unsigned>(kLimit.count()));  // if it hangs
    _exit(receive_all(channel[1]));
  }
  auto device = std::make_unique<Device>();
  auto queue = std::make_unique<Queue>(*device, kUnacknowledged);
  const Place own{device->lid(), queue->qp->qp_num};
  Place peer;
  REQUIRE(write(channel[0], &own, sizeof own) == sizeof own);
  REQUIRE(read(channel[0], &peer, sizeof peer) == sizeof peer);
  queue->connect(peer.lid, peer.queue_pair);
  // All but the last arrive before the peer is stopped, so the path is up.
  for (int id = 1; id < kMessages; ++id) {
    REQUIRE(queue->send(static_cast<std::uint64_t>(id), 0, 64) == 0);
    device->expect(static_cast<std::uint64_t>(id));
  }
  int status = 0;
  REQUIRE(kill(child, SIGSTOP) == 0);
  REQUIRE(waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(queue->send(0, 0, 64) == 0);
  device->expect(0);
  queue.reset();
  device.reset();
  REQUIRE(kill(child, SIGCONT) == 0);
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  close(channel[0]);
  close(channel[1]);
}

TEST_CASE("a forked child that closes its parent's device changes nothing for the parent", "[ibverbs]") {
  Device one;
  REQUIRE(in_child([&] { return ibv_close_device(one.context); }) == 0);
  // The parent's sockets are there, and what comes by them is noticed.
  Device other;
  Connected ends(one, other);
  REQUIRE(ends.second.receive(1, 0, 8) == 0);
  REQUIRE(ends.first.send(2, 0, 8) == 0);
  one.expect(2);
  other.expect(1);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::processes_test
