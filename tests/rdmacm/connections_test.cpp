// Connections through the C interface: events and their order, data, refusals and ends.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <utility>

#include "tests/rdmacm/manager.h"
#include "tests/rdmacm/processes.h"

namespace splitnic::rdmacm::testing::connections_test {
namespace {

std::string padded(std::string text, std::size_t bytes) {
  text.resize(bytes, '\0');
  return text;
}

TEST_CASE("two identifiers connect, exchange data, and each learns once that it is over", "[rdmacm]") {
  Connected ends;
  CHECK(ends.request.listener == ends.listener.id);
  CHECK(ends.request.id->context == ends.listener.id->context);
  CHECK(ends.request.data == padded("hello", 56));
  // In the view of the end that is asked.
  CHECK(ends.request.connection.responder_resources == 2);
  CHECK(ends.request.connection.initiator_depth == 3);
  CHECK(ends.request.connection.retry_count == 6);
  CHECK(ends.request.connection.rnr_retry_count == 5);
  CHECK(ends.request.connection.qp_num == ends.client.id->qp->qp_num);
  CHECK(ends.established.data == padded("welcome", 196));
  CHECK(ends.established.connection.responder_resources == 1);
  CHECK(ends.established.connection.initiator_depth == 2);
  CHECK(ends.established.connection.qp_num == ends.server.id->qp->qp_num);
  CHECK(ends.server_events.expect(RDMA_CM_EVENT_ESTABLISHED).id == ends.server.id);
  CHECK(rdma_get_dst_port(ends.client.id) == rdma_get_src_port(ends.server.id));
  CHECK(rdma_get_src_port(ends.client.id) == rdma_get_dst_port(ends.server.id));
  CHECK(ends.server.id->verbs == ends.client.id->verbs);
  CHECK(ends.server.id->port_num == 1);
  CHECK(std::memcmp(rdma_get_local_addr(ends.client.id), rdma_get_peer_addr(ends.server.id), sizeof(sockaddr_in)) == 0);
  ibv_gid gid{};
  ibv_port_attr port{};
  REQUIRE(ibv_query_gid(ends.client.id->verbs, 1, 0, &gid) == 0);
  REQUIRE(ibv_query_port(ends.client.id->verbs, 1, &port) == 0);
  for (const rdma_cm_id* end : {ends.client.id, ends.server.id}) {
    REQUIRE(end->route.num_paths == 1);
    CHECK(end->route.path_rec->dlid == htobe16(port.lid));
    CHECK(std::memcmp(&end->route.path_rec->dgid, &gid, sizeof gid) == 0);
    CHECK(std::memcmp(&end->route.addr.addr.ibaddr.dgid, &gid, sizeof gid) == 0);
  }
  CHECK(state_of(ends.server.id->qp) == IBV_QPS_RTS);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr about{};
  REQUIRE(ibv_query_qp(ends.server.id->qp, &attributes, IBV_QP_RETRY_CNT, &about) == 0);
  CHECK(attributes.retry_cnt == 6);
  CHECK(attributes.rnr_retry == 5);
  CHECK(attributes.max_rd_atomic == 1);
  CHECK(attributes.max_dest_rd_atomic == 2);

  char text[64] = "some bytes";
  ibv_mr* region = rdma_reg_msgs(ends.client.id, text, sizeof text);
  REQUIRE(region != nullptr);
  REQUIRE(rdma_post_recv(ends.server.id, nullptr, text + 32, 32, region) == 0);
  REQUIRE(rdma_post_send(ends.client.id, nullptr, text, 11, region, 0) == 0);
  ibv_wc completion{};
  REQUIRE(rdma_get_recv_comp(ends.server.id, &completion) == 1);
  CHECK(completion.status == IBV_WC_SUCCESS);
  CHECK(completion.byte_len == 11);
  CHECK(std::string(text + 32) == "some bytes");
  REQUIRE(rdma_get_send_comp(ends.client.id, &completion) == 1);
  REQUIRE(rdma_post_recv(ends.client.id, nullptr, text, 32, region) == 0);

  REQUIRE(rdma_disconnect(ends.client.id) == 0);
  CHECK(state_of(ends.client.id->qp) == IBV_QPS_ERR);
  CHECK(next(ends.client.id->recv_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(ends.client_events.expect(RDMA_CM_EVENT_DISCONNECTED).id == ends.client.id);
  CHECK(ends.server_events.expect(RDMA_CM_EVENT_DISCONNECTED).id == ends.server.id);
  CHECK(rdma_disconnect(ends.server.id) == 0);
  CHECK(rdma_disconnect(ends.client.id) == 0);
  CHECK_FALSE(ends.server_events.readable());
  CHECK_FALSE(ends.client_events.readable());
  CHECK(rdma_dereg_mr(region) == 0);
}

TEST_CASE("an identifier that is destroyed ends its connection", "[rdmacm]") {
  Connected ends;
  ends.server_events.expect(RDMA_CM_EVENT_ESTABLISHED);
  rdma_destroy_qp(ends.client.id);
  REQUIRE(rdma_destroy_id(ends.client.id) == 0);
  ends.client.id = nullptr;
  ends.server_events.expect(RDMA_CM_EVENT_DISCONNECTED);
}

/// A child that keeps a copy of all descriptors until it is killed, and longer than an event is awaited.
struct IdleChild : Child {
  IdleChild()
      : Child([] {
          alarm(0);
          return pause();
        }) {}
  ~IdleChild() {
    kill(process, SIGKILL);
    CHECK(ended() == -1);
  }
  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;
};

TEST_CASE("the end of an identifier ends its connection while a forked child lives on", "[rdmacm]") {
  Connected ends;
  ends.server_events.expect(RDMA_CM_EVENT_ESTABLISHED);
  const IdleChild child;
  rdma_destroy_qp(ends.client.id);
  REQUIRE(rdma_destroy_id(std::exchange(ends.client.id, nullptr)) == 0);
  ends.server_events.expect(RDMA_CM_EVENT_DISCONNECTED);
}

TEST_CASE("the end of a listener rejects its callers while a forked child lives on", "[rdmacm]") {
  Channel events;
  Channel client_events;
  Id listener(events);
  listener.listen();
  Id client(client_events);
  client.call(client_events, listener.number());
  const bool heard = GENERATE(false, true);
  if (heard) {  // by its channel, and not by the program
    rdma_cm_event* event = nullptr;
    Id other(client_events);
    other.call(client_events, listener.number());
    REQUIRE(rdma_get_cm_event(events.channel, &event) == 0);
    const Id first(event->id);
    REQUIRE(rdma_ack_cm_event(event) == 0);
    const IdleChild child;
    REQUIRE(rdma_destroy_id(std::exchange(listener.id, nullptr)) == 0);
    CHECK(client_events.expect(RDMA_CM_EVENT_REJECTED, 28).id == other.id);
    return;
  }
  const IdleChild child;
  REQUIRE(rdma_destroy_id(std::exchange(listener.id, nullptr)) == 0);
  CHECK(client_events.expect(RDMA_CM_EVENT_REJECTED, 28).id == client.id);
}

TEST_CASE("a request is rejected with private data", "[rdmacm]") {
  Channel events;
  Channel client_events;
  Id listener(events);
  listener.listen("0.0.0.0");
  Id client(client_events);
  client.call(client_events, listener.number());
  Id server(events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  SECTION("as much as fits") {
    const std::string all(148, 'x');
    CHECK(rdma_reject(server.id, all.data(), 149) == -1);
    CHECK(errno == EINVAL);
    REQUIRE(rdma_reject(server.id, all.data(), 148) == 0);
    CHECK(client_events.expect(RDMA_CM_EVENT_REJECTED, 28).data == all);
    CHECK(rdma_reject(server.id, nullptr, 0) == -1);
    CHECK(errno == EINVAL);
  }
  SECTION("none") {
    REQUIRE(rdma_reject(server.id, nullptr, 0) == 0);
    CHECK(client_events.expect(RDMA_CM_EVENT_REJECTED, 28).data == padded("", 148));
  }
  SECTION("for its options") {
    REQUIRE(rdma_reject_ece(server.id, "no", 2) == 0);
    CHECK(client_events.expect(RDMA_CM_EVENT_REJECTED, 35).data == padded("no", 148));
  }
  SECTION("by being destroyed") {
    REQUIRE(rdma_destroy_id(server.id) == 0);
    server.id = nullptr;
    client_events.expect(RDMA_CM_EVENT_REJECTED, 28);
  }
  SECTION("by its listener's end, before it was seen") {
    Id second(client_events);
    second.call(client_events, listener.number());
    REQUIRE(events.readable(kLimitMilliseconds));
    REQUIRE(rdma_destroy_id(listener.id) == 0);
    listener.id = nullptr;
    CHECK(client_events.expect(RDMA_CM_EVENT_REJECTED, 28).id == second.id);
  }
  SECTION("after its caller has gone") {
    rdma_destroy_qp(client.id);
    REQUIRE(rdma_destroy_id(client.id) == 0);
    client.id = nullptr;
    CHECK(events.expect(RDMA_CM_EVENT_REJECTED, 4).id == server.id);
  }
}

TEST_CASE("nobody listens: the request is rejected soon", "[rdmacm]") {
  Channel events;
  const bool datagrams = GENERATE(false, true);
  Id client(events, datagrams ? RDMA_PS_UDP : RDMA_PS_TCP);
  // A number that another identifier has only bound.
  Id bound(events, datagrams ? RDMA_PS_UDP : RDMA_PS_TCP);
  REQUIRE(bound.bind(at(0)) == 0);
  client.resolve(events, at(bound.number()));
  client.create_queue_pair();
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(rdma_connect(client.id, nullptr) == 0);
  events.expect(datagrams ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_REJECTED, datagrams ? 1 : 8);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("what is posted for a connection that is rejected is flushed", "[rdmacm]") {
  Channel events;
  Channel client_events;
  const bool listens = GENERATE(false, true);
  Id other(events);
  REQUIRE(other.bind(at(0)) == 0);
  if (listens) REQUIRE(rdma_listen(other.id, 1) == 0);
  Id client(client_events);
  client.resolve(client_events, at(other.number()));
  client.create_queue_pair();
  const PostedReceive receive(client);
  REQUIRE(rdma_connect(client.id, nullptr) == 0);
  if (listens) {
    const Id server(events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
    REQUIRE(rdma_reject(server.id, nullptr, 0) == 0);
  }
  client_events.expect(RDMA_CM_EVENT_REJECTED, listens ? 28 : 8);
  CHECK(receive.is_flushed());
}

TEST_CASE("a listener of one address or of another port space is not for this request", "[rdmacm]") {
  Channel events;
  Channel client_events;
  Id listener(events);
  listener.listen("127.0.0.1");
  Id client(client_events, RDMA_PS_TCP);
  client.resolve(client_events, at(listener.number(), "127.0.0.2"));
  client.create_queue_pair();
  REQUIRE(rdma_connect(client.id, nullptr) == 0);
  client_events.expect(RDMA_CM_EVENT_REJECTED, 8);
  // One of all addresses takes only those of this machine.
  Id all(events);
  all.listen("0.0.0.0");
  rdma_cm_id* far = nullptr;
  REQUIRE(rdma_create_id(client_events.channel, &far, nullptr, RDMA_PS_TCP) == 0);
  Id remote(far);
  sockaddr_in source = at(0);
  sockaddr_in destination = at(all.number(), "192.0.2.1");
  REQUIRE(rdma_resolve_addr(far, reinterpret_cast<sockaddr*>(&source), reinterpret_cast<sockaddr*>(&destination), 1) ==
          0);
  client_events.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  REQUIRE(rdma_resolve_route(far, 1) == 0);
  client_events.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  remote.create_queue_pair();
  REQUIRE(rdma_connect(far, nullptr) == 0);
  REQUIRE(events.readable(kLimitMilliseconds));
  rdma_cm_event* event = nullptr;
  REQUIRE(fcntl(events.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  const bool got_one = rdma_get_cm_event(events.channel, &event) == 0;
  CHECK(errno == EAGAIN);
  if (got_one) rdma_ack_cm_event(event);  // or destroying the listener would wait for it
  REQUIRE_FALSE(got_one);
  client_events.expect(RDMA_CM_EVENT_REJECTED, 8);
}

TEST_CASE("an address is bound once", "[rdmacm]") {
  Channel events;
  Id one(events);
  one.listen("127.0.0.1");
  const sockaddr_in same = at(one.number());
  Id other(events);
  CHECK(other.bind(same) == -1);
  CHECK(errno == EADDRINUSE);
  CHECK(other.bind(at(one.number(), "0.0.0.0")) == -1);
  CHECK(errno == EADDRINUSE);
  CHECK(other.bind(at(one.number(), "192.0.2.1")) == -1);
  CHECK(errno == EADDRNOTAVAIL);
  Id datagrams(events, RDMA_PS_UDP);
  CHECK(datagrams.bind(same) == 0);
  CHECK(datagrams.bind(same) == -1);
  CHECK(errno == EINVAL);
  REQUIRE(rdma_destroy_id(one.id) == 0);
  one.id = nullptr;
  CHECK(other.bind(same) == 0);
  CHECK(other.id->verbs != nullptr);
  Id unbound(events);
  REQUIRE(rdma_listen(unbound.id, 1) == 0);
  CHECK(unbound.number() != 0);
  CHECK(unbound.id->verbs == nullptr);
}

TEST_CASE("private data that is too long is refused", "[rdmacm]") {
  Channel events;
  Channel client_events;
  const std::string text(255, 'p');
  struct Limit {
    rdma_port_space space;
    std::uint8_t request;
    std::uint8_t reply;
  };
  for (const Limit& limit : {Limit{RDMA_PS_TCP, 56, 196}, Limit{RDMA_PS_UDP, 180, 136}, Limit{RDMA_PS_IB, 56, 196}}) {
    Id listener(events, limit.space);
    listener.listen();
    Id client(client_events, limit.space);
    client.resolve(client_events, at(listener.number()));
    client.create_queue_pair();
    rdma_conn_param parameters{};
    parameters.private_data = text.data();
    parameters.private_data_len = static_cast<std::uint8_t>(limit.request + 1);
    CHECK(rdma_connect(client.id, &parameters) == -1);
    CHECK(errno == EINVAL);
    parameters.private_data_len = limit.request;
    REQUIRE(rdma_connect(client.id, &parameters) == 0);
    const Seen request = events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(request.data == text.substr(0, limit.request));
    Id server(request.id);
    server.create_queue_pair();
    parameters.private_data_len = static_cast<std::uint8_t>(limit.reply + 1);
    CHECK(rdma_accept(server.id, &parameters) == -1);
    CHECK(errno == EINVAL);
    parameters.private_data_len = limit.reply;
    REQUIRE(rdma_accept(server.id, &parameters) == 0);
    CHECK(client_events.expect(RDMA_CM_EVENT_ESTABLISHED).data == text.substr(0, limit.reply));
    if (limit.space != RDMA_PS_UDP) events.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
}

TEST_CASE("parameters that the device does not have are refused", "[rdmacm]") {
  Channel events;
  Id client(events);
  client.resolve(events, at(7));
  CHECK(rdma_connect(client.id, nullptr) == -1);  // without a queue pair and its number
  CHECK(errno == EINVAL);
  client.create_queue_pair();
  rdma_conn_param parameters{};
  parameters.responder_resources = 17;
  CHECK(rdma_connect(client.id, &parameters) == -1);
  CHECK(errno == EINVAL);
  parameters.responder_resources = RDMA_MAX_RESP_RES;
  parameters.initiator_depth = 17;
  CHECK(rdma_connect(client.id, &parameters) == -1);
  CHECK(errno == EINVAL);
  CHECK(rdma_accept(client.id, nullptr) == -1);
  CHECK(errno == EINVAL);
  CHECK(rdma_disconnect(client.id) == -1);
  CHECK(errno == EINVAL);
}

TEST_CASE("a path that the program brings along resolves the route", "[rdmacm]") {
  Channel server_events;
  Channel events;
  Id listener(server_events);
  listener.listen();
  Id client(events);
  const auto set = [&](const void* paths, std::size_t bytes) {
    return rdma_set_option(client.id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, const_cast<void*>(paths), bytes);
  };
  std::array<ibv_path_data, 2> paths{};
  paths[1].flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
  CHECK(set(paths.data(), sizeof paths) == -1);  // without an address
  CHECK(errno == EINVAL);
  sockaddr_in to = at(listener.number());
  REQUIRE(rdma_resolve_addr(client.id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000) == 0);
  events.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  for (const std::size_t bytes : {std::size_t{0}, sizeof(ibv_path_data) - 1, sizeof(ibv_path_data)}) {
    CAPTURE(bytes);
    CHECK(set(paths.data(), bytes) == -1);  // the first one is not to be used
    CHECK(errno == EINVAL);
  }
  CHECK_FALSE(events.readable());
  REQUIRE(set(paths.data(), sizeof paths) == 0);
  CHECK(events.expect(RDMA_CM_EVENT_ROUTE_RESOLVED).id == client.id);
  CHECK(client.id->route.num_paths == 1);
  CHECK(set(paths.data(), sizeof paths) == -1);
  CHECK(errno == EINVAL);
  client.create_queue_pair();
  REQUIRE(rdma_connect(client.id, nullptr) == 0);
  Id server(server_events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
}

TEST_CASE("an identifier that is bound may still choose between IPv6 alone and both families", "[rdmacm]") {
  Channel events;
  Id six(events);
  sockaddr_in6 all{};
  all.sin6_family = AF_INET6;
  REQUIRE(rdma_bind_addr(six.id, reinterpret_cast<sockaddr*>(&all)) == 0);
  const auto choose = [&](int only_ip6) {
    return rdma_set_option(six.id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only_ip6, sizeof only_ip6);
  };
  {
    Id four(events);
    CHECK(four.bind(at(six.number(), "0.0.0.0")) == -1);
    REQUIRE(choose(1) == 0);
    CHECK(four.bind(at(six.number(), "0.0.0.0")) == 0);
    CHECK(choose(0) == -1);  // the other one has it
    CHECK(errno == EADDRINUSE);
  }
  CHECK(choose(0) == 0);
  REQUIRE(rdma_listen(six.id, 1) == 0);
  CHECK(choose(1) == -1);
  CHECK(errno == EINVAL);
  Channel client_events;
  Id client(client_events);
  client.call(client_events, six.number());
  Id server(events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
}

TEST_CASE("a datagram service tells where it is", "[rdmacm]") {
  Channel events;
  Channel client_events;
  Id listener(events, RDMA_PS_UDP);
  listener.listen();
  Id client(client_events, RDMA_PS_UDP);
  client.resolve(client_events, at(listener.number()));
  client.create_queue_pair();
  CHECK(state_of(client.id->qp) == IBV_QPS_RTS);
  REQUIRE(rdma_connect(client.id, nullptr) == 0);
  Id server(events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  SECTION("and is used") {
    server.create_queue_pair();
    REQUIRE(rdma_accept(server.id, nullptr) == 0);
    Seen found = client_events.expect(RDMA_CM_EVENT_ESTABLISHED);
    CHECK(found.datagrams.qp_num == server.id->qp->qp_num);
    CHECK(found.datagrams.qkey == RDMA_UDP_QKEY);
    CHECK_FALSE(events.readable());
    char text[128] = "a datagram";
    ibv_mr* region = rdma_reg_msgs(client.id, text, sizeof text);
    ibv_ah* handle = ibv_create_ah(client.id->pd, &found.datagrams.ah_attr);
    REQUIRE(handle != nullptr);
    REQUIRE(rdma_post_recv(server.id, nullptr, text + 32, 96, region) == 0);
    REQUIRE(rdma_post_ud_send(client.id, nullptr, text, 11, region, 0, handle, found.datagrams.qp_num) == 0);
    CHECK(next(server.id->recv_cq).status == IBV_WC_SUCCESS);
    CHECK(std::string(text + 32 + 40) == "a datagram");
    CHECK(next(client.id->send_cq).status == IBV_WC_SUCCESS);
    CHECK(ibv_destroy_ah(handle) == 0);
    CHECK(rdma_dereg_mr(region) == 0);
    CHECK(rdma_disconnect(server.id) == -1);
    CHECK(errno == EINVAL);
  }
  SECTION("or that it is not for everybody") {
    REQUIRE(rdma_reject(server.id, "go", 2) == 0);
    CHECK(client_events.expect(RDMA_CM_EVENT_UNREACHABLE, 2).data == padded("go", 136));
  }
  SECTION("or goes") {
    REQUIRE(rdma_destroy_id(server.id) == 0);
    server.id = nullptr;
    client_events.expect(RDMA_CM_EVENT_UNREACHABLE, 2);
  }
}

/// Moves a program's own queue pair with what rdma_init_qp_attr() says.
void move(rdma_cm_id* id, ibv_qp* qp, std::initializer_list<ibv_qp_state> states) {
  for (const ibv_qp_state to : states) {
    ibv_qp_attr attributes{};
    int mask = 0;
    attributes.qp_state = to;
    REQUIRE(rdma_init_qp_attr(id, &attributes, &mask) == 0);
    REQUIRE(ibv_modify_qp(qp, &attributes, mask) == 0);
  }
}

ibv_qp* own_queue_pair(rdma_cm_id* id, ibv_cq* queue) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = queue;
  wanted.cap = {4, 4, 1, 1, 64};
  wanted.qp_type = IBV_QPT_RC;
  ibv_qp* made = ibv_create_qp(id->pd, &wanted);
  REQUIRE(made != nullptr);
  return made;
}

TEST_CASE("a program may bring its own queue pairs along", "[rdmacm]") {
  Channel events;
  Channel client_events;
  Id listener(events);
  listener.listen();
  Id client(client_events);
  client.resolve(client_events, at(listener.number()));
  ibv_cq* queue = ibv_create_cq(client.id->verbs, 16, nullptr, nullptr, 0);
  REQUIRE(queue != nullptr);
  ibv_qp* calling = own_queue_pair(client.id, queue);
  ibv_qp* called = own_queue_pair(client.id, queue);
  ibv_qp_attr early{};
  int mask = 0;
  early.qp_state = IBV_QPS_RTR;
  CHECK(rdma_init_qp_attr(client.id, &early, &mask) == -1);
  CHECK(errno == EINVAL);
  rdma_conn_param parameters{};
  parameters.qp_num = calling->qp_num;
  parameters.initiator_depth = parameters.responder_resources = 1;
  REQUIRE(rdma_connect(client.id, &parameters) == 0);
  const Seen request = events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  CHECK(request.connection.qp_num == calling->qp_num);
  Id server(request.id);
  move(server.id, called, {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS});
  parameters.qp_num = called->qp_num;
  REQUIRE(rdma_accept(server.id, &parameters) == 0);
  const Seen response = client_events.expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
  CHECK(response.connection.qp_num == called->qp_num);
  move(client.id, calling, {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS});
  CHECK_FALSE(events.readable());
  const bool by_notice = GENERATE(false, true);
  if (by_notice) {
    CHECK(rdma_notify(server.id, IBV_EVENT_PATH_MIG) == -1);
    REQUIRE(rdma_notify(server.id, IBV_EVENT_COMM_EST) == 0);
    events.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
  REQUIRE(rdma_establish(client.id) == 0);
  if (!by_notice) events.expect(RDMA_CM_EVENT_ESTABLISHED);
  CHECK(rdma_establish(client.id) == -1);
  ibv_send_wr send{};
  ibv_send_wr* bad = nullptr;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  for (auto [from, to] : {std::pair(calling, called), std::pair(called, calling)}) {
    REQUIRE(ibv_post_recv(to, &receive, &bad_receive) == 0);
    REQUIRE(ibv_post_send(from, &send, &bad) == 0);
    for (int i = 0; i < 2; ++i) CHECK(next(queue).status == IBV_WC_SUCCESS);
  }
  REQUIRE(rdma_disconnect(server.id) == 0);
  events.expect(RDMA_CM_EVENT_DISCONNECTED);
  client_events.expect(RDMA_CM_EVENT_DISCONNECTED);
  CHECK(ibv_destroy_qp(calling) == 0);
  CHECK(ibv_destroy_qp(called) == 0);
  CHECK(ibv_destroy_cq(queue) == 0);
}

TEST_CASE("a shared receive queue of an identifier serves its queue pair", "[rdmacm]") {
  Channel events;
  Id client(events);
  client.resolve(events, at(7));
  ibv_srq_init_attr wanted{nullptr, {8, 1, 0}};
  REQUIRE(rdma_create_srq(client.id, nullptr, &wanted) == 0);
  REQUIRE(client.id->srq != nullptr);
  client.create_queue_pair();
  CHECK(client.id->qp->srq == client.id->srq);
  rdma_destroy_qp(client.id);
  rdma_destroy_srq(client.id);
  CHECK(client.id->srq == nullptr);
}

}  // namespace
}  // namespace splitnic::rdmacm::testing::connections_test
