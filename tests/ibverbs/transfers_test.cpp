// What moves between two devices, and within one.
#include <arpa/inet.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::transfers_test {
namespace {

constexpr std::size_t kFrom = 0;
constexpr std::size_t kTo = 32768;

void fill(Device& device, std::size_t offset, std::size_t bytes, std::uint8_t first) {
  std::iota(device.memory.begin() + static_cast<std::ptrdiff_t>(offset),
            device.memory.begin() + static_cast<std::ptrdiff_t>(offset + bytes), first);
}

bool same(const Device& one, std::size_t from, const Device& other, std::size_t to, std::size_t bytes) {
  return std::memcmp(one.memory.data() + from, other.memory.data() + to, bytes) == 0;
}

/// Every operation of a reliable connection once, with its bytes.
void exercise(Device& one, Device& other, Connected& ends) {
  fill(one, kFrom, 5000, 3);
  REQUIRE(ends.second.receive(1, kTo, 5000) == 0);
  REQUIRE(ends.second.receive(2, kTo, 5000) == 0);
  REQUIRE(ends.second.receive(3, 0, 0) == 0);

  REQUIRE(ends.first.send(10, kFrom, 5000) == 0);
  const auto wait_for = [&](Device& device, std::uint64_t id) {
    // In a loop within one device, completions of both ends come in either order.
    static std::vector<ibv_wc> seen;
    for (;;) {
      for (auto wc = seen.begin(); wc != seen.end(); ++wc) {
        if (wc->wr_id != id) continue;
        const ibv_wc found = *wc;
        seen.erase(wc);
        CHECK(found.status == IBV_WC_SUCCESS);
        return found;
      }
      seen.push_back(device.next());
    }
  };
  CHECK(wait_for(other, 1).byte_len == 5000);
  wait_for(one, 10);
  CHECK(same(one, kFrom, other, kTo, 5000));

  ibv_sge part = one.part(kFrom, 100);
  ibv_send_wr request = ends.first.request(11, IBV_WR_SEND_WITH_IMM, part);
  request.imm_data = htonl(0xcafe);
  REQUIRE(ends.first.post(request) == 0);
  ibv_wc wc = wait_for(other, 2);
  CHECK(wc.opcode == IBV_WC_RECV);
  CHECK((wc.wc_flags & IBV_WC_WITH_IMM) != 0);
  CHECK(ntohl(wc.imm_data) == 0xcafe);
  CHECK(wc.qp_num == ends.second.qp->qp_num);
  wait_for(one, 11);

  fill(one, kFrom, 200, 77);
  part = one.part(kFrom, 200);
  request = ends.first.request(12, IBV_WR_RDMA_WRITE_WITH_IMM, part);
  request.imm_data = htonl(7);
  request.wr.rdma.remote_addr = other.address(kTo);
  request.wr.rdma.rkey = other.mr->rkey;
  REQUIRE(ends.first.post(request) == 0);
  wc = wait_for(other, 3);
  CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(wc.byte_len == 200);
  CHECK(ntohl(wc.imm_data) == 7);
  CHECK(wait_for(one, 12).opcode == IBV_WC_RDMA_WRITE);
  CHECK(same(one, kFrom, other, kTo, 200));

  fill(other, kTo, 9000, 1);
  part = one.part(kFrom, 9000);
  request = ends.first.request(13, IBV_WR_RDMA_READ, part);
  request.wr.rdma.remote_addr = other.address(kTo);
  request.wr.rdma.rkey = other.mr->rkey;
  REQUIRE(ends.first.post(request) == 0);
  wc = wait_for(one, 13);
  CHECK(wc.opcode == IBV_WC_RDMA_READ);
  CHECK(same(one, kFrom, other, kTo, 9000));

  std::uint64_t word = 40;
  std::memcpy(other.memory.data() + kTo, &word, sizeof word);
  part = one.part(kFrom, 8);
  request = ends.first.request(14, IBV_WR_ATOMIC_FETCH_AND_ADD, part);
  request.wr.atomic.remote_addr = other.address(kTo);
  request.wr.atomic.rkey = other.mr->rkey;
  request.wr.atomic.compare_add = 2;
  REQUIRE(ends.first.post(request) == 0);
  CHECK(wait_for(one, 14).opcode == IBV_WC_FETCH_ADD);
  std::memcpy(&word, one.memory.data() + kFrom, sizeof word);
  CHECK(word == 40);
  request = ends.first.request(15, IBV_WR_ATOMIC_CMP_AND_SWP, part);
  request.wr.atomic.remote_addr = other.address(kTo);
  request.wr.atomic.rkey = other.mr->rkey;
  request.wr.atomic.compare_add = 42;
  request.wr.atomic.swap = 99;
  REQUIRE(ends.first.post(request) == 0);
  CHECK(wait_for(one, 15).opcode == IBV_WC_COMP_SWAP);
  std::memcpy(&word, other.memory.data() + kTo, sizeof word);
  CHECK(word == 99);
}

TEST_CASE("every operation of a reliable connection arrives with its bytes, between two devices", "[ibverbs]") {
  Device one;
  Device other;
  CHECK(one.lid() != other.lid());
  Connected ends(one, other);
  exercise(one, other, ends);
}

TEST_CASE("every operation arrives between two queue pairs of one device", "[ibverbs]") {
  Device device;
  Connected ends(device, device);
  exercise(device, device, ends);
}

TEST_CASE("a message as long as the port says that it may be arrives", "[ibverbs]") {
  Device one;
  Device other;
  ibv_port_attr port{};
  ibv_device_attr about{};
  REQUIRE(ibv_query_port(one.context, 1, &port) == 0);
  REQUIRE(ibv_query_device(one.context, &about) == 0);
  REQUIRE(port.max_msg_sz > 1'000'000'000);
  // Each segment is the same memory, which has room for one.
  const auto segments = static_cast<std::uint32_t>(about.max_sge);
  std::vector<std::uint8_t> memory(port.max_msg_sz / segments + segments);
  ibv_mr* const from = ibv_reg_mr(one.pd, memory.data(), memory.size(), kAllAccess);
  ibv_mr* const to = ibv_reg_mr(other.pd, memory.data(), memory.size(), kAllAccess);
  REQUIRE((from != nullptr && to != nullptr));
  {
    Connected ends(one, other, {.segments = segments});
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    const auto each = static_cast<std::uint32_t>(memory.size());
    std::vector<ibv_sge> room(segments, {address, each, to->lkey});
    ibv_recv_wr receive{7, nullptr, room.data(), about.max_sge};
    ibv_recv_wr* bad = nullptr;
    REQUIRE(ibv_post_recv(ends.second.qp, &receive, &bad) == 0);
    std::vector<ibv_sge> parts(segments, {address, each, from->lkey});
    parts.back().length = port.max_msg_sz - (segments - 1) * each;
    ibv_send_wr request = ends.first.request(1, IBV_WR_SEND, parts.front());
    request.num_sge = about.max_sge;
    REQUIRE(ends.first.post(request) == 0);
    one.expect(1);
    CHECK(other.expect(7).byte_len == port.max_msg_sz);
    ++parts.back().length;
    CHECK(ends.first.post(request) == EINVAL);
  }
  CHECK(ibv_dereg_mr(from) == 0);
  CHECK(ibv_dereg_mr(to) == 0);
}

TEST_CASE("a queue pair that answers no reads and atomics refuses them as invalid requests, and takes writes",
          "[ibverbs]") {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    CAPTURE(opcode);
    Device one;
    Device other;
    Queue first(one, {});
    Queue second(other, {});
    first.connect(other.lid(), second.qp->qp_num);
    second.initialize();
    ibv_qp_attr attributes = attributes_to_receive(one.lid(), first.qp->qp_num);
    attributes.max_dest_rd_atomic = 0;
    REQUIRE(ibv_modify_qp(second.qp, &attributes,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    fill(one, kFrom, 8, 3);
    fill(other, kTo, 8, 5);
    ibv_sge part{reinterpret_cast<std::uintptr_t>(one.memory.data() + kFrom), 8, one.mr->lkey};
    ibv_send_wr write = first.request(1, IBV_WR_RDMA_WRITE, part);
    write.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(other.memory.data() + kTo);
    write.wr.rdma.rkey = other.mr->rkey;
    REQUIRE(first.post(write) == 0);
    one.expect(1);
    CHECK(same(one, kFrom, other, kTo, 8));

    fill(one, kFrom, 8, 7);
    ibv_send_wr request = first.request(2, opcode, part);
    if (opcode == IBV_WR_RDMA_READ) {
      request.wr.rdma = write.wr.rdma;
    } else {
      request.wr.atomic.remote_addr = write.wr.rdma.remote_addr;
      request.wr.atomic.rkey = other.mr->rkey;
    }
    REQUIRE(first.post(request) == 0);
    const ibv_wc refused = one.next();
    CHECK(refused.wr_id == 2);
    CHECK(refused.status == IBV_WC_REM_INV_REQ_ERR);
    CHECK_FALSE(same(one, kFrom, other, kTo, 8));  // nothing was read
  }
}

TEST_CASE("a queue pair that is connected to itself receives what it sends", "[ibverbs]") {
  Device device;
  Queue queue(device, {});
  queue.connect(device.lid(), queue.qp->qp_num);
  fill(device, kFrom, 300, 9);
  REQUIRE(queue.receive(1, kTo, 300) == 0);
  REQUIRE(queue.send(2, kFrom, 300) == 0);
  const std::uint64_t first = device.next().wr_id;
  const std::uint64_t second = device.next().wr_id;
  CHECK(first + second == 3);
  CHECK(same(device, kFrom, device, kTo, 300));
}

TEST_CASE("inline data may be changed after the post, and needs no region", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  std::array<char, 64> text{"not yet changed"};
  ibv_sge part{reinterpret_cast<std::uintptr_t>(text.data()), text.size(), 0};
  ibv_send_wr request = ends.first.request(1, IBV_WR_SEND, part);
  request.send_flags = IBV_SEND_INLINE;
  REQUIRE(ends.second.receive(2, kTo, 64) == 0);
  REQUIRE(ends.first.post(request) == 0);
  text = {"changed"};
  other.expect(2);
  CHECK(std::strcmp(reinterpret_cast<const char*>(other.memory.data() + kTo), "not yet changed") == 0);
  one.expect(1);
}

TEST_CASE("a write or a read of no bytes names no memory", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  std::uint64_t id = 0;
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    ibv_sge nothing{};
    ibv_send_wr request = ends.first.request(++id, opcode, nothing);
    request.num_sge = 0;
    request.wr.rdma.remote_addr = 0xdead;
    request.wr.rdma.rkey = 0xbad;
    REQUIRE(ends.first.post(request) == 0);
    one.expect(id);
  }
}

TEST_CASE("requests without a signal complete only if they fail", "[ibverbs]") {
  Device one;
  Device other;
  Shape quiet;
  quiet.all_signalled = 0;
  Connected ends(one, other, quiet);
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(ends.second.receive(i, kTo, 10) == 0);
  REQUIRE(ends.first.send(1, kFrom, 10) == 0);
  REQUIRE(ends.first.send(2, kFrom, 10) == 0);
  REQUIRE(ends.first.send(3, kFrom, 10, IBV_SEND_SIGNALED) == 0);
  one.expect(3);
  one.expect_nothing();
}

TEST_CASE("an unreliable connection carries sends and writes, and refuses reads", "[ibverbs]") {
  Device one;
  Device other;
  Shape shape;
  shape.type = IBV_QPT_UC;
  Connected ends(one, other, shape);
  fill(one, kFrom, 20000, 5);
  REQUIRE(ends.second.receive(1, kTo, 20000) == 0);
  REQUIRE(ends.first.send(2, kFrom, 20000) == 0);
  other.expect(1);
  one.expect(2);
  CHECK(same(one, kFrom, other, kTo, 20000));
  ibv_sge part = one.part(kFrom, 8);
  ibv_send_wr read = ends.first.request(3, IBV_WR_RDMA_READ, part);
  read.wr.rdma.remote_addr = other.address(kTo);
  read.wr.rdma.rkey = other.mr->rkey;
  CHECK(ends.first.post(read) == EINVAL);
}

TEST_CASE("datagrams name their sender, by header, work completion and address handle", "[ibverbs]") {
  Device one;
  Device other;
  DatagramEnds ends(one, other);
  Queue& first = ends.first;
  Queue& second = ends.second;
  CHECK(ibv_dealloc_pd(one.pd) == EBUSY);
  fill(one, kFrom, 100, 1);
  REQUIRE(second.receive(1, kTo, 200) == 0);
  ibv_sge part = one.part(kFrom, 100);
  ibv_send_wr request = first.request(2, IBV_WR_SEND_WITH_IMM, part);
  request.imm_data = htonl(5);
  request.wr.ud.ah = ends.handle;
  request.wr.ud.remote_qpn = second.qp->qp_num;
  request.wr.ud.remote_qkey = kQueueKey;
  REQUIRE(first.post(request) == 0);
  const ibv_wc got = other.expect(1);
  one.expect(2);
  CHECK(got.byte_len == 140);
  CHECK(got.src_qp == first.qp->qp_num);
  CHECK(got.slid == one.lid());
  CHECK((got.wc_flags & (IBV_WC_GRH | IBV_WC_WITH_IMM)) == (IBV_WC_GRH | IBV_WC_WITH_IMM));
  CHECK(ntohl(got.imm_data) == 5);
  CHECK(same(one, kFrom, other, kTo + 40, 100));

  // Back, to where the header says that it came from.
  ibv_wc from = got;
  auto* route = reinterpret_cast<ibv_grh*>(other.memory.data() + kTo);
  ibv_gid own{};
  REQUIRE(ibv_query_gid(one.context, 1, 0, &own) == 0);
  CHECK(std::memcmp(&route->sgid, &own, sizeof own) == 0);
  ibv_ah* back = ibv_create_ah_from_wc(other.pd, &from, route, 1);
  REQUIRE(back != nullptr);
  REQUIRE(first.receive(3, kTo, 200) == 0);
  part = other.part(kTo + 40, 100);
  request = second.request(4, IBV_WR_SEND, part);
  request.wr.ud.ah = back;
  request.wr.ud.remote_qpn = got.src_qp;
  request.wr.ud.remote_qkey = kQueueKey;
  REQUIRE(second.post(request) == 0);
  one.expect(3);
  CHECK(same(one, kFrom, one, kTo + 40, 100));
  other.expect(4);
  CHECK(ibv_destroy_ah(back) == 0);
}

TEST_CASE("a datagram has at most as many bytes as the port's MTU", "[ibverbs]") {
  constexpr std::size_t kMtu = 4096;
  Device one;
  Device other;
  Shape extended;
  extended.extended = true;
  DatagramEnds ends(one, other, extended);
  Queue& first = ends.first;
  Queue& second = ends.second;
  const auto post = [&](std::uint64_t id, std::vector<ibv_sge> parts) {
    ibv_send_wr request = first.request(id, IBV_WR_SEND, parts[0]);
    request.num_sge = static_cast<int>(parts.size());
    request.wr.ud.ah = ends.handle;
    request.wr.ud.remote_qpn = second.qp->qp_num;
    request.wr.ud.remote_qkey = kQueueKey;
    return first.post(request);
  };
  const auto post_extended = [&](std::size_t bytes) {
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(first.qp);
    ibv_wr_start(qp);
    ibv_wr_send(qp);
    ibv_wr_set_ud_addr(qp, ends.handle, second.qp->qp_num, kQueueKey);
    ibv_wr_set_sge(qp, one.mr->lkey, one.address(kFrom), static_cast<std::uint32_t>(bytes));
    return ibv_wr_complete(qp);
  };
  fill(one, kFrom, kMtu, 1);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    CAPTURE(id);
    REQUIRE(second.receive(id, kTo, kMtu + 100) == 0);
    switch (id) {
      case 1:
        REQUIRE(post(10, {one.part(kFrom, kMtu)}) == 0);
        break;
      case 2:
        REQUIRE(post(10, {one.part(kFrom, 96), one.part(kFrom + 96, kMtu - 96)}) == 0);
        break;
      default:
        REQUIRE(post_extended(kMtu) == 0);
    }
    static_cast<void>(one.next());
    CHECK(other.expect(id).byte_len == kMtu + 40);
    CHECK(same(one, kFrom, other, kTo + 40, kMtu));
    CHECK(post(11, {one.part(kFrom, kMtu + 1)}) == EINVAL);
    CHECK(post(11, {one.part(kFrom, 97), one.part(kFrom + 97, kMtu - 96)}) == EINVAL);
    CHECK(post_extended(kMtu + 1) == EINVAL);
  }
  one.expect_nothing();
}

TEST_CASE("a send queue that drains says so, finishes what has begun, reports it, and goes on", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  const auto draining = [&ends] {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr about{};
    REQUIRE(ibv_query_qp(ends.first.qp, &attributes, IBV_QP_STATE, &about) == 0);
    return attributes.sq_draining != 0;
  };
  REQUIRE(ends.second.receive(1, kTo, 8) == 0);
  REQUIRE(ends.first.send(1, kFrom, 8) == 0);
  one.expect(1);  // the path is up, so the next request begins at once
  other.expect(1);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  REQUIRE(ends.first.send(1, kFrom, 8) == 0);  // waits for a receive
  CHECK_FALSE(draining());
  REQUIRE(ibv_modify_qp(ends.first.qp, &attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
  CHECK(ends.first.state() == IBV_QPS_SQD);
  CHECK(draining());
  REQUIRE(ends.first.send(2, kFrom, 8) == 0);
  REQUIRE(ends.second.receive(3, kTo, 8) == 0);
  REQUIRE(ends.second.receive(4, kTo, 8) == 0);
  one.expect(1);
  other.expect(3);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(one.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_SQ_DRAINED);
  CHECK(event.element.qp == ends.first.qp);
  ibv_ack_async_event(&event);
  CHECK_FALSE(draining());
  CHECK(ends.first.state() == IBV_QPS_SQD);
  one.expect_nothing();
  attributes.qp_state = IBV_QPS_RTS;
  REQUIRE(ibv_modify_qp(ends.first.qp, &attributes, IBV_QP_STATE) == 0);
  one.expect(2);
  other.expect(4);
}

TEST_CASE("extended posting sends several requests at once, extended polling reads their fields", "[ibverbs]") {
  Device one;
  Device other;
  Shape shape;
  shape.extended = true;
  Connected ends(one, other, shape);
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 16;
  wanted.wc_flags = IBV_WC_STANDARD_FLAGS;
  fill(one, kFrom, 100, 50);
  REQUIRE(ends.second.receive(1, kTo, 64) == 0);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(ends.first.qp);
  REQUIRE(qp != nullptr);
  std::array<char, 32> text{"inline"};
  ibv_wr_start(qp);
  qp->wr_id = 2;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, other.mr->rkey, other.address(kTo + 1000));
  ibv_wr_set_sge(qp, one.mr->lkey, one.address(kFrom), 100);
  qp->wr_id = 3;
  ibv_wr_send(qp);
  ibv_wr_set_inline_data(qp, text.data(), text.size());
  text = {"later"};
  REQUIRE(ibv_wr_complete(qp) == 0);
  other.expect(1);
  one.expect(2);
  one.expect(3);
  CHECK(same(one, kFrom, other, kTo + 1000, 100));
  CHECK(std::strcmp(reinterpret_cast<const char*>(other.memory.data() + kTo), "inline") == 0);

  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_abort(qp);
  one.expect_nothing();

  ibv_cq_ex* queue = ibv_create_cq_ex(one.context, &wanted);
  REQUIRE(queue != nullptr);
  ibv_poll_cq_attr none{};
  CHECK(ibv_start_poll(queue, &none) == ENOENT);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) == 0);
  wanted.wc_flags = IBV_WC_EX_WITH_TM_INFO;
  CHECK(ibv_create_cq_ex(one.context, &wanted) == nullptr);
  CHECK(errno == EOPNOTSUPP);
}

