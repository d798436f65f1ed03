// Queue pairs: creating them.
#include <algorithm>
#include <array>
#include <cstring>

#include "fabric/ibverbs/objects.h"
#include "fabric/ibverbs/own_devices.h"
#include "fabric/memory/guarded_copy.h"

namespace splitnic::ibverbs {
namespace {

using fabric::ChannelAdapter;

/// Every queue pair takes this much inline, as devices round up what is asked for: there are programs that rely on it.
constexpr std::uint32_t kInlineBytesMin = 64;

/// What can be sent: the operations that a program may want functions for.
std::uint64_t operations_of(ibv_qp_type type) {
  constexpr std::uint64_t kSends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr std::uint64_t kConnected = kSends | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
                                       IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV |
                                       IBV_QP_EX_WITH_BIND_MW;
  constexpr std::uint64_t kReliable =
      kConnected | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  if (type == IBV_QPT_UD) return kSends;
  if (type == IBV_QPT_XRC_RECV) return 0;
  return type == IBV_QPT_UC ? kConnected : kReliable;
}

bool is_known(ibv_qp_type type) {
  constexpr std::array kTypes{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};
  return std::ranges::find(kTypes, type) != kTypes.end();
}

/// What its type has no use for is ignored, as the kernel does.
void drop_unused(ibv_qp_init_attr_ex& wanted) {
  if (wanted.qp_type != IBV_QPT_XRC_SEND && wanted.qp_type != IBV_QPT_XRC_RECV) return;
  wanted.srq = nullptr;
  wanted.recv_cq = nullptr;
  wanted.cap.max_recv_wr = wanted.cap.max_recv_sge = 0;
  if (wanted.qp_type == IBV_QPT_XRC_SEND) return;
  wanted.pd = nullptr;
  wanted.send_cq = nullptr;
  wanted.cap = {};
}

int check_creation(const Context& context, const ibv_qp_init_attr_ex& wanted) {
  const auto here = [&context](const auto* object) {
    return object != nullptr && object->context == &context.verbs.context;
  };
  if (wanted.qp_type == IBV_QPT_XRC_RECV) {
    const bool given = (wanted.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0;
    return given && here(wanted.xrcd) ? 0 : EINVAL;
  }
  if ((wanted.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 || !here(wanted.pd) || !here(wanted.send_cq)) return EINVAL;
  if (wanted.qp_type != IBV_QPT_XRC_SEND && !here(wanted.recv_cq)) return EINVAL;
  const auto shares_domain = [&wanted] { return Domain::of(wanted.srq->pd).number == Domain::of(wanted.pd).number; };
  if (wanted.srq != nullptr && (!here(wanted.srq) || !shares_domain())) return EINVAL;
  const auto segments = static_cast<std::uint32_t>(context.limits.segments);
  const bool receives = wanted.srq == nullptr;
  const bool fits = wanted.cap.max_send_wr <= kMaxQueueDepth && wanted.cap.max_send_sge <= segments &&
                    wanted.cap.max_inline_data <= context.limits.inline_bytes &&
                    (!receives || (wanted.cap.max_recv_wr <= kMaxQueueDepth && wanted.cap.max_recv_sge <= segments));
  return fits ? 0 : EINVAL;
}

fabric::QueuePairAttributes attributes_of(const ibv_qp_init_attr_ex& wanted) {
  fabric::QueuePairAttributes attributes;
  if (wanted.qp_type == IBV_QPT_XRC_RECV) {
    attributes.xrc = fabric::XrcRole::target;
    attributes.xrc_domain = *XrcDomain::of(wanted.xrcd).number;
  } else {
    const bool initiator = wanted.qp_type == IBV_QPT_XRC_SEND;
    attributes.xrc = initiator ? fabric::XrcRole::initiator : fabric::XrcRole::none;
    attributes.domain = Domain::of(wanted.pd).number;
    attributes.send_completions = CompletionQueue::of(wanted.send_cq).number;
    attributes.receive_completions = CompletionQueue::of(initiator ? wanted.send_cq : wanted.recv_cq).number;
  }
  attributes.send_depth = std::max<std::size_t>(wanted.cap.max_send_wr, 1);
  attributes.receive_depth = std::max<std::size_t>(wanted.cap.max_recv_wr, 1);
  attributes.acknowledged = wanted.qp_type != IBV_QPT_UC && wanted.qp_type != IBV_QPT_UD;
  attributes.datagram = wanted.qp_type == IBV_QPT_UD;
  attributes.on_memory_request_failure = fabric::MemoryRequestFailure::fail;
  if (wanted.srq != nullptr) attributes.shared_receives = SharedReceives::of(wanted.srq).number;
  attributes.reads_in = attributes.reads_out = kMaxReads;
  attributes.max_inline_bytes = wanted.cap.max_inline_data;
  attributes.verbs_rules = true;
  attributes.flush_posts = true;
  return attributes;
}

ibv_qp* create_queue_pair(ibv_context* device, ibv_qp_init_attr_ex& wanted, bool extended_posts) {
  Context& context = Context::of(device);
  if (!is_known(wanted.qp_type)) return refuse<ibv_qp>(EOPNOTSUPP);
  drop_unused(wanted);
  if (const int refused = check_creation(context, wanted); refused != 0) return refuse<ibv_qp>(refused);
  fabric::enable_guarded_copy();  // the program may have installed a crash handler since it opened the device
  auto queue_pair = std::make_unique<QueuePair>();
  queue_pair->connection = std::make_shared<Connection>();
  const bool sends = wanted.qp_type != IBV_QPT_XRC_RECV;
  if (sends) wanted.cap.max_inline_data = std::max(wanted.cap.max_inline_data, kInlineBytesMin);
  const auto made = context.adapter->use([&](ChannelAdapter& adapter) {
    const auto number = adapter.create_queue_pair(attributes_of(wanted));
    if (context.faults != nullptr && number) context.faults->created(*number);
    return number;
  });
  if (!made) return refuse<ibv_qp>(ENOMEM);
  queue_pair->number = *made;
  if (sends) {
    queue_pair->of_domain = UseOf(Domain::of(wanted.pd).users);
  } else {
    queue_pair->of_xrc_domain = UseOf(XrcDomain::of(wanted.xrcd).users);
    queue_pair->connection->xrc_domain = *XrcDomain::of(wanted.xrcd).number;
  }
  queue_pair->all_signalled = wanted.sq_sig_all != 0;
  if (wanted.srq != nullptr) wanted.cap.max_recv_wr = wanted.cap.max_recv_sge = 0;
  queue_pair->capabilities = wanted.cap;
  ibv_qp& qp = queue_pair->qp.qp_base;
  qp.context = device;
  qp.qp_context = wanted.qp_context;
  qp.pd = wanted.pd;
  qp.send_cq = wanted.send_cq;
  qp.recv_cq = wanted.recv_cq;
  qp.srq = wanted.srq;
  qp.handle = context.next_handle();
  qp.qp_num = made->value;
  qp.state = IBV_QPS_RESET;
  qp.qp_type = wanted.qp_type;
  pthread_mutex_init(&qp.mutex, nullptr);
  pthread_cond_init(&qp.cond, nullptr);
  if (extended_posts) set_extended_posts(*queue_pair);
  const std::lock_guard guard(context.lock);
  queue_pair->connection->handles.push_back(queue_pair.get());
  OwnDevices::of_process().created(context.peers->local_id(), *made);
  context.objects.queue_pairs.emplace(made->value, queue_pair.get());
  return queue_pair.release()->base();
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* wanted) noexcept {
  constexpr std::uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if ((wanted->comp_mask & ~kKnown) != 0) return refuse<ibv_qp>(EOPNOTSUPP);
  const bool has_domain = (wanted->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 || wanted->qp_type == IBV_QPT_XRC_RECV;
  if (!has_domain) return refuse<ibv_qp>(EINVAL);
  const bool flags = (wanted->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && wanted->create_flags != 0;
  const bool extended = (wanted->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (flags || (extended && (wanted->send_ops_flags & ~operations_of(wanted->qp_type)) != 0)) {
    return refuse<ibv_qp>(EOPNOTSUPP);
  }
  ibv_qp_init_attr_ex all{};
  std::memcpy(static_cast<void*>(&all), wanted, sizeof(ibv_qp_init_attr));  // the same up to here
  all.comp_mask = wanted->comp_mask;
  if ((wanted->comp_mask & IBV_QP_INIT_ATTR_PD) != 0) all.pd = wanted->pd;
  if ((wanted->comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0) all.xrcd = wanted->xrcd;
  ibv_qp* made = creating([&] { return create_queue_pair(context, all, extended); });
  if (made != nullptr) wanted->cap = all.cap;
  return made;
}

}  // namespace

void set_queue_pair_verbs(Context& context) { context.verbs.create_qp_ex = create_qp_ex; }

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* wanted) {
  ibv_qp_init_attr_ex all{};
  std::memcpy(static_cast<void*>(&all), wanted, sizeof *wanted);  // the same up to here
  all.comp_mask = IBV_QP_INIT_ATTR_PD;
  all.pd = pd;
  ibv_qp* made = creating([&] { return create_queue_pair(pd->context, all, false); });
  if (made != nullptr) wanted->cap = all.cap;
  return made;
}

}  // extern "C"

}  // namespace splitnic::ibverbs
