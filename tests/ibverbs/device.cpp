#include "tests/ibverbs/device.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/unit/common/os_temporary_directory.h"

namespace splitnic::ibverbs::testing {
namespace {

/// A folder for the fabric of this program, gone with it.
struct FabricFolder {
  FabricFolder() { setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1); }
  os::TemporaryDirectory folder;
};

ibv_context* open_device() {
  name_fabric();
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  REQUIRE(count == 1);
  ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  REQUIRE(context != nullptr);
  return context;
}

}  // namespace

void name_fabric() { static const FabricFolder folder; }

void wait_until(const std::function<bool()>& step) {
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  while (!step()) REQUIRE(std::chrono::steady_clock::now() < limit);
}

bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(") ");
  return name_end != std::string::npos && line[name_end + 2] == 'S';
}

Device::Device(int entries, unsigned access) : context(open_device()) {
  pd = ibv_alloc_pd(context);
  REQUIRE(pd != nullptr);
  channel = ibv_create_comp_channel(context);
  REQUIRE(channel != nullptr);
  cq = ibv_create_cq(context, entries, this, channel, 0);
  REQUIRE(cq != nullptr);
  mr = ibv_reg_mr(pd, memory.data(), memory.size(), static_cast<int>(access));
  REQUIRE(mr != nullptr);
}

Device::~Device() {
  if (mr != nullptr) CHECK(ibv_dereg_mr(mr) == 0);
  if (cq != nullptr) CHECK(ibv_destroy_cq(cq) == 0);
  if (channel != nullptr) CHECK(ibv_destroy_comp_channel(channel) == 0);
  if (pd != nullptr) CHECK(ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_close_device(context) == 0);
}

std::uint16_t Device::lid() const {
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(context, 1, &port) == 0);
  return port.lid;
}

ibv_sge Device::part(std::size_t offset, std::size_t bytes) const {
  return {address(offset), static_cast<std::uint32_t>(bytes), mr->lkey};
}

ibv_wc Device::next() {
  ibv_wc wc{};
  wait_until([&] {
    const int count = ibv_poll_cq(cq, 1, &wc);
    REQUIRE(count >= 0);
    return count == 1;
  });
  return wc;
}

ibv_wc Device::expect(std::uint64_t id, ibv_wc_status status) {
  const ibv_wc wc = next();
  CHECK(wc.wr_id == id);
  CHECK(std::string(ibv_wc_status_str(wc.status)) == ibv_wc_status_str(status));
  return wc;
}

void Device::expect_nothing() {
  ibv_wc wc{};
  for (int i = 0; i < 100; ++i) REQUIRE(ibv_poll_cq(cq, 1, &wc) == 0);
}

void Device::expect_fatal_event() {
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_FATAL);
  ibv_ack_async_event(&event);
}

SharedReceives::SharedReceives(Device& on, ibv_pd* pd, std::uint32_t depth, std::uint32_t segments) : device(on) {
  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = depth;
  wanted.attr.max_sge = segments;
  srq = ibv_create_srq(pd, &wanted);
  REQUIRE(srq != nullptr);
}

SharedReceives::~SharedReceives() {
  if (srq != nullptr) CHECK(ibv_destroy_srq(srq) == 0);
}

void SharedReceives::post(std::uint64_t id) { REQUIRE(post(id, device.part(0, 8)) == 0); }

int SharedReceives::post(std::uint64_t id, ibv_sge part) {
  ibv_recv_wr receive{id, nullptr, &part, 1};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_srq_recv(srq, &receive, &bad);
}

Queue::Queue(Device& on, const Shape& with) : device(on), shape(with) {
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = wanted.recv_cq = device.cq;
  wanted.srq = shape.srq;
  wanted.cap = {shape.depth, shape.depth, shape.segments, shape.segments, 128};
  wanted.qp_type = shape.type;
  wanted.sq_sig_all = shape.all_signalled;
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
  wanted.pd = device.pd;
  if (shape.extended) {
    wanted.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wanted.send_ops_flags = IBV_QP_EX_WITH_SEND;
    if (shape.type != IBV_QPT_UD) {
      wanted.send_ops_flags |=
          IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    }
  }
  qp = ibv_create_qp_ex(device.context, &wanted);
  REQUIRE(qp != nullptr);
}

