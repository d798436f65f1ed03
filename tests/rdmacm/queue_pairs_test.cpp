// Queue pairs of identifiers: what they are made of, and that they end without a connection, too.
#include <fcntl.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>

#include "tests/rdmacm/manager.h"

namespace splitnic::rdmacm::testing::queue_pairs_test {
namespace {

TEST_CASE("a request that goes on, or was refused, is given up by rdma_disconnect, which flushes what is posted",
          "[rdmacm]") {
  Channel events;
  Channel client_events;
  Id listener(events);
  listener.listen();
  Id client(client_events);
  client.resolve(client_events, at(listener.number()));
  client.create_queue_pair();
  const PostedReceive of_client(client);
  REQUIRE(rdma_connect(client.id, nullptr) == 0);
  Id server(events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  server.create_queue_pair();
  const PostedReceive of_server(server);
  for (const PostedReceive* end : {&of_client, &of_server}) {
    CHECK(rdma_disconnect(end->id.id) == 0);
    CHECK(state_of(end->id.id->qp) == IBV_QPS_ERR);
    CHECK(end->is_flushed());
  }
  CHECK_FALSE(events.readable());
  CHECK_FALSE(client_events.readable());
  REQUIRE(rdma_reject(server.id, nullptr, 0) == 0);
  client_events.expect(RDMA_CM_EVENT_REJECTED, 28);
  for (rdma_cm_id* end : {client.id, server.id}) CHECK(rdma_disconnect(end) == 0);
  CHECK_FALSE(events.readable());
  CHECK_FALSE(client_events.readable());
}

TEST_CASE("a queue pair takes what its program does not name from its identifier", "[rdmacm]") {
  Channel events;
  Id client(events);
  client.resolve(events, at(7));
  ibv_pd* const library = client.id->pd;
  ibv_pd* pd = ibv_alloc_pd(client.id->verbs);
  REQUIRE(pd != nullptr);
  ibv_qp_init_attr wanted{};
  wanted.cap = {4, 4, 1, 1, 0};
  wanted.qp_type = IBV_QPT_RC;
  SECTION("the domain of its shared receive queue") {
    ibv_srq_init_attr shared{nullptr, {4, 1, 0}};
    REQUIRE(rdma_create_srq(client.id, pd, &shared) == 0);
    REQUIRE(rdma_create_qp(client.id, nullptr, &wanted) == 0);
    CHECK(client.id->qp->srq == client.id->srq);
    CHECK(client.id->qp->pd == pd);
    rdma_destroy_qp(client.id);
    rdma_destroy_srq(client.id);
  }
  SECTION("a domain that the program has set") {
    client.id->pd = pd;
    REQUIRE(rdma_create_qp(client.id, nullptr, &wanted) == 0);
    CHECK(client.id->qp->pd == pd);
    rdma_destroy_qp(client.id);
  }
  SECTION("completion queues that the program has set, which end with it") {
    ibv_cq* const queue = ibv_create_cq(client.id->verbs, 8, nullptr, nullptr, 0);
    ibv_cq* const other = ibv_create_cq(client.id->verbs, 8, nullptr, nullptr, 0);
    REQUIRE(queue != nullptr);
    client.id->send_cq = client.id->recv_cq = queue;
    wanted.send_cq = other;
    CHECK(rdma_create_qp(client.id, pd, &wanted) == -1);
    CHECK(errno == EINVAL);
    CHECK(client.id->send_cq == queue);
    wanted.send_cq = nullptr;
    REQUIRE(rdma_create_qp(client.id, pd, &wanted) == 0);
    CHECK(client.id->qp->send_cq == queue);
    CHECK(client.id->qp->recv_cq == queue);
    rdma_destroy_qp(client.id);
    CHECK(client.id->send_cq == nullptr);
    CHECK(client.id->recv_cq == nullptr);
    CHECK(ibv_destroy_cq(other) == 0);
  }
  SECTION("a channel that the program has set for both directions, which ends with the later one") {
    const bool shares = GENERATE(false, true);
    ibv_srq_init_attr shared{nullptr, {4, 1, 0}};
    if (shares) REQUIRE(rdma_create_srq(client.id, pd, &shared) == 0);
    ibv_comp_channel* const channel = ibv_create_comp_channel(client.id->verbs);
    REQUIRE(channel != nullptr);
    const int descriptor = channel->fd;
    client.id->send_cq_channel = client.id->recv_cq_channel = channel;
    client.id->send_cq = ibv_create_cq(client.id->verbs, 8, nullptr, channel, 0);
    client.id->recv_cq = ibv_create_cq(client.id->verbs, 8, nullptr, channel, 0);
    REQUIRE(rdma_create_qp(client.id, pd, &wanted) == 0);
    rdma_destroy_qp(client.id);
    CHECK(client.id->send_cq_channel == nullptr);
    CHECK(client.id->recv_cq_channel == (shares ? channel : nullptr));
    if (shares) rdma_destroy_srq(client.id);  // with which the receives' queue ends
    CHECK(client.id->recv_cq_channel == nullptr);
    CHECK(::fcntl(descriptor, F_GETFD) == -1);
  }
  client.id->pd = library;
  CHECK(ibv_dealloc_pd(pd) == 0);
}

TEST_CASE("a queue pair that can't be made leaves the program's attributes as they were, and the next try succeeds",
          "[rdmacm]") {
  constexpr std::uint32_t kTooMuch = 1U << 20U;
  Channel events;
  Id client(events);
  client.resolve(events, at(7));
  ibv_qp_init_attr wanted{};
  wanted.cap = {4, 4, 1, 1, kTooMuch};
  wanted.qp_type = IBV_QPT_RC;
  SECTION("without a domain") {
    CHECK(rdma_create_qp(client.id, nullptr, &wanted) == -1);
    CHECK(wanted.send_cq == nullptr);
    CHECK(wanted.recv_cq == nullptr);
    wanted.cap.max_inline_data = 0;
    REQUIRE(rdma_create_qp(client.id, nullptr, &wanted) == 0);
    CHECK(wanted.send_cq == client.id->send_cq);
    CHECK(wanted.recv_cq == client.id->recv_cq);
  }
  SECTION("with one queue of the program, and the shared receive queue of the identifier") {
    ibv_cq* const own = ibv_create_cq(client.id->verbs, 8, nullptr, nullptr, 0);
    REQUIRE(own != nullptr);
    ibv_srq_init_attr shared{nullptr, {4, 1, 0}};
    REQUIRE(rdma_create_srq(client.id, nullptr, &shared) == 0);
    wanted.send_cq = own;
    CHECK(rdma_create_qp(client.id, nullptr, &wanted) == -1);
    CHECK(wanted.send_cq == own);
    CHECK(wanted.recv_cq == nullptr);
    CHECK(wanted.srq == nullptr);
    wanted.cap.max_inline_data = 0;
    CHECK(rdma_create_qp(client.id, nullptr, &wanted) == 0);
    rdma_destroy_qp(client.id);
    rdma_destroy_srq(client.id);
    CHECK(ibv_destroy_cq(own) == 0);
  }
  SECTION("by the extended call") {
    ibv_qp_init_attr_ex extended{};
    extended.cap = wanted.cap;
    extended.qp_type = IBV_QPT_RC;
    CHECK(rdma_create_qp_ex(client.id, &extended) == -1);
    CHECK(extended.comp_mask == 0);
    CHECK(extended.pd == nullptr);
    CHECK(extended.send_cq == nullptr);
    CHECK(extended.recv_cq == nullptr);
    extended.cap.max_inline_data = 0;
    CHECK(rdma_create_qp_ex(client.id, &extended) == 0);
  }
}

TEST_CASE("a shared receive queue that can't be made leaves the program's attributes as they were", "[rdmacm]") {
  Channel events;
  Id client(events);
  client.resolve(events, at(7));
  ibv_srq_init_attr_ex wanted{};
  wanted.attr = {1U << 30U, 1, 0};
  wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
  wanted.srq_type = IBV_SRQT_XRC;
  CHECK(rdma_create_srq_ex(client.id, &wanted) == -1);
  CHECK(wanted.comp_mask == IBV_SRQ_INIT_ATTR_TYPE);
  CHECK(wanted.pd == nullptr);
  CHECK(wanted.xrcd == nullptr);
  CHECK(wanted.cq == nullptr);
  wanted.attr.max_wr = 4;
  REQUIRE(rdma_create_srq_ex(client.id, &wanted) == 0);
  CHECK(wanted.cq == client.id->recv_cq);
  rdma_destroy_srq(client.id);
}

}  // namespace
}  // namespace splitnic::rdmacm::testing::queue_pairs_test
