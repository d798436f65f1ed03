// Completion events and asynchronous events: when programs get them, and how their descriptors say so.
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

}  // namespace
}  // namespace splitnic::ibverbs::testing::events_test
