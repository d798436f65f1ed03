// Extended reliable connections: an initiator's requests name a shared receive queue of the target's XRC domain.
#include <endian.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/ibverbs/device.h"
#include "tests/unit/common/os_temporary_directory.h"

namespace splitnic::ibverbs::testing::xrc_test {
namespace {

struct XrcDomain {
  explicit XrcDomain(Device& device, int file = -1, int flags = O_CREAT) : xrcd(open(device, file, flags)) {
    REQUIRE(xrcd != nullptr);
  }
  ~XrcDomain() {
    if (xrcd != nullptr) CHECK(ibv_close_xrcd(xrcd) == 0);
  }
  XrcDomain(const XrcDomain&) = delete;
  XrcDomain& operator=(const XrcDomain&) = delete;

  static ibv_xrcd* open(Device& device, int file, int flags,
                        std::uint32_t mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS) {
    ibv_xrcd_init_attr wanted{mask, file, flags};
    errno = 0;
    return ibv_open_xrcd(device.context, &wanted);
  }

  ibv_xrcd* xrcd;
};

ibv_srq_init_attr_ex receives_of(Device& device, ibv_pd* pd, ibv_xrcd* xrcd, ibv_cq* cq) {
  ibv_srq_init_attr_ex wanted{};
  wanted.srq_context = &device;
  wanted.attr.max_wr = 16;
  wanted.attr.max_sge = 2;
  wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  wanted.srq_type = IBV_SRQT_XRC;
  wanted.pd = pd;
  wanted.xrcd = xrcd;
  wanted.cq = cq;
  return wanted;
}

/// A shared receive queue with a domain, memory and a completion queue of its own, beside the device's.
struct Receives {
  Receives(Device& on, ibv_xrcd* xrcd) : device(on), pd(ibv_alloc_pd(on.context)) {
    REQUIRE(pd != nullptr);
    mr = ibv_reg_mr(pd, device.memory.data(), device.memory.size(), kAllAccess);
    REQUIRE(mr != nullptr);
    cq = ibv_create_cq(on.context, 16, nullptr, on.channel, 0);
    REQUIRE(cq != nullptr);
    ibv_srq_init_attr_ex wanted = receives_of(on, pd, xrcd, cq);
    srq = ibv_create_srq_ex(on.context, &wanted);
    REQUIRE(srq != nullptr);
    REQUIRE(ibv_get_srq_num(srq, &number) == 0);
    CHECK(number != 0);
  }
  ~Receives() {
    destroy();
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
  }
  Receives(const Receives&) = delete;
  Receives& operator=(const Receives&) = delete;

  void destroy() {
    if (srq != nullptr) CHECK(ibv_destroy_srq(std::exchange(srq, nullptr)) == 0);
  }
  void post(std::uint64_t id, std::size_t offset, std::uint32_t bytes) {
    ibv_sge part{device.address(offset), bytes, mr->lkey};
    ibv_recv_wr receive{id, nullptr, &part, 1};
    ibv_recv_wr* bad = nullptr;
    REQUIRE(ibv_post_srq_recv(srq, &receive, &bad) == 0);
  }
  ibv_wc expect(std::uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_wc wc{};
    wait_until([&] { return ibv_poll_cq(cq, 1, &wc) == 1; });
    CHECK(wc.wr_id == id);
    CHECK(std::string(ibv_wc_status_str(wc.status)) == ibv_wc_status_str(status));
    return wc;
  }

