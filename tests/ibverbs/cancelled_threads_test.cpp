// Threads of a program that are cancelled while they use the library.
#include "tests/ibverbs/device.h"
#include "tests/unit/common/cancelled_thread.h"

namespace splitnic::ibverbs::testing::cancelled_threads_test {
namespace {

/// Polls for the completion of a successful request.
bool completes(ibv_cq* queue) {
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  ibv_wc completion{};
  while (ibv_poll_cq(queue, 1, &completion) == 0) {
    if (std::chrono::steady_clock::now() > limit) return false;
  }
  return completion.status == IBV_WC_SUCCESS;
}

bool takes_event(const Device& device) {
  ibv_cq* queue = nullptr;
  void* user = nullptr;
  if (ibv_get_cq_event(device.channel, &queue, &user) != 0 || queue != device.cq) return false;
  ibv_ack_cq_events(queue, 1);
  return true;
}

/// Makes one object of each kind and destroys it.
bool makes_objects(Device& device) {
  ibv_pd* pd = ibv_alloc_pd(device.context);
  ibv_mr* mr = ibv_reg_mr(pd, device.memory.data(), device.memory.size(), kAllAccess);
  ibv_comp_channel* channel = ibv_create_comp_channel(device.context);
  ibv_cq* cq = ibv_create_cq(device.context, 4, nullptr, channel, 0);
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.cap = {4, 4, 1, 1, 0};
  wanted.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(pd, &wanted);
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  ibv_ah_attr address{};
  address.dlid = 0x1234;  // of nobody
  address.port_num = 1;
  ibv_ah* ah = ibv_create_ah(pd, &address);
  const bool made = pd != nullptr && mr != nullptr && channel != nullptr && cq != nullptr && qp != nullptr &&
                    ah != nullptr && ibv_modify_qp(qp, &error, IBV_QP_STATE) == 0;
  return made && ibv_destroy_ah(ah) == 0 && ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 &&
         ibv_destroy_comp_channel(channel) == 0 && ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0;
}

TEST_CASE("a thread that is to be cancelled finishes the verbs that it calls", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  test::check_not_cancelled([&](auto&& check) {
    for (std::uint64_t round = 0; round < 32; ++round) {
      check(ibv_req_notify_cq(one.cq, 0) == 0);
      check(ibv_req_notify_cq(other.cq, 0) == 0);
      check(ends.second.receive(round, 0, 8) == 0);
      check(ends.first.send(round, 0, 8) == 0);
      check(completes(one.cq));
      check(completes(other.cq));
      check(takes_event(one));
      check(takes_event(other));
    }
    check(makes_objects(one));
    ibv_context* again = ibv_open_device(one.context->device);
    check(again != nullptr && ibv_close_device(again) == 0);
  });
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::cancelled_threads_test