Queue::~Queue() {
  if (qp != nullptr) CHECK(ibv_destroy_qp(qp) == 0);
}

void Queue::initialize() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qkey = kQueueKey;
  attributes.qp_access_flags = shape.access;
  const int last = shape.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  REQUIRE(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last) == 0);
}

void Queue::ready_to_receive(std::uint16_t lid, std::uint32_t peer) { REQUIRE(try_to_receive(lid, peer) == 0); }

ibv_qp_attr attributes_to_receive(std::uint16_t lid, std::uint32_t peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_4096;
  attributes.dest_qp_num = peer;
  attributes.rq_psn = 17;
  attributes.max_dest_rd_atomic = 4;
  attributes.min_rnr_timer = 1;
  attributes.ah_attr.dlid = lid;
  attributes.ah_attr.port_num = 1;
  return attributes;
}

int Queue::try_to_receive(std::uint16_t lid, std::uint32_t peer) {
  ibv_qp_attr attributes = attributes_to_receive(lid, peer);
  int mask = IBV_QP_STATE;
  if (shape.type != IBV_QPT_UD) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (shape.type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return ibv_modify_qp(qp, &attributes, mask);
}

void Queue::ready_to_send() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = 17;
  attributes.timeout = shape.timeout;
  attributes.retry_cnt = shape.retries;
  attributes.rnr_retry = shape.receiver_not_ready_retries;
  attributes.max_rd_atomic = 4;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (shape.type == IBV_QPT_RC) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  REQUIRE(ibv_modify_qp(qp, &attributes, mask) == 0);
}

void Queue::connect(std::uint16_t lid, std::uint32_t peer) {
  initialize();
  ready_to_receive(lid, peer);
  ready_to_send();
}

ibv_send_wr Queue::request(std::uint64_t id, ibv_wr_opcode opcode, ibv_sge& part) {
  ibv_send_wr made{};
  made.wr_id = id;
  made.sg_list = &part;
  made.num_sge = 1;
  made.opcode = opcode;
  return made;
}

int Queue::post(ibv_send_wr request) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &request, &bad);
}

int Queue::send(std::uint64_t id, std::size_t offset, std::size_t bytes, unsigned flags) {
  ibv_sge part = device.part(offset, bytes);
  ibv_send_wr made = request(id, IBV_WR_SEND, part);
  made.send_flags = flags;
  return post(made);
}

int Queue::receive(std::uint64_t id, std::size_t offset, std::size_t bytes) {
  ibv_sge part = device.part(offset, bytes);
  ibv_recv_wr made{};
  made.wr_id = id;
  made.sg_list = &part;
  made.num_sge = bytes == 0 ? 0 : 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &made, &bad);
}

ibv_qp_state Queue::state() {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr made_with{};
  REQUIRE(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &made_with) == 0);
  return attributes.qp_state;
}

Connected::Connected(Device& one, Device& other, const Shape& of_one, const Shape& of_other)
    : first(one, of_one), second(other, of_other) {
  first.connect(other.lid(), second.qp->qp_num);
  second.connect(one.lid(), first.qp->qp_num);
}

namespace {

Shape of_datagrams(Shape shape) {
  shape.type = IBV_QPT_UD;
  return shape;
}

}  // namespace

ibv_ah* handle_to(const Device& from, std::uint16_t lid) {
  ibv_ah_attr address{};
  address.dlid = lid;
  address.port_num = 1;
  return ibv_create_ah(from.pd, &address);
}

DatagramEnds::DatagramEnds(Device& one, Device& other, Shape shape)
    : first(one, of_datagrams(shape)), second(other, of_datagrams(shape)), handle(handle_to(one, other.lid())) {
  first.connect(0, 0);
  second.connect(0, 0);
  REQUIRE(handle != nullptr);
}

DatagramEnds::~DatagramEnds() { CHECK(ibv_destroy_ah(handle) == 0); }

}  // namespace splitnic::ibverbs::testing
