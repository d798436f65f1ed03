#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <system_error>

/// What programs on the C verbs need before they can measure: a device, and a reliable connection. Everything stays
/// until the process ends. An object that can't be had is an exception that says which. It includes nothing of
/// splitnic.
namespace splitnic::bench::peers {

template <class T>
T* made(T* object, const char* what) {
  if (object == nullptr) throw std::system_error(errno, std::generic_category(), what);
  return object;
}

inline void check(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

/// The first device that there is, opened.
struct VerbsDevice {
  VerbsDevice() {
    ibv_device** list = made(ibv_get_device_list(nullptr), "the list of devices");
    if (list[0] == nullptr) throw std::runtime_error("there is no device");
    context = made(ibv_open_device(list[0]), "opening the device");
    ibv_free_device_list(list);
    domain = made(ibv_alloc_pd(context), "a protection domain");
    ibv_port_attr port{};
    check(ibv_query_port(context, 1, &port), "the port");
    lid = port.lid;
  }

  /// entries: completions.
  [[nodiscard]] ibv_cq* completion_queue(int entries) const {
    return made(ibv_create_cq(context, entries, nullptr, nullptr, 0), "a completion queue");
  }
  /// For so many requests of one segment each way. Takes sends by ibv_wr_send(), too.
  [[nodiscard]] ibv_qp* queue_pair(ibv_cq* sent, ibv_cq* received, std::uint32_t depth) const {
    ibv_qp_init_attr_ex shape{};
    shape.send_cq = sent;
    shape.recv_cq = received;
    shape.qp_type = IBV_QPT_RC;
    shape.cap = {depth, depth, 1, 1, 0};
    shape.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    shape.pd = domain;
    shape.send_ops_flags = IBV_QP_EX_WITH_SEND;
    return made(ibv_create_qp_ex(context, &shape), "a queue pair");
  }

  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  std::uint16_t lid = 0;
};

/// Brings a new queue pair to RTS; its peer is this one. timeout: as in ibv_qp_attr.
inline void connect(ibv_qp* queue_pair, std::uint16_t lid, std::uint32_t peer, std::uint8_t timeout) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  check(ibv_modify_qp(queue_pair, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = IBV_MTU_4096;
  to.dest_qp_num = peer;
  to.ah_attr.dlid = lid;
  to.ah_attr.port_num = 1;
  to.max_dest_rd_atomic = 1;
  check(ibv_modify_qp(queue_pair, &to,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
        "RTR");
  to.qp_state = IBV_QPS_RTS;
  to.timeout = timeout;
  to.retry_cnt = to.rnr_retry = 7;
  to.max_rd_atomic = 1;
  check(ibv_modify_qp(queue_pair, &to,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC),
        "RTS");
}

}  // namespace splitnic::bench::peers
