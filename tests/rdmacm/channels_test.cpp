// Event channels, identifiers without one, options, and names.
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "common/os/unique_fd.h"
#include "tests/rdmacm/manager.h"
#include "tests/unit/common/cancelled_thread.h"
#include "tests/unit/common/edge_watch.h"
#include "tests/unit/common/fork_beside_threads.h"

namespace splitnic::rdmacm::testing::channels_test {
namespace {

TEST_CASE("the descriptor of a channel is readable while events wait, and O_NONBLOCK is obeyed", "[rdmacm]") {
  Channel events;
  CHECK_FALSE(events.readable());
  REQUIRE(fcntl(events.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  rdma_cm_event* event = nullptr;
  CHECK(rdma_get_cm_event(events.channel, &event) == -1);
  CHECK(errno == EAGAIN);
  Id client(events);
  sockaddr_in destination = at(7);
  REQUIRE(rdma_resolve_addr(client.id, nullptr, reinterpret_cast<sockaddr*>(&destination), 1) == 0);
  CHECK(events.readable());
  events.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK_FALSE(events.readable());
  CHECK(rdma_get_cm_event(events.channel, &event) == -1);
  CHECK(errno == EAGAIN);
}

TEST_CASE("each event of a channel is an edge, also while another one waits", "[rdmacm]") {
  Channel events;
  Id first(events);
  Id second(events);
  sockaddr_in destination = at(7);
  const splitnic::test::EdgeWatch watch(events.channel->fd);
  for (const Id* client : {&first, &second}) {
    REQUIRE(rdma_resolve_addr(client->id, nullptr, reinterpret_cast<sockaddr*>(&destination), 1) == 0);
    CHECK(watch.sees_edge());
  }
  for (const Id* client : {&first, &second}) CHECK(events.expect(RDMA_CM_EVENT_ADDR_RESOLVED).id == client->id);
}

TEST_CASE("destroying an identifier waits until its events are acknowledged", "[rdmacm]") {
  Channel events;
  Id client(events);
  sockaddr_in destination = at(7);
  REQUIRE(rdma_resolve_addr(client.id, nullptr, reinterpret_cast<sockaddr*>(&destination), 1) == 0);
  rdma_cm_event* event = nullptr;
  REQUIRE(rdma_get_cm_event(events.channel, &event) == 0);
  REQUIRE(rdma_resolve_route(client.id, 1) == 0);  // an event that nobody gets
  std::atomic<bool> acknowledged{false};
  std::atomic<bool> early{false};
  std::thread other([&] {
    const int destroyed = rdma_destroy_id(client.id);
    early = destroyed != 0 || !acknowledged;
  });
  // What the identifier waits to report goes first; then it waits for what it has reported.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMilliseconds);
  while (events.readable()) REQUIRE(std::chrono::steady_clock::now() < limit);
  acknowledged = true;
  CHECK(rdma_ack_cm_event(event) == 0);
  other.join();
  client.id = nullptr;
  CHECK_FALSE(early);
}

TEST_CASE("an identifier outlives its channel, however many other channels come and go", "[rdmacm]") {
  auto events = std::make_unique<Channel>();
  Id early(*events);
  Id listener(*events);
  listener.listen();
  events.reset();
  // More than the library keeps of those that have ended; if it let go of the first, another one is in its place.
  std::vector<std::unique_ptr<Channel>> others;
  for (int count = 0; count < 100; ++count) {
    { const Channel ended; }
    others.push_back(std::make_unique<Channel>());
  }
  sockaddr_in destination = at(7);
  CHECK(rdma_resolve_addr(early.id, nullptr, reinterpret_cast<sockaddr*>(&destination), 1) == 0);
  for (const auto& other : others) CHECK_FALSE(other->readable());
  // It can move to another one.
  REQUIRE(rdma_migrate_id(early.id, others.back()->channel) == 0);
  others.back()->expect(RDMA_CM_EVENT_ADDR_RESOLVED);
}

TEST_CASE("a thread that is on its way to a channel that ends waits, and breaks nothing", "[rdmacm]") {
  auto events = std::make_unique<Channel>();
  rdma_event_channel* channel = events->channel;
  std::atomic<bool> inside{false};
  std::thread waiting([&] {
    rdma_cm_event* event = nullptr;
    inside = true;
    static_cast<void>(rdma_get_cm_event(channel, &event));
  });
  while (!inside) std::this_thread::yield();
  events.reset();
  // It waits for ever, as if it had been first; it can be cancelled there.
  REQUIRE(pthread_cancel(waiting.native_handle()) == 0);
  waiting.join();
}

TEST_CASE("a thread that is to be cancelled finishes the calls that do not wait", "[rdmacm]") {
  static_cast<void>(fabric_folder());
  sockaddr_in source = at(0);
  sockaddr_in destination = at(7);
  test::check_not_cancelled([&](auto&& check) {
    const auto take = [&](rdma_event_channel* channel) {
      rdma_cm_event* event = nullptr;
      check(rdma_get_cm_event(channel, &event) == 0);
      rdma_cm_id* const made = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : nullptr;
      check(rdma_ack_cm_event(event) == 0);
      if (made != nullptr) check(rdma_destroy_id(made) == 0);
    };
    rdma_event_channel* channel = rdma_create_event_channel();
    check(channel != nullptr);
    rdma_cm_id* listener = nullptr;
    rdma_cm_id* client = nullptr;
    check(rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) == 0);
    check(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&source)) == 0);
    check(rdma_listen(listener, 1) == 0);
    destination.sin_port = rdma_get_src_port(listener);
    check(rdma_create_id(channel, &client, nullptr, RDMA_PS_TCP) == 0);
    check(rdma_resolve_addr(client, nullptr, reinterpret_cast<sockaddr*>(&destination), 1) == 0);
    take(channel);
    check(rdma_resolve_route(client, 1) == 0);
    take(channel);
    ibv_qp_init_attr wanted{};
    wanted.cap = {4, 4, 1, 1, 0};
    wanted.qp_type = IBV_QPT_RC;
    check(rdma_create_qp(client, nullptr, &wanted) == 0);
    check(rdma_connect(client, nullptr) == 0);
    take(channel);  // the request
    rdma_destroy_qp(client);
    check(rdma_destroy_id(client) == 0);
    check(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(channel);
  });
}

TEST_CASE("an address that can't be reached is an event, after which the program may try again", "[rdmacm]") {
  Channel events;
  Id client(events);
  sockaddr_in far = at(7, "192.0.2.1");
  bool alone = false;
  std::vector<int> answers;
  std::thread apart([&] {
    // Of this thread: a network that has only its loop-back interface.
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    loopback.ifr_flags = IFF_UP;
    alone = unshare(CLONE_NEWNET) == 0 &&
            ioctl(os::UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)).get(), SIOCSIFFLAGS, &loopback) == 0;
    while (alone && answers.size() < 2) {
      answers.push_back(rdma_resolve_addr(client.id, nullptr, reinterpret_cast<sockaddr*>(&far), 1));
    }
  });
  apart.join();
  if (!alone) {
    WARN("skipped: only root makes a network without routes");
    return;
  }
  CHECK(answers == std::vector<int>{0, 0});
  events.expect(RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH);
  events.expect(RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH);
  client.resolve(events, at(7));
}

