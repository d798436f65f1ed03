// Queue pairs: modifying, querying and destroying them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "fabric/ibverbs/objects.h"
#include "fabric/ibverbs/own_devices.h"
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
  // A peer that sends more than it was told is answered all the same, but for none.
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) settings.answers_reads = attributes.max_dest_rd_atomic != 0;
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

/// Where a connected queue pair's peer with this number is. The address may be that of another device of the process,
/// this one or the peer's.
fabric::LocalId place_of_peer(Context& context, const ibv_ah_attr& address, std::uint32_t number) {
  const fabric::QpNumber peer{number};
  const std::uint16_t own = OwnDevices::of_process().holder(destination_of(address), peer);
  return context.peers->ids()->place_of(peer, fabric::LocalId{own});
}

/// Whether a connected queue pair may have this address now: it leads to the peer that the queue pair has.
bool leads_to_peer(Context& context, const ibv_qp_attr& known, const ibv_ah_attr& address) {
  if (address.port_num != kPort) return false;
  const auto place = [&](const ibv_ah_attr& of) { return place_of_peer(context, of, known.dest_qp_num); };
  return place(address) == place(known.ah_attr);
}

/// The peer that a connected queue pair gets with "ready to receive"; EINVAL: it can't be one.
int find_peer(Context& context, const ibv_qp_attr& attributes, fabric::QueuePairPeer& peer, PathUse& path) {
  peer.number = fabric::QpNumber{attributes.dest_qp_num};
  path = context.peers->path_to(place_of_peer(context, attributes.ah_attr, attributes.dest_qp_num).value);
  peer.path = path.path();
  if (peer.path.value == 0 || attributes.ah_attr.port_num != kPort) return EINVAL;
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
  Connection& connection = *queue_pair.connection;
  if (!connects && (mask & IBV_QP_AV) != 0 && !leads_to_peer(context, connection.attributes, attributes.ah_attr)) {
    return EINVAL;
  }
  const auto event = event_of(from, to);
  // Each drain says itself whether it is reported; one that has ended, and is not reported yet, has said so before.
  const bool drains = event == QueuePairEvent::drain_sends;
  if (drains) take_adapter_events_locked(context);
  const Status changed = context.adapter->use([&](ChannelAdapter& adapter) {
    const Status set = adapter.configure(queue_pair.number, settings_of(attributes, mask));
    return set != Status::ok || !event ? set : adapter.modify(queue_pair.number, *event, peer);
  });
  if (changed != Status::ok) return error_number(changed);
  if (drains) connection.attributes.en_sqd_async_notify = 0;
  remember(connection.attributes, attributes, mask);
  for (QueuePair* handle : connection.handles) handle->base()->state = to;
  if (connects || to == IBV_QPS_RESET) std::swap(connection.path, path);
  if (to == IBV_QPS_RESET) {
    connection.attributes = {};
    connection.death_reported = false;
  }
  if (to == IBV_QPS_ERR && from != IBV_QPS_ERR && qp.srq != nullptr) {
    ibv_async_event last{};
    last.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
    last.element.qp = &qp;
    context.events->push(last);
  }
  return 0;
}

/// Answers with an error number.
int destroy_last(Context& context, QueuePair& queue_pair) {
  if (context.groups->holds(queue_pair.number)) return EBUSY;  // as the kernel does
  const Status gone = context.adapter->use([&](ChannelAdapter& adapter) {
    // What is posted ends without completions.
    static_cast<void>(adapter.modify(queue_pair.number, QueuePairEvent::reset));
    if (context.faults != nullptr) context.faults->destroyed(queue_pair.number);
    return adapter.destroy_queue_pair(queue_pair.number);
  });
  if (gone != Status::ok) return error_number(gone);
  context.groups->queue_pair_ended();
  OwnDevices::of_process().destroyed(context.peers->local_id(), queue_pair.number);
  forget_destroyed(context, context.objects.queue_pairs, queue_pair.number.value, queue_pair.base());
  return 0;
}

}  // namespace

extern "C" {

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  ibv_qp_ex& extended = QueuePair::of(qp).qp;
  return extended.wr_start != nullptr ? &extended : nullptr;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  Context& context = Context::of(qp->context);
  QueuePair& queue_pair = QueuePair::of(qp);
  const int used = used_attributes(qp->qp_type, mask);
  return answering([&] {
    {
      const std::lock_guard guard(context.lock);
      if (const int failed = modify(context, queue_pair, *attributes, used); failed != 0) return failed;
    }
    context.placements->settle(queue_pair.number, /*gone=*/false);
    return 0;
  });
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int, ibv_qp_init_attr* made_with) {
  Context& context = Context::of(qp->context);
  QueuePair& queue_pair = QueuePair::of(qp);
  const std::lock_guard guard(context.lock);
  qp->state = state_of(present_state(context, queue_pair.number));
  *attributes = queue_pair.connection->attributes;
  attributes->qp_state = attributes->cur_qp_state = qp->state;
  attributes->cap = queue_pair.capabilities;
  const bool draining =
      context.adapter->use([&](ChannelAdapter& adapter) { return adapter.is_draining(queue_pair.number); });
  attributes->sq_draining = draining ? 1 : 0;
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
  bool last = false;
  {
    const os::Uncancelled whole;
    const std::lock_guard guard(context.lock);
    auto& handles = queue_pair.connection->handles;
    if (handles.size() == 1) {
      if (const int refused = destroy_last(context, queue_pair); refused != 0) return refused;
      last = true;
    } else {
      std::erase(handles, &queue_pair);
      context.objects.queue_pairs[queue_pair.number.value] = handles.front();
      context.events->forget(qp);
    }
  }
  if (last) {
    const os::Uncancelled whole;
    context.placements->settle(queue_pair.number, /*gone=*/true);
  }
  await_acknowledgement(*qp, qp->events_completed, queue_pair.events_reported);
  const os::Uncancelled whole;  // its last use of a path may end a bridge
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
