// Completion events and asynchronous events: when programs get them, and how their descriptors say so.
#include <fcntl.h>

#include <array>
#include <memory>
#include <vector>

#include "tests/ibverbs/device.h"
#include "tests/unit/common/edge_watch.h"

namespace splitnic::ibverbs::testing::events_test {
namespace {

using splitnic::test::EdgeWatch;

void move_to(const Queue& queue, ibv_qp_state state) {
  ibv_qp_attr change{};
  change.qp_state = state;
  REQUIRE(ibv_modify_qp(queue.qp, &change, IBV_QP_STATE) == 0);
}

TEST_CASE("each event of a completion channel is an edge, also while another one waits", "[ibverbs]") {
  Device device;
  ibv_cq* const own = device.cq;
  ibv_cq* const second = ibv_create_cq(device.context, 16, nullptr, device.channel, 0);
  REQUIRE(second != nullptr);
  {
    std::vector<std::unique_ptr<Queue>> queues;
    for (ibv_cq* const completions : {own, second}) {
      device.cq = completions;
      queues.push_back(std::make_unique<Queue>(device, Shape{}));
      queues.back()->initialize();
      REQUIRE(queues.back()->receive(1, 0, 8) == 0);
      REQUIRE(ibv_req_notify_cq(completions, 0) == 0);
    }
    const EdgeWatch watch(device.channel->fd);
    for (const auto& queue : queues) {
      move_to(*queue, IBV_QPS_ERR);  // flushes the receive
      CHECK(watch.sees_edge());
    }
  }
  for (ibv_cq* const completions : {own, second}) {
    ibv_cq* notified = nullptr;
    void* user = nullptr;
    REQUIRE(ibv_get_cq_event(device.channel, &notified, &user) == 0);
    CHECK(notified == completions);
    ibv_ack_cq_events(notified, 1);
  }
  device.cq = own;
  REQUIRE(ibv_destroy_cq(second) == 0);
}

TEST_CASE("each asynchronous event is an edge, also while another one waits", "[ibverbs]") {
  Device device;
  const SharedReceives receives(device, 1);
  const Shape shape{.srq = receives.srq};
  std::array queues{std::make_unique<Queue>(device, shape), std::make_unique<Queue>(device, shape)};
  const EdgeWatch watch(device.context->async_fd);
  for (const auto& queue : queues) {
    move_to(*queue, IBV_QPS_ERR);  // its last receive was reached
    CHECK(watch.sees_edge());
  }
}

TEST_CASE("a drain of the send queue is reported only if it asks for that itself", "[ibverbs]") {
  Device device;
  REQUIRE(fcntl(device.context->async_fd, F_SETFL, O_NONBLOCK) == 0);
  const Connected ends(device, device);
  ibv_qp_attr drain{};
  drain.qp_state = IBV_QPS_SQD;
  drain.en_sqd_async_notify = 1;
  ibv_async_event event{};
  const auto get_event = [&] { return ibv_get_async_event(device.context, &event) == 0; };
  REQUIRE(ibv_modify_qp(ends.first.qp, &drain, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
  wait_until(get_event);
  CHECK(event.event_type == IBV_EVENT_SQ_DRAINED);
  ibv_ack_async_event(&event);
  move_to(ends.first, IBV_QPS_RTS);
  move_to(ends.first, IBV_QPS_SQD);
  wait_until([&] {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr about{};
    REQUIRE(ibv_query_qp(ends.first.qp, &attributes, IBV_QP_STATE, &about) == 0);
    return attributes.sq_draining == 0;
  });
  const bool reported = get_event();
  if (reported) ibv_ack_async_event(&event);
  CHECK_FALSE(reported);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::events_test