TEST_CASE("a source has to be an address of this machine", "[rdmacm]") {
  Channel events;
  sockaddr_in destination = at(7);
  for (const char* nobodys : {"192.0.2.1", "255.255.255.255", "239.1.2.3"}) {
    CAPTURE(nobodys);
    Id client(events);
    CHECK(client.bind(at(0, nobodys)) == -1);
    CHECK(errno == EADDRNOTAVAIL);
    sockaddr_in source = at(0, nobodys);
    CHECK(rdma_resolve_addr(client.id, reinterpret_cast<sockaddr*>(&source), reinterpret_cast<sockaddr*>(&destination),
                            1) == -1);
    CHECK(errno == EADDRNOTAVAIL);
    CHECK_FALSE(events.readable());
    client.resolve(events, destination);  // the program may try another one
  }
}

TEST_CASE("identifiers without a channel wait in their calls", "[rdmacm]") {
  static_cast<void>(fabric_folder());
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* found = nullptr;
  REQUIRE(rdma_getaddrinfo("127.0.0.1", nullptr, &hints, &found) == 0);
  CHECK(found->ai_qp_type == IBV_QPT_RC);
  CHECK(found->ai_dst_addr == nullptr);
  ibv_qp_init_attr wanted{};
  wanted.cap = {4, 4, 1, 1, 16};
  wanted.sq_sig_all = 1;
  rdma_cm_id* listener = nullptr;
  REQUIRE(rdma_create_ep(&listener, found, nullptr, &wanted) == 0);
  rdma_freeaddrinfo(found);
  REQUIRE(rdma_listen(listener, 1) == 0);

  char text[64] = "";
  int server_result = -1;
  std::thread server([&] {
    rdma_cm_id* id = nullptr;
    if (rdma_get_request(listener, &id) != 0) return;
    ibv_mr* region = rdma_reg_msgs(id, text, sizeof text);
    ibv_wc completion{};
    const bool done = id->qp != nullptr && rdma_post_recv(id, nullptr, text, sizeof text, region) == 0 &&
                      rdma_accept(id, nullptr) == 0 && rdma_get_recv_comp(id, &completion) == 1;
    server_result = done && rdma_disconnect(id) == 0 ? 0 : -2;
    rdma_dereg_mr(region);
    rdma_destroy_ep(id);
  });

  hints.ai_flags = RAI_NUMERICHOST;
  const std::string number = std::to_string(be16toh(rdma_get_src_port(listener)));
  REQUIRE(rdma_getaddrinfo("127.0.0.1", number.c_str(), &hints, &found) == 0);
  rdma_cm_id* client = nullptr;
  REQUIRE(rdma_create_ep(&client, found, nullptr, &wanted) == 0);
  rdma_freeaddrinfo(found);
  REQUIRE(rdma_connect(client, nullptr) == 0);
  CHECK(client->event->event == RDMA_CM_EVENT_ESTABLISHED);
  char message[16] = "synchronous";
  REQUIRE(rdma_post_send(client, nullptr, message, sizeof message, nullptr, IBV_SEND_INLINE) == 0);
  ibv_wc completion{};
  CHECK(rdma_get_send_comp(client, &completion) == 1);
  server.join();
  CHECK(server_result == 0);
  CHECK(std::string(text) == "synchronous");
  CHECK(rdma_disconnect(client) == 0);
  rdma_destroy_ep(client);
  rdma_destroy_ep(listener);
}

