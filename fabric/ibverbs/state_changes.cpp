#include "fabric/ibverbs/state_changes.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace splitnic::ibverbs {
namespace {

/// What a change of state requires and permits, by type of queue pair.
struct Attributes {
  int required;
  int permitted;
};
struct Change {
  ibv_qp_state from;
  ibv_qp_state to;
  Attributes reliable;
  Attributes unreliable;
  Attributes datagrams;
  Attributes xrc_send;
  Attributes xrc_receive;
};

constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kInitDatagram = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int kPeer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kPeerResponder = kPeer | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kPeerPermits = IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kRetries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kSending = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr int kSendingResponder = kSending | IBV_QP_MIN_RNR_TIMER;
constexpr int kSendingDatagram = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr int kNotify = IBV_QP_EN_SQD_ASYNC_NOTIFY;
constexpr int kPkey = IBV_QP_PKEY_INDEX;
constexpr int kDrained = kSending | kPkey | IBV_QP_AV | IBV_QP_PORT;
constexpr int kDrainedResponder = kDrained | IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC;

/// To RTS, from a state that the queue pair came to from RTS, or from RTS itself.
constexpr Change again_to_send(ibv_qp_state from) {
  return {from,          IBV_QPS_RTS,           {0, kSendingResponder}, {0, kSending}, {0, kSendingDatagram},
          {0, kSending}, {0, kSendingResponder}};
}

// An XRC target requires what a responder does, and an initiator what a requester does.
constexpr std::array kChanges{
    Change{IBV_QPS_RESET, IBV_QPS_INIT, {kInit, 0}, {kInit, 0}, {kInitDatagram, 0}, {kInit, 0}, {kInit, 0}},
    Change{IBV_QPS_INIT, IBV_QPS_INIT, {0, kInit}, {0, kInit}, {0, kInitDatagram}, {0, kInit}, {0, kInit}},
    Change{IBV_QPS_INIT,
           IBV_QPS_RTR,
           {kPeerResponder, kPeerPermits},
           {kPeer, kPeerPermits},
           {0, kPkey | IBV_QP_QKEY},
           {kPeer, kPeerPermits},
           {kPeerResponder, kPeerPermits}},
    Change{IBV_QPS_RTR,
           IBV_QPS_RTS,
           {kRetries | IBV_QP_SQ_PSN, kSendingResponder},
           {IBV_QP_SQ_PSN, kSending},
           {IBV_QP_SQ_PSN, kSendingDatagram},
           {kRetries | IBV_QP_SQ_PSN, kSending},
           {IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, kSendingResponder}},
    again_to_send(IBV_QPS_RTS),
    Change{IBV_QPS_RTS, IBV_QPS_SQD, {0, kNotify}, {0, kNotify}, {0, kNotify}, {0, kNotify}, {0, kNotify}},
    again_to_send(IBV_QPS_SQD),
    Change{IBV_QPS_SQD,
           IBV_QPS_SQD,
           {0, kRetries | kDrainedResponder},
           {0, kSending | kPkey | IBV_QP_AV},
           {0, kPkey | IBV_QP_QKEY},
           {0, kRetries | kDrained},
           {0, IBV_QP_TIMEOUT | kDrainedResponder}},
    again_to_send(IBV_QPS_SQE),
};

const Attributes& attributes_of(const Change& change, ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_UC:
      return change.unreliable;
    case IBV_QPT_UD:
      return change.datagrams;
    case IBV_QPT_XRC_SEND:
      return change.xrc_send;
    case IBV_QPT_XRC_RECV:
      return change.xrc_receive;
    default:
      return change.reliable;
  }
}

}  // namespace

int used_attributes(ibv_qp_type type, int mask) {
  if (type == IBV_QPT_XRC_SEND) return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (type == IBV_QPT_XRC_RECV) return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  return mask;
}

int check_state_change(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  const int given = mask & ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return (given & ~IBV_QP_CUR_STATE) == 0 ? 0 : EINVAL;
  const auto change = std::ranges::find_if(
      kChanges, [&](const Change& candidate) { return candidate.from == from && candidate.to == to; });
  if (change == kChanges.end()) return EINVAL;
  const Attributes& of = attributes_of(*change, type);
  return (given & of.required) == of.required && (given & ~(of.required | of.permitted)) == 0 ? 0 : EINVAL;
}

}  // namespace splitnic::ibverbs
