// Queue pairs: creating, modifying, querying and destroying them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "fabric/ibverbs/objects.h"
#include "fabric/ibverbs/state_changes.h"

namespace splitnic::ibverbs {
namespace {

using fabric::ChannelAdapter;
using fabric::QueuePairEvent;
using fabric::QueuePairSettings;
using fabric::Status;

constexpr std::uint32_t kPsnMask = 0xff'ffff;
constexpr std::uint8_t kRetryWithoutEnd = 7;
/// A timeout counts processors that other programs keep busy; see local_ca_ack_delay.
constexpr Duration kTimeoutMin = std::chrono::milliseconds(200);
constexpr Duration kTimeoutWithoutEnd = std::chrono::hours(24 * 365);
/// Every queue pair takes this much inline, as devices round up what is asked for: there are programs that rely on it.
constexpr std::uint32_t kInlineBytesMin = 64;

/// The attribute `timeout`: 4.096 us times a power of two; 0 is without end.
Duration timeout_of(std::uint8_t exponent) {
  if (exponent == 0) return kTimeoutWithoutEnd;
  return std::max(kTimeoutMin, Duration(std::int64_t{4096} << std::min<unsigned>(exponent, 31)));
}

/// The attribute `min_rnr_timer`, in units of 10 us. Source: InfiniBand, table 45.
Duration receiver_not_ready_delay_of(std::uint8_t code) {
  constexpr std::array<int, 32> kTens{65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::chrono::microseconds(10 * kTens[code & 31U]);
}

fabric::Rights remote_rights_of(unsigned access) {
  fabric::Rights rights;
  if ((access & IBV_ACCESS_REMOTE_READ) != 0) rights = rights | fabric::Right::remote_read;
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) rights = rights | fabric::Right::remote_write;
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0) rights = rights | fabric::Right::remote_atomic;
  return rights;
}

ibv_qp_state state_of(fabric::QueuePairState state) {
  static constexpr std::array kStates{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                      IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
  return kStates[static_cast<std::size_t>(state)];
}

/// What can be sent: the operations that a program may want functions for.
std::uint64_t operations_of(ibv_qp_type type) {
  constexpr std::uint64_t kSends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr std::uint64_t kConnected = kSends | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
                                       IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV |
                                       IBV_QP_EX_WITH_BIND_MW;
  constexpr std::uint64_t kReliable =
      kConnected | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  if (type == IBV_QPT_UD) return kSends;
  return type == IBV_QPT_RC ? kReliable : kConnected;
}

int check_creation(const Context& context, const ibv_qp_init_attr_ex& wanted) {
  if (wanted.qp_type != IBV_QPT_RC && wanted.qp_type != IBV_QPT_UC && wanted.qp_type != IBV_QPT_UD) return EOPNOTSUPP;
  if (wanted.pd == nullptr || wanted.send_cq == nullptr || wanted.recv_cq == nullptr) return EINVAL;
  const auto here = [&context](const auto* object) { return object->context == &context.verbs.context; };
  if (!here(wanted.pd) || !here(wanted.send_cq) || !here(wanted.recv_cq)) return EINVAL;
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
  attributes.domain = Domain::of(wanted.pd).number;
  attributes.send_completions = CompletionQueue::of(wanted.send_cq).number;
  attributes.receive_completions = CompletionQueue::of(wanted.recv_cq).number;
  attributes.send_depth = std::max<std::size_t>(wanted.cap.max_send_wr, 1);
  attributes.receive_depth = std::max<std::size_t>(wanted.cap.max_recv_wr, 1);
  attributes.acknowledged = wanted.qp_type == IBV_QPT_RC;
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
  if (const int refused = check_creation(context, wanted); refused != 0) return refuse<ibv_qp>(refused);
  auto queue_pair = std::make_unique<QueuePair>();
  wanted.cap.max_inline_data = std::max(wanted.cap.max_inline_data, kInlineBytesMin);
  const auto made = context.adapter->use([&](ChannelAdapter& adapter) {
    const auto number = adapter.create_queue_pair(attributes_of(wanted));
    if (context.faults != nullptr && number) context.faults->created(*number);
    return number;
  });
  if (!made) return refuse<ibv_qp>(ENOMEM);
  queue_pair->number = *made;
  queue_pair->of_domain = UseOf(Domain::of(wanted.pd).users);
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
  context.objects.queue_pairs.emplace(made->value, queue_pair.get());
  return &queue_pair.release()->qp.qp_base;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* wanted) noexcept {
  constexpr std::uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if ((wanted->comp_mask & ~kKnown) != 0) return refuse<ibv_qp>(EOPNOTSUPP);
  if ((wanted->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) return refuse<ibv_qp>(EINVAL);
  const bool flags = (wanted->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && wanted->create_flags != 0;
  const bool extended = (wanted->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (flags || (extended && (wanted->send_ops_flags & ~operations_of(wanted->qp_type)) != 0)) {
    return refuse<ibv_qp>(EOPNOTSUPP);
  }
  return creating([&] { return create_queue_pair(context, *wanted, extended); });
}

/// Attributes that the adapter learns apart from a change of state.
QueuePairSettings settings_of(const ibv_qp_attr& attributes, int mask) {
  QueuePairSettings settings;
  if ((mask & IBV_QP_QKEY) != 0) settings.queue_key = attributes.qkey;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) settings.remote_rights = remote_rights_of(attributes.qp_access_flags);
  if ((mask & IBV_QP_TIMEOUT) != 0) settings.ack_timeout = timeout_of(attributes.timeout);
  if ((mask & IBV_QP_RETRY_CNT) != 0) settings.retry_count = attributes.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) {
    settings.receiver_not_ready_retries =
        attributes.rnr_retry == kRetryWithoutEnd ? QueuePairSettings::kWithoutEnd : attributes.rnr_retry;
  }
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) {
    settings.receiver_not_ready_delay = receiver_not_ready_delay_of(attributes.min_rnr_timer);
  }
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) settings.reads_out = attributes.max_rd_atomic;
  if ((mask & IBV_QP_SQ_PSN) != 0) settings.first_psn_to_send = attributes.sq_psn & kPsnMask;
  return settings;
}

int check_values(const ibv_qp_attr& attributes, int mask) {
  const auto given = [mask](int attribute) { return (mask & attribute) != 0; };
  if (given(IBV_QP_PORT) && attributes.port_num != kPort) return EINVAL;
  if (given(IBV_QP_PKEY_INDEX) && attributes.pkey_index != 0) return EINVAL;
  if (given(IBV_QP_PATH_MTU) && (attributes.path_mtu < IBV_MTU_256 || attributes.path_mtu > IBV_MTU_4096)) {
    return EINVAL;
  }
  if (given(IBV_QP_MAX_QP_RD_ATOMIC) && attributes.max_rd_atomic > kMaxReads) return EINVAL;
  if (given(IBV_QP_MAX_DEST_RD_ATOMIC) && attributes.max_dest_rd_atomic > kMaxReads) return EINVAL;
  if (given(IBV_QP_DEST_QPN) && (attributes.dest_qp_num == 0 || attributes.dest_qp_num > kPsnMask)) return EINVAL;
  if (given(IBV_QP_TIMEOUT) && attributes.timeout > 31) return EINVAL;
  if (given(IBV_QP_RETRY_CNT) && attributes.retry_cnt > 7) return EINVAL;
  if (given(IBV_QP_RNR_RETRY) && attributes.rnr_retry > 7) return EINVAL;
  if (given(IBV_QP_MIN_RNR_TIMER) && attributes.min_rnr_timer > 31) return EINVAL;
  const bool migrates = given(IBV_QP_PATH_MIG_STATE) && attributes.path_mig_state != IBV_MIG_MIGRATED;
  return migrates ? EINVAL : 0;
}

/// 0: not a local ID of an endnode.
std::uint16_t destination_of(const ibv_ah_attr& address) {
  if (address.dlid != 0 || address.is_global == 0) return address.dlid;
  fabric::Gid gid;
  std::memcpy(gid.bytes.data(), address.grh.dgid.raw, gid.bytes.size());
  return local_id_of(gid);
}

std::optional<QueuePairEvent> event_of(ibv_qp_state from, ibv_qp_state to) {
  switch (to) {
    case IBV_QPS_RESET:
      return QueuePairEvent::reset;
    case IBV_QPS_INIT:
      return QueuePairEvent::initialize;
    case IBV_QPS_RTR:
      return QueuePairEvent::ready_to_receive;
    case IBV_QPS_RTS:
      return QueuePairEvent::ready_to_send;
    case IBV_QPS_SQD:
      return from == IBV_QPS_SQD ? std::nullopt : std::optional(QueuePairEvent::drain_sends);
    default:
      return QueuePairEvent::fail;
  }
}

void remember(ibv_qp_attr& known, const ibv_qp_attr& attributes, int mask) {
  const auto copy = [mask, &known, &attributes](int attribute, auto member) {
    if ((mask & attribute) != 0) known.*member = attributes.*member;
  };
  copy(IBV_QP_EN_SQD_ASYNC_NOTIFY, &ibv_qp_attr::en_sqd_async_notify);
  copy(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  copy(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  copy(IBV_QP_PORT, &ibv_qp_attr::port_num);
  copy(IBV_QP_QKEY, &ibv_qp_attr::qkey);
  copy(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  copy(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  copy(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  copy(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  copy(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  copy(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn);
  copy(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  copy(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  copy(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
  copy(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  copy(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
}

/// The peer that a connected queue pair gets with "ready to receive"; EINVAL: it can't be one.
int find_peer(Context& context, const ibv_qp_attr& attributes, fabric::QueuePairPeer& peer, PathUse& path) {
  path = context.peers->path_to(destination_of(attributes.ah_attr));
  peer.path = path.path();
  if (peer.path.value == 0 || attributes.ah_attr.port_num != kPort) return EINVAL;
  peer.number = fabric::QpNumber{attributes.dest_qp_num};
  peer.first_psn_expected = attributes.rq_psn & kPsnMask;
  peer.reads_in = kMaxReads;
  return 0;
}

fabric::QueuePairState present_state(Context& context, fabric::QpNumber number) {
  const auto state = context.adapter->use([&](ChannelAdapter& adapter) { return adapter.state(number); });
  return state.value_or(fabric::QueuePairState::error);
}

int modify(Context& context, QueuePair& queue_pair, const ibv_qp_attr& attributes, int mask) {
  ibv_qp& qp = queue_pair.qp.qp_base;
  const ibv_qp_state from = state_of(present_state(context, queue_pair.number));
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : from;
  if ((mask & IBV_QP_CUR_STATE) != 0 && attributes.cur_qp_state != from) return EINVAL;
  if (const int refused = check_state_change(qp.qp_type, from, to, mask); refused != 0) return refused;
  if (const int refused = check_values(attributes, mask); refused != 0) return refused;
  fabric::QueuePairPeer peer;
  PathUse path;
  const bool connects = to == IBV_QPS_RTR && qp.qp_type != IBV_QPT_UD;
  if (connects) {
    if (const int refused = find_peer(context, attributes, peer, path); refused != 0) return refused;
  }
  const auto event = event_of(from, to);
  const Status changed = context.adapter->use([&](ChannelAdapter& adapter) {
    const Status set = adapter.configure(queue_pair.number, settings_of(attributes, mask));
    return set != Status::ok || !event ? set : adapter.modify(queue_pair.number, *event, peer);
  });
  if (changed != Status::ok) return error_number(changed);
  remember(queue_pair.attributes, attributes, mask);
  qp.state = to;
  if (connects || to == IBV_QPS_RESET) std::swap(queue_pair.path, path);
  if (to == IBV_QPS_RESET) {
    queue_pair.attributes = {};
    queue_pair.death_reported = false;
  }
  if (to == IBV_QPS_ERR && from != IBV_QPS_ERR && qp.srq != nullptr) {
    ibv_async_event last{};
    last.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
    last.element.qp = &qp;
    context.events->push(last);
  }
  return 0;
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

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  ibv_qp_ex& extended = QueuePair::of(qp).qp;
  return extended.wr_start != nullptr ? &extended : nullptr;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  Context& context = Context::of(qp->context);
  const std::lock_guard guard(context.lock);
  return answering([&] { return modify(context, QueuePair::of(qp), *attributes, mask); });
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int, ibv_qp_init_attr* made_with) {
  Context& context = Context::of(qp->context);
  QueuePair& queue_pair = QueuePair::of(qp);
  const std::lock_guard guard(context.lock);
  qp->state = state_of(present_state(context, queue_pair.number));
  *attributes = queue_pair.attributes;
  attributes->qp_state = attributes->cur_qp_state = qp->state;
  attributes->cap = queue_pair.capabilities;
  if (made_with == nullptr) return 0;
  *made_with = {qp->qp_context,
                qp->send_cq,
                qp->recv_cq,
                qp->srq,
                queue_pair.capabilities,
                qp->qp_type,
                queue_pair.all_signalled ? 1 : 0};
  return 0;
}

int ibv_destroy_qp(ibv_qp* qp) {
  Context& context = Context::of(qp->context);
  QueuePair& queue_pair = QueuePair::of(qp);
  {
    const std::lock_guard guard(context.lock);
    const Status gone = context.adapter->use([&](ChannelAdapter& adapter) {
      // What is posted ends without completions.
      static_cast<void>(adapter.modify(queue_pair.number, QueuePairEvent::reset));
      if (context.faults != nullptr) context.faults->destroyed(queue_pair.number);
      return adapter.destroy_queue_pair(queue_pair.number);
    });
    if (gone != Status::ok) return error_number(gone);
    context.groups->forget(queue_pair.number);
    forget_destroyed(context, context.objects.queue_pairs, queue_pair.number.value, qp);
  }
  await_acknowledgement(*qp, qp->events_completed, queue_pair.events_reported);
  delete &queue_pair;
  return 0;
}

/// Bytes of a message become visible in ascending order only within a cell, so nothing is promised.
int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; }

/// There are no connection options; as a device without them answers.
int ibv_set_ece(ibv_qp*, ibv_ece*) { return EOPNOTSUPP; }

int ibv_query_ece(ibv_qp*, ibv_ece* options) {
  *options = {};
  return 0;
}

}  // extern "C"

}  // namespace splitnic::ibverbs