TEST_CASE("threads that build lists for one queue pair, or poll an extended queue, take turns", "[ibverbs]") {
  Device one;
  Device other;
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 1000;
  ibv_cq_ex* queue = ibv_create_cq_ex(one.context, &wanted);
  REQUIRE(queue != nullptr);
  ibv_cq* const plain = std::exchange(one.cq, ibv_cq_ex_to_cq(queue));
  {
    Shape shape;
    shape.extended = true;
    shape.all_signalled = true;
    Connected ends(one, other, shape);
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(ends.first.qp);
    const auto add = [&](std::uint64_t id) {
      qp->wr_id = id;
      ibv_wr_rdma_write(qp, other.mr->rkey, other.address());
      ibv_wr_set_sge(qp, one.mr->lkey, one.address(), 8);
    };
    ibv_poll_cq_attr none{};
    const auto start_poll = [&] { wait_until([&] { return ibv_start_poll(queue, &none) == 0; }); };
    // So often that the locks are biased to this thread, and not at all.
    for (int rounds = GENERATE(0, 300); rounds != 0; --rounds) {
      ibv_wr_start(qp);
      add(9);
      REQUIRE(ibv_wr_complete(qp) == 0);
      start_poll();
      ibv_end_poll(queue);
    }
    std::atomic<pid_t> thread{0};
    int posted = -1;
    ibv_wr_start(qp);
    add(1);
    std::thread builder([&] {
      thread = ::gettid();
      ibv_wr_start(qp);
      add(3);
      add(4);
      posted = ibv_wr_complete(qp);
    });
    wait_until([&] { return sleeps(thread); });
    add(2);
    REQUIRE(ibv_wr_complete(qp) == 0);
    builder.join();
    REQUIRE(posted == 0);

    start_poll();
    std::vector<std::uint64_t> by_another;
    thread = 0;
    std::thread poller([&] {
      thread = ::gettid();
      const auto limit = std::chrono::steady_clock::now() + kLimit;
      while (by_another.size() < 2 && std::chrono::steady_clock::now() < limit) {
        if (ibv_start_poll(queue, &none) != 0) continue;
        by_another.push_back(queue->wr_id);
        ibv_end_poll(queue);
      }
    });
    wait_until([&] { return sleeps(thread); });
    CHECK(queue->wr_id == 1);
    wait_until([&] { return ibv_next_poll(queue) == 0; });
    CHECK(queue->wr_id == 2);
    ibv_end_poll(queue);
    poller.join();
    CHECK(by_another == std::vector<std::uint64_t>{3, 4});
  }
  one.cq = plain;
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) == 0);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::transfers_test
