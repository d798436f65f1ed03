// How requests fail, and what fails with them.
#include <cstring>
#include <memory>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing {
namespace {

/// Writes 8 bytes with this key and address, which the peer must refuse; then both ends have failed, and what is posted
/// later is flushed.
void refused_write(Device& one, Device& other, Connected& ends, std::uint32_t key, std::uint64_t address) {
  ibv_sge part = one.part(0, 8);
  ibv_send_wr request = ends.first.request(1, IBV_WR_RDMA_WRITE, part);
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = key;
  REQUIRE(ends.second.receive(5, 0, 8) == 0);
  REQUIRE(ends.first.post(request) == 0);
  one.expect(1, IBV_WC_REM_ACCESS_ERR);
  other.expect(5, IBV_WC_WR_FLUSH_ERR);
  CHECK(ends.first.state() == IBV_QPS_ERR);
  CHECK(ends.second.state() == IBV_QPS_ERR);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(other.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(event.element.qp == ends.second.qp);
  ibv_ack_async_event(&event);
}

TEST_CASE("a wrong key, a place out of bounds and a missing right are refused by the owner", "[ibverbs]") {
  Device one;
  Device other;
  SECTION("wrong key") {
    Connected ends(one, other);
    refused_write(one, other, ends, other.mr->rkey + 1, other.address());
  }
  SECTION("out of bounds") {
    Connected ends(one, other);
    refused_write(one, other, ends, other.mr->rkey, other.address(kBytes - 7));
  }
  SECTION("the region may only be read") {
    ibv_mr* readable = ibv_reg_mr(other.pd, other.memory.data(), kBytes, IBV_ACCESS_REMOTE_READ);
    REQUIRE(readable != nullptr);
    Connected ends(one, other);
    refused_write(one, other, ends, readable->rkey, other.address());
    CHECK(ibv_dereg_mr(readable) == 0);
  }
  SECTION("the queue pair lets nobody write") {
    Shape closed;
    closed.access = IBV_ACCESS_REMOTE_READ;
    Connected ends(one, other, Shape{}, closed);
    refused_write(one, other, ends, other.mr->rkey, other.address());
  }
}

TEST_CASE("a segment whose key is wrong ends its request, not the post", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  ibv_sge part = one.part(0, 8);
  part.lkey += 1;
  REQUIRE(ends.first.post(ends.first.request(1, IBV_WR_SEND, part)) == 0);
  one.expect(1, IBV_WC_LOC_PROT_ERR);
  CHECK(ends.first.state() == IBV_QPS_ERR);
}

TEST_CASE("without a posted receive the sender gives up after its retries", "[ibverbs]") {
  Device one;
  Device other;
  Shape impatient;
  impatient.receiver_not_ready_retries = 0;
  Connected ends(one, other, impatient, Shape{});
  REQUIRE(ends.first.send(1, 0, 8) == 0);
  one.expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_CASE("a sender with retries without end waits for the receive", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  REQUIRE(ends.first.send(1, 0, 8) == 0);
  for (int i = 0; i < 50; ++i) one.expect_nothing();  // many times the 10 us that the receiver asks for
  REQUIRE(ends.second.receive(2, 0, 8) == 0);
  other.expect(2);
  one.expect(1);
}

TEST_CASE("a message that is longer than its receive fails at both ends", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  REQUIRE(ends.second.receive(2, 0, 8) == 0);
  REQUIRE(ends.first.send(1, 0, 9) == 0);
  other.expect(2, IBV_WC_LOC_LEN_ERR);
  one.expect(1, IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("posts and changes in a wrong state are refused", "[ibverbs]") {
  Device device;
  Queue queue(device, {});
  CHECK(queue.receive(1, 0, 8) == EINVAL);
  CHECK(queue.send(1, 0, 8) == EINVAL);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  CHECK(ibv_modify_qp(queue.qp, &attributes, IBV_QP_STATE) == EINVAL);
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  CHECK(ibv_modify_qp(queue.qp, &attributes, IBV_QP_STATE | IBV_QP_PORT) == EINVAL);  // incomplete
  attributes.port_num = 2;
  CHECK(ibv_modify_qp(queue.qp, &attributes, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) ==
        EINVAL);
  CHECK(queue.state() == IBV_QPS_RESET);
  queue.initialize();
  CHECK(queue.receive(1, 0, 8) == 0);
  CHECK(queue.send(1, 0, 8) == EINVAL);
  CHECK(queue.state() == IBV_QPS_INIT);
}

TEST_CASE("a full send queue refuses the next request and names it", "[ibverbs]") {
  Device one;
  Device other;
  Shape shape;
  shape.depth = 4;
  Connected ends(one, other, shape);
  std::array<ibv_send_wr, 6> list{};
  ibv_sge part = one.part(0, 8);
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = ends.first.request(i, IBV_WR_SEND, part);
    list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(ends.first.qp, list.data(), &bad) == ENOMEM);
  CHECK(bad == &list[4]);
}

TEST_CASE("what is posted to a queue pair in error is flushed", "[ibverbs]") {
  Device one;
  Device other;
  Shape shape;
  shape.extended = true;
  Connected ends(one, other, shape);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(ends.first.qp, &attributes, IBV_QP_STATE) == 0);
  CHECK(ends.first.send(7, 0, 8) == 0);
  one.expect(7, IBV_WC_WR_FLUSH_ERR);
  CHECK(ends.first.receive(8, 0, 8) == 0);
  one.expect(8, IBV_WC_WR_FLUSH_ERR);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(ends.first.qp);
  ibv_wr_start(qp);
  qp->wr_id = 9;
  ibv_wr_send(qp);
  REQUIRE(ibv_wr_complete(qp) == 0);
  one.expect(9, IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("a completion queue without room for a completion fails, and its queue pair with it", "[ibverbs]") {
  Device one(2);
  Device other;
  Connected ends(one, other);
  for (std::uint64_t i = 0; i < 3; ++i) {
    CHECK(ends.second.receive(i, 0, 8) == 0);
    CHECK(ends.first.send(i, 0, 8) == 0);  // more than the queue has room for
  }
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(one.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_CQ_ERR);
  CHECK(event.element.cq == one.cq);
  ibv_ack_async_event(&event);
  wait_until([&] { return ends.first.state() == IBV_QPS_ERR; });
  one.expect(0);
  one.expect(1);
  one.expect_nothing();
}

TEST_CASE("a completion queue changes its size", "[ibverbs]") {
  Device device(4);
  CHECK(ibv_resize_cq(device.cq, 16) == 0);
  CHECK(device.cq->cqe == 16);
  Queue queue(device, {});
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(queue.qp, &attributes, IBV_QP_STATE) == 0);
  for (std::uint64_t i = 0; i < 10; ++i) CHECK(queue.receive(i, 0, 8) == 0);
  CHECK(ibv_resize_cq(device.cq, 9) == EINVAL);  // ten wait
  CHECK(device.cq->cqe == 16);
  for (std::uint64_t i = 0; i < 10; ++i) device.expect(i, IBV_WC_WR_FLUSH_ERR);
  CHECK(ibv_resize_cq(device.cq, 9) == 0);
}

TEST_CASE("what is in use can't be destroyed", "[ibverbs]") {
  Device device;
  {
    Queue queue(device, {});
    CHECK(ibv_destroy_cq(device.cq) == EBUSY);
    CHECK(ibv_dealloc_pd(device.pd) == EBUSY);
    CHECK(ibv_destroy_comp_channel(device.channel) == EBUSY);
  }
  ibv_parent_domain_init_attr of{};
  of.pd = device.pd;
  ibv_pd* parent = ibv_alloc_parent_domain(device.context, &of);
  REQUIRE(parent != nullptr);
  CHECK(ibv_dereg_mr(device.mr) == 0);
  device.mr = nullptr;
  CHECK(ibv_dealloc_pd(device.pd) == EBUSY);
  CHECK(ibv_dealloc_pd(parent) == 0);
}

TEST_CASE("a peer that nobody is: the request fails after its timeouts", "[ibverbs]") {
  Device device;
  Shape brief;
  brief.timeout = 1;
  brief.retries = 0;
  Queue queue(device, brief);
  queue.connect(static_cast<std::uint16_t>(device.lid() == 77 ? 78 : 77), 0x1234);
  REQUIRE(queue.send(1, 0, 8) == 0);
  REQUIRE(queue.send(2, 0, 8) == 0);
  device.expect(1, IBV_WC_RETRY_EXC_ERR);
  device.expect(2, IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("a peer that closes its device ends what waits for it, with an event", "[ibverbs]") {
  Device one;
  auto other = std::make_unique<Device>();
  Queue mine(one, {});
  {
    Queue its(*other, {});
    mine.connect(other->lid(), its.qp->qp_num);
    its.connect(one.lid(), mine.qp->qp_num);
    REQUIRE(its.receive(1, 0, 8) == 0);
    REQUIRE(mine.send(2, 0, 8) == 0);
    other->expect(1);
    one.expect(2);
    REQUIRE(mine.send(3, 0, 8) == 0);  // finds no receive, and waits
    REQUIRE(mine.send(4, 0, 8) == 0);
    one.expect_nothing();
  }
  other.reset();
  one.expect(3, IBV_WC_RETRY_EXC_ERR);
  one.expect(4, IBV_WC_WR_FLUSH_ERR);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(one.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_FATAL);
  ibv_ack_async_event(&event);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing
