#include "tests/rdmacm/manager.h"

#include <arpa/inet.h>
#include <poll.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/unit/common/os_temporary_directory.h"

namespace splitnic::rdmacm::testing {
namespace {

ibv_qp_init_attr attributes() {
  ibv_qp_init_attr wanted{};
  wanted.cap = {16, 16, 1, 1, 64};
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 1;
  return wanted;
}

}  // namespace

const std::string& fabric_folder() {
  static const os::TemporaryDirectory folder;  // gone with the program
  static const std::string fabric = [] {
    setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
    return folder.path() + "/splitnic/fabric-default";
  }();
  return fabric;
}

sockaddr_in at(std::uint16_t number, const char* address) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(number);
  REQUIRE(inet_pton(AF_INET, address, &made.sin_addr) == 1);
  return made;
}

ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr about{};
  REQUIRE(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &about) == 0);
  return attributes.qp_state;
}

ibv_wc next(ibv_cq* queue) {
  ibv_wc completion{};
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMilliseconds);
  while (ibv_poll_cq(queue, 1, &completion) == 0) REQUIRE(std::chrono::steady_clock::now() < limit);
  return completion;
}

Channel::Channel() {
  static_cast<void>(fabric_folder());
  channel = rdma_create_event_channel();
  REQUIRE(channel != nullptr);
}

Channel::~Channel() { rdma_destroy_event_channel(channel); }

bool Channel::readable(int milliseconds) const {
  pollfd descriptor{channel->fd, POLLIN, 0};
  return poll(&descriptor, 1, milliseconds) == 1;
}

Seen Channel::next() {
  REQUIRE(readable(kLimitMilliseconds));
  rdma_cm_event* event = nullptr;
  REQUIRE(rdma_get_cm_event(channel, &event) == 0);
  Seen seen{event->event, event->status, event->id, event->listen_id, event->param.conn, event->param.ud, {}};
  // Both forms begin with the private data.
  if (event->param.conn.private_data != nullptr) {
    seen.data.assign(static_cast<const char*>(event->param.conn.private_data), event->param.conn.private_data_len);
  }
  REQUIRE(rdma_ack_cm_event(event) == 0);
  return seen;
}

Seen Channel::expect(rdma_cm_event_type type, int status) {
  Seen seen = next();
  CHECK(std::string(rdma_event_str(seen.type)) == rdma_event_str(type));
  CHECK(seen.status == status);
  return seen;
}

Id::Id(Channel& on, rdma_port_space space) { REQUIRE(rdma_create_id(on.channel, &id, this, space) == 0); }

Id::~Id() {
  if (id == nullptr) return;
  if (id->qp != nullptr) rdma_destroy_qp(id);
  CHECK(rdma_destroy_id(id) == 0);
}

void Id::create_queue_pair(ibv_srq* srq) {
  ibv_qp_init_attr wanted = attributes();
  wanted.qp_type = id->qp_type;
  wanted.srq = srq;
  REQUIRE(rdma_create_qp(id, nullptr, &wanted) == 0);
}

int Id::bind(const sockaddr_in& address) {
  sockaddr_in copy = address;
  return rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&copy));
}

void Id::listen(const char* address) {
  REQUIRE(bind(at(0, address)) == 0);
  REQUIRE(rdma_listen(id, 4) == 0);
  REQUIRE(number() != 0);
}

void Id::resolve(Channel& on, const sockaddr_in& destination) {
  sockaddr_in copy = destination;
  REQUIRE(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&copy), 1000) == 0);
  CHECK(on.expect(RDMA_CM_EVENT_ADDR_RESOLVED).id == id);
  REQUIRE(rdma_resolve_route(id, 1000) == 0);
  CHECK(on.expect(RDMA_CM_EVENT_ROUTE_RESOLVED).id == id);
}

void Id::call(Channel& on, std::uint16_t listener) {
  resolve(on, at(listener));
  create_queue_pair();
  REQUIRE(rdma_connect(id, nullptr) == 0);
}

PostedReceive::PostedReceive(const Id& to) : id(to), region(rdma_reg_msgs(to.id, bytes.data(), bytes.size())) {
  REQUIRE(region != nullptr);
  REQUIRE(rdma_post_recv(id.id, nullptr, bytes.data(), bytes.size(), region) == 0);
}

PostedReceive::~PostedReceive() { CHECK(rdma_dereg_mr(region) == 0); }

bool PostedReceive::is_flushed() const {
  ibv_wc completion{};
  return ibv_poll_cq(id.id->recv_cq, 1, &completion) == 1 && completion.status == IBV_WC_WR_FLUSH_ERR;
}

Connected::Connected(rdma_port_space space) : listener(server_events, space), client(client_events, space) {
  listener.listen();
  client.resolve(client_events, at(listener.number()));
  client.create_queue_pair();
  rdma_conn_param parameters{};
  parameters.private_data = "hello";
  parameters.private_data_len = 5;
  parameters.responder_resources = 3;
  parameters.initiator_depth = 2;
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 5;
  REQUIRE(rdma_connect(client.id, &parameters) == 0);
  request = server_events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  server.id = request.id;
  server.create_queue_pair();
  rdma_conn_param answer{};
  answer.private_data = "welcome";
  answer.private_data_len = 7;
  answer.responder_resources = 2;
  answer.initiator_depth = 1;
  REQUIRE(rdma_accept(server.id, &answer) == 0);
  established = client_events.expect(RDMA_CM_EVENT_ESTABLISHED);
}

}  // namespace splitnic::rdmacm::testing
