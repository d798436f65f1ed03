// Peers that come and go, and processes that fork.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <list>
#include <memory>
#include <set>
#include <string>

#include "tests/ibverbs/device.h"
#include "tests/unit/common/fork_beside_threads.h"
#include "tests/unit/other_process.h"

namespace splitnic::ibverbs::testing::processes_test {
namespace {

using splitnic::testing::SleepingChild;

constexpr int kFailedInChild = 99;

/// Runs work() in a forked child, and returns what it returned: kFailedInChild if an assertion failed there, and the
/// negative number of the signal if one ended it.
int in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(static_cast<unsigned>(2 * kLimit.count()));  // if it hangs; what it waits for fails before
    int code = kFailedInChild;
    try {
      code = work();
    } catch (...) {  // of an assertion; the parent's frames are not to be unwound here
    }
    _exit(code);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

std::ptrdiff_t mappings_of(const std::string& file) {
  std::ifstream maps("/proc/self/maps");
  std::ptrdiff_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(file) != std::string::npos ? 1 : 0;
  return count;
}
std::ptrdiff_t shared_mappings() { return mappings_of("memfd:"); }
std::ptrdiff_t mappings_of_bridges() { return mappings_of("memfd:splitnic-bridge"); }

TEST_CASE("a device has a loop-back link from the first queue pair on that sends to its own port", "[ibverbs]") {
  Device device;
  CHECK(mappings_of_bridges() == 0);
  for (int round = 0; round < 2; ++round) {
    Connected ends(device, device);
    CHECK(mappings_of_bridges() != 0);
    REQUIRE(ends.second.receive(1, 8, 8) == 0);
    REQUIRE(ends.first.send(2, 0, 8) == 0);
    for (int ended = 0; ended < 2; ++ended) CHECK(device.next().status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("peers that come and go leave neither descriptors nor memory at one that stays", "[ibverbs]") {
  Device server;
  const std::ptrdiff_t mappings = shared_mappings();  // of the board of placements
  const bool forks = GENERATE(false, true);           // in each meeting a child that outlives the client
  CAPTURE(forks);
  std::list<SleepingChild> children;
  const auto meet = [&] {
    Device client;
    Connected ends(client, server);
    REQUIRE(ends.second.receive(1, 0, 8) == 0);
    REQUIRE(ends.first.send(2, 0, 8) == 0);
    server.expect(1);
    client.expect(2);
    if (forks) children.emplace_back();
  };
  constexpr int kKept = 16;  // paths of peers that were there last
  for (int peer = 0; peer < kKept + 4; ++peer) meet();
  wait_until([=] { return shared_mappings() <= mappings; });
  const std::ptrdiff_t descriptors = open_descriptors();
  for (int peer = 0; peer < kKept; ++peer) meet();
  wait_until([=] { return shared_mappings() <= mappings; });
  wait_until([=] { return open_descriptors() <= descriptors; });
}

TEST_CASE("peers that close their device while messages go both ways are gone, and their bridges with them",
          "[ibverbs]") {
  Device server;
  constexpr std::uint64_t kMany = 64;
  for (int round = 0; round < 20; ++round) {
    Queue queue(server, {.depth = kMany, .timeout = 1, .retries = 0});
    {
      Device client;
      Queue other(client, {.depth = kMany});
      queue.connect(client.lid(), other.qp->qp_num);
      other.connect(server.lid(), queue.qp->qp_num);
      for (std::uint64_t id = 0; id < kMany; ++id) {
        REQUIRE(queue.receive(id, 0, 8) == 0);
        REQUIRE(other.receive(id, 0, 8) == 0);
      }
      REQUIRE(queue.send(0, 0, 8) == 0);
      static_cast<void>(client.next());
      for (std::uint64_t id = 1; id < kMany; ++id) {
        REQUIRE(queue.send(id, 0, 8) == 0);
        REQUIRE(other.send(id, 0, 8) == 0);
      }
    }
    // The server polls without a pause, while its endnode takes the bridge away.
    wait_until([&] { return server.next().status != IBV_WC_SUCCESS; });
    ibv_wc rest{};
    wait_until([&] { return ibv_poll_cq(server.cq, 1, &rest) == 0 && queue.state() == IBV_QPS_ERR; });
    server.expect_fatal_event();
  }
}

/// Where a queue pair is, for the other process.
struct Place {
  std::uint16_t lid = 0;
  std::uint32_t queue_pair = 0;
};

constexpr int kMessages = 8;
constexpr Shape kUnacknowledged{.type = IBV_QPT_UC};
constexpr Shape kDatagrams{.type = IBV_QPT_UD};

/// A forked process, with a socket to it.
struct Child {
  explicit Child(const std::function<int(int channel)>& work) {
    name_fabric();
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    process = fork();
    REQUIRE(process >= 0);
    if (process == 0) {
      alarm(static_cast<unsigned>(kLimit.count()));  // if it hangs
      _exit(work(ends[1]));
    }
    close(ends[1]);
    channel = ends[0];
  }
  ~Child() {
    close(channel);
    if (was_waited_for) return;
    kill(process, SIGKILL);  // it may be stopped
    waitpid(process, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// The status that it ended with.
  [[nodiscard]] int ended() {
    int status = 0;
    was_waited_for = waitpid(process, &status, 0) == process;
    REQUIRE(was_waited_for);
    return status;
  }

  pid_t process = -1;
  int channel = -1;
  bool was_waited_for = false;
};

/// The child's work: receives what the parent's queue pair sends. channel: a socket to the parent. last: what it does
/// in the end, before anything is destroyed.
int receive_all(
    int channel, const Shape& shape, int messages, const std::function<void()>& last = [] {}) {
  Device device;
  Queue queue(device, shape);
  Place peer;
  const Place own{device.lid(), queue.qp->qp_num};
  if (read(channel, &peer, sizeof peer) != sizeof peer) return 1;
  queue.connect(peer.lid, peer.queue_pair);
  for (int id = 0; id < messages; ++id) static_cast<void>(queue.receive(static_cast<std::uint64_t>(id), 0, 64));
  if (write(channel, &own, sizeof own) != sizeof own) return 1;
  for (int id = 0; id < messages; ++id) device.expect(static_cast<std::uint64_t>(id));
  last();
  return 0;
}

void connect_to_child(int channel, const Device& device, Queue& queue) {
  const Place own{device.lid(), queue.qp->qp_num};
  Place peer;
  REQUIRE(write(channel, &own, sizeof own) == sizeof own);
  REQUIRE(read(channel, &peer, sizeof peer) == sizeof peer);
  queue.connect(peer.lid, peer.queue_pair);
}

TEST_CASE("a queue pair of another process is found by the address of any device that the process has opened",
          "[ibverbs]") {
  Child child([](int channel) {
    Device named;
    Device device;
    Queue queue(device, {});
    const Place own{named.lid(), queue.qp->qp_num};
    Place peer;
    if (write(channel, &own, sizeof own) != sizeof own || read(channel, &peer, sizeof peer) != sizeof peer) return 1;
    queue.connect(peer.lid, peer.queue_pair);
    if (queue.receive(1, 0, 64) != 0) return 2;
    device.expect(1);
    if (queue.send(2, 0, 64) != 0) return 3;
    device.expect(2);
    return 0;
  });
  Device device;
  Queue queue(device, {});
  const Device named;  // the queue pair is there already
  const Place own{named.lid(), queue.qp->qp_num};
  Place peer;
  REQUIRE(read(child.channel, &peer, sizeof peer) == sizeof peer);
  queue.connect(peer.lid, peer.queue_pair);
  REQUIRE(queue.receive(3, 64, 64) == 0);
  REQUIRE(write(child.channel, &own, sizeof own) == sizeof own);
  device.memory[0] = 77;
  REQUIRE(queue.send(4, 0, 64) == 0);
  device.expect(4);
  device.expect(3);
  CHECK(device.memory[64] == 77);
  const int status = child.ended();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("datagrams find a queue pair of another process by the address of any device that the process has opened",
          "[ibverbs]") {
  constexpr std::uint64_t kEach = 3;
  Child child([&](int channel) {
    Device named;
    Device device;
    Queue near(named, kDatagrams);
    Queue far(device, kDatagrams);
    for (Queue* queue : {&near, &far}) {
      queue->connect(0, 0);
      for (std::uint64_t id = 0; id < kEach; ++id) {
        if (queue->receive(id, 64 * id, 48) != 0) return 1;
      }
      const Place own{named.lid(), queue->qp->qp_num};
      if (write(channel, &own, sizeof own) != sizeof own) return 2;
    }
    for (std::uint64_t id = 0; id < kEach; ++id) {
      named.expect(id);
      device.expect(id);
    }
    return 0;
  });
  Device device;
  Queue queue(device, kDatagrams);
  queue.connect(0, 0);
  std::array<Place, 2> places{};
  REQUIRE(read(child.channel, &places[0], sizeof places[0]) == sizeof places[0]);
  REQUIRE(read(child.channel, &places[1], sizeof places[1]) == sizeof places[1]);
  ibv_ah* handle = handle_to(device, places[0].lid);
  REQUIRE(handle != nullptr);
  for (std::uint64_t id = 0; id < kEach; ++id) {
    for (const Place& place : places) {
      ibv_sge part = device.part(0, 8);
      ibv_send_wr request = queue.request(id, IBV_WR_SEND, part);
      request.wr.ud.ah = handle;
      request.wr.ud.remote_qpn = place.queue_pair;
      request.wr.ud.remote_qkey = kQueueKey;
      REQUIRE(queue.post(request) == 0);
      device.expect(id);
    }
  }
  const int status = child.ended();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(ibv_destroy_ah(handle) == 0);
}

/// A device with a datagram queue pair that is ready.
struct DatagramEnd {
  DatagramEnd() { queue.connect(0, 0); }
  Device device;
  Queue queue{device, kDatagrams};
};

TEST_CASE("a datagram arrives although its address handle is destroyed before there is a path", "[ibverbs]") {
  // Several devices at each end, so that the ends that call and those that are called both send.
  constexpr std::size_t kDevices = 4;
  Child child([](int channel) {
    std::array<DatagramEnd, kDevices> ends;
    for (DatagramEnd& end : ends) {
      for (std::uint64_t id = 0; id < kDevices; ++id) {
        if (end.queue.receive(id, 0, 48) != 0) return 1;
      }
      const Place own{end.device.lid(), end.queue.qp->qp_num};
      if (write(channel, &own, sizeof own) != sizeof own) return 2;
    }
    for (DatagramEnd& end : ends) {
      for (std::uint64_t id = 0; id < kDevices; ++id) end.device.expect(id);
    }
    return 0;
  });
  std::array<DatagramEnd, kDevices> ends;
  std::array<Place, kDevices> places{};
  for (Place& place : places) REQUIRE(read(child.channel, &place, sizeof place) == sizeof place);
  // While it is stopped, there is no path to it.
  int status = 0;
  REQUIRE(kill(child.process, SIGSTOP) == 0);
  REQUIRE(waitpid(child.process, &status, WUNTRACED) == child.process);
  for (DatagramEnd& end : ends) {
    for (const Place& place : places) {
      ibv_ah* handle = handle_to(end.device, place.lid);
      REQUIRE(handle != nullptr);
      ibv_sge part = end.device.part(0, 8);
      ibv_send_wr request = end.queue.request(place.queue_pair, IBV_WR_SEND, part);
      request.wr.ud = {handle, place.queue_pair, kQueueKey};
      REQUIRE(end.queue.post(request) == 0);
      REQUIRE(ibv_destroy_ah(handle) == 0);
    }
  }
  REQUIRE(kill(child.process, SIGCONT) == 0);
  for (DatagramEnd& end : ends) {
    for (const Place& place : places) end.device.expect(place.queue_pair);
  }
  status = child.ended();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("what was sent arrives at a peer that was stopped, although the sender has ended", "[ibverbs]") {
  Child child([](int channel) { return receive_all(channel, kUnacknowledged, kMessages); });
  auto device = std::make_unique<Device>();
  auto queue = std::make_unique<Queue>(*device, kUnacknowledged);
  connect_to_child(child.channel, *device, *queue);
  // All but the last arrive before the peer is stopped, so the path is up.
  for (int id = 1; id < kMessages; ++id) {
    REQUIRE(queue->send(static_cast<std::uint64_t>(id), 0, 64) == 0);
    device->expect(static_cast<std::uint64_t>(id));
  }
  int status = 0;
  REQUIRE(kill(child.process, SIGSTOP) == 0);
  REQUIRE(waitpid(child.process, &status, WUNTRACED) == child.process);
  REQUIRE(queue->send(0, 0, 64) == 0);
  device->expect(0);
  queue.reset();
  device.reset();
  REQUIRE(kill(child.process, SIGCONT) == 0);
  status = child.ended();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("a peer that is killed, or ends without destroying anything, ends what waits for it in time", "[ibverbs]") {
  const bool killed = GENERATE(true, false);
  CAPTURE(killed);
  Shape patient;
  patient.timeout = 20;  // 4 s, eight times: more than expect() waits
  patient.retries = 7;
  Child child([&patient](int channel) {
    return receive_all(channel, patient, 1, [channel] {
      char go = 0;
      _exit(read(channel, &go, 1) == 1 ? 0 : 1);
    });
  });
  Device device;
  Queue queue(device, patient);
  connect_to_child(child.channel, device, queue);
  REQUIRE(queue.send(0, 0, 64) == 0);
  device.expect(0);
  REQUIRE(queue.send(1, 0, 64) == 0);  // finds no receive, and waits
  REQUIRE(queue.send(2, 0, 64) == 0);
  device.expect_nothing();
  if (killed) {
    REQUIRE(kill(child.process, SIGKILL) == 0);
  } else {
    REQUIRE(write(child.channel, "g", 1) == 1);
  }
  device.expect(1, IBV_WC_RETRY_EXC_ERR);
  device.expect(2, IBV_WC_WR_FLUSH_ERR);
  device.expect_fatal_event();
  const int status = child.ended();
  CHECK((killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0));
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

/// Messages from one of two connected queue pairs to the other, each confirmed before the next.
void exchange(Device& from, Device& to, Connected& ends, std::uint64_t rounds) {
  for (std::uint64_t id = 0; id < rounds; ++id) {
    REQUIRE(ends.second.receive(id, 0, 64) == 0);
    REQUIRE(ends.first.send(id, 0, 64) == 0);
    from.expect(id);
    to.expect(id);
  }
}

/// Whether the library's own threads, which allocate, keep a test from forking a child that allocates, too.
bool skipped_for_library_threads() {
  if (!splitnic::test::kForksBesideThreads)
    WARN("skipped: the allocator of AddressSanitizer may stay locked in a child");
  return !splitnic::test::kForksBesideThreads;
}

TEST_CASE("a forked child opens a device of its own and reaches its parent, whose messages go on",
          "[ibverbs][fork_beside_threads]") {
  if (skipped_for_library_threads()) return;
  Device one;
  Device other;
  Connected ends(one, other);
  exchange(one, other, ends, 1);
  Device parents;
  Child child([](int channel) { return receive_all(channel, {}, kMessages); });
  Queue queue(parents, {});
  connect_to_child(child.channel, parents, queue);
  for (int id = 0; id < kMessages; ++id) {
    REQUIRE(queue.send(static_cast<std::uint64_t>(id), 0, 64) == 0);
    exchange(one, other, ends, 1);
    parents.expect(static_cast<std::uint64_t>(id));
  }
  const int status = child.ended();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  exchange(one, other, ends, kMessages);
}

TEST_CASE("a child that was forked while threads open devices and send opens its own and uses it",
          "[ibverbs][fork_beside_threads]") {
  if (skipped_for_library_threads()) return;
  Device one;
  Device other;
  Connected ends(one, other);
  const splitnic::test::ThreadBesideForks opener([&] {
    if (ibv_context* opened = ibv_open_device(one.context->device)) ibv_close_device(opened);
  });
  for (int child = 0; child < 10; ++child) {
    CHECK(in_child([] {
            Device own;
            Device peer;
            Connected pair(own, peer);
            exchange(own, peer, pair, 2);
            return 0;
          }) == 0);
    exchange(one, other, ends, 2);
  }
}

TEST_CASE("a child that inherits an open device and ends hurts nothing", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
#ifdef __SANITIZE_ADDRESS__
  const bool by_exit = false;  // at exit() it looks for leaks, and the child does not have the threads that hold memory
#else
  const bool by_exit = GENERATE(true, false);  // else by a signal
#endif
  CAPTURE(by_exit);
  exchange(one, other, ends, 1);
  REQUIRE(ends.second.receive(100, 0, 64) == 0);  // a message to come
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(static_cast<unsigned>(kLimit.count()));
    std::signal(SIGTERM, SIG_DFL);
    if (by_exit) std::exit(0);  // what is static is destroyed
    raise(SIGTERM);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((by_exit ? WIFEXITED(status) && WEXITSTATUS(status) == 0 : WIFSIGNALED(status)));
  REQUIRE(ends.first.send(100, 0, 64) == 0);
  one.expect(100);
  other.expect(100);
  exchange(one, other, ends, kMessages);
  CHECK(ends.first.state() == IBV_QPS_RTS);
  CHECK(ends.second.state() == IBV_QPS_RTS);
}

TEST_CASE("no descriptor of the library stays open in a program that a child executes", "[ibverbs]") {
  const auto descriptors = [] {
    std::set<int> open;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      open.insert(std::stoi(entry.path().filename()));
    }
    return open;
  };
  const std::set<int> before = descriptors();
  Device one;
  Device other;
  Connected ends(one, other);
  exchange(one, other, ends, 1);
  int of_library = 0;
  for (const int descriptor : descriptors()) {
    std::error_code gone;
    const auto what = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), gone);
    const int flags = fcntl(descriptor, F_GETFD);
    // Closed meanwhile: that of the folder, for one, and those that the library's thread opens for a moment.
    if (gone || flags < 0 || before.contains(descriptor)) continue;
    CAPTURE(what);
    CHECK((flags & FD_CLOEXEC) != 0);
    ++of_library;
  }
  CHECK(of_library >= 8);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::processes_test
