// Devices of one process are addressed as if they shared a port. What a program of hardware may rely on beside that:
// keys that stay, completion queues that forget what a reset queue pair has left there.
#include <array>
#include <cerrno>
#include <utility>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::own_devices_test {
namespace {

/// The handle's datagram reaches the queue pair, which may have to wait for a bridge to its device.
void check_arrives(Queue& from, ibv_ah* handle, Queue& to) {
  from.device.memory[0] = static_cast<std::uint8_t>(from.device.memory[0] + 1);
  REQUIRE(to.receive(1, 1000, 100) == 0);
  if (from.shape.extended) {
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(from.qp);
    ibv_wr_start(qp);
    qp->wr_id = 2;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    ibv_wr_set_ud_addr(qp, handle, to.qp->qp_num, kQueueKey);
    ibv_wr_set_sge(qp, from.device.mr->lkey, from.device.address(), 8);
    REQUIRE(ibv_wr_complete(qp) == 0);
  } else {
    ibv_sge part = from.device.part(0, 8);
    ibv_send_wr request = from.request(2, IBV_WR_SEND, part);
    request.wr.ud.ah = handle;
    request.wr.ud.remote_qpn = to.qp->qp_num;
    request.wr.ud.remote_qkey = kQueueKey;
    REQUIRE(from.post(request) == 0);
  }
  from.device.expect(2);
  CHECK(to.device.expect(1).src_qp == from.qp->qp_num);
  CHECK(to.device.memory[1040] == from.device.memory[0]);
}

TEST_CASE("queue pairs of two devices of a process reach each other by the address of either", "[ibverbs]") {
  Device one;
  Device other;
  Queue first(one, {});
  Queue second(other, {});
  first.connect(one.lid(), second.qp->qp_num);
  second.connect(other.lid(), first.qp->qp_num);
  for (auto [from, to] : {std::pair(&first, &second), std::pair(&second, &first)}) {
    from->device.memory[0] = 42;
    to->device.memory[8] = 0;
    REQUIRE(to->receive(1, 8, 8) == 0);
    REQUIRE(from->send(2, 0, 8) == 0);
    to->device.expect(1);
    from->device.expect(2);
    CHECK(to->device.memory[8] == 42);
  }
}

TEST_CASE("datagrams reach the queue pair that has the number, by the address of any device of the process",
          "[ibverbs]") {
  Device one;
  Device other;
  Device third;
  Shape shape;
  shape.type = IBV_QPT_UD;
  Queue near(one, shape);
  Queue far(other, shape);
  near.connect(0, 0);
  far.connect(0, 0);
  for (const bool extended : {false, true}) {
    CAPTURE(extended);
    Shape posting = shape;
    posting.extended = extended;
    Queue sender(one, posting);
    sender.connect(0, 0);
    for (const std::uint16_t lid : {one.lid(), other.lid(), third.lid()}) {
      CAPTURE(lid);
      ibv_ah* handle = handle_to(one, lid);
      REQUIRE(handle != nullptr);
      for (Queue* to : {&far, &near, &far}) check_arrives(sender, handle, *to);
      CHECK(ibv_destroy_ah(handle) == 0);
    }
  }
}

TEST_CASE("a queue pair that is destroyed, or whose device is closed, is found by nobody's address", "[ibverbs]") {
  Device one;
  Shape brief;
  brief.timeout = 1;
  brief.retries = 0;
  std::array<std::uint32_t, 2> gone{};
  Device stays;
  gone[0] = Queue(stays, {}).qp->qp_num;
  {
    Device closed;
    gone[1] = Queue(closed, {}).qp->qp_num;
  }
  for (const std::uint32_t number : gone) {
    Queue queue(one, brief);
    queue.connect(one.lid(), number);
    REQUIRE(queue.send(1, 0, 8) == 0);
    one.expect(1, IBV_WC_RETRY_EXC_ERR);
  }
}

TEST_CASE("a queue pair that is reset leaves no completions behind, and others keep theirs", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  Queue flushed(one, {});
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(flushed.qp, &attributes, IBV_QP_STATE) == 0);
  REQUIRE(ends.first.receive(1, 0, 8) == 0);
  REQUIRE(ends.second.send(2, 0, 8) == 0);
  other.expect(2);  // acknowledged, so the receive's completion waits
  REQUIRE(flushed.receive(3, 0, 8) == 0);
  attributes.qp_state = IBV_QPS_RESET;
  REQUIRE(ibv_modify_qp(ends.first.qp, &attributes, IBV_QP_STATE) == 0);
  one.expect(3, IBV_WC_WR_FLUSH_ERR);
  one.expect_nothing();
}

TEST_CASE("a completion queue does not become too small for sends that are under way", "[ibverbs]") {
  Device device;
  Shape patient;
  patient.timeout = 20;
  Queue queue(device, patient);
  queue.connect(static_cast<std::uint16_t>(device.lid() == 77 ? 78 : 77), 0x1234);  // nobody
  for (std::uint64_t i = 0; i < 5; ++i) REQUIRE(queue.send(i, 0, 8) == 0);
  for (std::uint64_t i = 0; i < 5; ++i) REQUIRE(queue.receive(i, 0, 8) == 0);  // may never complete
  CHECK(ibv_resize_cq(device.cq, 4) == EINVAL);
  CHECK(ibv_resize_cq(device.cq, 5) == 0);
}

TEST_CASE("a region keeps its keys when its rights or its protection domain change", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  ibv_mr* region = ibv_reg_mr(other.pd, other.memory.data(), 64, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(region != nullptr);
  const std::uint32_t key = region->rkey;
  REQUIRE(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) == 0);
  CHECK(region->rkey == key);
  CHECK(region->lkey == key);
  one.memory[0] = 33;
  ibv_sge part = one.part(0, 8);
  ibv_send_wr request = ends.first.request(1, IBV_WR_RDMA_WRITE, part);
  request.wr.rdma.remote_addr = other.address();
  request.wr.rdma.rkey = key;
  REQUIRE(ends.first.post(request) == 0);
  one.expect(1);
  CHECK(other.memory[0] == 33);
  // In another domain the same key is of no use to this queue pair.
  ibv_pd* apart = ibv_alloc_pd(other.context);
  REQUIRE(apart != nullptr);
  REQUIRE(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, apart, nullptr, 0, 0) == 0);
  CHECK(region->rkey == key);
  REQUIRE(ends.first.post(request) == 0);
  one.expect(1, IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_dereg_mr(region) == 0);
  CHECK(ibv_dealloc_pd(apart) == 0);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::own_devices_test