  Device& device;
  ibv_pd* pd;
  ibv_mr* mr = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  std::uint32_t number = 0;
};

ibv_qp* make_target(Device& device, ibv_xrcd* xrcd, std::uint32_t mask = IBV_QP_INIT_ATTR_XRCD) {
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_type = IBV_QPT_XRC_RECV;
  wanted.comp_mask = mask;
  wanted.xrcd = xrcd;
  errno = 0;
  return ibv_create_qp_ex(device.context, &wanted);
}

/// Changes the state as far as ready-to-send. initiator: else a target.
void connect(ibv_qp* qp, std::uint16_t lid, std::uint32_t peer, bool initiator, std::uint8_t not_ready_retries) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qp_access_flags = kAllAccess;
  REQUIRE(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  to = attributes_to_receive(lid, peer);
  const int peers = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  const int responders = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (!initiator) CHECK(ibv_modify_qp(qp, &to, peers) == EINVAL);
  REQUIRE(ibv_modify_qp(qp, &to, peers | responders) == 0);  // an initiator has no use for these
  to.qp_state = IBV_QPS_RTS;
  to.sq_psn = 17;
  to.timeout = 14;
  to.retry_cnt = 7;
  to.rnr_retry = not_ready_retries;
  to.max_rd_atomic = 4;
  const int requesters = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  const int all = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
  if (initiator) CHECK(ibv_modify_qp(qp, &to, all) == EINVAL);
  REQUIRE(ibv_modify_qp(qp, &to, all | requesters) == 0);
}

/// An initiator on one device, and a target on the other.
struct Pair {
  explicit Pair(std::uint8_t not_ready_retries = 7, bool extended = false) : xrc(there) {
    ibv_qp_init_attr_ex wanted{};
    wanted.send_cq = here.cq;
    wanted.cap = {16, 0, 4, 0, 64};
    wanted.qp_type = IBV_QPT_XRC_SEND;
    wanted.sq_sig_all = 1;
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    wanted.pd = here.pd;
    if (extended) {
      wanted.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      wanted.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    }
    initiator = ibv_create_qp_ex(here.context, &wanted);
    REQUIRE(initiator != nullptr);
    target = make_target(there, xrc.xrcd);
    REQUIRE(target != nullptr);
    connect(initiator, there.lid(), target->qp_num, true, not_ready_retries);
    connect(target, here.lid(), initiator->qp_num, false, not_ready_retries);
  }
  ~Pair() {
    CHECK(ibv_destroy_qp(initiator) == 0);
    if (target != nullptr) CHECK(ibv_destroy_qp(target) == 0);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  [[nodiscard]] ibv_send_wr request(std::uint64_t id, ibv_wr_opcode opcode, ibv_sge& part, std::uint32_t receives) {
    ibv_send_wr made{};
    made.wr_id = id;
    made.sg_list = &part;
    made.num_sge = 1;
    made.opcode = opcode;
    made.qp_type.xrc.remote_srqn = receives;
    return made;
  }
  int post(ibv_send_wr request) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(initiator, &request, &bad);
  }
  int send(std::uint64_t id, std::size_t offset, std::size_t bytes, std::uint32_t receives) {
    ibv_sge part = here.part(offset, bytes);
    return post(request(id, IBV_WR_SEND, part, receives));
  }
  /// At another place of the memory of `receives`, by its key.
  int write(std::uint64_t id, ibv_wr_opcode opcode, std::size_t bytes, const Receives& receives, std::uint32_t key) {
    ibv_sge part = here.part(0, bytes);
    ibv_send_wr made = request(id, opcode, part, receives.number);
    made.imm_data = htobe32(77);
    made.wr.rdma = {there.address(20'000), key};
    return post(made);
  }

  Device here;
  Device there;
  XrcDomain xrc;
  ibv_qp* initiator = nullptr;
  ibv_qp* target = nullptr;
};

void fill(Device& device, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) device.memory[i] = static_cast<std::uint8_t>(i * 7 + 1);
}

TEST_CASE("each send takes a receive of the queue that it names, and completes in that one's queue", "[ibverbs][xrc]") {
  Pair pair;
  Receives first(pair.there, pair.xrc.xrcd);
  Receives second(pair.there, pair.xrc.xrcd);
  REQUIRE(first.number != second.number);
  fill(pair.here, 200);
  first.post(1, 1000, 100);
  first.post(2, 2000, 100);
  second.post(3, 3000, 200);
  REQUIRE(pair.send(10, 0, 100, first.number) == 0);
  REQUIRE(pair.send(11, 0, 200, second.number) == 0);
  REQUIRE(pair.send(12, 50, 10, first.number) == 0);
  for (const std::uint64_t id : {10U, 11U, 12U}) CHECK(pair.here.expect(id).opcode == IBV_WC_SEND);
  CHECK(first.expect(1).byte_len == 100);
  const ibv_wc wc = first.expect(2);
  CHECK(wc.byte_len == 10);
  CHECK(wc.qp_num == pair.target->qp_num);
  CHECK(second.expect(3).byte_len == 200);
  CHECK(std::memcmp(&pair.there.memory[1000], pair.here.memory.data(), 100) == 0);
  CHECK(std::memcmp(&pair.there.memory[2000], &pair.here.memory[50], 10) == 0);
  CHECK(std::memcmp(&pair.there.memory[3000], pair.here.memory.data(), 200) == 0);
  pair.there.expect_nothing();
}

TEST_CASE("messages of many cells take turns between two shared receive queues", "[ibverbs][xrc]") {
  constexpr std::uint32_t kMessage = 100'000;
  Pair pair;
  Receives receives(pair.there, pair.xrc.xrcd);
  Receives others(pair.there, pair.xrc.xrcd);
  std::vector<std::uint8_t> sent(kMessage);
  std::vector<std::uint8_t> landed(2 * kMessage);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::uint8_t>(i * 13);
  ibv_mr* from = ibv_reg_mr(pair.here.pd, sent.data(), sent.size(), IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(from != nullptr);
  Receives* queues[] = {&receives, &others};
  ibv_mr* into[] = {nullptr, nullptr};
  for (std::size_t at = 0; at < 2; ++at) {
    into[at] = ibv_reg_mr(queues[at]->pd, landed.data() + at * kMessage, kMessage, IBV_ACCESS_LOCAL_WRITE);
    REQUIRE(into[at] != nullptr);
  }
  for (std::uint64_t round = 0; round < 20; ++round) {
    const std::size_t at = round % 2;
    ibv_sge to{reinterpret_cast<std::uintptr_t>(landed.data() + at * kMessage), kMessage, into[at]->lkey};
    ibv_recv_wr receive{round, nullptr, &to, 1};
    ibv_recv_wr* bad = nullptr;
    REQUIRE(ibv_post_srq_recv(queues[at]->srq, &receive, &bad) == 0);
    ibv_sge part{reinterpret_cast<std::uintptr_t>(sent.data()), kMessage, from->lkey};
    REQUIRE(pair.post(pair.request(round, IBV_WR_SEND, part, queues[at]->number)) == 0);
    CHECK(queues[at]->expect(round).byte_len == kMessage);
    pair.here.expect(round);
    CHECK(std::memcmp(landed.data() + at * kMessage, sent.data(), kMessage) == 0);
    std::fill(landed.begin(), landed.end(), std::uint8_t{0});
  }
  CHECK(ibv_dereg_mr(from) == 0);
  for (ibv_mr* mr : into) CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("writes, reads and atomics reach the memory of the domain of the queue that they name", "[ibverbs][xrc]") {
  Pair pair;
  Receives receives(pair.there, pair.xrc.xrcd);
  fill(pair.here, 100);
  REQUIRE(pair.write(1, IBV_WR_RDMA_WRITE, 100, receives, receives.mr->rkey) == 0);
  pair.here.expect(1);
  CHECK(std::memcmp(&pair.there.memory[20'000], pair.here.memory.data(), 100) == 0);
  receives.post(2, 0, 0);
  REQUIRE(pair.write(3, IBV_WR_RDMA_WRITE_WITH_IMM, 50, receives, receives.mr->rkey) == 0);
  pair.here.expect(3);
  const ibv_wc wc = receives.expect(2);
  CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(wc.imm_data == htobe32(77));
  CHECK(wc.byte_len == 50);
  ibv_sge sink = pair.here.part(5000, 100);
  ibv_send_wr read = pair.request(4, IBV_WR_RDMA_READ, sink, receives.number);
  read.wr.rdma = {pair.there.address(20'000), receives.mr->rkey};
  REQUIRE(pair.post(read) == 0);
  pair.here.expect(4);
  CHECK(std::memcmp(&pair.here.memory[5000], pair.here.memory.data(), 100) == 0);
  const std::uint64_t before = 40;
  std::memcpy(&pair.there.memory[24'000], &before, sizeof before);
  ibv_sge result = pair.here.part(6000, 8);
  ibv_send_wr add = pair.request(5, IBV_WR_ATOMIC_FETCH_AND_ADD, result, receives.number);
  add.wr.atomic = {pair.there.address(24'000), 2, 0, receives.mr->rkey};
  REQUIRE(pair.post(add) == 0);
  pair.here.expect(5);
  ibv_send_wr swap = pair.request(6, IBV_WR_ATOMIC_CMP_AND_SWP, result, receives.number);
  swap.wr.atomic = {pair.there.address(24'000), 42, 7, receives.mr->rkey};
  REQUIRE(pair.post(swap) == 0);
  pair.here.expect(6);
  std::uint64_t after = 0;
  std::memcpy(&after, &pair.there.memory[24'000], sizeof after);
  CHECK(after == 7);
}

TEST_CASE("a key of another domain than that of the named queue is refused", "[ibverbs][xrc]") {
  Pair pair;
  Receives receives(pair.there, pair.xrc.xrcd);
  Receives others(pair.there, pair.xrc.xrcd);
  REQUIRE(pair.write(1, IBV_WR_RDMA_WRITE, 8, receives, receives.mr->rkey) == 0);
  pair.here.expect(1);
  REQUIRE(pair.write(2, IBV_WR_RDMA_WRITE, 8, others, receives.mr->rkey) == 0);
  pair.here.expect(2, IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("a queue that is none, or of another XRC domain, ends the initiator and is news for the target",
          "[ibverbs][xrc]") {
  Pair pair;
  Receives receives(pair.there, pair.xrc.xrcd);
  const XrcDomain another(pair.there);
  Receives foreign(pair.there, another.xrcd);
  foreign.post(1, 0, 8);
  const std::uint32_t theirs = foreign.number;
  const SharedReceives basic(pair.there, 4);
  const std::uint32_t number = GENERATE_COPY(values({1000U, 0xff'ffffU, theirs + 1, theirs}));
  REQUIRE(pair.send(2, 0, 8, number) == 0);
  pair.here.expect(2, IBV_WC_REM_INV_REQ_ERR);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(pair.there.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_REQ_ERR);
  CHECK(event.element.qp == pair.target);
  ibv_ack_async_event(&event);
  ibv_wc wc{};
  CHECK(ibv_poll_cq(foreign.cq, 1, &wc) == 0);
}

TEST_CASE("a queue without receives makes the initiator wait, or give up", "[ibverbs][xrc]") {
  Pair pair(1);
  Receives receives(pair.there, pair.xrc.xrcd);
  REQUIRE(pair.send(1, 0, 8, receives.number) == 0);
  pair.here.expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_CASE("the limit of a shared receive queue is reported when an XRC message takes its receive", "[ibverbs][xrc]") {
  Pair pair;
  Receives receives(pair.there, pair.xrc.xrcd);
  receives.post(1, 0, 8);
  receives.post(2, 0, 8);
  ibv_srq_attr limit{};
  limit.srq_limit = 2;
  REQUIRE(ibv_modify_srq(receives.srq, &limit, IBV_SRQ_LIMIT) == 0);
  REQUIRE(ibv_req_notify_cq(receives.cq, 0) == 0);
  REQUIRE(pair.send(3, 0, 8, receives.number) == 0);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(pair.there.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
  CHECK(event.element.srq == receives.srq);
  ibv_ack_async_event(&event);
  ibv_cq* notified = nullptr;
  void* user = nullptr;
  REQUIRE(ibv_get_cq_event(pair.there.channel, &notified, &user) == 0);
  CHECK(notified == receives.cq);
  ibv_ack_cq_events(notified, 1);
  receives.expect(1);
  pair.here.expect(3);
}

TEST_CASE("a shared receive queue that goes is no longer there for its initiators", "[ibverbs][xrc]") {
  Pair pair;
  Receives stays(pair.there, pair.xrc.xrcd);
  Receives goes(pair.there, pair.xrc.xrcd);
  goes.post(1, 0, 8);
  REQUIRE(pair.send(2, 0, 8, goes.number) == 0);
  goes.expect(1);
  pair.here.expect(2);
  const std::uint32_t number = goes.number;
  goes.destroy();
  REQUIRE(pair.send(3, 0, 8, number) == 0);
  pair.here.expect(3, IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("extended posting names the queue of each request", "[ibverbs][xrc]") {
  Pair pair(7, true);
  Receives receives(pair.there, pair.xrc.xrcd);
  fill(pair.here, 64);
  receives.post(1, 1000, 64);
  receives.post(2, 0, 0);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.initiator);
  REQUIRE(qp != nullptr);
  ibv_wr_start(qp);
  qp->wr_id = 3;
  ibv_wr_send(qp);
  ibv_wr_set_xrc_srqn(qp, receives.number);
  ibv_wr_set_sge(qp, pair.here.mr->lkey, pair.here.address(), 64);
  qp->wr_id = 4;
  ibv_wr_rdma_write_imm(qp, receives.mr->rkey, pair.there.address(20'000), htobe32(5));
  ibv_wr_set_xrc_srqn(qp, receives.number);
  ibv_wr_set_sge(qp, pair.here.mr->lkey, pair.here.address(), 8);
  REQUIRE(ibv_wr_complete(qp) == 0);
  pair.here.expect(3);
  pair.here.expect(4);
  receives.expect(1);
  CHECK(receives.expect(2).imm_data == htobe32(5));
  CHECK(std::memcmp(&pair.there.memory[1000], pair.here.memory.data(), 64) == 0);
  ibv_wr_start(qp);
  ibv_wr_send(qp);  // names none
  ibv_wr_set_sge(qp, pair.here.mr->lkey, pair.here.address(), 8);
  CHECK(ibv_wr_complete(qp) == EINVAL);
}

TEST_CASE("a second handle of a target gets its events, and keeps it when the first is destroyed", "[ibverbs][xrc]") {
  Pair pair;
  Receives receives(pair.there, pair.xrc.xrcd);
  ibv_qp_open_attr wanted{};
  wanted.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT;
  wanted.qp_num = pair.target->qp_num;
  wanted.xrcd = pair.xrc.xrcd;
  wanted.qp_type = IBV_QPT_XRC_RECV;
  wanted.qp_context = &pair;
  ibv_qp* second = ibv_open_qp(pair.there.context, &wanted);
  REQUIRE(second != nullptr);
  CHECK(second->qp_context == &pair);
  CHECK(second->state == IBV_QPS_RTS);
  REQUIRE(ibv_destroy_qp(pair.target) == 0);
  pair.target = nullptr;
  receives.post(1, 0, 8);
  REQUIRE(pair.send(2, 0, 8, receives.number) == 0);
  receives.expect(1);
  pair.here.expect(2);
  ibv_qp* third = ibv_open_qp(pair.there.context, &wanted);
  REQUIRE(third != nullptr);
  REQUIRE(pair.send(3, 0, 8, receives.number + 100) == 0);
  pair.here.expect(3, IBV_WC_REM_INV_REQ_ERR);
  bool told[2] = {};
  for (int i = 0; i < 2; ++i) {
    ibv_async_event event{};
    REQUIRE(ibv_get_async_event(pair.there.context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_QP_REQ_ERR);
    told[event.element.qp == third ? 1 : 0] = true;
    ibv_ack_async_event(&event);
  }
  CHECK(told[0]);
  CHECK(told[1]);
  ibv_qp_attr about{};
  ibv_qp_init_attr made_with{};
  REQUIRE(ibv_query_qp(third, &about, IBV_QP_STATE, &made_with) == 0);
  CHECK(about.qp_state == IBV_QPS_ERR);
  CHECK(ibv_destroy_qp(second) == 0);
  CHECK(ibv_destroy_qp(third) == 0);
  CHECK(ibv_open_qp(pair.there.context, &wanted) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("a handle is opened only of a target, by its number, in its XRC domain", "[ibverbs][xrc]") {
  Pair pair;
  const XrcDomain another(pair.there);
  ibv_qp_open_attr wanted{};
  wanted.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  wanted.qp_num = pair.target->qp_num;
  wanted.xrcd = another.xrcd;
  wanted.qp_type = IBV_QPT_XRC_RECV;
  const auto refused = [&pair, &wanted](int error) {
    errno = 0;
    return ibv_open_qp(pair.there.context, &wanted) == nullptr && errno == error;
  };
  CHECK(refused(EINVAL));
  wanted.xrcd = pair.xrc.xrcd;
  wanted.qp_num = pair.target->qp_num + 1;
  CHECK(refused(EINVAL));
  wanted.qp_num = pair.target->qp_num;
  wanted.qp_type = IBV_QPT_XRC_SEND;
  CHECK(refused(EINVAL));
  wanted.qp_type = IBV_QPT_XRC_RECV;
  wanted.comp_mask &= ~unsigned{IBV_QP_OPEN_ATTR_XRCD};
  CHECK(refused(EINVAL));
  wanted.comp_mask = IBV_QP_OPEN_ATTR_RESERVED;
  CHECK(refused(EOPNOTSUPP));
}

TEST_CASE("a target posts nothing, an initiator receives nothing, and a request names a queue", "[ibverbs][xrc]") {
  Pair pair;
  ibv_sge part = pair.here.part(0, 8);
  ibv_recv_wr receive{1, nullptr, nullptr, 0};
  ibv_recv_wr* bad_receive = nullptr;
  CHECK(ibv_post_recv(pair.initiator, &receive, &bad_receive) == EINVAL);
  CHECK(ibv_post_recv(pair.target, &receive, &bad_receive) == EINVAL);
  ibv_send_wr send = pair.request(2, IBV_WR_SEND, part, 1);
  send.num_sge = 0;
  ibv_send_wr* bad_send = nullptr;
  CHECK(ibv_post_send(pair.target, &send, &bad_send) == EINVAL);
  CHECK(pair.send(3, 0, 8, 0) == EINVAL);
  CHECK(pair.send(4, 0, 8, 1U << 24U) == EINVAL);
}

TEST_CASE("XRC objects are made of what they need, on one device, and stay while they are used", "[ibverbs][xrc]") {
  Device device;
  Device stranger;
  XrcDomain xrc(device);
  const auto refused = [&](ibv_srq_init_attr_ex wanted, int error) {
    errno = 0;
    return ibv_create_srq_ex(device.context, &wanted) == nullptr && errno == error;
  };
  ibv_srq_init_attr_ex good = receives_of(device, device.pd, xrc.xrcd, device.cq);
  for (const std::uint32_t left_out : {IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQ_INIT_ATTR_CQ}) {
    ibv_srq_init_attr_ex wanted = good;
    wanted.comp_mask &= ~left_out;
    CHECK(refused(wanted, EINVAL));
  }
  CHECK(refused(receives_of(device, stranger.pd, xrc.xrcd, device.cq), EINVAL));
  CHECK(refused(receives_of(device, device.pd, xrc.xrcd, stranger.cq), EINVAL));
  ibv_srq_init_attr_ex matching = good;
  matching.srq_type = IBV_SRQT_TM;
  CHECK(refused(matching, EOPNOTSUPP));
  ibv_srq* srq = ibv_create_srq_ex(device.context, &good);
  REQUIRE(srq != nullptr);
  CHECK(ibv_destroy_cq(device.cq) == EBUSY);
  CHECK(ibv_close_xrcd(xrc.xrcd) == EBUSY);
  ibv_qp_init_attr sharing{};
  sharing.send_cq = sharing.recv_cq = device.cq;
  sharing.srq = srq;
  sharing.cap.max_send_wr = 1;
  sharing.qp_type = IBV_QPT_RC;
  CHECK(ibv_create_qp(device.pd, &sharing) == nullptr);  // it is for targets alone
  CHECK(ibv_destroy_srq(srq) == 0);
  const SharedReceives basic(device, 1);
  std::uint32_t number = 0;
  CHECK(ibv_get_srq_num(basic.srq, &number) == EINVAL);
  CHECK(make_target(device, nullptr) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(make_target(stranger, xrc.xrcd) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(make_target(device, xrc.xrcd, 0) == nullptr);
  CHECK(errno == EINVAL);
  ibv_qp* target = make_target(device, xrc.xrcd);
  REQUIRE(target != nullptr);
  CHECK(ibv_close_xrcd(xrc.xrcd) == EBUSY);
  CHECK(ibv_destroy_qp(target) == 0);
}

TEST_CASE("a file names an XRC domain of a device, as long as that is open", "[ibverbs][xrc]") {
  Device device;
  const os::TemporaryDirectory folder;
  const std::string path = folder.path("domain");
  std::ofstream(path).flush();
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(file >= 0);
  CHECK(XrcDomain::open(device, file, 0) == nullptr);
  CHECK(errno == EAGAIN);
  CHECK(XrcDomain::open(device, 99'999, O_CREAT) == nullptr);
  CHECK(errno == EBADF);
  CHECK(XrcDomain::open(device, -1, O_CREAT, IBV_XRCD_INIT_ATTR_FD) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(XrcDomain::open(device, -1, O_CREAT, IBV_XRCD_INIT_ATTR_RESERVED) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  {
    const XrcDomain first(device, file);
    const XrcDomain same(device, file, 0);
    CHECK(XrcDomain::open(device, file, O_CREAT | O_EXCL) == nullptr);
    CHECK(errno == EINVAL);
    // A target made by one handle is opened by the other.
    ibv_qp* target = make_target(device, first.xrcd);
    REQUIRE(target != nullptr);
    ibv_qp_open_attr wanted{};
    wanted.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    wanted.qp_num = target->qp_num;
    wanted.xrcd = same.xrcd;
    wanted.qp_type = IBV_QPT_XRC_RECV;
    ibv_qp* opened = ibv_open_qp(device.context, &wanted);
    REQUIRE(opened != nullptr);
    CHECK(ibv_destroy_qp(opened) == 0);
    // Another opened device has a domain of its own for the file, and no way to the target.
    Device stranger;
    CHECK(XrcDomain::open(stranger, file, 0) == nullptr);
    CHECK(errno == EAGAIN);
    const XrcDomain theirs(stranger, file, O_CREAT | O_EXCL);
    wanted.xrcd = theirs.xrcd;
    errno = 0;
    CHECK(ibv_open_qp(stranger.context, &wanted) == nullptr);
    CHECK(errno == EOPNOTSUPP);
    CHECK(ibv_open_qp(device.context, &wanted) == nullptr);
    CHECK(errno == EINVAL);
    CHECK(ibv_destroy_qp(target) == 0);
  }
  CHECK(XrcDomain::open(device, file, 0) == nullptr);
  CHECK(errno == EAGAIN);
  close(file);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::xrc_test