TEST_CASE("a refusal is the error of a call that waits", "[rdmacm]") {
  Channel events;
  Id bound(events);
  REQUIRE(bound.bind(at(0)) == 0);
  rdma_cm_id* id = nullptr;
  REQUIRE(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) == 0);
  Id client(id);
  sockaddr_in destination = at(bound.number());
  REQUIRE(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&destination), 1) == 0);
  REQUIRE(rdma_resolve_route(id, 1) == 0);
  client.create_queue_pair();
  CHECK(rdma_connect(id, nullptr) == -1);
  CHECK(errno == ECONNREFUSED);
  CHECK(id->event->event == RDMA_CM_EVENT_REJECTED);
  rdma_cm_id* request = nullptr;
  CHECK(rdma_get_request(bound.id, &request) == -1);  // which has a channel
  CHECK(errno == EINVAL);
}

TEST_CASE("an identifier moves to another channel with its events and its listener", "[rdmacm]") {
  Channel first;
  Channel second;
  Channel client_events;
  Id listener(first);
  listener.listen();
  Id client(client_events);
  sockaddr_in destination = at(listener.number());
  REQUIRE(rdma_resolve_addr(client.id, nullptr, reinterpret_cast<sockaddr*>(&destination), 1) == 0);
  Channel moved;
  REQUIRE(rdma_migrate_id(client.id, moved.channel) == 0);
  CHECK_FALSE(client_events.readable());
  moved.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  REQUIRE(rdma_resolve_route(client.id, 1) == 0);
  moved.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  client.create_queue_pair();
  REQUIRE(rdma_connect(client.id, nullptr) == 0);
  REQUIRE(rdma_migrate_id(listener.id, second.channel) == 0);
  Id server(second.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  CHECK(server.id->channel == second.channel);
  server.create_queue_pair();
  REQUIRE(rdma_migrate_id(server.id, first.channel) == 0);
  REQUIRE(rdma_accept(server.id, nullptr) == 0);
  moved.expect(RDMA_CM_EVENT_ESTABLISHED);
  first.expect(RDMA_CM_EVENT_ESTABLISHED);
  // Without a channel, it waits in its calls from now on.
  REQUIRE(rdma_migrate_id(server.id, nullptr) == 0);
  CHECK(rdma_migrate_id(server.id, nullptr) == -1);
  CHECK(errno == EINVAL);
  REQUIRE(rdma_disconnect(server.id) == 0);
  CHECK(server.id->event->event == RDMA_CM_EVENT_DISCONNECTED);
  moved.expect(RDMA_CM_EVENT_DISCONNECTED);
}

TEST_CASE("a listener that moves takes the requests along that nobody has got", "[rdmacm]") {
  Channel first;
  Channel second;
  Channel client_events;
  Id listener(first);
  listener.listen();
  Id one(client_events);
  Id other(client_events);
  for (Id* client : {&one, &other}) {
    client->call(client_events, listener.number());
  }
  const Id early(first.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  CHECK(early.id->channel == first.channel);
  SECTION("to another channel") {
    REQUIRE(rdma_migrate_id(listener.id, second.channel) == 0);
    Id late(second.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
    CHECK(late.id->channel == second.channel);
    late.create_queue_pair();
    REQUIRE(rdma_accept(late.id, nullptr) == 0);
    client_events.expect(RDMA_CM_EVENT_ESTABLISHED);
    second.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
  SECTION("to calls that wait") {
    REQUIRE(rdma_migrate_id(listener.id, nullptr) == 0);
    Id late(nullptr);
    REQUIRE(rdma_get_request(listener.id, &late.id) == 0);
    CHECK(late.id->channel != first.channel);
    CHECK(late.id->channel != listener.id->channel);
    SECTION("and back") {
      REQUIRE(rdma_migrate_id(late.id, second.channel) == 0);
      CHECK(late.id->channel == second.channel);
    }
  }
  CHECK_FALSE(first.readable());
}

TEST_CASE("an identifier that moves while a listener is awaited calls again as soon as before", "[rdmacm]") {
  std::uint16_t nobody = 0;
  {
    Channel events;
    Id listener(events);
    listener.listen();
    nobody = listener.number();
  }
  Channel events;
  Channel moved;
  Id client(events);
  client.resolve(events, at(nobody));
  client.create_queue_pair();
  REQUIRE(rdma_connect(client.id, nullptr) == 0);
  REQUIRE(rdma_migrate_id(client.id, moved.channel) == 0);
  moved.expect(RDMA_CM_EVENT_REJECTED, 8);
}

TEST_CASE("options have their sizes, and unknown ones are not there", "[rdmacm]") {
  Channel events;
  Id client(events);
  std::uint8_t byte = 14;
  int number = 1;
  struct Option {
    int level;
    int name;
    void* value;
    std::size_t bytes;
    int error;
  };
  for (const Option& option :
       {Option{RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1, 0},
        Option{RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 2, EINVAL},
        Option{RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &number, 4, 0},
        Option{RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, 4, 0},
        Option{RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, 1, EINVAL},
        Option{RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1, 0}, Option{RDMA_OPTION_ID, 99, &byte, 1, ENOSYS},
        Option{RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, nullptr, 0, EINVAL}, Option{RDMA_OPTION_IB, 99, nullptr, 0, ENOSYS},
        Option{9, 0, nullptr, 0, ENOSYS}}) {
    CHECK(rdma_set_option(client.id, option.level, option.name, option.value, option.bytes) ==
          (option.error == 0 ? 0 : -1));
    if (option.error != 0) CHECK(errno == option.error);
  }
}

TEST_CASE("a listener of all IPv6 addresses takes IPv4 callers, unless it is told not to", "[rdmacm]") {
  Channel events;
  Channel client_events;
  const bool only = GENERATE(false, true);
  Id listener(events);
  int number = only ? 1 : 0;
  REQUIRE(rdma_set_option(listener.id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, sizeof number) == 0);
  sockaddr_in6 all{};
  all.sin6_family = AF_INET6;
  REQUIRE(rdma_bind_addr(listener.id, reinterpret_cast<sockaddr*>(&all)) == 0);
  REQUIRE(rdma_listen(listener.id, 1) == 0);
  Id client(client_events);
  client.call(client_events, listener.number());
  if (only) {
    client_events.expect(RDMA_CM_EVENT_REJECTED, 8);
    return;
  }
  const Id server(events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  CHECK(rdma_get_local_addr(server.id)->sa_family == AF_INET);
}

TEST_CASE("listeners of all addresses, one for each family, share a number", "[rdmacm]") {
  Channel events;
  Channel client_events;
  int number = 1;
  Id of_ip4(events);
  REQUIRE(rdma_set_option(of_ip4.id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, sizeof number) == 0);
  sockaddr_in all_ip4{};
  all_ip4.sin_family = AF_INET;
  REQUIRE(rdma_bind_addr(of_ip4.id, reinterpret_cast<sockaddr*>(&all_ip4)) == 0);
  REQUIRE(rdma_listen(of_ip4.id, 1) == 0);
  Id of_ip6(events);
  REQUIRE(rdma_set_option(of_ip6.id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, sizeof number) == 0);
  sockaddr_in6 all_ip6{};
  all_ip6.sin6_family = AF_INET6;
  all_ip6.sin6_port = htons(of_ip4.number());
  REQUIRE(rdma_bind_addr(of_ip6.id, reinterpret_cast<sockaddr*>(&all_ip6)) == 0);
  REQUIRE(rdma_listen(of_ip6.id, 1) == 0);
  Id client(client_events);
  client.call(client_events, of_ip4.number());
  const Id server(events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  CHECK(rdma_get_local_addr(server.id)->sa_family == AF_INET);
}

TEST_CASE("names become addresses as getaddrinfo has it", "[rdmacm]") {
  rdma_addrinfo* found = nullptr;
  CHECK(rdma_getaddrinfo(nullptr, nullptr, nullptr, &found) == -1);
  CHECK(errno == EINVAL);
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_NUMERICHOST;
  CHECK(rdma_getaddrinfo("no number", "7", &hints, &found) == EAI_NONAME);
  hints.ai_qp_type = IBV_QPT_UD;
  REQUIRE(rdma_getaddrinfo("::1", "7", &hints, &found) == 0);
  CHECK(found->ai_family == AF_INET6);
  CHECK(found->ai_port_space == RDMA_PS_UDP);
  CHECK(found->ai_src_len == 0);
  CHECK(found->ai_dst_len == sizeof(sockaddr_in6));
  rdma_freeaddrinfo(found);
  sockaddr_in source = at(5);
  sockaddr_in destination = at(6);
  hints = {};
  hints.ai_src_addr = reinterpret_cast<sockaddr*>(&source);
  hints.ai_src_len = sizeof source;
  hints.ai_dst_addr = reinterpret_cast<sockaddr*>(&destination);
  hints.ai_dst_len = sizeof destination;
  REQUIRE(rdma_getaddrinfo(nullptr, nullptr, &hints, &found) == 0);
  CHECK(std::memcmp(found->ai_src_addr, &source, sizeof source) == 0);
  CHECK(std::memcmp(found->ai_dst_addr, &destination, sizeof destination) == 0);
  rdma_freeaddrinfo(found);
  hints.ai_dst_len = 0;
  REQUIRE(rdma_getaddrinfo(nullptr, nullptr, &hints, &found) == 0);
  CHECK(std::memcmp(found->ai_src_addr, &source, sizeof source) == 0);
  CHECK(found->ai_dst_len == 0);
  rdma_freeaddrinfo(found);
}

TEST_CASE("bad arguments are refused, and what is not there says so", "[rdmacm]") {
  Channel events;
  rdma_cm_id* id = nullptr;
  CHECK(rdma_create_id(events.channel, &id, nullptr, static_cast<rdma_port_space>(1)) == -1);
  CHECK(errno == EINVAL);
  Id client(events);
  sockaddr local{};
  local.sa_family = AF_UNIX;
  CHECK(rdma_bind_addr(client.id, &local) == -1);
  CHECK(errno == EAFNOSUPPORT);
  CHECK(rdma_resolve_addr(client.id, nullptr, &local, 1) == -1);
  CHECK(errno == EAFNOSUPPORT);
  CHECK(rdma_resolve_route(client.id, 1) == -1);
  CHECK(errno == EINVAL);
  ibv_qp_init_attr wanted{};
  CHECK(rdma_create_qp(client.id, nullptr, &wanted) == -1);  // it is bound to no device
  CHECK(errno == EINVAL);
  CHECK(rdma_join_multicast(client.id, &local, nullptr) == -1);
  CHECK(errno == EINVAL);  // it is bound to no device
  int count = 0;
  ibv_context** devices = rdma_get_devices(&count);
  REQUIRE(devices != nullptr);
  CHECK(count == 1);
  CHECK(std::string(ibv_get_device_name(devices[0]->device)) == "splitnic0");
  CHECK(devices[1] == nullptr);
  rdma_free_devices(devices);
  CHECK(std::string(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT)) == "RDMA_CM_EVENT_TIMEWAIT_EXIT");
}

TEST_CASE("a child that is forked while a thread lists the devices lists them, too", "[rdmacm]") {
  // Null: none.
  const auto first_device = [] {
    int count = 0;
    ibv_context** devices = rdma_get_devices(&count);
    ibv_context* first = devices != nullptr && count == 1 ? devices[0] : nullptr;
    rdma_free_devices(devices);
    return first;
  };
  ibv_context* const parents = first_device();
  REQUIRE(parents != nullptr);
  const splitnic::test::ThreadBesideForks lister([&] { static_cast<void>(first_device()); });
  std::set<int> statuses;
  for (int count = 0; count < 20; ++count) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(20);  // if it waits for a lock that the other thread holds
      ibv_context* const own = first_device();
      _exit(own != nullptr && own != parents ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    statuses.insert(status);
  }
  CHECK(statuses == std::set{0});
}

TEST_CASE("what a peer says of a connection comes before its next request", "[rdmacm]") {
  Connected ends;  // the client has said that it is ready, and the server's program has not looked
  Id second(ends.client_events);
  second.call(ends.client_events, ends.listener.number());
  CHECK(ends.server_events.expect(RDMA_CM_EVENT_ESTABLISHED).id == ends.server.id);
  const Id server(ends.server_events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
}

TEST_CASE("what many peers say of their connections comes before what they ask for next", "[rdmacm]") {
  constexpr std::size_t kConnections = 70;  // more than a channel takes from the kernel at once
  Channel server_events, client_events;
  Id listener(server_events);
  listener.listen();
  std::vector<std::unique_ptr<Id>> clients, servers;
  const auto connect = [&] {
    clients.push_back(std::make_unique<Id>(client_events));
    clients.back()->call(client_events, listener.number());
  };
  const auto take_request = [&](const Seen& request) {
    REQUIRE(request.type == RDMA_CM_EVENT_CONNECT_REQUEST);
    servers.push_back(std::make_unique<Id>(request.id));
  };
  for (std::size_t number = 0; number < kConnections; ++number) {
    connect();
    take_request(server_events.next());
    servers.back()->create_queue_pair();
    REQUIRE(rdma_accept(servers.back()->id, nullptr) == 0);
  }
  Channel other_events;  // its request makes the listener ready before the connections are
  Id other(other_events);
  other.call(other_events, listener.number());
  for (std::size_t number = 0; number < kConnections; ++number) client_events.expect(RDMA_CM_EVENT_ESTABLISHED);
  connect();
  for (std::size_t number = 0; number < kConnections; ++number) server_events.expect(RDMA_CM_EVENT_ESTABLISHED);
  for (int number = 0; number < 2; ++number) take_request(server_events.next());
}

TEST_CASE("a request comes before what its caller has said since", "[rdmacm]") {
  Connected ends;
  Channel client_events;
  auto second = std::make_unique<Id>(client_events);
  second->call(client_events, ends.listener.number());
  second.reset();  // the caller has gone
  CHECK(ends.server_events.expect(RDMA_CM_EVENT_ESTABLISHED).id == ends.server.id);
  const Id gone(ends.server_events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
}

TEST_CASE("a request that nobody has got is rejected when its channel ends", "[rdmacm]") {
  Channel client_events;
  auto events = std::make_unique<Channel>();
  Id listener(*events);
  listener.listen();
  Id first(client_events);
  Id second(client_events);
  for (Id* client : {&first, &second}) {
    client->call(client_events, listener.number());
  }
  // The channel takes both requests at once, and the program gets one of them.
  const Id server(events->expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  events.reset();
  CHECK(client_events.expect(RDMA_CM_EVENT_REJECTED, 28).id == second.id);
}

}  // namespace
}  // namespace splitnic::rdmacm::testing::channels_test
