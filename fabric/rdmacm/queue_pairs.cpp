// Queue pairs and shared receive queues of identifiers: made, moved through their states, and destroyed through the
// public verbs.
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/rdmacm/objects.h"

namespace splitnic::rdmacm {
namespace {

/// 4.096 us * 2^18, about 1 s. A peer that dies is noticed without it.
constexpr std::uint8_t kUsualTimeout = 18;

struct OwnQueues {
  ibv_comp_channel** channel;
  ibv_cq** queue;
};

OwnQueues sends_of(rdma_cm_id* id) { return {&id->send_cq_channel, &id->send_cq}; }
OwnQueues receives_of(rdma_cm_id* id) { return {&id->recv_cq_channel, &id->recv_cq}; }

/// other: of the other direction, for which a program may have set the same queue and channel. What both name is gone
/// for both, but for a channel that the other one's queue uses: it goes with that queue.
void destroy_queue(const OwnQueues& own, const OwnQueues& other) {
  ibv_cq* const queue = std::exchange(*own.queue, nullptr);
  ibv_comp_channel* const channel = std::exchange(*own.channel, nullptr);
  if (queue != nullptr && ibv_destroy_cq(queue) == 0 && *other.queue == queue) *other.queue = nullptr;
  if (channel == nullptr || ibv_destroy_comp_channel(channel) != 0) return;
  if (*other.channel == channel) *other.channel = nullptr;
}

void destroy_receives(rdma_cm_id* id) { destroy_queue(receives_of(id), sends_of(id)); }
void destroy_sends(rdma_cm_id* id) { destroy_queue(sends_of(id), receives_of(id)); }

/// A completion queue with a channel of its own, as the functions of <rdma/rdma_verbs.h> expect them. 0 or an errno.
int create_queue(rdma_cm_id* id, const OwnQueues& own, std::uint32_t requests) {
  *own.channel = ibv_create_comp_channel(id->verbs);
  if (*own.channel == nullptr) return errno;
  *own.queue = ibv_create_cq(id->verbs, static_cast<int>(std::max(requests, 1U)), id, *own.channel, 0);
  if (*own.queue != nullptr) return 0;
  const int error = errno;
  ibv_destroy_comp_channel(*own.channel);
  *own.channel = nullptr;
  return error;
}

/// A queue of the queue pair: the program's, or else the identifier's, which is made if it is missing. 0 or an errno.
int choose_queue(rdma_cm_id* id, const OwnQueues& own, ibv_cq*& wanted, std::uint32_t requests) {
  if (wanted != nullptr) return *own.queue == nullptr || *own.queue == wanted ? 0 : EINVAL;
  if (*own.queue == nullptr) {
    if (const int error = create_queue(id, own, requests)) return error;
  }
  wanted = *own.queue;
  return 0;
}

/// The domain of all XRC targets and their shared receive queues whose program names none. Null with errno.
ibv_xrcd* xrc_domain(Library& library) {
  if (library.xrcd == nullptr) {
    ibv_xrcd_init_attr wanted{};
    wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    wanted.fd = -1;
    wanted.oflags = O_CREAT;
    library.xrcd = ibv_open_xrcd(library.device, &wanted);
  }
  return library.xrcd;
}

/// What an XRC target needs: neither completion queues nor a shared receive queue, which each request names. 0 or an
/// errno.
int add_xrc_domain(Library& library, ibv_qp_init_attr_ex& wanted) {
  if ((wanted.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && wanted.xrcd != nullptr) return 0;
  wanted.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
  wanted.xrcd = xrc_domain(library);
  return wanted.xrcd != nullptr ? 0 : errno;
}

/// What the program does not bring along. 0 or an errno.
int add_queues(rdma_cm_id* id, ibv_qp_init_attr_ex& wanted) {
  const bool receives = wanted.qp_type != IBV_QPT_XRC_SEND;
  if (receives) {
    if (const int error = choose_queue(id, receives_of(id), wanted.recv_cq, wanted.cap.max_recv_wr)) return error;
  }
  if (const int error = choose_queue(id, sends_of(id), wanted.send_cq, wanted.cap.max_send_wr)) return error;
  if (wanted.srq == nullptr) wanted.srq = id->srq;
  return 0;
}

int make_queue_pair(Identifier& identifier, ibv_qp_init_attr_ex& wanted) {
  if (identifier.qp != nullptr || identifier.verbs == nullptr) return EINVAL;
  if ((wanted.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || wanted.pd == nullptr) {
    wanted.comp_mask |= IBV_QP_INIT_ATTR_PD;
    wanted.pd = identifier.pd;  // also the one of its shared receive queue
  }
  if (wanted.pd->context != identifier.verbs) return EINVAL;
  const bool had_receives = identifier.recv_cq != nullptr;
  const bool had_sends = identifier.send_cq != nullptr;
  const bool target = wanted.qp_type == IBV_QPT_XRC_RECV;
  int error = target ? add_xrc_domain(identifier.library, wanted) : add_queues(&identifier, wanted);
  if (error == 0) {
    identifier.qp = ibv_create_qp_ex(identifier.verbs, &wanted);
    error = identifier.qp != nullptr ? identifier.initialize_queue_pair() : errno;
  }
  if (error == 0) {
    identifier.pd = wanted.pd;
    return 0;
  }
  if (identifier.qp != nullptr) ibv_destroy_qp(identifier.qp);
  identifier.qp = nullptr;
  if (!had_receives) destroy_receives(&identifier);
  if (!had_sends) destroy_sends(&identifier);
  return error;
}

/// Failure leaves what the program wants as it was: a queue that was made for it has gone, and the program may try
/// again with less. Only members that all releases have: an older program's struct ends behind them.
int create_queue_pair(Identifier& identifier, ibv_qp_init_attr_ex& wanted) {
  ibv_cq* const send_cq = wanted.send_cq;
  ibv_cq* const recv_cq = wanted.recv_cq;
  ibv_srq* const srq = wanted.srq;
  const std::uint32_t mask = wanted.comp_mask;
  ibv_pd* const pd = wanted.pd;
  ibv_xrcd* const xrcd = wanted.xrcd;
  const int error = make_queue_pair(identifier, wanted);
  if (error == 0) return 0;
  wanted.send_cq = send_cq;
  wanted.recv_cq = recv_cq;
  wanted.srq = srq;
  wanted.comp_mask = mask;
  wanted.pd = pd;
  wanted.xrcd = xrcd;
  return error;
}

int make_shared_receives(Identifier& identifier, ibv_srq_init_attr_ex& wanted) {
  if (identifier.srq != nullptr || identifier.verbs == nullptr) return EINVAL;
  if ((wanted.comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || wanted.pd == nullptr) {
    wanted.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    wanted.pd = identifier.pd;
  }
  if (wanted.pd->context != identifier.verbs) return EINVAL;
  const bool xrc = (wanted.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && wanted.srq_type == IBV_SRQT_XRC;
  if (xrc && ((wanted.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || wanted.xrcd == nullptr)) {
    wanted.xrcd = xrc_domain(identifier.library);
    if (wanted.xrcd == nullptr) return errno;
    wanted.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
  }
  const bool brings_none = xrc && ((wanted.comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || wanted.cq == nullptr);
  if (brings_none) {
    if (const int error = create_queue(&identifier, receives_of(&identifier), wanted.attr.max_wr)) return error;
    wanted.cq = identifier.recv_cq;
    wanted.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
  }
  ibv_srq* made = ibv_create_srq_ex(identifier.verbs, &wanted);
  if (made == nullptr) {
    const int error = errno;
    if (brings_none) destroy_receives(&identifier);
    return error;
  }
  identifier.srq = made;
  identifier.pd = made->pd;
  return 0;
}

/// As create_queue_pair().
int create_shared_receives(Identifier& identifier, ibv_srq_init_attr_ex& wanted) {
  const std::uint32_t mask = wanted.comp_mask;
  ibv_pd* const pd = wanted.pd;
  ibv_xrcd* const xrcd = wanted.xrcd;
  ibv_cq* const cq = wanted.cq;
  const int error = make_shared_receives(identifier, wanted);
  if (error == 0) return 0;
  wanted.comp_mask = mask;
  wanted.pd = pd;
  wanted.xrcd = xrcd;
  wanted.cq = cq;
  return error;
}

}  // namespace

int Identifier::describe_queue_pair(ibv_qp_attr& attributes, int& mask) const {
  const ibv_qp_state to = attributes.qp_state;
  attributes = {};
  attributes.qp_state = to;
  mask = IBV_QP_STATE;
  if (verbs == nullptr) return EINVAL;
  const bool knows_peer = state == State::calling || state == State::answered || state == State::requested ||
                          state == State::accepted || state == State::established;
  switch (to) {
    case IBV_QPS_INIT:
      attributes.port_num = kPort;
      mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
      if (datagrams()) {
        attributes.qkey = RDMA_UDP_QKEY;
        mask |= IBV_QP_QKEY;
      } else {
        attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (responder_resources != 0) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        mask |= IBV_QP_ACCESS_FLAGS;
      }
      return 0;
    case IBV_QPS_RTR:
      if (datagrams()) return 0;
      if (!knows_peer || peer.local_id == 0) return EINVAL;
      attributes.ah_attr.dlid = peer.local_id;
      attributes.ah_attr.port_num = kPort;
      attributes.path_mtu = IBV_MTU_4096;
      attributes.dest_qp_num = peer.queue_pair;
      attributes.rq_psn = peer.starting_psn;
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
      if (qp_type != IBV_QPT_RC && qp_type != IBV_QPT_XRC_RECV) return 0;
      attributes.max_dest_rd_atomic = responder_resources;
      mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      return 0;
    case IBV_QPS_RTS:
      if (!datagrams() && (!knows_peer || peer.local_id == 0)) return EINVAL;
      attributes.sq_psn = starting_psn;
      mask |= IBV_QP_SQ_PSN;
      if (datagrams() || qp_type == IBV_QPT_UC) return 0;
      attributes.timeout = acknowledge_timeout != 0 ? acknowledge_timeout : kUsualTimeout;
      mask |= IBV_QP_TIMEOUT;
      if (qp_type == IBV_QPT_XRC_RECV) return 0;
      // The end that calls chooses how often both repeat; each end says how often the other one waits for a receive.
      attributes.retry_cnt = peer.kind == RecordKind::request ? peer.retry_count : own.retry_count;
      attributes.rnr_retry = peer.rnr_retry_count;
      attributes.max_rd_atomic = initiator_depth;
      mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
      return 0;
    default:
      return EINVAL;
  }
}

int Identifier::move_queue_pair(ibv_qp_state to) {
  ibv_qp_attr attributes{};
  int mask = 0;
  attributes.qp_state = to;
  if (const int error = describe_queue_pair(attributes, mask)) return error;
  return ibv_modify_qp(qp, &attributes, mask);
}

/// A connected queue pair can then receive; one for datagrams can do all.
int Identifier::initialize_queue_pair() {
  if (const int error = move_queue_pair(IBV_QPS_INIT)) return error;
  if (!datagrams()) return 0;
  if (const int error = move_queue_pair(IBV_QPS_RTR)) return error;
  return move_queue_pair(IBV_QPS_RTS);
}

int Identifier::connect_queue_pair() {
  // Once more: only now is it known whether the peer may read.
  for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    if (const int error = move_queue_pair(to)) return error;
  }
  return 0;
}

void Identifier::fail_queue_pair() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  if (qp != nullptr) ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
}

extern "C" {

int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* wanted) {
  if (id == nullptr || wanted == nullptr) return refuse(EINVAL);
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    const std::lock_guard guard(identifier.library.lock);
    return answer(create_queue_pair(identifier, *wanted));
  });
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* wanted) {
  if (id == nullptr || wanted == nullptr) return refuse(EINVAL);
  ibv_qp_init_attr_ex extended{};
  std::memcpy(&extended, wanted, sizeof *wanted);  // whose members are the first ones
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd;
  const int made = rdma_create_qp_ex(id, &extended);
  std::memcpy(wanted, &extended, sizeof *wanted);
  return made;
}

void rdma_destroy_qp(rdma_cm_id* id) {
  ibv_qp* ended = nullptr;
  {
    const std::lock_guard guard(Identifier::of(id).library.lock);
    Identifier::of(id).detach_from_groups();  // an attached queue pair can't be destroyed
    ended = id->qp;
    id->qp = nullptr;
  }
  // Not under the lock: it waits until the program has acknowledged the queue pair's events.
  if (ended != nullptr) ibv_destroy_qp(ended);
  if (id->srq == nullptr) destroy_receives(id);
  destroy_sends(id);
}

int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* wanted) {
  if (id == nullptr || wanted == nullptr) return refuse(EINVAL);
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    const std::lock_guard guard(identifier.library.lock);
    return answer(create_shared_receives(identifier, *wanted));
  });
}

int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* wanted) {
  if (id == nullptr || wanted == nullptr) return refuse(EINVAL);
  ibv_srq_init_attr_ex extended{};
  std::memcpy(&extended, wanted, sizeof *wanted);
  extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  extended.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
  extended.pd = pd;
  const int made = rdma_create_srq_ex(id, &extended);
  std::memcpy(wanted, &extended, sizeof *wanted);
  return made;
}

void rdma_destroy_srq(rdma_cm_id* id) {
  if (id->srq != nullptr) ibv_destroy_srq(id->srq);
  id->srq = nullptr;
  if (id->qp == nullptr) destroy_receives(id);
}

int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask) {
  if (id == nullptr || attributes == nullptr || mask == nullptr) return refuse(EINVAL);
  const Identifier& identifier = Identifier::of(id);
  const std::lock_guard guard(identifier.library.lock);
  return answer(identifier.describe_queue_pair(*attributes, *mask));
}

}  // extern "C"

}  // namespace splitnic::rdmacm
