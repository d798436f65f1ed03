// Records and sockets of connections, of ends that do not use the library.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/os/peer_socket.h"
#include "common/os/unix_address.h"
#include "fabric/rdmacm/rendezvous.h"
#include "tests/rdmacm/manager.h"
#include "tests/rdmacm/processes.h"

namespace splitnic::rdmacm::testing::lines_test {
namespace {

/// Of a listener with the identifier's binding.
std::string socket_path(rdma_cm_id* id) {
  const auto address = address_of(rdma_get_local_addr(id));
  REQUIRE(address);
  return fabric_folder() + "/" + socket_name({Space::tcp, *address});
}

/// A thread of this process sleeps, for example in poll(2).
bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  return line.find(") S ") != std::string::npos;
}

/// How often a thread of this process has gone to sleep.
std::uint64_t sleeps_of(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string name; file >> name;) {
    std::uint64_t count = 0;
    if (name == "voluntary_ctxt_switches:" && file >> count) return count;
  }
  return 0;
}

/// A listener whose channel does not block, and callers that do not use the library.
struct BareListener {
  BareListener() {
    listener.listen();
    REQUIRE(fcntl(events.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  }
  [[nodiscard]] os::UniqueFd call() const {
    const os::UnixAddress address(socket_path(listener.id));
    os::UniqueFd caller(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(caller.get(), address.get(), os::UnixAddress::size()) == 0);
    return caller;
  }
  /// The same in any thread, and without waiting for room; there may be none.
  [[nodiscard]] static os::UniqueFd call(const std::string& path) {
    const os::UnixAddress address(path);
    os::UniqueFd caller(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    static_cast<void>(::connect(caller.get(), address.get(), os::UnixAddress::size()));
    return caller;
  }

  [[nodiscard]] Record request() const {
    Record made;
    made.kind = RecordKind::request;
    made.queue_pair = 7;
    made.local_id = 7;
    made.space = static_cast<std::uint16_t>(Space::tcp);
    made.source = *address_of(rdma_get_local_addr(listener.id));
    made.destination = made.source;
    return made;
  }

  Channel events;
  Id listener{events};
};

TEST_CASE("a peer that says twice that it is ready ends its connection", "[rdmacm]") {
  BareListener bare;
  const Line caller{os::PeerSocket(bare.call()), {}};
  REQUIRE(caller.send(bare.request()));
  const Id server(bare.events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  rdma_conn_param answer{};
  answer.qp_num = 8;
  REQUIRE(rdma_accept(server.id, &answer) == 0);
  const bool notified = GENERATE(false, true);
  if (notified) REQUIRE(rdma_notify(server.id, IBV_EVENT_COMM_EST) == 0);
  Record ready;
  ready.kind = RecordKind::ready;
  REQUIRE(caller.send(ready));
  bare.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  rdma_cm_event* event = nullptr;
  CHECK(rdma_get_cm_event(bare.events.channel, &event) == -1);
  CHECK(errno == EAGAIN);
  REQUIRE(caller.send(ready));
  bare.events.expect(RDMA_CM_EVENT_DISCONNECTED);
}

TEST_CASE("a forked child that closes its copy of a line leaves its parent's open", "[rdmacm]") {
  BareListener bare;
  Line caller{os::PeerSocket(bare.call()), {}};
  const Child child([&caller] {
    caller = Line();
    return 0;
  });
  REQUIRE(child.ended() == 0);
  REQUIRE(caller.send(bare.request()));
  const Id server(bare.events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
}

TEST_CASE("a readable channel that does not block awaits the request of a caller", "[rdmacm]") {
  BareListener bare;
  const Channel& events = bare.events;
  const Record request = bare.request();
  const pid_t receiver = gettid();
  // The request may come too late on a busy machine, so there are several tries.
  rdma_cm_event* event = nullptr;
  int got = -1;
  for (int tries = 0; tries < 50 && got != 0; ++tries) {
    Line caller{os::PeerSocket(bare.call()), {}};
    REQUIRE(events.readable());
    std::atomic<bool> returned{false};
    std::thread sender([&] {
      while (!returned && !sleeps(receiver)) std::this_thread::yield();
      if (!returned) static_cast<void>(caller.send(request));
    });
    got = rdma_get_cm_event(events.channel, &event);
    if (got != 0) CHECK(errno == EAGAIN);
    returned = true;
    sender.join();
  }
  REQUIRE(got == 0);
  CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
  const Id request_of(event->id);
  REQUIRE(rdma_ack_cm_event(event) == 0);
}

TEST_CASE("a readable channel that does not block awaits the request of a caller while others come", "[rdmacm]") {
  BareListener bare;
  const Channel& events = bare.events;
  const Record request = bare.request();
  const std::string path = socket_path(bare.listener.id);
  const pid_t receiver = gettid();
  rdma_cm_event* event = nullptr;
  int got = -1;
  for (int tries = 0; tries < 50 && got != 0; ++tries) {  // as above
    const Line caller{os::PeerSocket(bare.call()), {}};
    REQUIRE(events.readable());
    std::atomic<bool> returned{false};
    std::thread sender([&] {
      while (!returned && !sleeps(receiver)) std::this_thread::yield();
      const std::uint64_t before = sleeps_of(receiver);
      const os::UniqueFd other = BareListener::call(path);  // wakes the receiver, and sends nothing
      while (!returned && !(sleeps_of(receiver) > before && sleeps(receiver))) std::this_thread::yield();
      if (!returned) static_cast<void>(caller.send(request));
      while (!returned) std::this_thread::yield();
    });
    got = rdma_get_cm_event(events.channel, &event);
    if (got != 0) CHECK(errno == EAGAIN);
    returned = true;
    sender.join();
  }
  REQUIRE(got == 0);
  CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
  const Id request_of(event->id);
  REQUIRE(rdma_ack_cm_event(event) == 0);
}

TEST_CASE("a channel that does not block gives up callers that send nothing, however many come", "[rdmacm]") {
  BareListener bare;
  const Channel& events = bare.events;
  const os::UniqueFd caller = bare.call();
  rdma_cm_event* event = nullptr;
  for (int calls = 0; calls < 3; ++calls) {
    CHECK(rdma_get_cm_event(events.channel, &event) == -1);
    CHECK(errno == EAGAIN);
  }
  const std::string path = socket_path(bare.listener.id);
  const pid_t receiver = gettid();
  const os::UniqueFd first = bare.call();
  std::atomic<bool> returned{false};
  std::atomic<bool> gone{false};
  std::thread crowd([&] {
    constexpr std::chrono::seconds kStays{5};
    std::array<os::UniqueFd, 8> callers;
    const auto limit = std::chrono::steady_clock::now() + kStays;
    for (std::size_t number = 0; !returned && !gone;) {
      if (sleeps(receiver)) callers[number++ % callers.size()] = BareListener::call(path);
      gone = std::chrono::steady_clock::now() > limit;
    }
  });
  CHECK(rdma_get_cm_event(events.channel, &event) == -1);
  CHECK(errno == EAGAIN);
  returned = true;
  crowd.join();
  CHECK_FALSE(gone);
}

TEST_CASE("callers that send nothing, or rubbish, do not keep a listener from its work", "[rdmacm]") {
  Channel events;
  Channel client_events;
  Id listener(events);
  listener.listen();
  const std::string path = socket_path(listener.id);
  std::vector<Line> callers;
  for (int i = 0; i < 80; ++i) {
    Line line;
    line.socket = os::PeerSocket(os::UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)));
    const os::UnixAddress to(path);
    REQUIRE(::connect(line.socket.get(), to.get(), os::UnixAddress::size()) == 0);
    if (i % 4 == 1) REQUIRE(::send(line.socket.get(), "rubbish", 7, MSG_NOSIGNAL) == 7);
    Record ready;
    ready.kind = RecordKind::ready;
    if (i % 4 == 2) REQUIRE(line.send(ready));
    callers.push_back(std::move(line));
  }
  Id client(client_events);
  client.call(client_events, listener.number());
  Id server(events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  // The end that calls gets rubbish instead of an answer.
  Record record;
  char none = 0;
  CHECK(::recv(callers[1].socket.get(), &none, 1, 0) <= 0);
  CHECK(::recv(callers[2].socket.get(), &none, 1, 0) <= 0);
  // The last of the silent ones is still welcome.
  CHECK(hear(callers[79], record) == Heard::nothing);
}

TEST_CASE("an answer that no listener gives ends the call", "[rdmacm]") {
  Channel events;
  Id bound(events);
  REQUIRE(bound.bind(at(0)) == 0);
  const std::string path = socket_path(bound.id);
  const os::PeerSocket listener = listen_at(path);
  REQUIRE(listener);
  Id client(events);
  client.call(events, bound.number());
  auto line = accept_from(listener.get());
  REQUIRE(line);
  Record record;
  REQUIRE(hear(*line, record) == Heard::record);
  CHECK(record.kind == RecordKind::request);
  CHECK(record.queue_pair == client.id->qp->qp_num);
  SECTION("rubbish") { REQUIRE(::send(line->socket.get(), "rubbish", 7, 0) == 7); }
  SECTION("a record that has no place here") {
    record = {};
    record.kind = RecordKind::ready;
    REQUIRE(line->send(record));
  }
  SECTION("a reply of the other kind of service") {
    record.kind = RecordKind::reply;
    record.space = 0;
    record.datagrams = true;
    REQUIRE(line->send(record));
  }
  SECTION("nothing any more") { line.reset(); }
  events.expect(RDMA_CM_EVENT_REJECTED, 28);
  std::error_code none;
  std::filesystem::remove(path, none);
}
}  // namespace
}  // namespace splitnic::rdmacm::testing::lines_test
