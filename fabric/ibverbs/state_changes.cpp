#include "fabric/ibverbs/state_changes.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace splitnic::ibverbs {
namespace {

/// What a change of state requires and permits, for reliable and unreliable connections and for datagrams.
struct Change {
  ibv_qp_state from;
  ibv_qp_state to;
  int rc_requires;
  int rc_permits;
  int uc_requires;
  int uc_permits;
  int ud_requires;
  int ud_permits;
};

constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kInitDatagram = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int kPeer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kPeerReliable = kPeer | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kPeerPermits = IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kRetries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kSending = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr int kSendingReliable = kSending | IBV_QP_MIN_RNR_TIMER;
constexpr int kSendingDatagram = IBV_QP_CUR_STATE | IBV_QP_QKEY;

constexpr std::array kChanges{
    Change{IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0, kInit, 0, kInitDatagram, 0},
    Change{IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit, 0, kInit, 0, kInitDatagram},
    Change{IBV_QPS_INIT, IBV_QPS_RTR, kPeerReliable, kPeerPermits, kPeer, kPeerPermits, 0,
           IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    Change{IBV_QPS_RTR, IBV_QPS_RTS, kRetries | IBV_QP_SQ_PSN, kSendingReliable, IBV_QP_SQ_PSN, kSending, IBV_QP_SQ_PSN,
           kSendingDatagram},
    Change{IBV_QPS_RTS, IBV_QPS_RTS, 0, kSendingReliable, 0, kSending, 0, kSendingDatagram},
    Change{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY, 0,
           IBV_QP_EN_SQD_ASYNC_NOTIFY},
    Change{IBV_QPS_SQD, IBV_QPS_RTS, 0, kSendingReliable, 0, kSending, 0, kSendingDatagram},
    Change{IBV_QPS_SQD, IBV_QPS_SQD, 0, kRetries | kSendingReliable | IBV_QP_PKEY_INDEX, 0,
           kSending | IBV_QP_PKEY_INDEX, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    Change{IBV_QPS_SQE, IBV_QPS_RTS, 0, kSendingReliable, 0, kSending, 0, kSendingDatagram},
};

}  // namespace

int check_state_change(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  const int given = mask & ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return (given & ~IBV_QP_CUR_STATE) == 0 ? 0 : EINVAL;
  const auto change = std::ranges::find_if(
      kChanges, [&](const Change& candidate) { return candidate.from == from && candidate.to == to; });
  if (change == kChanges.end()) return EINVAL;
  const bool reliable = type == IBV_QPT_RC;
  const bool datagram = type == IBV_QPT_UD;
  const int required = reliable ? change->rc_requires : datagram ? change->ud_requires : change->uc_requires;
  const int permitted = reliable ? change->rc_permits : datagram ? change->ud_permits : change->uc_permits;
  return (given & required) == required && (given & ~(required | permitted)) == 0 ? 0 : EINVAL;
}

}  // namespace splitnic::ibverbs
